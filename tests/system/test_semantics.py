"""What `docs/semantics.md` promises about files on a mount, paragraph by paragraph, where no other
test shows it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.system.machine import ROOT, Machine, as_nobody

mount = pytest.mark.mount
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, NOREPLACE, EXCHANGE, WHITEOUT = -100, 1, 2, 4
KEEP_SIZE, PUNCH_HOLE_KEEP_SIZE, ZERO_RANGE = 0x01, 0x02 | 0x01, 0x10
HAS_FAST_LANE = os.environ.get("COWFS_FAST_LANE") != "0"


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Machine, Path]]:
    """One writable mount for all the tests here; each uses names of its own."""
    with Machine() as machine:
        machine.create("semantics")
        yield machine, machine.mount("semantics")


@pytest.fixture
def place(shared: tuple[Machine, Path], request: pytest.FixtureRequest) -> Path:
    path = shared[1] / re.sub(r"\W", "_", request.node.name)
    path.mkdir()
    return path


def rename2(source: Path, target: Path, flags: int) -> int:
    """0, or the error number."""
    done = LIBC.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), ctypes.c_uint(flags))
    return ctypes.get_errno() if done else 0


@pytest.mark.quick
def test_every_paragraph_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text()
    numbers = [int(found) for found in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    paragraphs = re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]
    known: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        names = set(re.findall(r"^(?:def|class|async def) (\w+)|^(Test\w+) =", path.read_text(), re.MULTILINE))
        known[str(path.relative_to(ROOT / "tests"))] = {a or b for a, b in names}
    for number, paragraph in enumerate(paragraphs, start=1):
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", paragraph)
        assert named, f"paragraph {number} names no test"
        for file, test in named:
            assert test in known.get(file, set()), f"paragraph {number} names {file}::{test}, which does not exist"


@mount
def test_names_are_bytes_and_never_normalised(place: Path) -> None:
    names = [b"\xff\xfe", "é".encode(), "e\u0301".encode(), b"a\nb", b" ", b"n" * 255, b"-", b"CON", b"a:b", b"\\"]
    for name in names:
        Path(os.fsdecode(os.fsencode(place) + b"/" + name)).write_bytes(name)
    assert sorted(os.listdir(os.fsencode(place))) == sorted(names)
    with pytest.raises(OSError, match="too long") as raised:
        (place / ("n" * 256)).touch()
    assert raised.value.errno == errno.ENAMETOOLONG


@mount
def test_reading_leaves_the_access_time_alone(place: Path) -> None:
    file = place / "file"
    file.write_bytes(b"x" * 5000)
    os.utime(file, ns=(1_000_000_007, 2_000_000_009))
    file.read_bytes()
    assert file.stat().st_atime_ns == 1_000_000_007
    os.listdir(place)
    file.write_bytes(b"y")
    assert file.stat().st_atime_ns == 1_000_000_007
    assert file.stat().st_mtime_ns > 2_000_000_009


@mount
def test_times_that_cannot_be_kept_are_refused(place: Path) -> None:
    file = place / "file"
    file.touch()
    for seconds in (-9_223_372_036, -1, 0, 9_223_372_036):  # 1677 to 2262
        times = (seconds * 10**9 + 7, seconds * 10**9 + 8)
        os.utime(file, ns=times)
        assert (file.stat().st_atime_ns, file.stat().st_mtime_ns) == times
    for seconds in (-11_676_096_000, 253_370_764_800):  # 1600, 9999
        for times in ((seconds * 10**9, 5), (5, seconds * 10**9)):
            with pytest.raises(OSError, match="Invalid argument") as caught:
                os.utime(file, ns=times)
            assert caught.value.errno == errno.EINVAL
    assert file.stat().st_mtime_ns == 9_223_372_036 * 10**9 + 8


@mount
def test_appends_of_several_processes_do_not_overwrite_each_other(place: Path) -> None:
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number in range(300):
    os.write(fd, f"{sys.argv[2]} {number:06}\\n".encode())
"""
    writers = [subprocess.Popen([sys.executable, "-c", script, place / "log", name]) for name in "abcd"]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    lines = (place / "log").read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} {number:06}" for name in "abcd" for number in range(300))


