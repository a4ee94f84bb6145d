"""The file that `vol.files.open` returns: a standard binary file over one open file of a volume.

Reading is buffered, and the engine reads ahead for sequential readers; `readinto` with a large
buffer bypasses the file's buffer. Written data reaches the volume with flush(), close() or a full
buffer, as with any Python file, and when the interpreter ends. From then on it survives this
process.

A file whose session was ended (by unmount(force=True), finalize and the like) raises OSError EBADF.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from cowfs.api.access.file_session import FileSession, SessionEnded
from cowfs.base.errors import InvalidInputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from cowfs.session.opened_file import OpenedFile

BUFFER_BYTES = 1 << 20
FLAGS = {
    "rb": os.O_RDONLY,
    "r+b": os.O_RDWR,
    "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "w+b": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
}


def flags(mode: object) -> int:
    """The flags of open(2) for a mode of open()."""
    wanted = "".join(sorted(mode, key="rwaxb+".find)) if isinstance(mode, str) else ""
    for known, found in FLAGS.items():
        if "".join(sorted(known, key="rwaxb+".find)) == wanted:
            return found
    raise InvalidInputError(
        f"a file of a volume cannot be opened in mode {mode!r}",
        hint=f"There are {', '.join(FLAGS)}; io.TextIOWrapper makes text of one.",
    )


def buffered(raw: RawFile, mode_flags: int) -> BinaryIO:
    """raw, wrapped as open() would do."""
    access = mode_flags & os.O_ACCMODE
    if access == os.O_RDONLY:
        return cast("BinaryIO", io.BufferedReader(raw, BUFFER_BYTES))
    kind = io.BufferedRandom if access == os.O_RDWR else io.BufferedWriter
    file = kind(raw, BUFFER_BYTES)
    raw.has_buffer(file)
    return cast("BinaryIO", file)


class RawFile(io.RawIOBase):
    """Not thread-safe by itself, as any raw file; its buffer is. session: None for a file of a
    mount."""

    def __init__(self, opened: OpenedFile, session: FileSession | None, name: str, mode_flags: int) -> None:
        super().__init__()
        self.name = name
        self._opened = opened
        self._session = session
        self._flags = mode_flags
        self._at = 0
        if session is not None:
            session.watch(self)
        if self._is_appending:
            self._at = opened.size()

    def has_buffer(self, file: io.BufferedIOBase) -> None:
        """The session flushes the buffer when the interpreter ends."""
        if self._session is not None:
            self._session.watch_buffer(file)

    @property
    def mode(self) -> str:
        return next(name for name, found in FLAGS.items() if found == self._flags)

    def readable(self) -> bool:
        return self._flags & os.O_ACCMODE != os.O_WRONLY

    def writable(self) -> bool:
        return self._flags & os.O_ACCMODE != os.O_RDONLY

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        self._require(self.readable(), "not open for reading")
        with self._use():
            found = self._opened.read(self._at, len(view))
        view[: len(found)] = found
        self._at += len(found)
        return len(found)

    def readall(self) -> bytes:
        self._require(self.readable(), "not open for reading")
        with self._use():
            found = self._opened.read(self._at, max(self._opened.size() - self._at, 0))
        self._at += len(found)
        return found

    def write(self, data: ReadableBuffer) -> int:
        self._require(self.writable(), "not open for writing")
        given = bytes(data)
        with self._use():
            if self._is_appending:
                self._at = self._opened.append(given)
            else:
                self._opened.write(self._at, given)
                self._at += len(given)
        return len(given)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            with self._use():
                offset += self._opened.size()
        elif whence == os.SEEK_CUR:
            offset += self._at
        elif whence != os.SEEK_SET:
            raise ValueError(f"whence is {whence!r}")
        self._require(offset >= 0, "negative seek position")
        self._at = offset
        return offset

    def tell(self) -> int:
        self._require(True, "")
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._require(self.writable(), "not open for writing")
        size = self._at if size is None else size
        with self._use():
            self._opened.truncate(size)
        return size

    def sync(self) -> None:
        """As os.fsync of a local file: data that has left the buffer is durable when this
        returns."""
        with self._use():
            self._opened.sync()

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        try:
            with self._use():
                self._opened.close()
        except OSError as error:
            if error.errno != errno.EBADF:  # EBADF: its session has ended, and the file with it
                raise

    @property
    def _is_appending(self) -> bool:
        return bool(self._flags & os.O_APPEND)

    @contextmanager
    def _use(self) -> Iterator[None]:
        if self._session is None:
            yield
            return
        try:
            used = self._session.used()
            used.__enter__()
        except SessionEnded:
            raise OSError(
                errno.EBADF, "the volume was closed, or this process forked, since it was opened", self.name
            ) from None
        try:
            yield
        except OSError as error:
            error.filename = self.name
            raise
        finally:
            used.__exit__(None, None, None)

    def _require(self, holds: bool, otherwise: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not holds:
            raise io.UnsupportedOperation(otherwise)
