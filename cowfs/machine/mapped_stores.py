"""Whether a file system changes the times of a file that is stored to through a shared mapping.

Those that write pages back do, at the latest when they are synced: they make a page read-only when
they write it, so the first store after that is a fault, which they note. Those that keep files in
memory only (tmpfs, ramfs; an overlay of them) map a page that was read writable at once, and never
hear of a store. It is tried, since of an overlay nothing else tells.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import closing

from cowfs import clock
from cowfs.machine import mount_table
from cowfs.machine.stamps import still_ns

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def are_noted(directory: str) -> bool:
    """On the file system of this directory, in which a file without a name is made for that. Where
    that is refused, its type has to tell: those that have no such files are kept by a program or by
    another machine, or overlays of old kernels."""
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        kind = _type_of(directory)
        return kind not in _IN_MEMORY and (kind != "overlay" or error.errno in _NOT_OURS)
    try:
        os.truncate(fd, mmap.PAGESIZE)
        with closing(mmap.mmap(fd, mmap.PAGESIZE)) as mapped:
            os.fsync(fd)
            before = os.fstat(fd)
            clock.sleep_s(1.1 * still_ns(before.st_ctime_ns) / 1e9)
            mapped[0] += 1  # reads it before
            return os.fstat(fd).st_ctime_ns != before.st_ctime_ns
    except (OSError, ValueError):  # no room, or nothing is mapped there
        return False
    finally:
        os.close(fd)


def _type_of(directory: str) -> str:
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mount = mount_table.mount_of(fd)
        return mount.file_system if mount is not None else ""
    finally:
        os.close(fd)
