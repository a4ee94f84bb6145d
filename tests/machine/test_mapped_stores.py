"""Which file systems note what is stored through a mapping."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cowfs.machine import mapped_stores, stamps
from cowfs.machine.mapped_stores import Devices


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with TemporaryDirectory(dir="/dev/shm") as memory:
        yield Path(memory)


def overlay(above: Path) -> Path:
    for name in ("lower", "upper", "work", "merged"):
        (above / name).mkdir()
    options = ",".join(f"{name}dir={above / name}" for name in ("lower", "upper", "work"))
    subprocess.run(["mount", "-t", "overlay", "none", "-o", options, above / "merged"], check=True)
    return above / "merged"


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_tmpfs_notes_none(in_memory: Path, is_refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_refused:
        refuse_nameless(monkeypatch)
    assert not mapped_stores.are_noted(str(in_memory))


def refuse_nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a directory of another user, or on an overlay of an old kernel."""
    opened = os.open

    def refusing(path: str, flags: int, *arguments: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise PermissionError
        return opened(path, flags, *arguments)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
@pytest.mark.parametrize("is_refused", [False, True])
def test_an_overlay_is_as_what_it_writes_to(
    in_memory: Path, is_refused: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    merged = overlay(in_memory)
    try:
        if is_refused:
            refuse_nameless(monkeypatch)
        assert not mapped_stores.are_noted(str(merged))
        monkeypatch.setattr("tempfile.tempdir", str(merged))
        assert not mapped_stores.are_noted(str(merged))
        known = Devices(os.fsencode(in_memory.parent))
        assert not known.are_noted(os.stat(merged).st_dev, os.fsencode(merged.relative_to(in_memory.parent) / "file"))
    finally:
        monkeypatch.undo()
        subprocess.run(["umount", merged], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_where_an_overlay_of_a_disk_cannot_be_tried_another_place_of_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not mapped_stores.are_noted(str(tmp_path)):
        pytest.skip("temporary files are in memory here")
    merged = overlay(tmp_path)
    try:
        (merged / "folder").mkdir()
        assert mapped_stores.are_noted(str(merged / "folder"))
        refuse_nameless(monkeypatch)
        assert not mapped_stores.are_noted(str(merged / "folder"))
        monkeypatch.setattr("tempfile.tempdir", str(merged))
        assert mapped_stores.are_noted(str(merged / "folder"))
    finally:
        monkeypatch.undo()
        subprocess.run(["umount", merged], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_full_file_system_ends_nobody(tmp_path: Path) -> None:
    """A store to a page that it has no room for is a signal (SIGBUS)."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=True)
    try:
        with pytest.raises(OSError, match="space"):
            (tmp_path / "all").write_bytes(bytes(1 << 20))
        asks = "import sys; from cowfs.machine import mapped_stores; print(mapped_stores.are_noted(sys.argv[1]))"
        asked = subprocess.run([sys.executable, "-c", asks, tmp_path], capture_output=True, text=True, check=False)
        assert (asked.returncode, asked.stdout) == (0, "False\n")
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_what_a_full_file_system_answers_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not mapped_stores.are_noted(str(tmp_path)):
        pytest.skip("temporary files are in memory here")

    def refusing(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    known, device = Devices(os.fsencode(tmp_path)), tmp_path.stat().st_dev
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", refusing)
        assert not known.are_noted(device, b"file")
    assert known.are_noted(device, b"file")


def test_a_digest_is_of_content_and_skips_holes(in_memory: Path) -> None:
    path = in_memory / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"middle")
    before = stamps.digest(os.fsencode(path))
    assert len(before) == 32
    with path.open("r+b") as file:
        file.seek((1 << 39) + 5)
        file.write(b"E")
    assert stamps.digest(os.fsencode(path)) not in (before, b"")
    assert stamps.digest(os.fsencode(in_memory / "missing")) == b""