@mount
def test_mapped_stores_are_seen_by_readers_and_other_mappings(place: Path) -> None:
    file = place / "mapped"
    file.write_bytes(b"\0" * 20_000)
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as first, mmap.mmap(opened.fileno(), 0) as second:
        first[5000:5005] = b"first"
        assert second[5000:5005] == b"first"
        assert os.pread(opened.fileno(), 5, 5000) == b"first"
        os.pwrite(opened.fileno(), b"write", 9000)
        assert first[9000:9005] == b"write"
    assert file.read_bytes()[5000:5005] == b"first"


@mount
def test_a_synced_mapping_leaves_nothing_behind_the_end(place: Path) -> None:
    with (place / "mapped").open("w+b") as opened:
        os.ftruncate(opened.fileno(), 8192)
        with mmap.mmap(opened.fileno(), 8192) as mapped:
            os.ftruncate(opened.fileno(), 5000)
            mapped[5001:5006] = b"GHOST"
            mapped.flush()
            os.ftruncate(opened.fileno(), 8192)
            assert mapped[5000:8192] == bytes(3192)
        assert os.pread(opened.fileno(), 3192, 5000) == bytes(3192)


@mount
def test_rename_flags(place: Path) -> None:
    (place / "a").write_text("a")
    (place / "b").write_text("b")
    assert rename2(place / "a", place / "b", NOREPLACE) == errno.EEXIST
    assert rename2(place / "a", place / "b", EXCHANGE) == 0
    assert ((place / "a").read_text(), (place / "b").read_text()) == ("b", "a")
    assert rename2(place / "a", place / "missing", EXCHANGE) == errno.ENOENT
    assert rename2(place / "a", place / "c", NOREPLACE) == 0
    assert rename2(place / "c", place / "b", WHITEOUT | NOREPLACE) == errno.EEXIST
    assert rename2(place / "c", place / "b", WHITEOUT | EXCHANGE) == errno.EINVAL
    assert rename2(place / "c", place / "d", WHITEOUT) == 0
    left = (place / "c").lstat()
    assert (left.st_mode, left.st_rdev, left.st_nlink) == (stat.S_IFCHR, 0, 1)
    assert (place / "d").read_text() == "b"
    os.link(place / "b", place / "same")
    os.rename(place / "b", place / "same")
    assert {"b", "same"} <= set(os.listdir(place)), "renaming a hard link onto itself does nothing"


@mount
def test_holes_take_no_space(place: Path) -> None:
    with (place / "sparse").open("wb") as file:
        file.write(b"head")
        file.seek(1 << 40)
        file.write(b"tail")
    found = (place / "sparse").stat()
    assert found.st_size == (1 << 40) + 4
    assert found.st_blocks * 512 < 1 << 20
    with (place / "sparse").open("rb") as file:
        file.seek(1 << 39)
        assert file.read(4096) == b"\0" * 4096
    os.truncate(place / "sparse", 2)
    os.truncate(place / "sparse", 10)
    assert (place / "sparse").read_bytes() == b"he" + b"\0" * 8


@mount
def test_preallocation_and_hole_punching(place: Path) -> None:
    with (place / "file").open("w+b") as file:
        os.utime(file.fileno(), ns=(1, 1))
        os.posix_fallocate(file.fileno(), 0, 100_000)
        assert os.fstat(file.fileno()).st_mtime_ns != 1, "as on ext4"
        assert os.fstat(file.fileno()).st_size == 100_000
        file.write(b"x" * 8192)
        file.flush()
        done = LIBC.fallocate(file.fileno(), PUNCH_HOLE_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(4096))
        if HAS_FAST_LANE:
            assert done == 0, os.strerror(ctypes.get_errno())
            assert os.pread(file.fileno(), 8192, 0) == bytes(4096) + b"x" * 4096
        else:
            assert (done, ctypes.get_errno()) == (-1, errno.EOPNOTSUPP)


