"""Every operation of a writable mount, through the kernel, as programs use it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.mount.daemons import Mount, Place

pytestmark = pytest.mark.mount

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
AT_FDCWD = -100
FALLOC_FL_KEEP_SIZE = 1
CLOCK_REALTIME_COARSE = 5

libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old: Path, new: Path, flags: int) -> None:
    if libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def errno_of(call: object, *arguments: object) -> int | None:
    try:
        call(*arguments)  # type: ignore[operator]
    except OSError as error:
        return error.errno
    return None


# -- files


def test_a_file_is_stamped_by_the_clock_of_the_kernels_file_systems(path: Path) -> None:
    """The precise one runs ahead of it: a file made elsewhere a moment later would be older."""

    def coarse_ns() -> int:
        return time.clock_gettime_ns(CLOCK_REALTIME_COARSE)

    for number in range(50):
        name = path / f"f{number}"
        changes: list[Callable[[], object]] = [name.touch, partial(name.write_bytes, b"x"), partial(os.utime, name)]
        for change in changes:
            before_ns = coarse_ns()
            change()
            assert before_ns <= name.stat().st_mtime_ns <= coarse_ns()


def test_allocated_ranges_outlive_a_daemon_and_not_a_commit(mount: Mount, place: Place) -> None:
    def allocate(name: str, mode: int) -> None:
        with (mount.path / name).open("wb") as file:
            assert libc.fallocate(file.fileno(), mode, ctypes.c_int64(0), ctypes.c_int64(1 << 20)) == 0
            file.write(b"x" * 4096)

    if os.environ.get("COWFS_FAST_LANE") == "0":
        return  # pyfuse3 has no fallocate
    allocate("grown", 0)
    allocate("kept", FALLOC_FL_KEEP_SIZE)
    mount.kill()
    mount = place.mount("v")
    for _ in range(2):
        assert [(mount.path / name).stat().st_blocks for name in ("grown", "kept")] == [2048, 2048]
        assert [(mount.path / name).stat().st_size for name in ("grown", "kept")] == [1 << 20, 4096]
        mount.unmount()
        mount = place.mount("v")
    mount.commit()
    assert (mount.path / "kept").stat().st_blocks == 2048
    mount.unmount()
    mount = place.mount("v")
    assert [(mount.path / name).stat().st_blocks for name in ("grown", "kept")] == [8, 8]


def test_write_read_append_and_truncate(path: Path) -> None:
    file = path / "file"
    file.write_bytes(b"0123456789")
    with file.open("ab") as appended:
        appended.write(b"abc")
    assert file.read_bytes() == b"0123456789abc"
    os.truncate(file, 4)
    os.truncate(file, 8)
    assert file.read_bytes() == b"0123" + bytes(4)
    file.write_bytes(b"x")  # O_TRUNC
    assert file.read_bytes() == b"x"


def test_large_and_scattered_writes_read_back(path: Path) -> None:
    data = os.urandom(5 << 20)
    fd = os.open(path / "big", os.O_RDWR | os.O_CREAT)
    try:
        pieces = [(start, min(start + 777_777, len(data))) for start in range(0, len(data), 777_777)]
        for start, end in reversed(pieces):
            os.pwrite(fd, data[start:end], start)
        os.pwrite(fd, data[1000:1100], 1000)
        assert os.pread(fd, len(data) + 1, 0) == data
        assert os.pread(fd, 10, len(data)) == b""
    finally:
        os.close(fd)


@pytest.mark.parametrize("at", [0, 100, 777_777])
def test_what_is_read_for_the_first_time_comes_in_one_piece_of_many(place: Place, at: int) -> None:
    """Of chunks that lie in memory; what is asked for begins and ends within some."""
    content = os.urandom(6 << 20)
    mount = place.mount("v")
    (mount.path / "file").write_bytes(content)
    version = mount.commit()
    mount.unmount()
    reader = place.mount("v", version=version, cache_dir=str(place.root / "c" / "empty"))
    fd = os.open(reader.path / "file", os.O_RDONLY)
    with open(fd, "rb", buffering=0) as file:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing else than what is asked for
        for begin in range(at, len(content), 1_000_003):
            assert os.pread(fd, 1_000_003, begin) == content[begin : begin + 1_000_003]
        assert file.read() == content
    reader.unmount()


def test_appends_of_several_processes_do_not_overwrite_each_other(path: Path) -> None:
    file = path / "log"
    script = "import os, sys; fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)\n"
    script += "for _ in range(200): os.write(fd, sys.argv[2].encode() * 50 + b'\\n')"
    writers = [subprocess.Popen([sys.executable, "-c", script, file, letter]) for letter in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    lines = file.read_bytes().splitlines()
    assert sorted(lines) == sorted([letter * 50 for letter in (b"a", b"b", b"c") for _ in range(200)])


def test_stores_mapped_through_a_handle_that_appends_stay_where_they_were_made(path: Path) -> None:
    file = path / "mapped"
    file.write_bytes(b"0" * 600_000)
    fd = os.open(file, os.O_RDWR | os.O_APPEND)
    try:
        with mmap.mmap(fd, 600_000) as view:
            view[5_000:5_100] = b"1" * 100
            view.flush()
        assert os.fstat(fd).st_size == 600_000
        os.write(fd, b"end")
        os.pwrite(fd, b"also", 7)  # appends too on Linux, whatever the offset
    finally:
        os.close(fd)
    expected = bytearray(b"0" * 600_000 + b"endalso")
    expected[5_000:5_100] = b"1" * 100
    assert file.read_bytes() == expected


def test_a_handle_may_begin_and_cease_to_append(path: Path) -> None:
    file = path / "either"
    file.write_bytes(b"0123456789")
    fd = os.open(file, os.O_RDWR)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        os.write(fd, b"end")
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        os.pwrite(fd, b"ab", 4)
    finally:
        os.close(fd)
    assert file.read_bytes() == b"0123ab6789end"


def test_sparse_files_hold_only_what_was_written(path: Path) -> None:
    file = path / "sparse"
    with file.open("wb") as out:
        out.seek(1 << 40)
        out.write(b"end")
    found = file.stat()
    assert found.st_size == (1 << 40) + 3
    assert found.st_blocks * 512 < 1 << 20
    with file.open("rb") as back:
        assert back.read(4096) == bytes(4096)
        back.seek((1 << 40) - 2)
        assert back.read() == b"\0\0end"


def test_unlinked_files_stay_usable_while_open(path: Path) -> None:
    file = path / "gone"
    fd = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, b"before")
        file.unlink()
        assert not file.exists()
        os.write(fd, b" after")
        assert os.pread(fd, 100, 0) == b"before after"
        os.ftruncate(fd, 3)
        assert os.fstat(fd).st_nlink == 0
        assert os.fstat(fd).st_size == 3
    finally:
        os.close(fd)
    assert list(path.iterdir()) == []


def test_shared_mappings_are_coherent_with_reads_and_writes(path: Path) -> None:
    fd = os.open(path / "mapped", os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, 3 * mmap.PAGESIZE)
        with mmap.mmap(fd, 3 * mmap.PAGESIZE) as view:
            view[5:10] = b"store"
            assert os.pread(fd, 5, 5) == b"store"
            os.pwrite(fd, b"write", mmap.PAGESIZE)
            assert view[mmap.PAGESIZE : mmap.PAGESIZE + 5] == b"write"
            view.flush()
        os.fsync(fd)
    finally:
        os.close(fd)
    assert (path / "mapped").read_bytes()[5:10] == b"store"


def test_fsync_of_files_and_directories(path: Path) -> None:
    fd = os.open(path / "f", os.O_WRONLY | os.O_CREAT)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.write(fd, b"kept")
        os.fsync(fd)
        os.fdatasync(fd)
        os.fsync(directory)
        os.sync()
    finally:
        os.close(fd)
        os.close(directory)


def test_many_threads_fsync_at_once(path: Path) -> None:
    script = """
