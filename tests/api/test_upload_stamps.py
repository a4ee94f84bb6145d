"""An upload reads a file that looks as before, but whose inode number or time of change says that
it is another one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.base import config
from cowfs.blocking import Store, Volume
from cowfs.transfer.upload import upload_stamps
from cowfs.transfer.upload.upload_reading import FileReader
from tests.api.conftest import place

__all__ = ["place"]
TIME_S = 1_577_836_800


@pytest.fixture
def source(place: Path) -> Path:
    path = place / "src"
    path.mkdir()
    for name, text in (("x", "aaaa"), ("y", "1111"), ("z", "zzzz")):
        write(path / name, text)
    Store().upload(path, "data")
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (TIME_S, TIME_S))


def swap(path: Path) -> None:
    (path / "x").rename(path / "t")
    (path / "y").rename(path / "x")
    (path / "t").rename(path / "y")


def replace(path: Path) -> None:
    write(path / "new", "bbbb")
    (path / "new").rename(path / "x")


CHANGES: list[Callable[[Path], None]] = [swap, replace, lambda path: write(path / "x", "bbbb")]


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


def published() -> dict[str, bytes]:
    files = Volume.version("data").files
    return {each.name: files.read(each.path) for each in files.ls("/")}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_the_same_size_and_time_that_is_another_one_is_read(
    source: Path, change: Callable[[Path], None]
) -> None:
    for _ in range(2):
        change(source)
        report = Store().upload(source, "data")
        assert published() == contents(source)
        assert report.unchanged >= 1
        write(source / "x", "cccc")
        Store().upload(source, "data")
        assert published() == contents(source)


def test_what_has_not_changed_is_not_read(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise AssertionError("a file was read")

    monkeypatch.setattr(FileReader, "read", fails)
    monkeypatch.setattr(FileReader, "read_small", fails)
    assert Store().upload(source, "data").unchanged == 3
    with pytest.raises(AssertionError):
        Store().upload(source, "data", checksum=True)


@pytest.mark.parametrize("lost", ["missing", "damaged", "past the limit"])
def test_without_stamps_size_and_time_tell(source: Path, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    (record,) = (config.state_dir() / "uploads").iterdir()
    if lost == "missing":
        record.unlink()
    elif lost == "damaged":
        record.write_bytes(record.read_bytes()[:-1] + b"\0")
    else:
        monkeypatch.setattr(upload_stamps, "FILES_MAX", 0)
        Store().upload(source, "data")
    write(source / "x", "bbbb")
    assert not Store().upload(source, "data").is_new
    report = Store().upload(source, "data", checksum=True)
    assert (report.is_new, report.unchanged) == (True, 2)
    assert published() == contents(source)


def test_an_upload_that_publishes_nothing_notes_nothing_of_another_version(source: Path, place: Path) -> None:
    """Another place, another volume, a source of the same names: each has stamps of its own."""
    other = place / "other"
    other.mkdir()
    for name in ("x", "y", "z"):
        write(other / name, "2222")
    Store().upload(other, "data-2")
    Store().upload(source, "data:sub")
    assert not Store().upload(source, "data").is_new
    assert len([*(config.state_dir() / "uploads").iterdir()]) == 3


def test_only_so_many_records_are_kept(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_stamps, "RECORDS_MAX", 2)
    for number in range(3):
        Store().upload(source, f"data-{number}")
    assert len([*(config.state_dir() / "uploads").iterdir()]) == 2


@pytest.mark.mount
def test_checksum_counts_also_into_a_mount(source: Path) -> None:
    with Volume.open("data") as volume:
        write(source / "x", "bbbb")
        assert Store().upload(source, "data").unchanged == 3
        Store().upload(source, "data", checksum=True)
        assert (volume.path / "x").read_text() == "bbbb"


def test_a_time_past_what_a_version_keeps_has_a_stamp(source: Path) -> None:
    """Year 2400; ext4 and tmpfs keep it."""
    (source / "x").write_bytes(os.urandom(300_000))
    os.utime(source / "x", (13_569_465_600, 13_569_465_600))
    assert Store().upload(source, "data").is_new
    assert not Store().upload(source, "data").is_new
