"""Whether anybody has a file open for writing, of whatever user and in whatever container.

The kernel grants a read lease (fcntl(2), F_SETLEASE) only on a file that nobody may write to by an
open descriptor or a mapping. One that is granted is given back at once. Who opens the file for
writing at that very moment waits for it, and this process gets a signal that it ignores, instead of
SIGIO, which would end it.

File systems of other machines grant leases by rules of their own; whether they tell anything here
is tried on a file of our own. A file of another user tells nothing either, but to root.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from cowfs.machine import stamps

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_NOTHING_TOLD = frozenset(
    {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
)
"""Not ours, or not there any more, or not on such a file system."""


def first_written(root: bytes) -> bytes | None:
    """The path, relative to the directory, of a file that somebody may write to; None: there is
    none, as far as can be told."""
    if not _can_be_told(root):
        return None
    for path, found in stamps.walk(root):
        if stat.S_ISREG(found.st_mode) and is_written(os.path.join(root, path)):
            return path
    return None


def is_written(path: bytes) -> bool:
    """Whether somebody may write to the file, on a file system that can tell."""
    try:
        with _opened(path, _READ) as fd:
            return not _is_leased(fd)
    except OSError as error:
        return error.errno not in _NOTHING_TOLD  # else somebody has a lease, or it cannot be looked at now


def _is_leased(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return False
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def _can_be_told(root: bytes) -> bool:
    """Whether a file that nobody writes to gets a lease there, and one that somebody does gets
    none."""
    with ExitStack() as reading, suppress(OSError):  # no files without a name, no /proc, no leases
        with _opened(root, os.O_TMPFILE | os.O_RDWR) as writing:
            fd = reading.enter_context(_opened(f"/proc/self/fd/{writing}", os.O_RDONLY))
            is_refused = not _is_leased(fd)
        return is_refused and _is_leased(fd)
    return False


@contextmanager
def _opened(path: bytes | str, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
