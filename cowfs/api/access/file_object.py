"""The file that `vol.files.open` returns: a standard file over one open file of a volume, of bytes
or of text.

Reading is buffered, and the engine reads ahead for sequential readers; `readinto` with a large
buffer bypasses the file's buffer. Written data reaches the volume with flush(), close() or a full
buffer, as with any Python file, and when the interpreter ends. From then on it survives this
process.

A file whose session was ended (by unmount(force=True), finalize and the like) raises OSError EBADF.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from cowfs.api.access.file_session import FileSession, SessionEnded
from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass

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


NEWLINES = (None, "", "\n", "\r", "\r\n")


@dataclass(frozen=True)
class Text:
    """As the arguments of open(), except that UTF-8 is the default on every machine."""

    encoding: str
    errors: str
    newline: str | None


@dataclass(frozen=True)
class Mode:
    """A mode of open(). flags: those of open(2). text: how bytes become text; None: they do not."""

    name: str
    flags: int
    text: Text | None


def parse_mode(mode: object, encoding: str | None, errors: str | None, newline: str | None) -> Mode:
    """InvalidInputError: there is no such mode, encoding or newline. Nothing was opened then."""
    letters = set(mode) if isinstance(mode, str) else set()
    is_text = "b" not in letters
    flags = {frozenset(known): found for known, found in FLAGS.items()}.get(frozenset(letters - {"t"} | {"b"}))
    if flags is None or not isinstance(mode, str) or len(mode) != len(letters) or {"b", "t"} <= letters:
        raise InvalidInputError(
            f"a file of a volume cannot be opened in mode {mode!r}",
            hint=f"There are {', '.join(FLAGS)}; without the b, files are of text.",
        )
    if not is_text:
        if (encoding, errors, newline) != (None, None, None):
            raise InvalidInputError(
                f"encoding, errors and newline are for text, and mode {mode!r} is binary",
                hint=f"Give mode {mode.replace('b', '')!r}, or leave them out.",
            )
        return Mode(mode, flags, None)
    try:
        found = Text(encoding or "utf-8", errors or "strict", newline)
        codecs.lookup(found.encoding)
        codecs.lookup_error(found.errors)
    except (LookupError, TypeError) as error:
        raise InvalidInputError(str(error), hint="Give those that Python's open() knows.") from None
    if newline not in NEWLINES:
        raise InvalidInputError(f"newline is {newline!r}", hint=f"It is one of {', '.join(map(repr, NEWLINES))}.")
    return Mode(mode, flags, found)


def wrap(raw: RawFile, mode: Mode) -> IO[Any]:
    """raw, wrapped as open() would do."""
    file = _buffer(raw, mode.flags)
    if mode.text is not None:
        file = io.TextIOWrapper(cast("BinaryIO", file), mode.text.encoding, mode.text.errors, mode.text.newline)
        file.mode = mode.name  # type: ignore[misc]
    if mode.flags & os.O_ACCMODE != os.O_RDONLY:
        raw.has_buffer(file)
    return cast("IO[Any]", file)


def _buffer(raw: RawFile, flags: int) -> io.BufferedIOBase | io.TextIOBase:
    access = flags & os.O_ACCMODE
    if access == os.O_RDONLY:
        return io.BufferedReader(raw, BUFFER_BYTES)
    return (io.BufferedRandom if access == os.O_RDWR else io.BufferedWriter)(raw, BUFFER_BYTES)


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

    def has_buffer(self, file: io.BufferedIOBase | io.TextIOBase) -> None:
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
