"""Uploads files before they are committed: files without recent writes, oldest write first, and the
beginnings of large files that are still being written (`growing`).

The rows made for a file are kept with its data version. A commit uses them if the version is
unchanged; the rows that a commit has drafted are kept likewise. All rows are dropped when chunks
they name may be gone (`StoredChunks.doubts`). `upload` continues where it stopped, so every file
gets its turn however many are quiet, and it looks at a file again only after another write. For the
committer, under its mutex. The chunks are durable only after the uploader was flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from cowfs.base.errors import CorruptError, SourceChangedError
from cowfs.native.chunks import FileRows
from cowfs.session.growing import GrowingFiles

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import LayerExtent, SmallFiles
    from cowfs.session.growing import Begun

FILES = 4096  # requested from the engine at once
SMALL_FILES = 1024  # stored at once, before checking again whether a caller waits

Rows: TypeAlias = "list[ExtentRow]"
QuietFile: TypeAlias = tuple[tuple[int, int], int]  # as `Engine.quiet_files` has it


class EarlyUploads:
    """store makes a file's rows, some of which exist already, and may raise. store_first makes rows
    for a part of a large file, while has_room. store_small adds the rows of many small files, named
    by name_key. unreadable is called with an inode whose staged bytes cannot be read. doubts: a
    number that changes when earlier rows become invalid."""

    def __init__(
        self,
        engine: Engine,
        store: Callable[[int, Sequence[LayerExtent], Begun], Rows],
        store_first: Callable[[int, Sequence[LayerExtent], int, int], Rows],
        has_room: Callable[[], bool],
        store_small: Callable[[SmallFiles, FileRows], None],
        name_key: bytes | None,
        unreadable: Callable[[int, OSError], None],
        doubts: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._store = store
        self._store_small = store_small
        self._name_key = name_key
        self._unreadable = unreadable
        self._doubts = doubts
        self._doubts_met = doubts()
        self._until = (0, 0)  # all files last written before this are stored
        self._drafted = FileRows()
        self._rows = FileRows()
        self._growing = GrowingFiles(engine, store_first, has_room)

    @property
    def tables(self) -> tuple[FileRows, FileRows]:
        """The rows that are still valid."""
        self._check_doubts()
        return self._drafted, self._rows

    def find_rows(self, ino: int, version: int) -> Rows | None:
        """The rows of a file at that data version, if they exist."""
        for table in self.tables:
            if table.version(ino) == version and (found := table.get(ino)) is not None:
                return found[1]
        return None

    def find_beginning(self, ino: int, extents: Sequence[LayerExtent]) -> Begun:
        """The stored and still valid beginning of a file that has these extents."""
        self._check_doubts()
        return self._growing.find_beginning(ino, extents)

    def take_over(self, rows: FileRows, doubts: int) -> None:
        """Replaces all earlier rows by those that a commit has made of all changed files, when the
        doubts had this value. They stay unchanged: until the commit's outcome is known, the engine
        must be given exactly these files."""
        self._check_doubts()  # the state of growing files may be older than these rows
        self._drafted, self._rows, self._doubts_met = rows, FileRows(), doubts

    @property
    def is_growing(self) -> bool:
        """Whether `upload_growing` has something to look at."""
        return self._growing.is_due

    def upload_growing(self, is_in_the_way: Callable[[], bool]) -> int:
        """As `GrowingFiles.upload`."""
        self._check_doubts()
        return self._growing.upload(is_in_the_way)

    def upload(self, idle_s: float, is_in_the_way: Callable[[], bool]) -> int:
        """Stores quiet files until none is left or a caller needs the mutex. Returns the staged
        bytes stored."""
        self._check_doubts()
        done_bytes = 0
        while files := self._engine.quiet_files(idle_s, self._until, FILES):
            done = 0
            while done < len(files):
                if is_in_the_way():
                    return done_bytes
                count, stored_bytes = self._upload_some(files[done : done + SMALL_FILES])
                done += count
                done_bytes += stored_bytes
                self._until = files[done - 1][0]
            if len(files) < FILES:
                break
        return done_bytes

    def forget(self) -> None:
        """Drops all rows, so that every file is looked at again."""
        self._drafted = FileRows()
        self._rows = FileRows()
        self._growing.forget()
        self._until = (0, 0)
        self._doubts_met = self._doubts()

    def _check_doubts(self) -> None:
        if self._doubts_met != self._doubts():
            self.forget()

    def _upload_some(self, files: Sequence[QuietFile]) -> tuple[int, int]:
        """Stores a batch. Returns how many files are done, at least one, and the bytes stored."""
        wanted = [(at, ino) for at, ((_, ino), found) in enumerate(files) if not self._is_made(ino, found)]
        small = self._engine.live_small_files([ino for _, ino in wanted], self._name_key)
        self._store_small(small, self._rows)
        done = wanted[small.count()][0] if small.count() < len(wanted) else len(files)
        return (done, small.size_bytes()) if done else (1, self._upload(files[0][0][1], files[0][1]))

    def _upload(self, ino: int, found: int) -> int:
        if self._is_made(ino, found):
            return 0
        try:
            version, extents = self._engine.live_extents(ino)
        except FileNotFoundError:  # removed meanwhile
            return 0
        try:
            rows = self._store(ino, extents, self.find_beginning(ino, extents))
        except (CorruptError, SourceChangedError):
            return 0  # the next commit reports it
        except OSError as error:
            if self._is_still(ino, version):
                self._unreadable(ino, error)  # the next commit reports it
            return 0  # otherwise it was overwritten, and unmapped staged bytes may be gone
        self._rows.put(ino, version, rows)
        self._growing.record_stored(ino, extents, rows)
        return sum(extent.length for extent in extents if extent.chunk is None)

    def _is_made(self, ino: int, version: int) -> bool:
        return any(table.version(ino) == version for table in self.tables)

    def _is_still(self, ino: int, version: int) -> bool:
        try:
            return self._engine.live_extents(ino)[0] == version
        except FileNotFoundError:
            return False
