"""Tells whether a file system changes a file's times after a store through a shared mapping.

Disk file systems do, at the latest when the file is synced: a page becomes read-only when it is
written back, so the next store to it causes a fault, which the kernel notes. File systems that keep
files in memory only (tmpfs, ramfs, an overlay of them) map a page writable at its first read, and
never learn of a store. This module tries it, since an overlay does not tell in any other way.
"""

from __future__ import annotations

import mmap
import os
from contextlib import closing

from cowfs.base import clock
from cowfs.machine import mount_table
from cowfs.machine.folders.stamps import still_ns

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def are_noted(directory: int) -> bool:
    """On the file system of this open directory. Tries it with an unnamed file there; if none can
    be made, the type of the file system decides."""
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=directory)
        with open(fd, "r+b") as file:
            return _is_noted(file.fileno())
    except (OSError, ValueError):  # ValueError: less than a page was written
        mount = mount_table.mount_of(directory)
        return mount is None or mount.file_system not in _IN_MEMORY


def _is_noted(fd: int) -> bool:
    """The page is allocated before it is mapped, and the kernel itself stores to it: without room
    for the page it returns an error, while a store by this process would kill it."""
    os.pwrite(fd, bytes(mmap.PAGESIZE), 0)
    with closing(mmap.mmap(fd, mmap.PAGESIZE)) as mapped, open("/dev/zero", "rb", buffering=0) as zeros:
        os.fsync(fd)
        before = os.fstat(fd)
        clock.sleep_s(1.1 * still_ns(before.st_ctime_ns) / 1e9)
        _ = mapped[0]  # the page is read first
        zeros.readinto(mapped)
        return os.fstat(fd).st_ctime_ns != before.st_ctime_ns
