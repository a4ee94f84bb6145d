"""What an upload of a copy's folder knows of its files from before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cowfs.machine import births, stamps
from cowfs.machine.stamps import Stamps
from cowfs.session.copy_stamps import CopyStamps
from cowfs.session.local_files import LocalAttr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("x")
    if births.birth_ns(os.fsencode(path), path.stat().st_ino) is None:
        pytest.skip("the file system here does not keep when a file was made")
    return path


def path_before(file: Path, known: Stamps, *, device: int | None = None) -> bytes | None:
    attr = LocalAttr.of(file.lstat())
    if device is not None:
        attr = LocalAttr(device << 64 | file.stat().st_ino, *(getattr(attr, each) for each in LocalAttr.__slots__[1:]))
    return CopyStamps(os.fsencode(file.parent), known).path_before(b"file", attr)


def test_a_renamed_file_is_found_by_its_number(file: Path) -> None:
    stamp = stamps.of(file.lstat())
    assert path_before(file, {b"old": stamp}) == b"old"
    file.write_text("y")  # it may have been written to
    os.utime(file, ns=(0, stamp.mtime_ns))
    assert path_before(file, {b"old": stamp, b"older": stamp}) in (b"old", b"older")
    assert path_before(file, {b"old": stamp, b"file": stamp}) is None, "it has its name"
    assert path_before(file, {b"old": stamp, b"file": stamp._replace(ino=stamp.ino + 1)}) == b"old"


def test_what_may_be_another_file_is_not_found(file: Path) -> None:
    stamp = stamps.of(file.lstat())
    made_ns = births.birth_ns(os.fsencode(file), stamp.ino)
    assert made_ns is not None
    assert path_before(file, {b"old": stamp._replace(ctime_ns=made_ns - 1)}) is None, "it got a freed number"
    assert path_before(file, {b"old": stamp._replace(ino=stamp.ino + 1)}) is None
    assert path_before(file, {b"old": stamp._replace(mtime_ns=stamp.mtime_ns + 1)}) is None
    assert path_before(file, {b"old": stamp, b"other": stamp._replace(size=9)}) is None, (
        "one of them has another device"
    )
    assert path_before(file, {b"old": stamp}, device=file.stat().st_dev + 1) is None


def test_where_no_file_system_says_when_a_file_was_made_none_is_found(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(births, "birth_ns", lambda path, ino: None)
    assert path_before(file, {b"old": stamps.of(file.lstat())}) is None
