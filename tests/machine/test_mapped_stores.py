"""Which file systems note what is stored through a mapping."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cowfs.base.beneath import Root
from cowfs.machine.folders import mapped_stores
from cowfs.transfer.local_files import LocalFiles


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with TemporaryDirectory(dir="/dev/shm") as memory:
        yield Path(memory)


def are_noted(directory: Path) -> bool:
    with Root.open(directory) as root:
        return mapped_stores.are_noted(root.fileno())


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
    assert not are_noted(in_memory)


def refuse_nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a directory of another user, or on an overlay of an old kernel."""
    opened = os.open

    def refusing(path: str, flags: int, *arguments: int, **named: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise PermissionError
        return opened(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_an_overlay_is_as_what_it_writes_to(in_memory: Path, tmp_path: Path) -> None:
    for above in (in_memory, tmp_path):
        merged = overlay(above)
        try:
            assert are_noted(merged) == are_noted(above)
        finally:
            subprocess.run(["umount", merged], check=True)


@pytest.mark.parametrize("name", ["source", "source/sub"])
def test_an_upload_reads_what_lies_in_memory(in_memory: Path, name: str) -> None:
    (in_memory / name).mkdir(parents=True)
    (in_memory / name / "file").write_text("x")
    with LocalFiles(os.fsencode(in_memory)) as files:
        path = os.fsencode(f"{name}/file")
        assert not files.times_tell(path, files.stat(path).ino)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_full_file_system_ends_nobody(tmp_path: Path) -> None:
    """A store to a page that it has no room for is a signal (SIGBUS)."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=True)
    try:
        with pytest.raises(OSError, match="space"):
            (tmp_path / "all").write_bytes(bytes(1 << 20))
        asks = (
            "import os, sys; from cowfs.machine.folders import mapped_stores; "
            "print(mapped_stores.are_noted(os.open(sys.argv[1], 0)))"
        )
        asked = subprocess.run([sys.executable, "-c", asks, tmp_path], capture_output=True, text=True, check=False)
        assert (asked.returncode, asked.stdout) == (0, "False\n")
    finally:
        subprocess.run(["umount", tmp_path], check=True)
