"""What an upload of a copy's folder knows of its files from before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cowfs.machine.folders import stamps
from cowfs.machine.folders.stamps import Stamps
from cowfs.transfer.local_files import LocalAttr
from cowfs.transfer.upload.folder_stamps import CopyStamps


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("x")
    return path


def path_before(file: Path, known: Stamps, *, device: int | None = None) -> bytes | None:
    attr = LocalAttr.of(file.lstat())
    if device is not None:
        attr = LocalAttr(device << 64 | file.stat().st_ino, *(getattr(attr, each) for each in LocalAttr.__slots__[1:]))
    return CopyStamps(file.parent.stat().st_dev, known).path_before(b"file", attr)


def test_a_renamed_file_is_found_by_its_number(file: Path) -> None:
    stamp = stamps.of_stat(file.lstat())
    assert path_before(file, {b"old": stamp}) == b"old"
    file.write_text("y")  # it may have been written to
    os.utime(file, ns=(0, stamp.mtime_ns))
    assert path_before(file, {b"old": stamp, b"older": stamp}) in (b"old", b"older")
    assert path_before(file, {b"old": stamp, b"file": stamp}) is None, "it has its name"
    assert path_before(file, {b"old": stamp, b"file": stamp._replace(ino=stamp.ino + 1)}) == b"old"


def test_what_may_be_another_file_is_not_found(file: Path) -> None:
    stamp = stamps.of_stat(file.lstat())
    assert path_before(file, {b"old": stamp._replace(ino=stamp.ino + 1)}) is None
    assert path_before(file, {b"old": stamp._replace(mtime_ns=stamp.mtime_ns + 1)}) is None
    assert path_before(file, {b"old": stamp, b"other": stamp._replace(size=9)}) is None, (
        "one of them has another device"
    )
    assert path_before(file, {b"old": stamp}, device=file.stat().st_dev + 1) is None
