"""Files of read-only mounts that the kernel reads from a local file by itself: the same bytes,
whichever way an open goes.

That a file really is passed through is shown by its local copy: a byte changed there in place is
what the mount gives.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.machine import processes
from tests.mount.daemons import WAIT_S, Mount, Place

pytestmark = [
    pytest.mark.mount,
    pytest.mark.skipif(
        not processes.has_capability(processes.CAP_SYS_ADMIN) or os.environ.get("COWFS_FAST_LANE") == "0",
        reason="passing through takes the capability SYS_ADMIN and the fast lane",
    ),
]
SIZE = 5 << 20
CONTENT = os.urandom(2 << 20) + bytes(1 << 20) + os.urandom(SIZE - (3 << 20))
SMALL = os.urandom(100_000)


@pytest.fixture
def reader(place: Place, mount: Mount) -> Mount:
    """A version with a large file that has a hole, and a small one; nothing is cached."""
    (mount.path / "large").write_bytes(CONTENT)
    (mount.path / "small").write_bytes(SMALL)
    version = mount.unmount(commit=True)["version"]
    return place.mount("v", version=version, cache_dir=str(place.root / "c" / "empty"))


def copies(mount: Mount) -> list[Path]:
    return [path for path in (mount.spec.options.cache_path / "whole").rglob("*") if path.is_file()]


def is_passed_through(mount: Mount, fd: int) -> bool:
    if not copies(mount):
        return False
    (copy,) = copies(mount)
    with copy.open("r+b") as file:
        file.seek(100)
        before = file.read(1)
        other = bytes([before[0] ^ 1])
        file.seek(100)
        file.write(other)
        file.flush()
        found = os.pread(fd, 1, 100)
        file.seek(100)
        file.write(before)
    return found == other


def wait_until_passed_through(mount: Mount, path: Path) -> None:
    """The kernel tells of a close some time after it, and until then a file is opened as before."""
    end_s = time.monotonic() + WAIT_S
    while True:
        with path.open("rb") as opened:
            if is_passed_through(mount, opened.fileno()):
                return
        assert time.monotonic() < end_s
        time.sleep(0.05)


def read_until_copied(mount: Mount) -> None:
    """As `wait_until_passed_through`, but the copy is left alone."""
    end_s = time.monotonic() + WAIT_S
    while not copies(mount):
        assert time.monotonic() < end_s
        assert (mount.path / "large").read_bytes() == CONTENT


def test_a_file_is_passed_through_once_it_is_here(reader: Mount) -> None:
    path = reader.path / "large"
    with path.open("rb") as first:
        assert first.read() == CONTENT
        with path.open("rb") as second:  # while the first one is open both are read the same way
            assert second.read() == CONTENT
            assert not is_passed_through(reader, second.fileno())
    wait_until_passed_through(reader, path)
    for _ in range(2):
        with path.open("rb") as first, path.open("rb") as second:
            assert is_passed_through(reader, first.fileno())
            assert is_passed_through(reader, second.fileno())
            assert first.read() == second.read() == CONTENT
            with mmap.mmap(first.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                assert mapped[:] == CONTENT
            assert os.fstat(first.fileno()).st_size == SIZE
            assert os.lseek(second.fileno(), 0, os.SEEK_HOLE) == 2 << 20
    (copy,) = copies(reader)
    assert copy.read_bytes() == CONTENT


def test_small_files_are_read_by_requests(reader: Mount) -> None:
    for _ in range(3):
        assert (reader.path / "small").read_bytes() == SMALL
    assert copies(reader) == []


def test_a_copy_outlives_its_mount_and_one_of_another_length_is_not_believed(place: Place, reader: Mount) -> None:
    read_until_copied(reader)
    version, cache_dir = reader.spec.version, reader.spec.options.cache_dir
    reader.unmount()
    again = place.mount("v", version=version, cache_dir=cache_dir)
    with (again.path / "large").open("rb") as file:
        assert is_passed_through(again, file.fileno())
    os.truncate(copies(again)[0], SIZE - 1)
    assert (again.path / "large").read_bytes() == CONTENT


@pytest.mark.parametrize("has_chunks", [True, False])
def test_a_copy_that_was_damaged_meanwhile_is_not_believed(place: Place, reader: Mount, has_chunks: bool) -> None:
    read_until_copied(reader)
    version, cache_dir = reader.spec.version, reader.spec.options.cache_dir
    reader.unmount()
    (damaged,) = copies(reader)
    with damaged.open("r+b") as file:
        file.seek(SIZE // 2)
        file.write(b"\xff" * 10)
    if not has_chunks:
        shutil.rmtree(reader.spec.options.cache_path / "segments", ignore_errors=True)
    again = place.mount("v", version=version, cache_dir=cache_dir)
    for _ in range(3):
        assert (again.path / "large").read_bytes() == CONTENT
    assert copies(again)[0].read_bytes() == CONTENT
    with (again.path / "large").open("rb") as opened:
        assert is_passed_through(again, opened.fileno())


def test_a_copy_whose_chunks_are_gone_is_read_without_the_store(place: Place, reader: Mount) -> None:
    read_until_copied(reader)
    version, cache_dir = reader.spec.version, reader.spec.options.cache_dir
    reader.unmount()
    shutil.rmtree(reader.spec.options.cache_path / "segments", ignore_errors=True)
    again = place.mount("v", version=version, cache_dir=cache_dir)
    with (again.path / "large").open("rb") as file:
        assert is_passed_through(again, file.fileno())
        assert file.read() == CONTENT


def test_opens_while_the_cache_fills(reader: Mount) -> None:
    path, wrong, passed = reader.path / "large", [], threading.Event()

    def read() -> None:
        for number in range(100):
            try:
                with path.open("rb") as file:
                    offset = (number * 700_001) % SIZE
                    if os.pread(file.fileno(), 50_000, offset) != CONTENT[offset : offset + 50_000]:
                        wrong.append("other bytes")
            except OSError as error:
                wrong.append(str(error))
            if copies(reader):
                passed.set()

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    with path.open("rb") as file:
        assert file.read() == CONTENT
    with path.open("rb") as file:
        assert is_passed_through(reader, file.fileno())


def test_the_cache_may_vanish_below_open_files(reader: Mount) -> None:
    path = reader.path / "large"
    assert path.read_bytes() == CONTENT
    with path.open("rb") as file:
        assert copies(reader)
        shutil.rmtree(reader.spec.options.cache_path)
        assert file.read() == CONTENT
        assert path.read_bytes() == CONTENT
    assert path.read_bytes() == CONTENT


def test_without_it_files_are_read_by_requests(place: Place, reader: Mount) -> None:
    reader.unmount()
    for environment in ({"COWFS_PASSTHROUGH": "0"}, {"COWFS_FAST_LANE": "0"}):
        spec = place.spec("v", reader.spec.version, fast_lane="COWFS_FAST_LANE" not in environment)
        other = place.start(spec, environment=environment)
        for _ in range(3):
            assert (other.path / "large").read_bytes() == CONTENT
        assert copies(other) == []
        other.unmount()


@pytest.fixture
def stacked(tmp_path: Path) -> Iterator[Path]:
    """A directory of a file system that lies on another one, as in a container."""
    parts = [tmp_path / name for name in ("lower", "upper", "work", "merged")]
    for part in parts:
        part.mkdir()
    options = "lowerdir={},upperdir={},workdir={}".format(*parts)
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(parts[-1])], check=True)
    try:
        yield parts[-1]
    finally:
        subprocess.run(["umount", str(parts[-1])], check=True)


def test_a_cache_the_kernel_may_not_read_from_serves_requests(place: Place, reader: Mount, stacked: Path) -> None:
    cache_dir = str(stacked / "cache")
    other = place.mount("v", version=reader.spec.version, cache_dir=cache_dir)
    for _ in range(3):
        with (other.path / "large").open("rb") as file:
            assert file.read() == CONTENT
            assert not is_passed_through(other, file.fileno())
    other.unmount()


def test_writable_mounts_never_pass_through(place: Place) -> None:
    writable = place.mount("v")
    (writable.path / "f").write_bytes(CONTENT)
    writable.commit()
    for _ in range(3):
        assert (writable.path / "f").read_bytes() == CONTENT
    assert copies(writable) == []