@mount
def test_allocated_ranges_count_as_blocks(place: Path) -> None:
    def blocks(fd: int, mode: int, offset: int, length: int) -> int:
        if LIBC.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
            raise OSError(ctypes.get_errno(), "fallocate")
        return os.fstat(fd).st_blocks

    with (place / "file").open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
        assert os.fstat(file.fileno()).st_blocks == (2048 if HAS_FAST_LANE else 1)
        if not HAS_FAST_LANE:
            with pytest.raises(OSError, match="fallocate"):
                blocks(file.fileno(), KEEP_SIZE, 0, 4096)
            return
        assert (place / "file").stat().st_blocks == 2048
    with (place / "other").open("wb") as other:
        assert blocks(other.fileno(), KEEP_SIZE, 0, 1 << 20) == 2048
        assert blocks(other.fileno(), PUNCH_HOLE_KEEP_SIZE, 0, 4096) == 2040
        assert blocks(other.fileno(), ZERO_RANGE, 0, 4096) == 2048
        assert os.lseek(other.fileno(), 0, os.SEEK_HOLE) == 0, "still a hole"
        other.write(b"x" * 4096)
        other.flush()
        assert os.fstat(other.fileno()).st_blocks == 2048, "data counts once"
        os.ftruncate(other.fileno(), 4096)
        assert os.fstat(other.fileno()).st_blocks == 8


@mount
def test_data_and_holes_are_told_apart(place: Path) -> None:
    with (place / "sparse").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"data")
    fd = os.open(place / "sparse", os.O_RDONLY)
    found = (os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 1 << 20, os.SEEK_HOLE))
    os.close(fd)
    assert found == (1 << 20 if HAS_FAST_LANE else 0, (1 << 20) + 4)


@mount
def test_unnamed_temporary_files(place: Path) -> None:
    """Where they are refused Python's tempfile and others fall back to a named file that they
    unlink."""
    if not HAS_FAST_LANE:
        with pytest.raises(OSError, match="not supported") as raised:
            os.open(place, os.O_TMPFILE | os.O_RDWR)
        assert raised.value.errno == errno.EOPNOTSUPP
        return
    fd = os.open(place, os.O_TMPFILE | os.O_RDWR)
    os.write(fd, b"data")
    assert (os.pread(fd, 10, 0), os.listdir(place)) == (b"data", [])
    os.close(fd)


@mount
def test_copy_file_range_copies(place: Path) -> None:
    data = os.urandom(3_000_000)
    (place / "from").write_bytes(data)
    with (place / "from").open("rb") as source, (place / "to").open("wb") as target:
        copied = 0
        while copied < len(data):
            copied += os.copy_file_range(source.fileno(), target.fileno(), len(data) - copied)
    assert (place / "to").read_bytes() == data


@mount
def test_locks_hold_between_processes(place: Path) -> None:
    script = """
import errno, fcntl, sys
file = open(sys.argv[1], "r+b")
results = []
for lock in (lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10)):
    try:
        lock()
        results.append("taken")
    except BlockingIOError:
        results.append("held")
print(*results)
"""
    (place / "file").write_bytes(b"0" * 100)
    with (place / "file").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX, 10)
        done = subprocess.run([sys.executable, "-c", script, place / "file"], capture_output=True, text=True)
        assert done.stdout.split() == ["held", "held"], done.stderr
    done = subprocess.run([sys.executable, "-c", script, place / "file"], capture_output=True, text=True)
    assert done.stdout.split() == ["taken", "taken"], done.stderr


@mount
def test_file_flags_are_refused(place: Path) -> None:
    get_flags, set_flags = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
    with (place / "file").open("w") as file:
        for request in (get_flags, set_flags):
            with pytest.raises(OSError, match="Inappropriate ioctl") as raised:
                fcntl.ioctl(file, request, bytes(8))
            assert raised.value.errno == errno.ENOTTY


@mount
def test_extended_attributes(place: Path) -> None:
    file = place / "file"
    file.touch()
    os.setxattr(file, "user.a", b"1", os.XATTR_CREATE)
    with pytest.raises(FileExistsError):
        os.setxattr(file, "user.a", b"2", os.XATTR_CREATE)
    with pytest.raises(OSError, match="No data") as raised:
        os.setxattr(file, "user.b", b"2", os.XATTR_REPLACE)
    assert raised.value.errno == errno.ENODATA
    os.setxattr(file, "user.big", b"v" * 60_000)
    os.setxattr(file, "trusted.t", b"\0\xff")
    assert set(os.listxattr(file)) == {"user.a", "user.big", "trusted.t"}
    assert os.getxattr(file, "user.big") == b"v" * 60_000
    os.removexattr(file, "user.a")
    assert "user.a" not in os.listxattr(file)
    with contextlib.suppress(OSError):
        for number in range(400):
            os.setxattr(file, f"user.{number:0>200}", b"")
    with pytest.raises(OSError, match="No space") as raised:
        os.setxattr(file, "user." + "n" * 200, b"")
    assert raised.value.errno == errno.ENOSPC
    assert f"user.{0:0>200}" in os.listxattr(file), "names of 64 KiB are listed"
    other = place / "other"
    other.touch()
    for number in range(16):
        os.setxattr(other, f"user.{number}", bytes(65536))
    with pytest.raises(OSError, match="No space") as raised:
        os.setxattr(other, "user.more", b"x")
    assert raised.value.errno == errno.ENOSPC


