"""Files that are uploaded before anybody commits them: those nobody has written for a while, oldest write first.

What was made of a file (its rows) is kept with the file's data version; a commit takes it over if the version is still the same.
`upload` goes on where it stopped, so that every file has its turn however many are quiet, and looks at a file again only after it
was written again. For the committer, under its mutex; its chunks are durable only after the uploader was flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from cowfs.native import FileRows

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine, LayerExtent

FILES = 4096  # asked for at once

Rows: TypeAlias = "list[ExtentRow]"


class EarlyUploads:
    """store makes a file's rows and may raise. unreadable is told of an inode whose staged bytes cannot be read."""

    def __init__(
        self,
        engine: Engine,
        store: Callable[[int, Sequence[LayerExtent]], Rows],
        unreadable: Callable[[int, OSError], None],
    ) -> None:
        self._engine = engine
        self._store = store
        self._unreadable = unreadable
        self._until = (0, 0)  # files last written before that are done
        self.rows = FileRows()

    def upload(self, idle_s: float, is_in_the_way: Callable[[], bool]) -> int:
        """Stores quiet files until none is left, or it is in somebody's way. Returns the staged bytes done."""
        done_bytes = 0
        while files := self._engine.quiet_files(idle_s, self._until, FILES):
            for written, found in files:
                if is_in_the_way():
                    return done_bytes
                done_bytes += self._upload(written[1], found)
                self._until = written
            if len(files) < FILES:
                break
        return done_bytes

    def forget(self) -> None:
        """What was made may not be durable, or not be relied on: all is to be looked at again."""
        self.rows = FileRows()
        self._until = (0, 0)

    def _upload(self, ino: int, found: int) -> int:
        if self.rows.version(ino) == found:
            return 0
        try:
            version, extents = self._engine.live_extents(ino)
        except FileNotFoundError:  # removed meanwhile
            return 0
        try:
            self.rows.put(ino, version, self._store(ino, extents))
        except OSError as error:
            if self._is_still(ino, version):
                self._unreadable(ino, error)  # the next commit says so
            return 0  # else overwritten meanwhile: staged bytes that nothing maps any more may be gone
        return sum(extent.length for extent in extents if extent.chunk is None)

    def _is_still(self, ino: int, version: int) -> bool:
        try:
            return self._engine.live_extents(ino)[0] == version
        except FileNotFoundError:
            return False
