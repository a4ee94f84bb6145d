"""Large files of copies are cloned from the cache where the file system can: here by a stand-in
that copies, since the tests' disk cannot. What a clone has is believed chunk by chunk, and what is
done to a copy stays in the copy."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from cowfs.blocking import RWVolume, Volume
from cowfs.store.packs import PackReader
from cowfs.transfer import cloned_files
from cowfs.transfer.cloned_files import ClonedFiles
from tests.api.conftest import place

__all__ = ["place"]

LARGE = random.Random(1).randbytes(10_000_000)
OTHER = random.Random(2).randbytes(9_000_000)


@pytest.fixture
def volume(place: Path) -> RWVolume:
    volume: RWVolume = Volume.new("data")
    source = place / "source"
    source.mkdir()
    (source / "large").write_bytes(LARGE)
    (source / "other").write_bytes(OTHER)
    (source / "small").write_bytes(b"small")
    volume.files.upload(source)
    return volume


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stored bytes of the chunks that are asked for."""
    found: list[int] = []
    really_read = PackReader.read_each

    def counted(self: PackReader, pack: Any, requests: Any) -> Any:
        found.extend(each.stored_length for each in requests)
        return really_read(self, pack, requests)

    monkeypatch.setattr(PackReader, "read_each", counted)
    return found


@pytest.fixture
def clones(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(source: int, target: int) -> None:
        os.pwrite(target, os.pread(source, os.fstat(source).st_size, 0), 0)

    monkeypatch.setattr(cloned_files, "clone", copied)


def whole(place: Path) -> list[Path]:
    return sorted((place / "c" / "cache" / "whole").glob("*/*"))


@pytest.mark.usefixtures("clones")
def test_a_second_copy_fetches_no_large_file(volume: RWVolume, place: Path, fetched: list[int]) -> None:
    root = volume.mount(place / "mnt" / "rw", mode="copy")
    assert sum(fetched) >= len(LARGE) + len(OTHER)
    assert len(whole(place)) == 2
    with (root / "large").open("r+b") as file:
        file.write(b"changed")
    changed = volume.finalize()
    fetched.clear()
    first = Volume.version("data@{1}")
    root = first.mount(place / "mnt" / "first", mode="copy")
    assert ((root / "large").read_bytes(), (root / "other").read_bytes()) == (LARGE, OTHER)
    assert (root / "small").read_bytes() == b"small"
    assert sum(fetched) < 100, "the small one alone"
    assert not os.stat(root / "large").st_mode & 0o222
    first.unmount()
    fetched.clear()
    root = changed.mount(place / "mnt" / "changed", mode="copy")
    assert (root / "large").read_bytes() == b"changed" + LARGE[7:]
    assert len(LARGE) <= sum(fetched) < len(LARGE) + 100, "it is another file"
    changed.unmount()


@pytest.mark.usefixtures("clones")
def test_a_damaged_clone_is_mended(volume: RWVolume, place: Path, fetched: list[int]) -> None:
    version = Volume.version("data")
    version.mount(place / "mnt" / "one", mode="copy")
    version.unmount()
    for path in whole(place):
        with path.open("r+b") as file:
            file.seek(5_000_000)
            file.write(b"damage")
    os.truncate(whole(place)[0], 6_000_000)
    fetched.clear()
    root = version.mount(place / "mnt" / "two", mode="copy")
    assert ((root / "large").read_bytes(), (root / "other").read_bytes()) == (LARGE, OTHER)
    assert 0 < sum(fetched) < 9_000_000
    version.unmount()


def test_where_nothing_can_be_cloned_it_is_not_tried_again(
    volume: RWVolume, place: Path, fetched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[int]()

    def refused(source: int, target: int) -> None:
        tried.append(target)
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(cloned_files, "clone", refused)
    version = Volume.version("data")
    for _ in range(2):
        fetched.clear()
        root = version.mount(place / "mnt" / "one", mode="copy")
        assert (root / "large").read_bytes() == LARGE
        assert sum(fetched) >= len(LARGE) + len(OTHER)
        version.unmount()
    assert len(tried) <= 2 * 2, "once a copy, but for threads that are under way"
    assert whole(place) == []


@pytest.mark.usefixtures("clones")
def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    kept = ClonedFiles(tmp_path, 2500)
    names = [f"{number:064x}" for number in range(4)]
    with (tmp_path / "file").open("w+b") as file:
        file.write(bytes(1000))
        file.flush()
        for number, name in enumerate(names):
            kept.keep(name, file.fileno())
            os.utime(tmp_path / "whole" / "00" / name, ns=(number, number))
    with (tmp_path / "copy").open("wb") as file:
        assert kept.fill(names[0], file.fileno())
    kept.trim()
    assert sorted(path.name for path in (tmp_path / "whole" / "00").iterdir()) == [names[0], names[3]]
