"""A pipe of this machine as the source of an upload: one file, read once, until its writers have
closed it.

The constructor opens it, which waits for a writer, and `spool` reads it: both on the caller's
thread, so that Ctrl-C ends the waiting.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import tempfile

from cowfs.base import clock, config, private_directories
from cowfs.transfer.local_files import LocalAttr
from cowfs.transfer.source_files import SourceFile

PIECE_BYTES = 1 << 20
WAIT_MS = 200
FILE_MODE = 0o644


class LocalStream:
    """`path` is a pipe; the path arguments of the methods are ignored."""

    def __init__(self, path: bytes) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.set_blocking(self._fd, False)
        self._opened_ns = clock.now_ns()

    def close(self) -> None:
        os.close(self._fd)

    def stat(self, path: bytes) -> LocalAttr:
        """Attributes of the file that the pipe becomes. The size is not known yet."""
        return LocalAttr(ino=0, mode=stat.S_IFREG | FILE_MODE, nlink=1, size=0, mtime_ns=self._opened_ns, ctime_ns=0)

    def list(self, path: bytes) -> list[tuple[bytes, LocalAttr]]:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def readlink(self, path: bytes) -> bytes:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def spool(self) -> None:
        """Reads the pipe to its end, into an unnamed file in the cache directory."""
        cache_dir = config.cache_dir()
        private_directories.make(cache_dir.resolve())
        readable = select.poll()
        readable.register(self._fd, select.POLLIN)
        with tempfile.TemporaryFile(dir=cache_dir, buffering=0) as file:
            while True:
                try:
                    piece = os.read(self._fd, PIECE_BYTES)
                except BlockingIOError:
                    readable.poll(WAIT_MS)
                    continue
                if not piece:
                    break
                while piece:
                    piece = piece[file.write(piece) :]
            os.close(self._fd)
            self._fd = os.dup(file.fileno())
            os.fchmod(self._fd, FILE_MODE)

    def open_file(self, path: bytes) -> SourceFile:
        """Opens the spooled file."""
        return SourceFile(os.dup(self._fd))
