"""Stores through a mapping that the local disk did not take: no commit is silent about them."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.errors import NoSpaceError
from tests.mount.daemons import Mount, Place

pytestmark = [
    pytest.mark.mount,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk"),
]

DISK_BYTES = 160 << 20
FILE_BYTES = 32 << 20
ROOM_BYTES = 12 << 20


class SmallDisk:
    """A file system of its own for the working copies of a place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "none", path], check=True)

    def fill(self) -> None:
        """Takes all of its room but ROOM_BYTES."""
        found = os.statvfs(self.path)
        with (self.path / "others").open("wb") as others:
            os.posix_fallocate(others.fileno(), 0, found.f_bavail * found.f_frsize - ROOM_BYTES)

    def empty(self) -> None:
        (self.path / "others").unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", self.path], check=True)


@pytest.fixture
def disk(place: Place) -> Iterator[SmallDisk]:
    disk = SmallDisk(place.root / "disk")
    yield disk
    disk.close()


@pytest.fixture(params=[True, False], ids=["lane", "pyfuse3"])
def mapped(place: Place, disk: SmallDisk, request: pytest.FixtureRequest) -> Iterator[tuple[Mount, mmap.mmap]]:
    """A committed file of A, mapped, over which B was stored with too little room on the disk to
    take it."""
    mount = place.mount("v", working_copy=str(disk.path / "working"), fast_lane=request.param)
    path = mount.path / "f"
    path.write_bytes(b"A" * FILE_BYTES)
    mount.commit()
    mount.unmount()
    mount = place.mount("v", working_copy=str(disk.path / "working"), fast_lane=request.param)
    fd = os.open(path_of(mount), os.O_RDWR)
    with mmap.mmap(fd, FILE_BYTES) as mapping:
        disk.fill()
        mapping[:] = b"B" * FILE_BYTES
        yield mount, mapping
    with contextlib.suppress(OSError):  # the mount may be gone
        os.close(fd)


def path_of(mount: Mount) -> Path:
    return mount.path / "f"


def refused(mount: Mount) -> None:
    with pytest.raises(NoSpaceError, match=r"(?m)stored through mappings are lost.*: f$"):
        mount.commit()


def test_no_commit_is_silent_until_the_bytes_are_written_again(
    mapped: tuple[Mount, mmap.mmap], disk: SmallDisk, place: Place
) -> None:
    mount, mapping = mapped
    refused(mount)
    disk.empty()
    refused(mount)
    (mount.path / "other").write_bytes(b"does not help")
    refused(mount)
    mapping[:] = b"C" * FILE_BYTES
    version = mount.commit()
    reader = place.mount("v", version=version)
    assert (reader.path / "f").read_bytes() == b"C" * FILE_BYTES


def test_stores_that_the_kernel_wrote_back_by_itself_count_too(
    mapped: tuple[Mount, mmap.mmap], disk: SmallDisk
) -> None:
    mount, mapping = mapped
    with pytest.raises(OSError, match="No space"):
        mapping.flush()
    disk.empty()
    refused(mount)
    os.truncate(path_of(mount), 0)
    mount.commit()


def test_a_file_that_is_gone_lacks_nothing(mapped: tuple[Mount, mmap.mmap], disk: SmallDisk) -> None:
    mount, _ = mapped
    refused(mount)
    disk.empty()
    path_of(mount).unlink()
    mount.commit()


def test_mounting_anew_accepts_what_there_is(mapped: tuple[Mount, mmap.mmap], disk: SmallDisk, place: Place) -> None:
    mount, mapping = mapped
    refused(mount)
    disk.empty()
    mapping.close()
    mount.call("unmount", force=True)
    again = place.mount("v", working_copy=mount.spec.working_copy)
    assert set(path_of(again).read_bytes()) <= {*b"AB"}
    again.commit()
