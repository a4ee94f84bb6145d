"""A mount and a plain directory under the same random operations: results, error numbers and trees
are equal.

The plain directory is the model; what it answers is right. Commits, remounts, daemons killed with
-9 and mounts on another machine come between operations. Times the kernel sets differ between the
two by nature: those set by hand are compared with the model, all of them with what the mount itself
showed before a commit, kill or remount.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.effort import share
from tests.system.machine import Machine
from tests.system.trees import Node, differences, read_tree

pytestmark = [pytest.mark.mount, pytest.mark.slow]

NAMES = ("a", "b", "c", "d", os.fsdecode(b"\xff\x80"), "é", "l" * 255)
TOO_LONG = "x" * 256
LONG_AGO_NS = 10**18
HAS_FAST_LANE = os.environ.get("COWFS_FAST_LANE") != "0"  # pyfuse3 alone has no fallocate and no O_TMPFILE
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
RENAME_FLAGS = (0, 0, 1, 2, 4, 5)  # none (twice as often), NOREPLACE 1, EXCHANGE 2, WHITEOUT 4


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Of (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


ANY = 2**32 - 1
ACLS = (
    b"",  # none
    acl((1, 6, ANY), (4, 5, ANY), (32, 0, ANY)),  # no more than a mode
    acl((1, 7, ANY), (2, 6, 7), (4, 5, ANY), (8, 4, 9), (16, 7, ANY), (32, 4, ANY)),
    acl((1, 6, ANY), (2, 0, 7), (4, 7, ANY), (16, 5, ANY), (32, 1, ANY)),
    acl((1, 7, ANY), (4, 7, ANY), (16, 1, ANY), (32, 0, ANY)),
)

OFFSETS = st.one_of(st.integers(0, 10_000), st.sampled_from([4095, 4096, 131_071, 131_072, 1 << 20, (1 << 20) + 1]))
LENGTHS = st.one_of(st.integers(0, 300), st.sampled_from([4096, 65_536, 131_073, 600_000]))
FILLS = st.integers(0, 255)


def rename_with_flags(source: Path, target: Path, flags: int) -> None:
    if LIBC.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), ctypes.c_uint(flags)):
        raise OSError(ctypes.get_errno(), "renameat2")


def fallocate(fd: int, *, mode: int, offset: int, length: int) -> None:
    if LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def pattern(fill: int, length: int) -> bytes:
    """Bytes that say where they belong: a range shifted or repeated by mistake shows."""
    return bytes((fill + i * 7 + (i >> 8)) & 0xFF for i in range(min(length, 1024))) * (length // 1024 + 1)


class MountAndPlainDirectory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.plain = self.machine.root / "local" / "plain"
        self.plain.mkdir()
        self.machine.create("random")
        self.mounted = self.machine.mount("random")
        self.plain.chmod(stat.S_IMODE(self.mounted.stat().st_mode))
        self.handles: list[tuple[int, int]] = []  # (plain, mounted)
        self.umask_before = os.umask(0o022)

    # -- both sides

    def both(self, operation: Callable[[Path], Any]) -> Any:
        """Does the same on both sides; returns what it gave, or None when it failed (equally) on
        both."""
        return self.same(lambda: operation(self.plain), lambda: operation(self.mounted))

    def with_handle(self, data: st.DataObject, operation: Callable[[int], Any]) -> Any:
        plain, mounted = data.draw(st.sampled_from(self.handles))
        return self.same(lambda: operation(plain), lambda: operation(mounted))

    def changing(self, data: st.DataObject, operation: Callable[[int], Any]) -> None:
        """Also compares whether the time of modification is another one afterwards."""

        def timed(fd: int) -> tuple[Any, str | None, bool]:
            os.utime(fd, ns=(LONG_AGO_NS, LONG_AGO_NS))
            gave, problem = None, None
            try:
                gave = operation(fd)
            except OSError as error:
                problem = os.strerror(error.errno or 0)
            return gave, problem, os.fstat(fd).st_mtime_ns != LONG_AGO_NS

        self.with_handle(data, timed)

    @staticmethod
    def same(on_plain: Callable[[], Any], on_mounted: Callable[[], Any]) -> Any:
        outcomes: list[tuple[str, Any]] = []
        for attempt in (on_plain, on_mounted):
            try:
                outcomes.append(("gave", attempt()))
            except OSError as error:
                outcomes.append(("failed", os.strerror(error.errno or 0)))
        assert outcomes[0] == outcomes[1], "plain directory != mount"
        return outcomes[0][1] if outcomes[0][0] == "gave" else None

    def existing(self) -> list[str]:
        return [os.fsdecode(name) for name in read_names(self.plain)]

    def draw_path(self, data: st.DataObject, *, new: bool = False) -> str:
        """Mostly a path that exists (or, with `new`, a name in a directory that does), sometimes
        any."""
        known = self.existing()
        if new:
            directories = [".", *(name for name in known if os.path.isdir(self.plain / name))]
            return os.path.join(data.draw(st.sampled_from(directories)), data.draw(st.sampled_from(NAMES)))
        if known and data.draw(st.integers(0, 9)) > 0:
            return data.draw(st.sampled_from(known))
        return data.draw(st.lists(st.sampled_from((*NAMES, TOO_LONG)), min_size=1, max_size=3).map("/".join))

    # -- names

    @rule(data=st.data(), mode=st.sampled_from([0o755, 0o700, 0o2775, 0o1777]))
    def mkdir(self, data: st.DataObject, mode: int) -> None:
        name = self.draw_path(data, new=True)
        self.both(lambda root: os.mkdir(root / name, mode))

    @rule(data=st.data())
    def rmdir(self, data: st.DataObject) -> None:
        name = self.draw_path(data)
        self.both(lambda root: os.rmdir(root / name))

    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        name = self.draw_path(data)
        self.both(lambda root: os.unlink(root / name))

    @rule(data=st.data(), flags=st.sampled_from(RENAME_FLAGS), new=st.booleans())
    def rename(self, data: st.DataObject, flags: int, new: bool) -> None:
        source, target = self.draw_path(data), self.draw_path(data, new=new)
        self.both(lambda root: rename_with_flags(root / source, root / target, flags))

    @rule(data=st.data())
    def link(self, data: st.DataObject) -> None:
        source, target = self.draw_path(data), self.draw_path(data, new=True)
        self.both(lambda root: os.link(root / source, root / target, follow_symlinks=False))

    @rule(data=st.data(), to=st.sampled_from(["a", "../b", "c/d", "/no/such", "x" * 1000, "."]))
    def symlink(self, data: st.DataObject, to: str) -> None:
        name = self.draw_path(data, new=True)
        self.both(lambda root: os.symlink(to, root / name))

    @rule(data=st.data(), kind=st.sampled_from([stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG, stat.S_IFCHR]))
    def mknod(self, data: st.DataObject, kind: int) -> None:
        name = self.draw_path(data, new=True)
        self.both(lambda root: os.mknod(root / name, kind | 0o640, os.makedev(1, 3) if kind == stat.S_IFCHR else 0))

    @rule(data=st.data())
    def list_directory(self, data: st.DataObject) -> None:
        name = self.draw_path(data)
        self.both(lambda root: sorted(os.listdir(root / name)))

    @rule(data=st.data())
    def readlink(self, data: st.DataObject) -> None:
        name = self.draw_path(data)
        self.both(lambda root: os.readlink(root / name))

    # -- attributes

    @rule(data=st.data(), mode=st.sampled_from([0, 0o644, 0o4755, 0o2755, 0o1777, 0o7777]))
    def chmod(self, data: st.DataObject, mode: int) -> None:
        name = self.draw_path(data)
        found = mode_of(self.plain / name)
        if not stat.S_ISDIR(found):
            mode &= 0o1777  # root's own writes clear a file's set-id bits, unlike ext4's: semantics.md says so
        if not stat.S_ISLNK(found):  # chmod follows a link, perhaps out of the tree
            self.both(lambda root: os.chmod(root / name, mode))

    @rule(data=st.data(), owner=st.sampled_from([(0, 0), (1, 1), (-1, 2), (65_534, -1)]))
    def chown(self, data: st.DataObject, owner: tuple[int, int]) -> None:
        name = self.draw_path(data)
        self.both(lambda root: os.lchown(root / name, *owner))

    # from one second after the earliest that ext4 stores: in that one it drops the nanoseconds
    @rule(data=st.data(), times=st.tuples(*[st.integers((1 - 2**31) * 10**9, 2**33 * 10**9)] * 2))
    def utimens(self, data: st.DataObject, times: tuple[int, int]) -> None:
        name = self.draw_path(data)

        def set_and_read(root: Path) -> int:
            os.utime(root / name, ns=times, follow_symlinks=False)
            return os.lstat(root / name).st_mtime_ns

        self.both(set_and_read)

    @rule(
        data=st.data(),
        name=st.sampled_from(["user.a", "user.b", "user." + "n" * 200, "trusted.t"]),
        value=st.one_of(st.binary(max_size=40), st.just(b"v" * 700)),
        flags=st.sampled_from([0, 0, os.XATTR_CREATE, os.XATTR_REPLACE]),
    )
    def set_xattr(self, data: st.DataObject, name: str, value: bytes, flags: int) -> None:
        path = self.draw_path(data)
        self.both(lambda root: os.setxattr(root / path, name, value, flags, follow_symlinks=False))

    @rule(data=st.data(), name=st.sampled_from(["user.a", "user.b", "trusted.t"]))
    def remove_xattr(self, data: st.DataObject, name: str) -> None:
        path = self.draw_path(data)
        self.both(lambda root: os.removexattr(root / path, name, follow_symlinks=False))

    @rule(data=st.data(), acl=st.sampled_from(ACLS), is_default=st.booleans())
    def set_acl(self, data: st.DataObject, acl: bytes, is_default: bool) -> None:
        path, name = self.draw_path(data), f"system.posix_acl_{'default' if is_default else 'access'}"
        if acl:
            self.both(lambda root: os.setxattr(root / path, name, acl, follow_symlinks=False))
        else:
            self.both(lambda root: os.removexattr(root / path, name, follow_symlinks=False))

    @rule(mask=st.sampled_from([0, 0o022, 0o077]))
    def umask(self, mask: int) -> None:
        os.umask(mask)

    @rule(data=st.data(), size=OFFSETS)
    def truncate(self, data: st.DataObject, size: int) -> None:
        name = self.draw_path(data)
        if stat.S_IFMT(mode_of(self.plain / name)) in (0, stat.S_IFREG, stat.S_IFDIR):  # a FIFO would wait for a reader
            self.both(lambda root: os.truncate(root / name, size))

    # -- whole files

    @rule(data=st.data(), fill=FILLS, length=LENGTHS, append=st.booleans())
    def write_file(self, data: st.DataObject, fill: int, length: int, append: bool) -> None:
        name = self.draw_path(data, new=True)
        if stat.S_IFMT(mode_of(self.plain / name)) not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            return

        def write(root: Path) -> None:
            flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
            fd = os.open(root / name, flags | os.O_NOFOLLOW, 0o644)
            try:
                os.write(fd, pattern(fill, length)[:length])
            finally:
                os.close(fd)

        self.both(write)

    # -- handles

    @precondition(lambda self: len(self.handles) < 6)
    @rule(data=st.data(), flags=st.sampled_from([0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_TRUNC, os.O_APPEND]))
    def open(self, data: st.DataObject, flags: int) -> None:
        name = self.draw_path(data, new=bool(flags & os.O_CREAT))
        if stat.S_IFMT(mode_of(self.plain / name)) not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            return
        opened: list[int] = []

        def attempt(root: Path) -> None:
            opened.append(os.open(root / name, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600))

        self.both(attempt)
        if opened:
            self.handles.append((opened[0], opened[1]))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), offset=OFFSETS, fill=FILLS, length=LENGTHS)
    def write_handle(self, data: st.DataObject, offset: int, fill: int, length: int) -> None:
        self.changing(data, lambda fd: os.pwrite(fd, pattern(fill, length)[:length], offset))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), offset=OFFSETS, length=LENGTHS)
    def read_handle(self, data: st.DataObject, offset: int, length: int) -> None:
        self.with_handle(data, lambda fd: os.pread(fd, length, offset))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), size=OFFSETS)
    def truncate_handle(self, data: st.DataObject, size: int) -> None:
        self.changing(data, lambda fd: os.ftruncate(fd, size))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), offset=st.integers(0, 5000), fill=FILLS)
    def store_through_mapping(self, data: st.DataObject, offset: int, fill: int) -> None:
        def store(fd: int) -> int:
            size = os.fstat(fd).st_size
            if size <= offset:
                return size
            with mmap.mmap(fd, size) as view:
                end = min(size, offset + 3000)
                view[offset:end] = pattern(fill, 3000)[: end - offset]
            return size

        self.with_handle(data, store)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def copy_range(self, data: st.DataObject) -> None:
        start, length, to = data.draw(st.tuples(OFFSETS, LENGTHS, OFFSETS))
        if abs(start - to) >= length:  # overlapping ranges are refused
            self.changing(data, lambda fd: os.copy_file_range(fd, fd, length, start, to))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def copy_between_handles(self, data: st.DataObject) -> None:
        start, length, to = data.draw(st.tuples(OFFSETS, LENGTHS, OFFSETS))
        source, target = data.draw(st.tuples(*[st.sampled_from(self.handles)] * 2))
        if not os.path.samestat(os.fstat(source[0]), os.fstat(target[0])):
            self.same(
                *[partial(os.copy_file_range, *pair, length, start, to) for pair in zip(source, target, strict=True)]
            )

    @precondition(lambda self: self.handles and HAS_FAST_LANE)
    @rule(data=st.data(), mode=st.sampled_from([0, 1, 3, 3, 16, 17]), offset=OFFSETS, length=LENGTHS)
    def allocate(self, data: st.DataObject, mode: int, offset: int, length: int) -> None:
        """Mode: KEEP_SIZE 1, PUNCH_HOLE 2, ZERO_RANGE 16."""
        self.changing(data, partial(fallocate, mode=mode, offset=offset, length=length))

    @precondition(lambda self: HAS_FAST_LANE)
    @rule(data=st.data(), fill=FILLS, length=LENGTHS)
    def link_nameless(self, data: st.DataObject, fill: int, length: int) -> None:
        """O_TMPFILE, then linkat."""
        directory, name = self.draw_path(data), self.draw_path(data, new=True)
        if stat.S_IFMT(mode_of(self.plain / directory)) not in (0, stat.S_IFREG, stat.S_IFDIR):
            return

        def write(root: Path) -> None:
            fd = os.open(root / directory, os.O_TMPFILE | os.O_WRONLY, 0o640)
            try:
                os.write(fd, pattern(fill, length)[:length])
                os.link(f"/proc/self/fd/{fd}", root / name, src_dir_fd=fd)  # only so the link is followed
            finally:
                os.close(fd)

        self.both(write)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), datasync=st.booleans())
    def fsync_handle(self, data: st.DataObject, datasync: bool) -> None:
        self.with_handle(data, os.fdatasync if datasync else os.fsync)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def stat_handle(self, data: st.DataObject) -> None:
        def facts(fd: int) -> tuple[int, ...]:
            found = os.fstat(fd)
            return (found.st_mode, found.st_nlink, found.st_size, found.st_uid, found.st_gid)

        self.with_handle(data, facts)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def close_handle(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.handles))
        self.handles.remove(pair)
        for fd in pair:
            os.close(fd)

    # -- what only cowfs does: nothing shows

    @rule()
    def compare(self) -> None:
        assert differences(read_tree(self.plain, times=False), read_tree(self.mounted, times=False)) == []

    @rule()
    def commit(self) -> None:
        before = self.snapshot()
        self.machine.commit(self.mounted)
        self.unchanged_since(before)

    @rule()
    def remount(self) -> None:
        before = self.let_go()
        self.machine.unmount(self.mounted)
        self.machine.mount("random")
        self.unchanged_since(before)

    @rule()
    def kill_daemon(self) -> None:
        before = self.let_go()
        self.machine.kill_daemon(self.mounted)
        self.machine.mount("random")
        self.unchanged_since(before)

    @rule()
    def mount_elsewhere(self) -> None:
        locator = self.machine.commit(self.mounted)
        expected = self.snapshot()
        self.compare()
        with Machine(self.machine.store) as elsewhere:
            other = elsewhere.mount(locator, at="back")
            assert differences(expected, read_tree(other, times=not self.handles)) == []
            elsewhere.unmount(other)

    def snapshot(self) -> dict[bytes, Node]:
        """What the mount shows. Without times while files are open: mapped stores not delivered yet
        will move them."""
        return read_tree(self.mounted, times=not self.handles)

    def unchanged_since(self, before: dict[bytes, Node]) -> None:
        assert differences(before, self.snapshot()) == []
        self.compare()

    def let_go(self) -> dict[bytes, Node]:
        for pair in self.handles:
            for fd in pair:
                os.close(fd)
        self.handles.clear()
        return self.snapshot()

    def teardown(self) -> None:
        try:
            self.compare()
            self.let_go()
        finally:
            os.umask(self.umask_before)
            self.machine.close()


def mode_of(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def read_names(root: Path) -> list[bytes]:
    """Relative names of everything below root, in a fixed order so that a failure repeats."""
    found = []
    for directory, directories, files in os.walk(os.fsencode(root)):
        found += [os.path.relpath(os.path.join(directory, name), os.fsencode(root)) for name in directories + files]
    return sorted(found)


MountAndPlainDirectory.TestCase.settings = settings(
    max_examples=int(os.environ.get("COWFS_TEST_EXAMPLES", share(6))),
    stateful_step_count=80,
    deadline=None,
    print_blob=True,
    phases=(
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ),  # shrinking would mount for minutes; the seed repeats a failure
    suppress_health_check=list(HealthCheck),
)

TestMountAndPlainDirectory = MountAndPlainDirectory.TestCase