import os, sys, threading
def work(name):
    fd = os.open(os.path.join(sys.argv[1], name), os.O_WRONLY | os.O_CREAT)
    for _ in range(20):
        os.write(fd, b"x" * 100); os.fsync(fd)
    os.close(fd)
threads = [threading.Thread(target=work, args=(str(n),)) for n in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    subprocess.run([sys.executable, "-c", script, path], check=True, timeout=120)
    assert sorted(file.stat().st_size for file in path.iterdir()) == [2000] * 16


def test_locks_of_the_kernel_hold_between_processes(path: Path) -> None:
    file = path / "lock"
    script = "import fcntl, sys\nwith open(sys.argv[1], 'r+') as f:\n fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert subprocess.run([sys.executable, "-c", script, file], capture_output=True).returncode != 0
    assert subprocess.run([sys.executable, "-c", script, file]).returncode == 0


def test_copying_and_seeking_data(path: Path) -> None:
    (path / "a").write_bytes(b"x" * 100_000)
    source, target = os.open(path / "a", os.O_RDONLY), os.open(path / "b", os.O_WRONLY | os.O_CREAT)
    try:
        left = 100_000
        while left:
            left -= os.copy_file_range(source, target, left)
        assert os.lseek(source, 10, os.SEEK_DATA) == 10
        assert os.lseek(source, 0, os.SEEK_HOLE) == 100_000
    finally:
        os.close(source)
        os.close(target)
    assert (path / "b").read_bytes() == (path / "a").read_bytes()


def test_without_the_fast_lane_unnamed_temporary_files_are_refused(place: Place) -> None:
    """pyfuse3 has no TMPFILE request: the kernel says so, and programs fall back."""
    path = place.mount("v", fast_lane=False).path
    assert errno_of(os.open, path, os.O_TMPFILE | os.O_RDWR, 0o600) == errno.EOPNOTSUPP


# -- attributes


def test_modes_owners_and_times_to_the_nanosecond(path: Path) -> None:
    file = path / "f"
    file.touch(mode=0o640)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    file.chmod(0o4755)
    assert stat.S_IMODE(file.stat().st_mode) == 0o4755
    os.chown(file, 1234, 2345)
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 2345)
    times = (1_000_000_000_123_456_789, 981_173_106_987_654_321)
    os.utime(file, ns=times)
    assert (file.stat().st_atime_ns, file.stat().st_mtime_ns) == times
    os.symlink("nowhere", path / "link")
    os.utime(path / "link", ns=(5, 7), follow_symlinks=False)
    assert os.lstat(path / "link").st_mtime_ns == 7
    os.utime(file, ns=(-1_500_000_000, -1))
    assert (file.stat().st_atime_ns, file.stat().st_mtime_ns) == (-1_500_000_000, -1)


