"""One frozen layer of an engine on its way into a version: the source that a publisher drafts from
and notifies of the outcome.

For each changed file, rows made by an early upload or an earlier draft are used if they are of the
same data version and still valid. Otherwise the file is stored now, small ones many at once. The
rows of a draft count as uploaded early from then on. After publishing, the engine gets the
version's rows and reads the staged files from chunks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.index import ChangeSet
from cowfs.native.chunks import FileRows
from cowfs.session.growing import Begun
from cowfs.session.layer_changes import layer_changes
from cowfs.session.residency.residency import Residency, count_base
from cowfs.version.commit import Progress, ProgressListener
from cowfs.version.publish.publisher import Draft

if TYPE_CHECKING:
    from cowfs.base.ids import PackId
    from cowfs.index import ExtentRow, Index
    from cowfs.native import Engine
    from cowfs.session.early import EarlyUploads
    from cowfs.session.lost import LostFiles
    from cowfs.session.staged_contents import StagedContents
    from cowfs.version.publish.publisher import Publisher

PROGRESS_S = 0.1
SMALL_FILES = 1024  # at once: some milliseconds
SINGLE_FILES = 64  # after a file that is not small, before small ones are looked for again


class FrozenLayer:
    """A `Source`. number None: nothing has changed, and a version with the same tree is made."""

    def __init__(
        self,
        engine: Engine,
        number: int | None,
        *,
        residency: Residency,
        publisher: Publisher,
        contents: StagedContents,
        early: EarlyUploads,
        lost: LostFiles,
        progress: ProgressListener,
    ) -> None:
        self._engine = engine
        self._number = number
        self._residency = residency
        self._publisher = publisher
        self._contents = contents
        self._early = early
        self._lost = lost
        self._progress = progress
        self._drafted = FileRows()

    @property
    def layer(self) -> int:
        return self._number or 0

    def draft(self) -> Draft:
        self._residency.load_nameless()  # the next version's index will not have them
        if self._number is None:
            return Draft(ChangeSet(next_ino=self._publisher.index.next_ino), FileRows())
        self._publisher.chunks.wait_for_catalogues(self._engine.layer_totals(self._number)[1])
        doubts = self._publisher.chunks.doubts
        self._drafted = self._store_files(self._number)
        self._early.take_over(self._drafted, doubts)
        return Draft(layer_changes(self._engine, self._number, self._drafted), self._drafted)

    def list_kept(self, ino: int) -> Collection[tuple[int, bytes, int]]:
        if self._number is None:
            return ()
        extents = self._engine.layer_extents(self._number, ino)
        return {(extent.offset, extent.chunk.hash, extent.chunk.pack) for extent in extents if extent.chunk}

    def record_published(self, index: Index) -> None:
        self._residency.rebase(index)
        self._early.forget()
        if self._number is not None:
            self._engine.layer_committed(self._number, self._drafted)
            count_base(self._engine, index)  # the engine does not know rows that were not in memory

    def abandon(self) -> None:
        """Returns the layer to the working copy, so that the next commit includes it."""
        if self._number is not None:
            self._engine.layer_failed(self._number)

    def _store_files(self, number: int) -> FileRows:
        stored = FileRows()
        count = _Count(self._progress, *self._engine.layer_totals(number))
        suspects = self._publisher.chunks.suspects
        made = [] if suspects else list(self._early.tables)  # `_find_rows` checks stale ones
        after, single = 0, 1
        while True:
            small = self._engine.layer_small_files(number, after, SMALL_FILES, made, self._publisher.chunks.name_key)
            if (last := small.last_ino()) is not None:
                self._publisher.put_small(small, stored)
                count.add_bytes(small.size_bytes())
                after, single = last, 1
            elif not (found := self._engine.layer_contents(number, after, single)):
                return stored
            else:
                for ino, version in found:
                    rows = self._find_rows(ino, version, suspects)
                    stored.put(ino, version, rows if rows is not None else self._store_file(number, ino, count))
                    count.tell(stored.count())
                after, single = found[-1][0], min(2 * single, SINGLE_FILES)
            count.tell(stored.count())

    def _store_file(self, number: int, ino: int, count: _Count) -> Sequence[ExtentRow]:
        extents = self._engine.layer_extents(number, ino)
        count.add_bytes(sum(each.length for each in extents if each.segment >= 0 and each.chunk is None))
        begun = self._early.find_beginning(ino, extents)
        chunks = self._publisher.chunks
        if begun.rows and chunks.is_stale(begun.rows, chunks.suspects, partial(self.list_kept, ino)):
            begun = Begun()
        try:
            return self._contents.rows(ino, extents, begun)
        except OSError as error:
            self._lost.refuse_unreadable(number, ino, error)

    def _find_rows(self, ino: int, version: int, suspects: frozenset[PackId]) -> Sequence[ExtentRow] | None:
        """The rows made of the file before, if they are still valid."""
        rows = self._early.find_rows(ino, version)
        is_stale = rows is not None and self._publisher.chunks.is_stale(rows, suspects, partial(self.list_kept, ino))
        return None if is_stale else rows


class _Count:
    """Reports how many files and bytes are done, at most every PROGRESS_S and at the end."""

    def __init__(self, progress: ProgressListener, total: int, total_bytes: int) -> None:
        self._progress = progress
        self._total = total
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._told_s = -PROGRESS_S

    def add_bytes(self, more: int) -> None:
        self._done_bytes += more

    def tell(self, done: int) -> None:
        is_last = done == self._total
        if clock.monotonic_s() - self._told_s >= PROGRESS_S or is_last:
            bytes_now = self._total_bytes if is_last else min(self._done_bytes, self._total_bytes)
            self._progress(Progress("files", done, self._total, bytes_now, self._total_bytes))
            self._told_s = clock.monotonic_s()