@mount
def test_writing_clears_setuid_and_setgid(place: Path) -> None:
    file = place / "file"
    file.write_bytes(b"data")
    os.chown(file, 1, 1)
    file.chmod(0o6777)
    place.chmod(0o777)

    def write() -> None:
        fd = os.open(file, os.O_WRONLY)
        os.write(fd, b"x")
        os.close(fd)

    if HAS_FAST_LANE:
        write()
        assert stat.S_IMODE(file.stat().st_mode) == 0o6777, "root's own writes clear nothing"
    assert as_nobody(write) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o777


@mount
@pytest.mark.parametrize("mode", [0o6777, 0o6666, 0o2666, 0o2767])
def test_a_change_by_others_clears_set_id_bits_whatever_it_is(place: Path, mode: int) -> None:
    """As on ext4: a set-group-id bit without execution too, for those who are not in the group."""
    place.chmod(0o777)
    file = place / "file"

    def change(how: Callable[[int], object]) -> Callable[[], None]:
        def act() -> None:
            fd = os.open(file, os.O_RDWR)
            how(fd)
            os.close(fd)

        return act

    ways: list[Callable[[int], object]] = [lambda fd: os.write(fd, b"x"), lambda fd: os.ftruncate(fd, 100)]
    if HAS_FAST_LANE:  # without it a write does as pyfuse3 and the kernel have it, and there is no fallocate
        ways += [partial(fallocate, mode=how) for how in (0, KEEP_SIZE, PUNCH_HOLE_KEEP_SIZE, ZERO_RANGE)]
    elif not mode & stat.S_ISUID:
        pytest.skip("pyfuse3's kernel side looks at set-group-id only beside set-user-id")
    for way in ways:
        file.write_bytes(b"data" * 3000)
        file.chmod(mode)
        assert as_nobody(change(way)) == 0
        assert stat.S_IMODE(file.stat().st_mode) == mode & 0o777


def fallocate(fd: int, mode: int) -> None:
    if LIBC.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(8192)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class DirectWrites:
    """Asynchronous O_DIRECT writes (io_submit), one after the other."""

    class Block(ctypes.Structure):
        _fields_ = (
            ("data", ctypes.c_uint64),
            ("key_and_flags", ctypes.c_uint64),
            ("opcode", ctypes.c_uint16),
            ("priority", ctypes.c_int16),
            ("fd", ctypes.c_uint32),
            ("buffer", ctypes.c_uint64),
            ("bytes", ctypes.c_uint64),
            ("offset", ctypes.c_int64),
            ("more", ctypes.c_uint64 * 2),
        )

    SETUP, SUBMIT, GETEVENTS, PWRITE = 206, 209, 208, 1

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        self._context = ctypes.c_ulong(0)
        assert LIBC.syscall(self.SETUP, 8, ctypes.byref(self._context)) == 0

    def write(self, data: mmap.mmap) -> None:
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        block = self.Block(opcode=self.PWRITE, fd=self._fd, buffer=address, bytes=len(data))
        blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
        assert LIBC.syscall(self.SUBMIT, self._context, 1, blocks) == 1
        event = (ctypes.c_int64 * 4)()
        assert LIBC.syscall(self.GETEVENTS, self._context, 1, 1, event, None) == 1
        assert event[2] == len(data)

    def close(self) -> None:
        os.close(self._fd)


@mount
@pytest.mark.skipif(not HAS_FAST_LANE, reason="libfuse asks for asynchronous direct I/O, whatever the server wants")
def test_readers_see_what_an_asynchronous_direct_write_has_stored(place: Path) -> None:
    size = 64 << 10
    file = place / "file"
    file.write_bytes(bytes(size))
    script = "import os, sys\nfd = os.open(sys.argv[1], os.O_RDONLY)\nwhile True: os.pread(fd, 65536, 0)"
    readers = [subprocess.Popen([sys.executable, "-S", "-c", script, file]) for _ in range(2)]
    writes = DirectWrites(file)
    reading = os.open(file, os.O_RDONLY)
    data = mmap.mmap(-1, size)
    try:
        for number in range(1000):
            data[:] = bytes([number % 255 + 1]) * size
            writes.write(data)
            assert os.pread(reading, size, 0) == data[:], f"write {number} is not seen"
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
        os.close(reading)
        writes.close()


