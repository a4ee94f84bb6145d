"""FUSE over io_uring carries the same requests as the device: more that wait than a small ring has
room for, a daemon that is killed, an idle mount. Where the kernel has it, it is switched on for
these tests and put back afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.errors import InvalidInputError, MountFailedError
from cowfs.machine import kernel
from tests.mount.daemons import WAIT_S, Mount, Place
from tests.mount.test_slow_store import Hanging

pytestmark = pytest.mark.mount

WAITING = 320
"""Reads that wait at once, on one CPU: far above the depths of 4 and 8 that once held up everything
else."""

READERS = """
import os, sys, threading
path, count, cpu = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.sched_setaffinity(0, [cpu])

def read(number):
    try:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(fd, 1, number * 8192)
    except OSError as error:
        sys.stdout.write(f"{error.errno}\\n")
    else:
        sys.stdout.write("0\\n")

threading.stack_size(65536)
threads = [threading.Thread(target=read, args=(number,)) for number in range(count)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
LOOK = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[2])])
for _ in range(50):
    assert os.stat(f"{sys.argv[1]}/small").st_size == 8
    assert sorted(os.listdir(sys.argv[1])) == ["large", "small"]
    assert not os.path.exists(f"{sys.argv[1]}/absent-{_}")
"""


def set_enabled(is_enabled: bool) -> None:
    kernel.URING_PARAMETER.write_text("Y" if is_enabled else "N")


@contextlib.contextmanager
def parameter(is_enabled: bool) -> Iterator[None]:
    if not kernel.is_uring_offered():
        pytest.skip(f"this kernel has no {kernel.URING_PARAMETER}")
    before = kernel.is_uring_enabled()
    set_enabled(is_enabled)
    try:
        yield
    finally:
        set_enabled(before)


@pytest.fixture
def uring() -> Iterator[None]:
    with parameter(True):
        yield


@pytest.fixture
def hanging(place: Place, uring: None) -> Iterator[tuple[Mount, Hanging]]:
    """A version read over io_uring: a large file whose pack nobody gets, a small one that is
    resident."""
    writer = place.mount("v", transport="uring")
    (writer.path / "large").write_bytes(os.urandom(WAITING * 8192))
    (writer.path / "small").write_text("resident")
    version = writer.unmount(commit=True)["version"]
    reader = place.mount("v", version=version, cache_dir=str(place.root / "c" / "empty"), transport="uring")
    assert sorted(os.listdir(reader.path)) == ["large", "small"]
    packs = [path for path in (place.root / "store" / "packs").rglob("*") if path.is_file()]
    hanging = Hanging(max(packs, key=lambda path: path.stat().st_size))
    yield reader, hanging
    hanging.release()


def start_readers(place: Place, mount: Mount, cpu: int) -> subprocess.Popen[str]:
    """Returns when the kernel has all their requests."""
    control = place.root / "control"
    control.mkdir()
    subprocess.run(["mount", "-t", "fusectl", "none", control], check=True)
    minor = os.minor(os.stat(mount.path).st_dev)
    command = [sys.executable, "-c", READERS, str(mount.path / "large"), str(WAITING), str(cpu)]
    readers = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while int((control / str(minor) / "waiting").read_text()) < WAITING:
        assert readers.poll() is None
        time.sleep(0.01)
    subprocess.run(["umount", control], check=True)
    return readers


def results(readers: subprocess.Popen[str]) -> set[int]:
    said = [int(line) for line in readers.communicate(timeout=WAIT_S)[0].split()]
    assert len(said) == WAITING
    return set(said)


def test_many_reads_that_wait_hold_up_nothing_else_on_their_cpu(place: Place, hanging: tuple[Mount, Hanging]) -> None:
    reader, pack = hanging
    assert reader.call("status")["transport"] == "uring"
    cpu = min(os.sched_getaffinity(0))
    readers = start_readers(place, reader, cpu)
    subprocess.run([sys.executable, "-c", LOOK, reader.path, str(cpu)], check=True, timeout=WAIT_S)
    assert readers.poll() is None
    pack.release()
    assert results(readers) <= {0, errno.EIO}
    assert len((reader.path / "large").read_bytes()) == WAITING * 8192


def test_a_killed_daemon_leaves_nobody_waiting(place: Place, hanging: tuple[Mount, Hanging]) -> None:
    reader, pack = hanging
    readers = start_readers(place, reader, max(os.sched_getaffinity(0)))
    reader.kill()
    assert 0 not in results(readers)
    with pytest.raises(OSError, match="not connected"):
        os.listdir(reader.path)
    pack.release()
    again = place.start(reader.spec)
    assert (again.path / "small").read_text() == "resident"
    again.unmount()


def test_a_reader_is_let_go_when_it_is_killed(place: Place, hanging: tuple[Mount, Hanging]) -> None:
    reader, _ = hanging
    readers = start_readers(place, reader, min(os.sched_getaffinity(0)))
    readers.kill()
    readers.communicate(timeout=WAIT_S)
    assert (reader.path / "small").stat().st_size == 8


def test_an_end_answers_who_waits(place: Place, hanging: tuple[Mount, Hanging]) -> None:
    reader, _ = hanging
    readers = start_readers(place, reader, min(os.sched_getaffinity(0)))
    reader.process.terminate()
    reader.wait_clean_end()
    assert 0 not in results(readers)


def test_large_requests_pass(place: Place, uring: None) -> None:
    mount = place.mount("v", transport="uring")
    data = os.urandom((3 << 20) + 5)
    fd = os.open(mount.path / "f", os.O_RDWR | os.O_CREAT)
    assert os.write(fd, data) == len(data)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.pread(fd, 4 << 20, 0) == data
    os.close(fd)
    names = {f"{number:0200}" for number in range(3000)}
    (mount.path / "d").mkdir()
    for name in names:
        (mount.path / "d" / name).touch()
    assert set(os.listdir(mount.path / "d")) == names
    version = mount.unmount(commit=True)["version"]
    assert (place.mount("v", version=version, transport="uring").path / "f").read_bytes() == data


def cpu_s(pid: int) -> float:
    """As the scheduler counts it: `stat` charges a whole tick to what runs when the tick falls."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["device", "uring"])
