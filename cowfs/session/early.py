"""Files that are uploaded before anybody commits them: those nobody has written for a while, oldest
write first, and beginnings of large ones that are still written (`growing`).

What was made of a file (its rows) is kept with the file's data version; a commit takes it over if
the version is still the same, and what a commit has drafted is kept likewise. All of it is
forgotten when chunks that it names may be gone (`StoredChunks.doubts`). `upload` goes on where it
stopped, so that every file has its turn however many are quiet, and looks at a file again only
after it was written again. For the committer, under its mutex; its chunks are durable only after
the uploader was flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from cowfs.errors import CorruptError, SourceChangedError
from cowfs.native.chunks import FileRows
from cowfs.session.growing import GrowingFiles

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import LayerExtent, SmallFiles
    from cowfs.session.growing import Begun

FILES = 4096  # asked for at once
SMALL_FILES = 1024  # stored at once, before the next look whether somebody waits

Rows: TypeAlias = "list[ExtentRow]"
QuietFile: TypeAlias = tuple[tuple[int, int], int]  # as `Engine.quiet_files` has it


class EarlyUploads:
    """store makes a file's rows, of which some are there, and may raise; store_first those of a
    part of a large one, while has_room; store_small adds those of many small files, which are named
    by name_key. unreadable is told of an inode whose staged bytes cannot be read. doubts: a number
    that changes when rows made until then count no longer."""

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
        self._until = (0, 0)  # files last written before that are done
        self._drafted = FileRows()
        self._rows = FileRows()
        self._growing = GrowingFiles(engine, store_first, has_room)

    @property
    def tables(self) -> tuple[FileRows, FileRows]:
        """What was made and still counts."""
        self._heed_doubts()
        return self._drafted, self._rows

    def made(self, ino: int, version: int) -> Rows | None:
        """Of the file at that data version."""
        for table in self.tables:
            if table.version(ino) == version and (found := table.get(ino)) is not None:
                return found[1]
        return None

    def begun(self, ino: int, extents: Sequence[LayerExtent]) -> Begun:
        """What was stored of the beginning of a file that has these extents, and still counts."""
        self._heed_doubts()
        return self._growing.begun(ino, extents)

    def take_over(self, rows: FileRows, doubts: int) -> None:
        """What a commit has made of all changed files, from when there were so many doubts, in
        place of what was made before. It stays as it is: until the commit's outcome is known, the
        engine is to be told of these files and no others."""
        self._heed_doubts()  # what is known of growing files may be older than these rows
        self._drafted, self._rows, self._doubts_met = rows, FileRows(), doubts

    @property
    def is_growing(self) -> bool:
        """Whether `upload_growing` has something to look at."""
        return self._growing.is_due

    def upload_growing(self, is_in_the_way: Callable[[], bool]) -> int:
        """As `GrowingFiles.upload`."""
        self._heed_doubts()
        return self._growing.upload(is_in_the_way)

    def upload(self, idle_s: float, is_in_the_way: Callable[[], bool]) -> int:
        """Stores quiet files until none is left, or it is in somebody's way. Returns the staged
        bytes done."""
        self._heed_doubts()
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
        """All is to be looked at again."""
        self._drafted = FileRows()
        self._rows = FileRows()
        self._growing.forget()
        self._until = (0, 0)
        self._doubts_met = self._doubts()

    def _heed_doubts(self) -> None:
        if self._doubts_met != self._doubts():
            self.forget()

    def _upload_some(self, files: Sequence[QuietFile]) -> tuple[int, int]:
        """How many of them are done, one at least, and how many bytes were stored."""
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
            rows = self._store(ino, extents, self.begun(ino, extents))
        except (CorruptError, SourceChangedError):
            return 0  # the next commit says so
        except OSError as error:
            if self._is_still(ino, version):
                self._unreadable(ino, error)  # the next commit says so
            return 0  # else overwritten meanwhile: staged bytes that nothing maps any more may be gone
        self._rows.put(ino, version, rows)
        self._growing.stored(ino, extents, rows)
        return sum(extent.length for extent in extents if extent.chunk is None)

    def _is_made(self, ino: int, version: int) -> bool:
        return any(table.version(ino) == version for table in self.tables)

    def _is_still(self, ino: int, version: int) -> bool:
        try:
            return self._engine.live_extents(ino)[0] == version
        except FileNotFoundError:
            return False
