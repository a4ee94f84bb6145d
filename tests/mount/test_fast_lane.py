"""What only the fast lane answers."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mount.daemons import Mount, Place
from tests.mount.test_slow_store import Hanging

pytestmark = pytest.mark.mount

PUNCH_HOLE_KEEP_SIZE = 3
ZERO_RANGE = 0x10
AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400

libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


@pytest.fixture
def lane(place: Place) -> Mount:
    return place.mount("v", fast_lane=True)


def test_holes_are_punched_zeroed_and_found(lane: Mount, place: Place) -> None:
    path = lane.path / "f"
    path.write_bytes(b"x" * 12288)
    fd = os.open(path, os.O_WRONLY)
    fallocate(fd, PUNCH_HOLE_KEEP_SIZE, 4096, 4096)
    assert os.lseek(fd, 0, os.SEEK_HOLE) == 4096
    assert os.lseek(fd, 4096, os.SEEK_DATA) == 8192
    fallocate(fd, ZERO_RANGE, 12000, 4000)
    os.posix_fallocate(fd, 0, 20000)
    with pytest.raises(OSError, match="fallocate") as caught:
        fallocate(fd, 8, 0, 4096)
    assert caught.value.errno == errno.EOPNOTSUPP
    with pytest.raises(OSError, match="No such device"):
        os.lseek(fd, 20000, os.SEEK_DATA)
    os.close(fd)
    expected = b"x" * 4096 + bytes(4096) + b"x" * (12000 - 8192) + bytes(8000)
    assert path.read_bytes() == expected
    version = lane.commit()
    assert (place.mount("v", version=version).path / "f").read_bytes() == expected


def test_a_copy_shares_what_is_committed_and_what_is_not(lane: Mount, place: Place) -> None:
    data = os.urandom(3 << 20)
    (lane.path / "committed").write_bytes(data)
    lane.commit()
    (lane.path / "written").write_bytes(data[::-1])
    segments = place.working_copy().path / "staging"
    before = sum(entry.stat().st_blocks for entry in segments.iterdir())
    for name in ("committed", "written"):
        with (lane.path / name).open("rb") as source, (lane.path / f"{name}-copy").open("wb") as target:
            copied = 0
            while step := os.copy_file_range(source.fileno(), target.fileno(), 64 << 20):
                copied += step
        assert copied == len(data)
    assert sum(entry.stat().st_blocks for entry in segments.iterdir()) == before
    lane.kill()
    again = place.mount("v")
    version = again.unmount(commit=True)["version"]
    reader = place.mount("v", version=version, cache_dir=str(place.root / "c" / "empty"))
    assert (reader.path / "committed-copy").read_bytes() == data
    assert (reader.path / "written-copy").read_bytes() == data[::-1]


def test_an_unnamed_file_gets_a_name(lane: Mount, place: Place) -> None:
    fd = os.open(lane.path, os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b"before it had a name")
    assert os.listdir(lane.path) == []
    done = libc.linkat(
        AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, os.fsencode(lane.path / "named"), AT_SYMLINK_FOLLOW
    )
    assert done == 0, os.strerror(ctypes.get_errno())
    os.write(fd, b", and after")
    os.close(fd)
    with open(os.open(lane.path, os.O_TMPFILE | os.O_WRONLY, 0o600), "wb") as lost:
        lost.write(b"gone with its descriptor")
    lane.kill()
    path = place.mount("v").path
    assert os.listdir(path) == ["named"]
    assert (path / "named").read_bytes() == b"before it had a name, and after"
    assert stat.S_IMODE((path / "named").stat().st_mode) == 0o640


def test_a_running_program_is_not_truncated(lane: Mount) -> None:
    program = lane.path / "sleep"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    running = subprocess.Popen([program, "60"])
    try:
        size = program.stat().st_size
        with pytest.raises(OSError, match="Text file busy"):
            os.open(program, os.O_RDONLY | os.O_TRUNC)
        assert program.stat().st_size == size
    finally:
        running.kill()
        running.wait()


def test_root_keeps_set_id_bits_and_others_clear_them(lane: Mount) -> None:
    path = lane.path / "f"
    path.write_bytes(b"x")
    path.chmod(0o6777)
    path.parent.chmod(0o777)
    with path.open("ab") as file:
        file.write(b"root")
    assert stat.S_IMODE(path.stat().st_mode) == 0o6777
    writing = "import os, sys; os.setgroups([]); os.setgid(1234); os.setuid(1234); open(sys.argv[1], 'ab').write(b'x')"
    subprocess.run([sys.executable, "-S", "-c", writing, path], check=True, cwd="/")
    assert stat.S_IMODE(path.stat().st_mode) == 0o777


def test_a_killed_caller_is_let_go_of_a_store_that_hangs(place: Place) -> None:
    writer = place.mount("v")
    (writer.path / "large").write_bytes(os.urandom(4 << 20))
    version = writer.unmount(commit=True)["version"]
    reader = place.mount("v", version=version, cache_dir=str(place.root / "c" / "empty"), fast_lane=True)
    assert (reader.path / "large").stat().st_size == 4 << 20
    pack = max((path for path in (place.root / "store" / "packs").rglob("*") if path.is_file()), key=_size)
    hanging = Hanging(pack)
    try:
        reading = "import os, sys; os.pread(os.open(sys.argv[1], os.O_RDONLY), 4096, 0)"
        caller = subprocess.Popen([sys.executable, "-S", "-c", reading, reader.path / "large"])
        time.sleep(1)
        assert caller.poll() is None
        caller.send_signal(signal.SIGKILL)
        assert caller.wait(10) == -signal.SIGKILL
        assert os.listdir(reader.path) == ["large"]
    finally:
        hanging.release()


def _size(path: Path) -> int:
    return path.stat().st_size
