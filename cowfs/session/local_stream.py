"""A pipe of this machine as the source of an upload: one file, read once, until its writers have
closed it.

It is opened where it is constructed, which waits for a writer, and read by `spool`: both on the
caller's thread, so that Ctrl-C ends the waiting.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import tempfile

from cowfs import clock, config
from cowfs.session.files import PIECE_BYTES
from cowfs.session.local_files import LocalAttr
from cowfs.session.source_files import SourceFile

WAIT_MS = 200
FILE_MODE = 0o644


class LocalStream:
    """`path` is a pipe; the paths that the methods take mean nothing."""

    def __init__(self, path: bytes) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.set_blocking(self._fd, False)
        self._opened_ns = clock.now_ns()

    def close(self) -> None:
        os.close(self._fd)

    def stat(self, path: bytes) -> LocalAttr:
        """Of the file that it becomes. Its size is not known before."""
        return LocalAttr(ino=0, mode=stat.S_IFREG | FILE_MODE, nlink=1, size=0, mtime_ns=self._opened_ns, ctime_ns=0)

    def list(self, path: bytes) -> list[tuple[bytes, LocalAttr]]:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def readlink(self, path: bytes) -> bytes:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def spool(self) -> None:
        """Reads it to its end, into a file without a name in the cache directory."""
        config.cache_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
        readable = select.poll()
        readable.register(self._fd, select.POLLIN)
        with tempfile.TemporaryFile(dir=config.cache_dir(), buffering=0) as file:
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
        """What was spooled."""
        return SourceFile(os.dup(self._fd))