def test_a_change_moves_the_change_time(path: Path) -> None:
    file = path / "f"
    file.touch()
    before = file.stat().st_ctime_ns
    file.chmod(0o600)
    middle = file.stat().st_ctime_ns
    file.write_bytes(b"x")
    assert before <= middle <= file.stat().st_ctime_ns
    assert file.stat().st_mtime_ns >= middle


def test_writing_clears_set_user_id(path: Path) -> None:
    file = path / "f"
    file.touch()
    os.chown(file, 65534, 65534)
    file.chmod(0o6777)
    script = "import os, sys; os.setuid(65534); f = open(sys.argv[1], 'ab'); f.write(b'x')"
    subprocess.run([sys.executable, "-c", script, file], check=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o777


def test_a_setgid_directory_hands_its_group_down(path: Path) -> None:
    directory = path / "d"
    directory.mkdir()
    os.chown(directory, 0, 2345)
    directory.chmod(0o2777)
    (directory / "file").touch()
    (directory / "sub").mkdir()
    assert (directory / "file").stat().st_gid == 2345
    assert (directory / "sub").stat().st_gid == 2345
    assert (directory / "sub").stat().st_mode & stat.S_ISGID


def test_a_member_by_supplementary_group_keeps_the_setgid_bit(path: Path) -> None:
    directory = path / "d"
    directory.mkdir()
    os.chown(directory, 65534, 2345)
    directory.chmod(0o2777)
    script = """
import os, sys
os.setgroups([int(sys.argv[2])]); os.setgid(65534); os.setuid(65534)
os.umask(0)
os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o2775))
"""
    for group, expected in ((2345, 0o2775), (7777, 0o775)):
        file = directory / str(group)
        subprocess.run([sys.executable, "-c", script, file, str(group)], check=True)
        assert stat.S_IMODE(file.stat().st_mode) == expected


def test_the_kernel_checks_permissions(path: Path) -> None:
    (path / "private").write_text("secret")
    (path / "private").chmod(0o600)
    (path / "sticky").mkdir(mode=0o777)
    (path / "sticky").chmod(0o1777)
    (path / "sticky" / "theirs").touch()
    script = """
import os, sys
os.setuid(65534)
for call in (lambda: open('private'), lambda: os.unlink('sticky/theirs'), lambda: os.mkdir('new'), lambda: os.chmod('private', 0o666)):
    try: call()
    except PermissionError: pass
    else: sys.exit(1)
open('sticky/ours', 'w').close(); os.unlink('sticky/ours')
"""
    path.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", script], cwd=path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_umask_is_applied_once(path: Path) -> None:
    before = os.umask(0o027)
    try:
        os.close(os.open(path / "f", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir(path / "d", 0o777)
    finally:
        os.umask(before)
    assert stat.S_IMODE((path / "f").stat().st_mode) == 0o640
    assert stat.S_IMODE((path / "d").stat().st_mode) == 0o750


# -- names


@pytest.mark.parametrize(
    "name",
    [
        b"\xff\xfe not utf-8",
        b"new\nline",
        b" ",
        b"n" * 255,
        "é".encode(),
        "e\u0301".encode(),
        b"\x01\x7f",
        b"...",
        b"a\\b",
    ],
    ids=repr,
)
def test_names_are_bytes(path: Path, name: bytes) -> None:
    directory = os.fsencode(path)
    full = directory + b"/" + name
    with open(full, "wb") as file:
        file.write(name)
    assert os.listdir(directory) == [name]
    os.symlink(name, directory + b"/link")
    assert os.readlink(directory + b"/link") == name
    with open(directory + b"/link", "rb") as file:
        assert file.read() == name
    os.rename(full, directory + b"/plain")
    os.link(directory + b"/plain", full)
    assert sorted(os.listdir(directory)) == sorted([name, b"link", b"plain"])


def test_names_equal_only_after_normalisation_are_two(path: Path) -> None:
    (path / "é").write_text("composed")
    (path / "e\u0301").write_text("decomposed")
    assert (path / "é").read_text() == "composed"
    assert len(os.listdir(path)) == 2


def test_a_name_of_256_bytes_is_too_long(path: Path) -> None:
    for call in (os.mkdir, os.unlink, os.stat):
        assert errno_of(call, path / ("n" * 256)) == errno.ENAMETOOLONG


def test_hard_links_share_everything(path: Path) -> None:
    (path / "a").write_text("one")
    os.link(path / "a", path / "b")
    (path / "b").write_text("two")
    assert (path / "a").read_text() == "two"
    assert (path / "a").stat().st_nlink == 2
    assert (path / "a").stat().st_ino == (path / "b").stat().st_ino
    (path / "a").unlink()
    assert ((path / "b").read_text(), (path / "b").stat().st_nlink) == ("two", 1)


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFREG])
def test_special_files_keep_kind_and_number(path: Path, kind: int) -> None:
    number = os.makedev(12, 345_678) if kind in (stat.S_IFCHR, stat.S_IFBLK) else 0
    os.mknod(path / "node", kind | 0o640, number)
    found = os.lstat(path / "node")
    assert (stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode), found.st_rdev) == (kind, 0o640, number)


