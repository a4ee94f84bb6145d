"""The file system that SQLite sees: only files made of 16 KiB blocks from elsewhere.

    SQLite ── xRead(16384 at 16384·n) ──▶ BlockFile ──▶ Blocks.read(n)      read-only: a published version
           ── xWrite ─────────────────────▶ BlockFile ──▶ Overlay.write(n)    a writer's private copy

It opens no disk file, no journal and no temporary file (connections keep those in memory), and it
locks nothing: a read-only file never changes, and an overlay belongs to one connection. A read-only
file says so (IOCAP_IMMUTABLE), which spares SQLite its checks for other writers.

Errors below keep their type: the exception is stored in `BlockFile.failure`, because SQLite may
replace it by a vague "disk I/O error" or continue without one. Code that runs a query checks it
there (`connection`). A file is used by one connection, so by one thread at a time.
"""

from __future__ import annotations

import itertools
import threading

import apsw

from cowfs.base.errors import InvalidStateError, NoSpaceError
from cowfs.base.fork_gate import GATE
from cowfs.base.fork_locks import ForkLock
from cowfs.index.overlay import PAGE_BYTES, Blocks, Overlay

VFS_NAME = "cowfs-index"


class BlockFile:
    """One open database file. SQLite defines the methods named x…
    (https://sqlite.org/c3ref/io_methods.html)."""

    def __init__(self, blocks: Blocks, *, writable: bool) -> None:
        self.failure: BaseException | None = None
        self._blocks = blocks
        self._overlay = blocks if writable and isinstance(blocks, Overlay) else None

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        number, skip = divmod(offset, PAGE_BYTES)
        try:
            if skip + amount <= PAGE_BYTES:
                page = self._read(number) if number < self._blocks.count else b""
                return page if amount == PAGE_BYTES else page[skip : skip + amount]
            return self._read_across(amount, offset)
        except BaseException as error:
            self.failure = error
            raise

    def _read_across(self, amount: int, offset: int) -> bytes:
        end = min(offset + amount, self._blocks.count * PAGE_BYTES)
        first, last = offset // PAGE_BYTES, -(-end // PAGE_BYTES)
        run = b"".join(self._read(number) for number in range(first, last))
        return run[offset - first * PAGE_BYTES : end - first * PAGE_BYTES]

    def _read(self, number: int) -> bytes:
        with GATE.outside():
            return self._blocks.read(number)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        try:
            self._write(bytes(data), offset)
        except OSError as error:
            self.failure = NoSpaceError(
                f"a commit's changed index pages do not fit on the local disk: {error.strerror}",
                hint="Free space in the cache directory or the temporary directory and commit again.",
            )
            raise self.failure from error
        except BaseException as error:
            self.failure = error
            raise

    def _write(self, data: bytes, offset: int) -> None:
        overlay = self._overlay
        if overlay is None:
            raise InvalidStateError("a published index cannot be written")
        while data:
            number, skip = divmod(offset, PAGE_BYTES)
            part = data[: PAGE_BYTES - skip]
            if len(part) < PAGE_BYTES:
                old = overlay.read(number) if number < overlay.count else bytes(PAGE_BYTES)
                overlay.write(number, old[:skip] + part + old[skip + len(part) :])
            else:
                overlay.write(number, part)
            data, offset = data[len(part) :], offset + len(part)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        if self._overlay is not None:
            self._overlay.truncate(-(-size // PAGE_BYTES))

    def xFileSize(self) -> int:  # noqa: N802
        return self._blocks.count * PAGE_BYTES

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0 if self._overlay is not None else apsw.SQLITE_IOCAP_IMMUTABLE

    def xSectorSize(self) -> int:  # noqa: N802
        return PAGE_BYTES

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Nothing is durable before `publish`."""

    def xLock(self, level: int) -> None:  # noqa: N802
        """No other connection has this file."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        """No other connection has this file."""

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        return False

    def xClose(self) -> None:  # noqa: N802
        """The blocks belong to the code that opened them."""


class _BlockVFS(apsw.VFS):
    """Opens the files announced by `open_connection`; every other name does not exist."""

    def __init__(self) -> None:
        super().__init__(VFS_NAME, base="")  # inherits time, sleep and randomness
        self._announced: dict[str, BlockFile] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def announce(self, file: BlockFile) -> str:
        with self._lock:
            name = f"index-{next(self._numbers)}"
            self._announced[name] = file
        return name

    def withdraw(self, name: str) -> None:
        with self._lock:
            self._announced.pop(name, None)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        key = name.filename() if isinstance(name, apsw.URIFilename) else name
        with self._lock:
            file = self._announced.get(key) if key is not None else None
        if file is None:
            raise apsw.CantOpenError(f"{key!r} is not an index")
        flags[1] = flags[0]
        return file  # type: ignore[return-value]  # any object with the x… methods will do

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        return False

    def xDelete(self, filename: str, sync_directory: bool) -> None:  # noqa: N802
        """There is nothing to delete."""


_vfs: _BlockVFS | None = None
_vfs_lock = ForkLock()


def open_connection(file: BlockFile, flags: int) -> apsw.Connection:
    """A connection to `file` alone. The caller sets pragmas and limits (`connection`)."""
    global _vfs
    with GATE:
        with _vfs_lock:
            if _vfs is None:
                _vfs = _BlockVFS()
        name = _vfs.announce(file)
        try:
            return apsw.Connection(name, flags=flags, vfs=VFS_NAME)
        finally:
            _vfs.withdraw(name)


def raise_failure(file: BlockFile) -> None:
    """Raises the error that occurred below SQLite since the last call, if any."""
    failure, file.failure = file.failure, None
    if failure is not None:
        raise failure
