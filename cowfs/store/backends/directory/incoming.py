"""Objects on their way into a directory store: files in `.incoming`, whole and durable before they
get the name of a key.

    <root>/.incoming/<32 hex>   one object; the writer links or renames it, and removes the remaining name

`.incoming` is opened beneath the root and every file by its descriptor, so a link that another user
puts there leads nowhere. The first object that a store writes also sweeps: it removes files that
killed writers have left. A leftover is a regular file with a name as above, of the same owner as
the new file, and more than a day older than it. Owner and time of both come from the file system of
the store, so neither this machine's clock nor a mapping of users makes a difference. Readers never
sweep.

Large objects are written past the page cache (O_DIRECT) where their memory and the file system
allow it. That saves a tenth of the processor time and keeps the pages of programs in memory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cowfs.base import clock
from cowfs.base.beneath import DIRECTORY, Root, rename_new
from cowfs.store.contract import Data

INCOMING = ".incoming"
_NAME = re.compile(r"[0-9a-f]{32}")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SWEEP_AFTER_NS = 24 * 3600 * 1_000_000_000
_DIRECT_FROM_BYTES = 1 << 20
_DIRECT_ALIGNMENT = 4096  # of memory, offset and length: what any disk is content with


class Incoming:
    """shared_mode: permissions of directories in a store that users share; 0: the umask decides.
    Threads: any number; two first writers may both sweep."""

    def __init__(self, shared_mode: int) -> None:
        self._shared_mode = shared_mode
        self._is_swept = False

    @contextmanager
    def write(self, root: Root, data: Data) -> Iterator[tuple[int, str]]:
        """(descriptor of `.incoming`, name in it) of a durable file with these bytes. Its name is
        gone afterwards."""
        with self._directory(root) as directory:
            name = clock.random_bytes(16).hex()
            try:
                self._write(directory, name, data)
                yield directory, name
            finally:
                _unlink_quietly(directory, name)

    def make_directory(self, root: Root, path: str) -> None:
        """One directory, whose parent exists; it may be there already. A shared one never shows
        with other permissions than it ends up with: it is made under a name that only this call
        knows, and renamed."""
        if not self._shared_mode:
            root.make_directory(path)
            return
        if _is_directory(root, path):
            return
        made = f"{INCOMING}.{clock.random_bytes(16).hex()}"
        root.make_directory(made, self._shared_mode, exact=True)
        try:
            with root.parent(path) as (above, name):
                # An empty one of another writer is not replaced: that writer may have it open.
                if not rename_new(made.encode(), name, src_dir_fd=root.fileno(), dst_dir_fd=above):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        except OSError:
            with suppress(OSError):
                os.rmdir(made, dir_fd=root.fileno())
            if not _is_directory(root, path):  # else another writer has made it
                raise

    @contextmanager
    def _directory(self, root: Root) -> Iterator[int]:
        try:
            fd = root.open_fd(INCOMING, DIRECTORY)
        except FileNotFoundError:
            self.make_directory(root, INCOMING)
            fd = root.open_fd(INCOMING, DIRECTORY)
        try:
            yield fd
        finally:
            os.close(fd)

    def _write(self, directory: int, name: str, data: Data) -> None:
        fd = os.open(name, _NEW, 0o666, dir_fd=directory)
        try:
            if self._shared_mode:
                os.fchmod(fd, self._shared_mode & 0o666)
            _write_all(fd, memoryview(data))
            os.fsync(fd)
            if not self._is_swept:
                self._is_swept = True
                _sweep(directory, os.fstat(fd))
        finally:
            os.close(fd)


def _is_directory(root: Root, path: str) -> bool:
    try:
        return stat.S_ISDIR(root.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _sweep(directory: int, new: os.stat_result) -> None:
    """Best effort: files that cannot be removed now are left to the next writer."""
    with suppress(OSError):
        for name in os.listdir(directory):
            if not _NAME.fullmatch(name):
                continue
            with suppress(OSError):
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == new.st_uid
                if is_ours and found.st_mtime_ns < new.st_mtime_ns - _SWEEP_AFTER_NS:
                    os.unlink(name, dir_fd=directory)


def _write_all(fd: int, data: memoryview) -> None:
    """To a file that was opened for writing, at its beginning."""
    if len(data) >= _DIRECT_FROM_BYTES:
        data = data[_write_direct(fd, data[: len(data) - len(data) % _DIRECT_ALIGNMENT]) :]
    while data:
        data = data[os.write(fd, data) :]


def _write_direct(fd: int, data: memoryview) -> int:
    """Bytes that could be written past the page cache."""
    flags, done = fcntl.fcntl(fd, fcntl.F_GETFL), 0
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        while done < len(data):
            done += os.write(fd, data[done:])
    except OSError as error:
        if error.errno != errno.EINVAL:  # the file system, or the memory, is not made for it
            raise
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
    return done


def _unlink_quietly(directory: int, name: str) -> None:
    with suppress(OSError):  # renamed away, or left to the sweep
        os.unlink(name, dir_fd=directory)
