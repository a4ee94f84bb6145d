"""A pipe of this machine as `copying` sees it: one file, read once, until its writers have closed
it.

It is opened where it is constructed, which waits for a writer: on the caller's thread, so that
Ctrl-C ends the waiting. Reading does not block either: while nothing comes, empty pieces give
`copying` the chance to stop.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Generator

from cowfs import clock
from cowfs.session.files import PIECE_BYTES
from cowfs.session.local_files import LocalAttr

WAIT_MS = 200


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
        return LocalAttr(ino=0, mode=stat.S_IFREG | 0o644, nlink=1, size=0, mtime_ns=self._opened_ns)

    def list(self, path: bytes) -> list[tuple[bytes, LocalAttr]]:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def readlink(self, path: bytes) -> bytes:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def pieces(self, path: bytes) -> Generator[tuple[int, bytes]]:
        """As `LocalFiles.pieces`."""
        readable = select.poll()
        readable.register(self._fd, select.POLLIN)
        offset = 0
        while True:
            try:
                piece = os.read(self._fd, PIECE_BYTES)
            except BlockingIOError:
                readable.poll(WAIT_MS)
                yield offset, b""
                continue
            yield offset, piece
            if not piece:
                return
            offset += len(piece)
