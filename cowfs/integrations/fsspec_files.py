"""The file objects that `fsspec.CowfsFileSystem.open` returns: one reads a file of a version, the
others hold a written file until it is published."""

from __future__ import annotations

import io
import logging
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, SupportsIndex, cast

from fsspec.core import OpenFile

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from fsspec import AbstractFileSystem

    from cowfs.blocking import ROVolume

BUFFER_BYTES = 1 << 20
SPOOLED_BYTES = 8 << 20

_log = logging.getLogger("cowfs.fsspec")


class ReadFile(io.BufferedReader):
    """A file of a version, with the attributes that programs expect of an fsspec file. Pickles to
    its path in that exact version; unpickling opens it anew.

    blocksize, _fetch_range and the closed state can be set, because fsspec's block cache attaches a
    cache of its own. Reads bypass that cache: cowfs has one.
    """

    blocksize = BUFFER_BYTES

    def __init__(self, fs: AbstractFileSystem, version: ROVolume, path: str, inner: str) -> None:
        super().__init__(version.files.open(inner).detach(), BUFFER_BYTES)  # type: ignore[attr-defined]
        self.fs, self.path = fs, path
        self.size = self.seek(0, io.SEEK_END)
        self.seek(0)
        self._lasting_path = f"cowfs://{version.name}@{version.id}/{inner}"  # a locator's would be unquoted

    @property
    def closed(self) -> bool:
        return super().closed

    @closed.setter
    def closed(self, is_closed: bool) -> None:
        assert is_closed == self.closed, "close comes first"

    def _fetch_range(self, start: int, end: int) -> bytes:
        self.seek(start)
        return self.read(end - start)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Not `__reduce__`: from Python 3.12 on a buffered reader has this one, and it refuses."""
        return _reopen, (self.fs, self._lasting_path, self.tell())


def _reopen(fs: AbstractFileSystem, path: str, position: int) -> ReadFile:
    file: ReadFile = fs.open(path)
    file.seek(position)
    return file


class _Ending(io.IOBase):
    """A file whose `with` block raises is discarded."""

    def give_up(self) -> None:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.give_up()
        self.close()


class WrittenFile(_Ending, io.BufferedIOBase):
    """A file that is being written. It is held in a temporary file of this machine until it is
    closed, or until `commit` if closing does not commit it."""

    def __init__(self, path: str, mode: str, finish: Callable[[BinaryIO], None], *, autocommit: bool = True) -> None:
        self.path, self.mode = path, mode
        self._finish = finish
        self._autocommit = autocommit
        self._file = tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 - the change closes it
        self._is_given_up = False
        self._is_over = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._require_open()
        try:
            return self._file.write(bytes(data))
        except OSError as error:
            error.add_note("hint: What is written waits in a temporary file until it is closed: TMPDIR says where.")
            raise

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._require_open()
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        self._require_open()
        return self._file.tell()

    def truncate(self, size: int | None = None) -> int:
        self._require_open()
        size = self._file.tell() if size is None else size
        self._file.rollover()  # data in memory does not grow
        self._file.truncate(size)
        return size

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._is_given_up or _is_closed_by_error(self):
            self.discard()
        elif self._autocommit:
            self.commit()

    def give_up(self) -> None:
        """The written data is incomplete: `close` publishes nothing of it."""
        self._is_given_up = True

    def discard(self) -> None:
        """Discards the file; nothing of it is published."""
        super().close()
        if not self._is_over:
            self._is_over = True
            self._file.close()

    def commit(self) -> None:
        """Publishes the file, or adds it to the transaction."""
        super().close()
        if not self._is_over:
            self._finish(cast("BinaryIO", self._file))
            self._is_over = True

    def __del__(self) -> None:
        if not self.closed:
            _log.warning("%s was never closed, and is not published", self.path)
            self.discard()

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")


class _Wrapper(_Ending):
    """Passes written data on to another file, and ends with it."""

    _written: WrittenFile | CompressedFile

    def give_up(self) -> None:
        self._written.give_up()

    def commit(self) -> None:
        self.close()
        self._written.commit()

    def discard(self) -> None:
        self.give_up()
        self.close()
        self._written.discard()


class CompressedFile(_Wrapper, io.BufferedIOBase):
    """Writes through a compressor, and closes the underlying file with it."""

    def __init__(self, compressor: Any, written: WrittenFile) -> None:
        self._compressor, self._written = compressor, written

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return cast("int", self._compressor.write(data))

    def tell(self) -> int:
        return cast("int", self._compressor.tell())

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        try:
            self._compressor.close()
        except BaseException:
            self.give_up()
            raise
        finally:
            self._written.close()

    def __del__(self) -> None:
        """The written file reports the loss."""
        self.give_up()


class TextFile(_Wrapper, io.TextIOWrapper):
    """A text file that is being written."""

    def __init__(self, file: WrittenFile | CompressedFile, **options: Any) -> None:
        super().__init__(cast("BinaryIO", file), **options)
        self._written = file

    def close(self) -> None:
        if not self.closed:
            try:
                self.flush()
            except BaseException:
                self.give_up()
                raise
            finally:
                super().close()

    def __del__(self) -> None:
        """As of `CompressedFile`."""


def _is_closed_by_error(file: WrittenFile) -> bool:
    """Whether fsspec's `OpenFile` closes the file because its `with` block raised. `OpenFile` only
    calls `close`, and has wrappers of its own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is OpenFile.__exit__.__code__:
            closing = getattr(frame.f_locals.get("self"), "fobjects", ())
            if any(each is file for each in closing):
                return any(each is not None for each in frame.f_locals.get("args", ()))
        frame = frame.f_back
    return False