def test_fifos_and_sockets_work(path: Path) -> None:
    os.mkfifo(path / "fifo")
    writer = subprocess.Popen(["sh", "-c", "echo through > fifo"], cwd=path)
    assert (path / "fifo").read_text() == "through\n"
    assert writer.wait(30) == 0
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        os.chdir(path)
        try:
            server.bind("s")
            server.listen()
            client.connect("s")
        finally:
            os.chdir("/")


def test_renaming(path: Path) -> None:
    (path / "a").write_text("a")
    (path / "b").write_text("b")
    (path / "dir" / "sub").mkdir(parents=True)
    (path / "empty").mkdir()
    assert errno_of(renameat2, path / "a", path / "b", RENAME_NOREPLACE) == errno.EEXIST
    renameat2(path / "a", path / "b", RENAME_EXCHANGE)
    assert ((path / "a").read_text(), (path / "b").read_text()) == ("b", "a")
    renameat2(path / "a", path / "dir", RENAME_EXCHANGE)
    assert ((path / "dir").read_text(), (path / "a" / "sub").is_dir()) == ("b", True)
    renameat2(path / "a", path / "dir", RENAME_EXCHANGE)
    renameat2(path / "a", path / "c", RENAME_WHITEOUT)
    assert stat.S_ISCHR((path / "a").lstat().st_mode)
    os.rename(path / "c", path / "a")  # over the whiteout
    assert errno_of(os.rename, path / "empty", path / "dir") in (errno.ENOTEMPTY, errno.EEXIST)
    assert errno_of(os.rename, path / "dir", path / "dir" / "sub" / "in-itself") == errno.EINVAL
    assert errno_of(os.rename, path / "dir", path / "a") == errno.ENOTDIR
    assert errno_of(os.rename, path / "a", path / "dir") == errno.EISDIR
    assert errno_of(os.rename, path / "absent", path / "c") == errno.ENOENT
    os.rename(path / "dir", path / "empty")
    os.rename(path / "a", path / "b")
    assert sorted(os.listdir(path)) == ["b", "empty"]
    os.link(path / "b", path / "b2")
    os.rename(path / "b", path / "b2")  # the same inode: nothing happens
    assert sorted(os.listdir(path)) == ["b", "b2", "empty"]
    (path / "empty" / ".." / "empty" / "sub").rmdir()


