"""When files were made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cowfs import clock
from cowfs.machine import births
from cowfs.machine.births import birth_ns

pytestmark = pytest.mark.quick


def birth(path: Path) -> int | None:
    return birth_ns(os.fsencode(path), path.lstat().st_ino)


def test_nothing_changes_when_a_file_was_made(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    made_ns = birth(path)
    if made_ns is None:
        pytest.skip("the file system here keeps no such time")
    said = subprocess.run(["stat", "-c", "%W", path], capture_output=True, text=True, check=True)
    assert made_ns // 1_000_000_000 == int(said.stdout)
    clock.sleep_s(0.02)
    path.write_text("y")
    os.utime(path, (0, 0))
    os.link(path, tmp_path / "link")
    path.rename(tmp_path / "renamed")
    assert birth(tmp_path / "renamed") == birth(tmp_path / "link") == made_ns
    path.symlink_to("renamed")
    later_ns = birth(path)
    assert later_ns is not None
    assert later_ns > made_ns


def test_another_file_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert birth_ns(os.fsencode(tmp_path / "file"), tmp_path.stat().st_ino) is None
    assert birth_ns(os.fsencode(tmp_path / "missing"), 1) is None


@pytest.mark.parametrize("keeps_birth", [True, False])
def test_a_file_is_known_whatever_is_done_to_it(
    tmp_path: Path, keeps_birth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not keeps_birth:
        monkeypatch.setattr(births, "birth_ns", lambda path, ino: None)

    def made(path: Path) -> str:
        return births.made(os.fsencode(path), path.lstat().st_ino)

    path = tmp_path / "directory"
    path.mkdir()
    first = made(path)
    (path / "file").write_text("x")
    path.rename(tmp_path / "renamed")
    assert made(tmp_path / "renamed") == first
    (tmp_path / "renamed" / "file").unlink()
    (tmp_path / "renamed").rmdir()
    clock.sleep_s(0.02)
    path.mkdir()
    assert made(path) != first or not first, "also with the same number"
    assert keeps_birth or not births.is_birth(first)
    assert births.made(os.fsencode(tmp_path / "missing"), 1) == ""
