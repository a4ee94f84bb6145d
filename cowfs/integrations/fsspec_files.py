"""The file objects that `fsspec.CowfsFileSystem.open` returns: what reads a file of a version, and
what keeps a written file until it is published.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, SupportsIndex, cast

from cowfs import log

if TYPE_CHECKING:
    from types import TracebackType

    from fsspec import AbstractFileSystem

    from cowfs.api.ro_volume import ROVolume

BUFFER_BYTES = 1 << 20
SPOOLED_BYTES = 8 << 20

_log = log.get("fsspec")


class ReadFile(io.BufferedReader):
    """A file of a version, with what programs expect of one of fsspec. Pickles to where it is in
    that very version; whoever loads it opens it anew."""

    def __init__(self, fs: AbstractFileSystem, version: ROVolume, path: str, inner: str) -> None:
        super().__init__(version.files.open(inner).detach(), BUFFER_BYTES)  # type: ignore[attr-defined]
        self.fs, self.path = fs, path
        self.size = self.seek(0, io.SEEK_END)
        self.seek(0)
        self._lasting_path = f"cowfs://{version.name}@{version.id}/{inner}"  # a locator's would be unquoted

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Not `__reduce__`: from Python 3.12 on a buffered reader has this one, and it refuses."""
        return _reopened, (self.fs, self._lasting_path, self.tell())


def _reopened(fs: AbstractFileSystem, path: str, position: int) -> ReadFile:
    file: ReadFile = fs.open(path)
    file.seek(position)
    return file


class WrittenFile(io.BufferedIOBase):
    """A file that is being written: in a temporary file of this machine until it is closed."""

    def __init__(self, path: str, mode: str, finish: Callable[[BinaryIO], None]) -> None:
        self.path, self.mode = path, mode
        self._finish = finish
        self._file = tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 - the change closes it
        self._is_dropped = False

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
        self._file.rollover()  # what is in memory does not grow
        self._file.truncate(size)
        return size

    def close(self) -> None:
        """Publishes the file, or adds it to the transaction."""
        if self.closed:
            return
        super().close()
        if not self._is_dropped:
            self._is_dropped = True
            self._finish(cast("BinaryIO", self._file))

    def discard(self) -> None:
        """Nothing of it is published."""
        if not self._is_dropped:
            self._is_dropped = True
            self._file.close()
        self.close()

    def commit(self) -> None:
        """For fsspec's transactions: the file is part of one."""
        self.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            _log.warning("%s was never closed, and is not published", self.path)
            self.discard()

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
