"""Makes versions of what an engine's layers hold: freeze, cut, hand to `version.publish`, tell the
engine what became of it.

One `Committer` per writable session. `commit`, `upload_quiet`, `upload_growing` and
`heed_collections` may be called from any thread; they are serialised. What a version is made of, in
which order, and who may have the next head is `Publisher`'s business.

After an error before the head the layer rejoins the working copy: nothing is lost, the next commit
has it. While a head's outcome is unknown its layer waits for it, and the next commit, or heartbeat,
settles that first.

The same frozen layer, compared instead of published, is what `diff` and `restore` see of work that
is in no version (`working_index`).

Quiet files, and what is settled of growing ones, are uploaded early (`EarlyUploads`), so that a
commit mostly publishes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cowfs.errors import UnavailableError
from cowfs.index import Stream
from cowfs.native.chunks import FileRows
from cowfs.session.early import EarlyUploads
from cowfs.session.frozen_layer import FrozenLayer
from cowfs.session.layer_changes import layer_changes, layer_files
from cowfs.session.lost import LostFiles
from cowfs.session.staged_contents import StagedContents
from cowfs.version.commit import Base, CommitRequest, ProgressListener
from cowfs.version.contents import files_of
from cowfs.version.unstored_chunks import NOT_STORED, UnstoredChunks

if TYPE_CHECKING:
    from cowfs.index import Index, IndexDelta
    from cowfs.native import Engine
    from cowfs.session.residency import Residency
    from cowfs.version.publish import Publisher


class Committer:
    """publisher: of the version that engine and residency stand on. Nobody else uses it."""

    def __init__(self, engine: Engine, residency: Residency, publisher: Publisher) -> None:
        self.lost = LostFiles(engine, residency)
        self._engine = engine
        self._residency = residency
        self._publisher = publisher
        self._mutex = threading.Lock()
        self._contents = StagedContents(engine, publisher, residency.read_linked, residency.fetch)
        self._early = EarlyUploads(
            engine,
            self._contents.rows,
            self._contents.first_rows,
            lambda: publisher.chunks.has_room,
            publisher.put_small,
            publisher.chunks.name_key,
            self.lost.lose_unreadable,
            lambda: publisher.chunks.doubts,
        )
        self._commit_waits = threading.Event()
        self._ends = threading.Event()

    @property
    def base(self) -> Base:
        """The last published state."""
        return self._publisher.base

    @property
    def index(self) -> Index:
        """Of the last published version."""
        return self._publisher.index

    def require_settled(self) -> None:
        """UnavailableError while nobody knows whether the last commit is in the line."""
        if self._publisher.is_unsettled:
            raise UnavailableError(
                "the store has not told yet whether the last commit was published",
                hint="Repeat that commit first; nothing is lost.",
            )

    def commit(self, request: CommitRequest, progress: ProgressListener = lambda _: None) -> Base:
        """Publishes everything written before the call; returns the new base, or the same one if
        nothing changed and the request says no more than that version does.

        The first commit of a volume publishes even an empty tree. progress hears of "files" at most
        ten times a second and at the end, then of "index". LeaseLostError when another writer has
        head n+1: the layer rejoins the working copy, nothing is lost. CorruptError when the local
        disk has lost bytes of files that would be in the version (`lost`).
        """
        self._commit_waits.set()
        with self._mutex:
            self._commit_waits.clear()
            self._publisher.resume()
            self.lost.refuse()
            number = self._engine.freeze()
            base = self._publisher.base
            if number is None and base.manifest is not None and not request.says_more_than(base.manifest):
                return base
            self._contents.begin()
            layer = FrozenLayer(
                self._engine,
                number,
                residency=self._residency,
                publisher=self._publisher,
                contents=self._contents,
                early=self._early,
                lost=self.lost,
                progress=progress,
            )
            return self._publisher.publish(layer, request, progress)

    @contextmanager
    def working_index(self) -> Iterator[Index]:
        """The volume as it is now, committed or not, as an index that is published nowhere: to be
        used within the block and by this thread. Bytes that are in no chunk are read and named, not
        stored.

        Commits wait meanwhile; whoever writes does not. CorruptError as for `commit`.
        """
        self._commit_waits.set()
        with self._mutex:
            self._commit_waits.clear()
            self._publisher.resume()
            self.lost.refuse()
            if (delta := self._working_delta()) is None:
                yield self._publisher.index
                return
            with delta, delta.unpublished() as index:
                yield index

    def _working_delta(self) -> IndexDelta | None:
        """None: nothing has changed since the last version. The layer is frozen for as long as it
        is read."""
        number = self._engine.freeze()
        if number is None:
            return None
        try:
            contents = FileRows()
            unstored = UnstoredChunks(self._publisher.chunks.sealing, partial(self._publisher.pack_number, NOT_STORED))
            for ino, version in layer_files(self._engine, number):
                if (known := self._early.made(ino, version)) is not None:
                    contents.put(ino, version, known)
                    continue
                extents = self._engine.layer_extents(number, ino)
                try:
                    contents.put(ino, version, self._contents.named_rows(extents, unstored))
                except OSError as error:
                    self.lost.refuse_unreadable(number, ino, error)
            changes = layer_changes(self._engine, number, contents)
            rows = Stream(lambda: ((ino, rows) for ino, _, rows in files_of(contents)))
            packs = self._publisher.chunks.new_packs(contents)
            return self._publisher.index.apply(replace(changes, contents=rows, packs=packs))
        finally:
            self._engine.layer_failed(number)

    def upload_quiet(self, idle_s: float = 5.0) -> int:
        """Uploads chunks of files nobody has written for idle_s; a later commit finds them. Returns
        the staged bytes done.

        Does nothing while a commit runs, and stops after the file at hand when one wants to. The
        last, partly filled pack waits for the commit. Memory that `upload_growing` has kept for its
        next call is freed.
        """
        return self._upload(partial(self._early.upload, idle_s), rests=True)

    def upload_growing(self) -> int:
        """Uploads chunks of the beginnings of large files that are still written, as far as nobody
        has written them since the last call; a later commit goes on behind them. Returns the bytes
        done. Otherwise as `upload_quiet`; cheap unless much was written. Does nothing until it is
        known what the store has."""
        is_due = self._early.is_growing and self._publisher.chunks.knows_store
        return self._upload(self._early.upload_growing, rests=False) if is_due else 0

    def _upload(self, step: Callable[[Callable[[], bool]], int], *, rests: bool) -> int:
        if self._ends.is_set() or not self._mutex.acquire(blocking=False):
            return 0
        try:
            with self._publisher.storing():
                return step(lambda: self._commit_waits.is_set() or self._ends.is_set())
        finally:
            if rests:
                self._publisher.chunks.rest()
            self._mutex.release()

    def end_uploads(self) -> None:
        """Uploads that are under way end soon, and no other begins. Returns at once."""
        self._ends.set()

    def expect_work(self) -> None:
        """Something was written: a commit or an upload will follow. Returns at once."""
        self._publisher.chunks.expect_work()

    def heed_collections(self) -> None:
        """Renews the pin, and acknowledges what collections have condemned, so that they need not
        wait for the next commit.

        One list request when nothing is new. Commits and uploads go on beside it. A head of unknown
        outcome is put again first.
        """
        if self._publisher.is_unsettled and self._mutex.acquire(blocking=False):
            try:
                self._publisher.resume()
            finally:
                self._mutex.release()
        self._publisher.acknowledge()

    def hold(self) -> None:
        """Uncommitted work stays here: what it stands on, and what it has uploaded, is kept for
        it."""
        self._publisher.hold()

    def close(self) -> None:
        """Waits for a commit under way; ends the threads. What was uploaded and not committed is
        garbage in the store."""
        self.end_uploads()
        with self._mutex:
            self._publisher.close()