def test_a_file_renamed_over_stays_open(path: Path) -> None:
    (path / "old").write_text("old")
    (path / "new").write_text("new")
    with (path / "old").open() as held:
        os.rename(path / "new", path / "old")
        assert held.read() == "old"
    assert (path / "old").read_text() == "new"


def test_directories(path: Path) -> None:
    (path / "d" / "e").mkdir(parents=True)
    assert errno_of(os.rmdir, path / "d") == errno.ENOTEMPTY
    assert errno_of(os.unlink, path / "d") in (errno.EISDIR, errno.EPERM)
    assert errno_of(os.mkdir, path / "d") == errno.EEXIST
    (path / "file").touch()
    assert errno_of(os.rmdir, path / "file") == errno.ENOTDIR
    assert errno_of(os.listdir, path / "file") == errno.ENOTDIR
    assert (path / "d").stat().st_nlink == 3
    (path / "d" / "e").rmdir()
    assert (path / "d").stat().st_nlink == 2
    (path / "d").rmdir()
    assert os.listdir(path) == ["file"]


def test_a_name_found_absent_appears_when_it_is_made(path: Path) -> None:
    """Absence is remembered by the kernel; creating forgets it."""
    for make in (Path.touch, Path.mkdir, lambda p: os.symlink("x", p), os.mkfifo):
        name = path / "later"
        assert not os.path.lexists(name)
        make(name)
        assert os.path.lexists(name)
        (name.rmdir if name.is_dir() else name.unlink)()
        assert not os.path.lexists(name)
        (path / "other").touch()
        assert not os.path.lexists(name)
        os.rename(path / "other", name)
        assert os.path.lexists(name)
        name.unlink()


# -- listing


def test_deleting_while_listing_finds_every_entry_once(path: Path) -> None:
    names = {f"entry-{number:05}" for number in range(3000)}
    for name in names:
        (path / name).touch()
    seen: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            seen.append(entry.name)
            os.unlink(entry.path)
    assert sorted(seen) == sorted(names)
    assert os.listdir(path) == []


def test_entries_there_all_the_time_are_listed_once_while_others_come_and_go(path: Path) -> None:
    stay = {f"stay-{number:04}" for number in range(1500)}
    for name in stay:
        (path / name).touch()
        (path / f"go-{name}").touch()
    seen: list[str] = []
    with os.scandir(path) as entries:
        for count, entry in enumerate(entries):
            seen.append(entry.name)
            if entry.name.startswith("go-"):
                os.unlink(entry.path)
            if count % 3 == 0:
                (path / f"come-{count}").touch()
    assert sorted(name for name in seen if name.startswith("stay-")) == sorted(stay)
    assert len(seen) == len(set(seen))


def test_rm_r_of_a_deep_and_wide_tree(path: Path) -> None:
    for outer in range(30):
        directory = path / "tree" / f"{outer}" / "x" / "y"
        directory.mkdir(parents=True)
        for inner in range(60):
            (directory / f"{inner}").write_text("x")
    subprocess.run(["rm", "-r", path / "tree"], check=True)
    assert os.listdir(path) == []