@mount
def test_special_files(place: Path) -> None:
    os.mkfifo(place / "fifo", 0o640)
    os.mknod(place / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(place / "block", stat.S_IFBLK | 0o600, os.makedev(7, 200))
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append((place / "fifo").read_bytes()))
    reader.start()
    (place / "fifo").write_bytes(b"through the pipe")
    reader.join(timeout=30)
    assert received == [b"through the pipe"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(place / "socket"))
        assert stat.S_ISSOCK((place / "socket").stat().st_mode)
    assert (place / "null").stat().st_rdev == os.makedev(1, 3)
    assert (place / "block").stat().st_rdev == os.makedev(7, 200)
    with pytest.raises(PermissionError):
        (place / "null").read_bytes()


@mount
def test_set_id_bits_grant_nothing(place: Path) -> None:
    program = place / "id"
    shutil.copy("/usr/bin/id", program)
    place.chmod(0o755)
    program.chmod(0o4755)
    assert stat.S_IMODE(program.stat().st_mode) == 0o4755
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
    done = subprocess.run(["./id", "-u"], cwd=place, capture_output=True, text=True, **nobody)
    assert done.stdout.split() == ["65534"], done.stderr


@mount
@pytest.mark.parametrize("count", [3, 2000])
def test_a_directory_read_while_its_entries_are_renamed_ends(place: Path, count: int) -> None:
    for number in range(count):
        (place / str(number)).touch()
    renamed = 0
    for entry in os.scandir(place):
        os.rename(entry.path, f"{entry.path}_")
        (place / f"new-{renamed}").touch()
        renamed += 1
        assert renamed <= count
    assert renamed == count
    assert {f"{number}_" for number in range(count)} <= set(os.listdir(place))
    again = os.listdir(place)
    assert len(again) == 2 * count, "what was made meanwhile comes when the directory is read again"


@mount
def test_a_directory_read_while_its_entries_are_deleted_is_complete(place: Path) -> None:
    count = 5000
    for number in range(count):
        (place / f"{number:05}").touch()
    seen = []
    with os.scandir(place) as entries:
        for index, entry in enumerate(entries):
            seen.append(entry.name)
            if index % 3 == 0:
                os.unlink(entry.path)
    assert len(seen) == len(set(seen)), "an entry was returned twice"
    kept = {path.name for path in place.iterdir()}
    assert kept <= set(seen), "an entry that was there all the time was left out"
    subprocess.run(["rm", "-r", place], check=True)


@mount
def test_inode_numbers_stay(shared: tuple[Machine, Path], place: Path) -> None:
    machine, mounted = shared
    (place / "file").write_text("x")
    before = ((place / "file").stat().st_ino, place.stat().st_ino)
    machine.commit(mounted)
    machine.unmount(mounted)
    machine.mount("semantics")
    assert ((place / "file").stat().st_ino, place.stat().st_ino) == before
    (place / "file").unlink()
    (place / "another").write_text("y")
    assert (place / "another").stat().st_ino != before[0], "a number is never used again"


@mount
def test_uncommitted_work_is_in_no_version(shared: tuple[Machine, Path], place: Path) -> None:
    machine, mounted = shared
    (place / "file").write_text("first")
    locator = machine.commit(mounted)
    assert machine.commit(mounted) == locator, "nothing changed: the same version"
    (place / "file").write_text("second")
    with Machine(machine.store) as elsewhere:
        assert (elsewhere.mount(locator, at="v") / place.name / "file").read_text() == "first"
    assert machine.commit(mounted) != locator


@mount
def test_other_users_are_subject_to_permissions(place: Path) -> None:
    place.chmod(0o755)
    (place / "private").write_text("secret")
    (place / "private").chmod(0o600)
    assert as_nobody(lambda: os.listdir(place)) == 0
    assert as_nobody(lambda: os.open(place / "private", os.O_RDONLY)) == errno.EACCES
    assert as_nobody(lambda: os.mkdir(place / "new")) == errno.EACCES
