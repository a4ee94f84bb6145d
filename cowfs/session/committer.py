"""Makes versions from the layers of an engine: freezes a layer, stores its files, passes it to
`version.publish.publisher`, and reports the outcome to the engine.

One `Committer` per writable session. `commit`, `upload_quiet`, `upload_growing` and
`acknowledge_collections` may be called from any thread; they are serialised. `Publisher` decides
what a version consists of, in which order it is written, and which writer may write the next head.

After an error before the head is written, the layer rejoins the working copy: nothing is lost, and
the next commit includes it. While the outcome of a head is unknown, its layer stays frozen, and the
next commit or heartbeat settles the outcome first.

`diff` and `restore` see uncommitted work through the same frozen layer, which is then compared
instead of published (`working_index`).

Quiet files and the stable parts of growing ones are uploaded early (`EarlyUploads`), so that a
commit mostly publishes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cowfs.base.errors import UnavailableError
from cowfs.index import Stream
from cowfs.native.chunks import FileRows
from cowfs.session.early import EarlyUploads
from cowfs.session.frozen_layer import FrozenLayer
from cowfs.session.layer_changes import layer_changes, layer_files
from cowfs.session.lost import LostFiles
from cowfs.session.staged_contents import StagedContents
from cowfs.version.commit import FROZEN, Base, CommitRequest, Progress, ProgressListener
from cowfs.version.publish.contents import files_of
from cowfs.version.publish.unstored_chunks import NOT_STORED, UnstoredChunks

if TYPE_CHECKING:
    from cowfs.index import Index, IndexDelta
    from cowfs.native import Engine
    from cowfs.session.residency.residency import Residency
    from cowfs.version.publish.publisher import Publisher


class Committer:
    """publisher: for the version that engine and residency are based on, used by this object
    alone."""

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
        """The index of the last published version."""
        return self._publisher.index

    def require_settled(self) -> None:
        """UnavailableError while it is unknown whether the last commit was published."""
        if self._publisher.is_unsettled:
            raise UnavailableError(
                "the store has not confirmed yet whether the last commit was published",
                hint="Repeat that commit first; nothing is lost.",
            )

    def commit(self, request: CommitRequest, progress: ProgressListener = lambda _: None) -> Base:
        """Publishes everything written before the call. Returns the new base, or the current one if
        nothing changed and the request adds nothing to that version.

        The first commit of a volume publishes even an empty tree. progress reports "frozen" as soon
        as later writes belong to the next version, then "files" at most ten times a second and at
        the end, then "index". LeaseLostError when another writer has
        written head n+1: the layer rejoins the working copy, and nothing is lost. CorruptError when
        the local disk has lost bytes of files that would be in the version (`lost`).
        """
        self._commit_waits.set()
        with self._mutex:
            self._commit_waits.clear()
            self._publisher.resume()
            self.lost.refuse()
            number = self._freeze()
            base = self._publisher.base
            if number is None and base.manifest is not None and not request.says_more_than(base.manifest):
                return base
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
            try:
                progress(Progress(FROZEN))
                self._contents.begin()
            except BaseException:  # an error of the listener, or an interrupted caller
                layer.abandon()
                raise
            return self._publisher.publish(layer, request, progress)

    def _freeze(self) -> int | None:
        """The next log has unlinked open files anew, with their contents (native/engine,
        nameless.rs)."""
        self._residency.load_nameless()
        return self._engine.freeze()

    @contextmanager
    def working_index(self) -> Iterator[Index]:
        """The current state of the volume, committed or not, as an index that is not published. Use
        it inside the block and on this thread only. The hashes of bytes in no chunk are computed;
        nothing is stored.

        Commits wait meanwhile; writes do not. CorruptError as for `commit`.
        """
        self._commit_waits.set()
        with self._mutex:
            self._commit_waits.clear()
            self._publisher.resume()
            self.lost.refuse()
            if (delta := self._working_delta()) is None:
                yield self._publisher.index
                return
            with delta, delta.open_unpublished() as index:
                yield index

    def _working_delta(self) -> IndexDelta | None:
        """None if nothing has changed since the last version. The layer stays frozen while it is
        read."""
        number = self._freeze()
        if number is None:
            return None
        try:
            contents = FileRows()
            unstored = UnstoredChunks(self._publisher.chunks.sealing, partial(self._publisher.pack_number, NOT_STORED))
            for ino, version in layer_files(self._engine, number):
                if (known := self._early.find_rows(ino, version)) is not None:
                    contents.put(ino, version, known)
                    continue
                extents = self._engine.layer_extents(number, ino)
                try:
                    contents.put(ino, version, self._contents.name_rows(extents, unstored))
                except OSError as error:
                    self.lost.refuse_unreadable(number, ino, error)
            changes = layer_changes(self._engine, number, contents)
            rows = Stream(lambda: ((ino, rows) for ino, _, rows in files_of(contents)))
            packs = self._publisher.chunks.new_packs(contents)
            return self._publisher.index.apply(replace(changes, contents=rows, packs=packs))
        finally:
            self._engine.layer_failed(number)

    def measure_work(self) -> tuple[int, int] | None:
        """How many files of the uncommitted work have changed contents, and how many of their bytes
        are in no chunk. None: nothing has changed. Looks at every changed file; waits for a commit.
        """
        self._commit_waits.set()
        with self._mutex:
            self._commit_waits.clear()
            self._publisher.resume()
            number = self._freeze()
            if number is None:
                return None
            try:
                return self._engine.layer_totals(number)
            finally:
                self._engine.layer_failed(number)

    def upload_quiet(self, idle_s: float = 5.0) -> int:
        """Uploads chunks of files that were not written for idle_s, so that a later commit finds
        them. Returns the staged bytes uploaded.

        Does nothing while a commit runs, and stops after the current file when one is waiting. The
        last, partly filled pack waits for the commit. Frees the memory that `upload_growing` keeps
        for its next call.
        """
        return self._upload(partial(self._early.upload, idle_s), rests=True)

    def upload_growing(self) -> int:
        """Uploads the beginnings of large files that are still being written, as far as they were
        not written since the last call; a later commit continues from there. Returns the bytes
        uploaded. Otherwise as `upload_quiet`; cheap unless much was written. Does nothing until the
        chunks in the store are known."""
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
        """Ends running uploads soon and starts no others. Returns at once."""
        self._ends.set()

    def expect_work(self) -> None:
        """Prepares for a commit or upload, because something was written. Returns at once."""
        self._publisher.chunks.expect_work()

    def acknowledge_collections(self) -> None:
        """Renews the pin, and acknowledges what collections have condemned, so that they need not
        wait for the next commit.

        One list request when nothing is new. Runs concurrently with commits and uploads. First
        retries a head whose outcome is unknown.
        """
        if self._publisher.is_unsettled and self._mutex.acquire(blocking=False):
            try:
                self._publisher.resume()
            finally:
                self._mutex.release()
        self._publisher.acknowledge()

    def hold(self) -> None:
        """Keeps the base version and the uploaded chunks for uncommitted work that stays on this
        machine."""
        self._publisher.hold()

    def close(self) -> None:
        """Waits for a running commit, then ends the threads. Uploaded chunks that were not
        committed are garbage in the store."""
        self.end_uploads()
        with self._mutex:
            self._publisher.close()
