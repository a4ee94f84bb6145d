"""A store that does not answer holds up who needs it, and nobody else; and it keeps nobody from
unmounting.

The store is made to hang by a FUSE mount on a pack that nobody serves.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.daemons import WAIT_S, Mount, Place

pytestmark = pytest.mark.mount

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
READ = "import sys; data = open(sys.argv[1], 'rb').read(); print(len(data))"


class Hanging:
    """A pack that no open and no stat of it returns from, as on a network file system whose server
    is gone: a FUSE mount on the file that nobody serves. `release` lets the calls go on."""

    def __init__(self, pack: Path) -> None:
        self.pack = pack
        self.is_hanging = True
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._device},rootmode=100600,user_id=0,group_id=0"
        _checked(LIBC.mount(b"hanging", os.fsencode(pack), b"fuse", 0, options.encode()))

    def release(self) -> None:
        """Calls that wait get an error; later ones find the pack."""
        if self.is_hanging:
            os.close(self._device)
            _checked(LIBC.umount2(os.fsencode(self.pack), MNT_DETACH))
            self.is_hanging = False


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.fixture
def reader(place: Place, mount: Mount) -> Mount:
    """A version with a large file that is not cached, and small ones that are resident."""
    (mount.path / "large").write_bytes(os.urandom(4 << 20))
    (mount.path / "small").write_text("resident")
    version = mount.unmount(commit=True)["version"]
    reader = place.mount("v", version=version, cache_dir=str(place.root / "c" / "empty"))
    assert sorted(os.listdir(reader.path)) == ["large", "small"]
    return reader


@pytest.fixture
def hanging(place: Place, reader: Mount) -> Iterator[Hanging]:
    packs = [path for path in (place.root / "store" / "packs").rglob("*") if path.is_file()]
    hanging = Hanging(max(packs, key=lambda path: path.stat().st_size))
    yield hanging
    hanging.release()


def start_readers(mount: Mount, count: int) -> list[subprocess.Popen[str]]:
    command = [sys.executable, "-c", READ, str(mount.path / "large")]
    return [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)]


def end(readers: list[subprocess.Popen[str]]) -> list[str]:
    said = [reader.communicate(timeout=WAIT_S) for reader in readers]
    return [output or error for output, error in said]


def test_reads_that_wait_hold_up_nothing_else(reader: Mount, hanging: Hanging) -> None:
    waiting = start_readers(reader, 8)
    for _ in range(50):
        assert (reader.path / "small").stat().st_size == 8
        assert sorted(os.listdir(reader.path)) == ["large", "small"]
        assert not (reader.path / "absent").exists()
    assert reader.call("ping")
    assert all(process.poll() is None for process in waiting)
    hanging.release()
    for said in end(waiting):
        assert said.strip() == str(4 << 20) or "Input/output error" in said
    assert len((reader.path / "large").read_bytes()) == 4 << 20


def test_a_waiting_reader_can_be_killed(reader: Mount, hanging: Hanging) -> None:
    (waiting,) = start_readers(reader, 1)
    assert reader.call("ping")
    waiting.kill()
    waiting.communicate(timeout=WAIT_S)
    assert (reader.path / "small").stat().st_size == 8


@pytest.mark.slow
def test_a_mount_whose_store_hangs_can_be_ended(place: Place, reader: Mount, hanging: Hanging) -> None:
    waiting = start_readers(reader, 2)
    assert (reader.path / "small").stat()
    reader.process.terminate()
    reader.wait_clean_end()
    for said in end(waiting):
        assert "Error" in said
    assert place.registered() == []


READ_ALL = """
import os, sys, threading
def read(path):
    try:
        open(path, 'rb').read()
    except OSError:
        pass
threads = [threading.Thread(target=read, args=(entry.path,)) for entry in os.scandir(sys.argv[1])]
for thread in threads:
    thread.start()
print('started', flush=True)
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
def test_many_waiting_reads_hold_up_no_resident_read_and_no_directory(
    place: Place, mount: Mount, fast_lane: bool
) -> None:
    """More than the kernel sends at once by default, and more than there are threads to load
    with."""
    for name, count, size in (("cold", 200, 150_000), ("other", 3, 10), ("warm", 3, 150_000)):
        (mount.path / name).mkdir()
        for number in range(count):
            (mount.path / name / str(number)).write_bytes(os.urandom(size))
    version = mount.unmount(commit=True)["version"]
    reader = place.mount("v", version=version, cache_dir=str(place.root / "c" / "empty"), fast_lane=fast_lane)
    assert len(os.listdir(reader.path / "cold")) == 200
    warm = reader.path / "warm" / "0"
    content = warm.read_bytes()
    (reader.path / "other").stat()
    packs = sorted(path for path in (place.root / "store" / "packs").rglob("*") if path.is_file())
    hanging = [Hanging(path) for path in packs if path.stat().st_size > 1 << 20]
    waiting = subprocess.Popen([sys.executable, "-c", READ_ALL, str(reader.path / "cold")], stdout=subprocess.PIPE)
    try:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"started\n"
        for _ in range(20):
            with open(warm, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                assert file.read() == content
        assert sorted(os.listdir(reader.path / "other")) == ["0", "1", "2"]
        assert waiting.poll() is None
    finally:
        for one in hanging:
            one.release()
        waiting.communicate(timeout=WAIT_S)