def test_an_idle_mount_uses_no_cpu(place: Place, uring: None, kind: str) -> None:
    """Less than 0.2 s a minute: a bound on work done, not on time taken. A quiet machine has a
    quarter of it; a thread that polls would pass it in seconds."""
    mount = place.mount("v", transport=kind)
    (mount.path / "f").write_text("x")
    threads = list(Path(f"/proc/{mount.process.pid}/task").iterdir())
    lanes = [thread for thread in threads if (thread / "comm").read_text().startswith("lane")]
    assert len(lanes) >= 3
    time.sleep(1)
    before, lanes_before = cpu_s(mount.process.pid), switches(lanes)
    time.sleep(10)
    used = cpu_s(mount.process.pid) - before
    print(f"{used * 1e3:.2f} ms in 10 s")
    assert used <= 0.2 * 10 / 60
    assert switches(lanes) - lanes_before <= 10, "the lane's threads wake up without a request"


def switches(threads: list[Path]) -> int:
    found = 0
    for thread in threads:
        for line in (thread / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found += int(line.split()[1])
    return found


def test_it_is_an_error_to_demand_what_is_switched_off(place: Place) -> None:
    with parameter(False):
        with pytest.raises(MountFailedError, match="switched off") as caught:
            place.mount("v", transport="uring")
        assert f"echo Y > {kernel.URING_PARAMETER}" in caught.value.hint


def test_auto_is_the_device(place: Place, uring: None) -> None:
    assert place.mount("v", transport="auto").call("status")["transport"] == "device"


def test_it_cannot_be_demanded_without_the_lane(place: Place, uring: None) -> None:
    with pytest.raises(InvalidInputError, match="without the fast lane"):
        place.mount("v", transport="uring", fast_lane=False)


def test_a_process_that_may_not_use_io_uring(place: Place, uring: None) -> None:
    """2: nobody may. Put back at once: others on this machine may be starting rings."""
    switch = Path("/proc/sys/kernel/io_uring_disabled")
    before = switch.read_text()
    switch.write_text("2")
    try:
        with pytest.raises(MountFailedError, match="io_uring cannot be used") as caught:
            place.mount("v", transport="uring")
        assert "io_uring_disabled" in caught.value.hint
        assert place.mount("v").call("status")["transport"] == "device"
    finally:
        switch.write_text(before)