def test_listing_gives_inode_numbers_and_kinds(path: Path) -> None:
    (path / "d").mkdir()
    (path / "f").touch()
    os.symlink("x", path / "l")
    with os.scandir(path) as entries:
        found = {
            entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries
        }
    expected = {name: (os.lstat(path / name).st_ino, name == "d", name == "l") for name in ("d", "f", "l")}
    assert found == expected


def test_an_empty_and_a_removed_directory_can_be_listed(path: Path) -> None:
    (path / "d").mkdir()
    fd = os.open(path / "d", os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert os.listdir(fd) == []
        (path / "d").rmdir()
        assert os.listdir(fd) == []
        assert errno_of(os.mkdir, f"/proc/self/fd/{fd}/new") == errno.ENOENT
    finally:
        os.close(fd)


# -- extended attributes


def test_extended_attributes(path: Path) -> None:
    file = path / "f"
    file.touch()
    value = bytes(range(256)) * 20
    os.setxattr(file, "user.binary", value)
    os.setxattr(file, "user.empty", b"")
    os.setxattr(file, "trusted.t", b"1")
    assert sorted(os.listxattr(file)) == ["trusted.t", "user.binary", "user.empty"]
    assert os.getxattr(file, "user.binary") == value
    assert os.getxattr(file, "user.empty") == b""
    assert errno_of(os.setxattr, file, "user.empty", b"", os.XATTR_CREATE) == errno.EEXIST
    assert errno_of(os.setxattr, file, "user.absent", b"", os.XATTR_REPLACE) == errno.ENODATA
    os.setxattr(file, "user.empty", b"new", os.XATTR_REPLACE)
    assert os.getxattr(file, "user.empty") == b"new"
    os.removexattr(file, "user.empty")
    assert errno_of(os.getxattr, file, "user.empty") == errno.ENODATA
    assert errno_of(os.removexattr, file, "user.empty") == errno.ENODATA
    os.setxattr(path, "user.on-the-root", b"r")
    assert os.getxattr(path, "user.on-the-root") == b"r"


# -- the whole


def test_statvfs_says_what_is_free(path: Path, place: Place) -> None:
    (path / "f").write_bytes(bytes(10 << 20))
    found = os.statvfs(path)
    disk = os.statvfs(place.root)
    assert found.f_namemax == 255
    assert 0 < found.f_bavail * found.f_frsize <= disk.f_blocks * disk.f_frsize
    assert found.f_blocks > found.f_bfree
    assert found.f_ffree > 1 << 20


def used_blocks(path: Path) -> tuple[int, int]:
    """As `df` and `df -i` have them."""
    found = os.statvfs(path)
    return found.f_blocks - found.f_bfree, found.f_files - found.f_ffree


def test_df_counts_the_whole_volume_and_not_what_was_looked_at(place: Place, mount: Mount) -> None:
    block = os.statvfs(mount.path).f_frsize
    (mount.path / "folder").mkdir()
    (mount.path / "folder" / "kept").write_bytes(bytes(5 * block))
    (mount.path / "gone").write_bytes(bytes(3 * block))
    locator = mount.commit()
    mount.unmount()
    again = place.mount("v")
    assert used_blocks(again.path) == (8, 4)
    (again.path / "gone").unlink()
    (again.path / "new").write_bytes(bytes(block))
    assert used_blocks(again.path) == (6, 4)
    again.kill()
    assert used_blocks(place.mount("v").path) == (6, 4)
    assert used_blocks(place.mount("v", version=locator).path) == (8, 4)


def test_df_and_mount_show_the_volume(path: Path) -> None:
    shown = subprocess.run(["df", "--output=source,fstype", path], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[1].split() == ["cowfs:v", "fuse.cowfs"]


def test_two_mounts_in_parallel_do_not_see_each_other(place: Place, mount: Mount) -> None:
    place.volume("w")
    other = place.mount("w")
    (mount.path / "file").write_text("in v")
    (other.path / "file").write_text("in w")
    assert (mount.path / "file").read_text() == "in v"
    other.unmount()
    assert (mount.path / "file").read_text() == "in v"
