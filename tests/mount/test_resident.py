"""Resident mounts: the whole namespace is in memory before the mount is ready, and nothing asks the
store for it afterwards.

The store is taken away after the mount, and every cache is empty: whatever still asks it gets EIO.
"""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import pytest

from cowfs.errors import CowfsError
from tests.mount.daemons import Mount, Place

pytestmark = pytest.mark.mount


def file_name(outer: int, inner: int) -> str:
    """Long and without a pattern, so that the index is more than one request brings."""
    return random.Random(outer * 1000 + inner).randbytes(120).hex()


def fill(path: Path) -> None:
    for outer in range(12):
        directory = path / f"d{outer}" / "deep" / "deeper"
        directory.mkdir(parents=True)
        for inner in range(200):
            (directory / file_name(outer, inner)).write_bytes(b"x" * (inner % 3 * 700))
        os.symlink("deep/deeper", path / f"d{outer}" / "link")
    os.link(path / "d0" / "deep" / "deeper" / file_name(0, 1), path / "hard")
    with (path / "sparse").open("wb") as file:
        file.seek(1 << 30)
        file.write(b"end")


def seen(path: Path) -> dict[str, object]:
    """Names, attributes and targets of everything, by path; contents are not read."""
    found: dict[str, object] = {}

    def fail(error: OSError) -> None:
        raise error

    for directory, names, files in os.walk(path, onerror=fail):
        for name in [*names, *files]:
            place = os.path.join(directory, name)
            about = os.lstat(place)
            target = os.readlink(place) if stat.S_ISLNK(about.st_mode) else ""
            found[os.path.relpath(place, path)] = (
                about.st_ino, about.st_mode, about.st_nlink, about.st_size, about.st_blocks, about.st_mtime_ns, target
            )  # fmt: skip
        assert os.listxattr(directory) == []
    return found


def take_store_away(place: Place) -> None:
    (place.root / "store").rename(place.root / "away")


def bring_store_back(place: Place) -> None:
    (place.root / "away").rename(place.root / "store")


def test_nothing_is_asked_of_the_store_after_the_mount(place: Place, mount: Mount) -> None:
    fill(mount.path)
    expected = seen(mount.path)
    version = mount.unmount(commit=True)["version"]
    reader = place.mount("v", version=version, resident=True, cache_dir=str(place.root / "c" / "empty"))
    assert reader.call("status")["inodes_in_memory"] == len(expected) - 1 + 1, "a hard link more, the root less"
    take_store_away(place)
    try:
        assert seen(reader.path) == expected
        for name in ("absent", "d3/absent", "d3/deep/deeper/absent"):
            assert not (reader.path / name).exists()
        with pytest.raises(OSError, match="Input/output error"):
            (reader.path / "d1" / "deep" / "deeper" / file_name(1, 2)).read_bytes()  # contents are not resident
    finally:
        bring_store_back(place)


def test_without_it_the_store_is_asked(place: Place, mount: Mount) -> None:
    """The proof that the store is away in the test above."""
    fill(mount.path)
    version = mount.unmount(commit=True)["version"]
    reader = place.mount("v", version=version, cache_dir=str(place.root / "c" / "empty"))
    assert reader.call("status")["inodes_in_memory"] == 1
    take_store_away(place)
    try:
        with pytest.raises(OSError, match="Input/output error"):
            seen(reader.path)
    finally:
        bring_store_back(place)


def test_what_a_journal_has_moved_and_removed(place: Place, mount: Mount) -> None:
    fill(mount.path)
    mount.commit()
    os.rename(mount.path / "d1" / "deep", mount.path / "d2" / "moved")
    for inner in range(200):
        (mount.path / "d3" / "deep" / "deeper" / file_name(3, inner)).unlink()
    (mount.path / "d3" / "deep" / "deeper").rmdir()
    (mount.path / "d4" / "new").mkdir()
    (mount.path / "hard").unlink()
    expected = seen(mount.path)
    mount.kill()
    again = place.mount("v", resident=True, cache_dir=str(place.root / "c" / "empty"))
    take_store_away(place)
    try:
        assert seen(again.path) == expected
    finally:
        bring_store_back(place)
    version = again.commit()
    assert seen(place.mount("v", version=version).path) == expected


def test_a_store_that_fails_while_it_is_loaded_fails_the_mount(place: Place, mount: Mount) -> None:
    fill(mount.path)
    version = mount.unmount(commit=True)["version"]
    packs = [path for path in (place.root / "store" / "packs").rglob("*") if path.is_file()]
    largest = max(packs, key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.chmod(0o600)
    largest.write_bytes(data)
    with pytest.raises(CowfsError):
        place.mount("v", version=version, resident=True, cache_dir=str(place.root / "c" / "empty"))
