"""Loads contents of a version into this machine's cache before they are read: no kernel, no daemon.

    index blocks ─▶ files of a directory, by inode number ─▶ windows of extents ─▶ chunks missing in the cache ─▶ runs of a pack
                                                                                       (`chunk_requests`: whole packs, in order)
Index blocks that are read on the way stay in the cache as well; for a whole version they are
fetched together. Chunks already in the cache are marked as used and not fetched, so an interrupted
warming can simply be repeated. THREADS requests are in flight at once; their bytes are consumed as
they arrive.

After a fetch, the cache is checked for the chunks, because it silently drops those that its disk
refuses. Warmed chunks are never deleted to make room for others: once the rest would exceed the
size of the cache or the space on its disk, the warming stops and reports that it is incomplete.
Chunks used least recently before are deleted first, as always (`room`).

A damaged chunk, or a linked object that has changed, does not stop the warming; its error is raised
at the end.
"""

from __future__ import annotations

import stat
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from cowfs.base import clock, interruptible
from cowfs.base.errors import CorruptError, CowfsError, NotFoundError, SourceChangedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash
from cowfs.base.thread_pool import Helpers
from cowfs.index import content_with_links
from cowfs.native import Engine
from cowfs.native.chunks import ChunkRef
from cowfs.native.constants import ROOT_INO
from cowfs.session.profiles.profile_places import ProfilePlaces
from cowfs.session.residency.chunk_requests import runs
from cowfs.session.room import Room
from cowfs.store import AMBIENT, Access
from cowfs.store.packs import ChunkRequest, PackReader
from cowfs.transfer.chunk_windows import Budget, Window
from cowfs.transfer.linked import LinkedBytes, is_linked
from cowfs.transfer.reading import open_tree
from cowfs.transfer.version_tree import VersionTree
from cowfs.version.commit import Progress, ProgressListener
from cowfs.version.publish.pack_numbers import PackNumbers

if TYPE_CHECKING:
    from cowfs.control import SessionSpec
    from cowfs.format.profile import ReadRange
    from cowfs.index import ExtentRow, Index

THREADS = 8
WAITING_MAX = 2 * THREADS
WINDOW_BYTES = 512 << 20
WINDOW_CHUNKS = 20_000
TRIM_BYTES = 512 << 20
REPORT_S = 0.1


@dataclass(frozen=True)
class Warmed:
    """files, bytes: of the requested files. fetched_bytes, found_bytes: of chunks, decompressed.
    is_complete: all of them are in the cache now."""

    files: int
    bytes: int
    fetched_bytes: int
    found_bytes: int
    is_complete: bool


@contextmanager
def warming(spec: SessionSpec, *, access: Access = AMBIENT) -> Iterator[Warmer]:
    """Opens a warmer for a read-only spec's version, or folder of it, for the length of a block."""
    with ExitStack() as stack:
        found = open_tree(spec, stack, access)
        engine = _cache_of(spec, found.index)
        stack.callback(engine.close)
        yield Warmer(found.index, found.packs, found.linked, engine, Room(spec, engine), found.tree)


def _cache_of(spec: SessionSpec, index: Index) -> Engine:
    """Opens an engine only for its cache."""
    root = index.inode(ROOT_INO)
    if root is None:
        raise CorruptError("the version's index has no root directory", hint="Use another version; report this.")
    return Engine.open(root=root, next_ino=index.next_ino, cache_dir=str(spec.options.cache_path), memory_cache_bytes=0)


class Warmer:
    """tree: the version's names, to look up paths."""

    def __init__(
        self, index: Index, packs: PackReader, linked: LinkedBytes, engine: Engine, room: Room, tree: VersionTree
    ) -> None:
        self.tree = tree
        self._index = index
        self._packs = packs
        self._linked = linked
        self._engine = engine
        self._room = room
        self._numbers = PackNumbers(index)
        self._lock = threading.Lock()  # guards the next six, which the threads change
        self._is_refused = False
        self._fetched_bytes = 0
        self._done_bytes = 0
        self._untrimmed_bytes = 0
        self._problem: CowfsError | None = None
        self._error: BaseException | None = None
        self._is_stopped = False
        self._found_bytes = 0
        self._reported_s = 0.0

    def warm(self, path: bytes, report: ProgressListener | None = None) -> Warmed:
        """Warms `path`, a file or a directory with everything below it; report receives the stage
        "warm". Raises the store's errors."""

        def work() -> Warmed:
            files, size_bytes = self._files(path)
            rows = (content_with_links(self._index, ino)[0] for ino in files)
            return self._warm(rows, len(files), size_bytes, report or (lambda _: None))

        return interruptible.run(work, self._stop)

    def replay(self, ranges: Iterable[ReadRange], report: ProgressListener | None = None) -> Warmed:
        """As `warm`, for the ranges of a profile that the version has, in this order. files, bytes:
        of these ranges."""

        def work() -> Warmed:
            places = ProfilePlaces(lambda question: question(self._index))
            found = [place for each in self._while_wanted(ranges) if (place := places.place(each)) is not None]
            size_bytes = sum(place.end - place.start for place in found)
            done = self._warm(map(places.extents, found), len(found), size_bytes, report or (lambda _: None))
            return replace(done, files=len({place.ino for place in found}))

        return interruptible.run(work, self._stop)

    def _while_wanted(self, ranges: Iterable[ReadRange]) -> Iterator[ReadRange]:
        return takewhile(lambda _: not self._is_stopped, ranges)

    def _stop(self) -> None:
        self._is_stopped = True

    # -- which files

    def _files(self, path: bytes) -> tuple[array[int], int]:
        """Inode numbers of the files, ascending as in packs; and their total size."""
        attr = self.tree.stat(path)
        if not stat.S_ISDIR(attr.mode):
            return (array("Q", [attr.ino]), attr.size) if stat.S_ISREG(attr.mode) else (array("Q"), 0)
        if attr.ino == ROOT_INO:
            self._index.blocks.prefetch(range(self._index.blocks.count))
        files: array[int] = array("Q")
        linked: set[int] = set()  # inodes with several names
        size_bytes = 0
        waiting, seen = [attr.ino], {attr.ino}
        while waiting and not self._is_stopped:
            for page in self._index.directory_pages(waiting.pop()):
                for _, row in page:
                    ino, mode, nlink = row[0], row[1], row[2]
                    if stat.S_ISDIR(mode):
                        if ino in seen:
                            raise self._index.damage_error(f"directory {ino} contains itself")
                        seen.add(ino)
                        waiting.append(ino)
                    elif stat.S_ISREG(mode) and not (nlink > 1 and ino in linked):
                        if nlink > 1:
                            linked.add(ino)
                        files.append(ino)
                        size_bytes += row[6]
        return array("Q", sorted(files)), size_bytes

    # -- their contents

    def _warm(
        self, contents: Iterable[Iterable[ExtentRow]], count: int, size_bytes: int, report: ProgressListener
    ) -> Warmed:
        """count, size_bytes: number and total size of the contents."""
        window = Window(WINDOW_BYTES, WINDOW_CHUNKS)
        budget = Budget(self._room.cacheable_bytes())
        with Helpers(THREADS, name="cowfs-warm") as helpers:
            flight = _Flight(helpers)
            try:
                for done, extents in enumerate(contents):
                    for row in extents:
                        window.add(row)
                        if window.is_full:
                            self._settle(window, budget, flight)
                            window = Window(WINDOW_BYTES, WINDOW_CHUNKS)
                            self._trim()
                            self._tell(report, done, count, size_bytes)
                            if self._is_stopped or budget.is_spent:
                                break
                    self._tell(report, done, count, size_bytes)
                    if self._is_stopped or budget.is_spent:
                        break
                self._settle(window, budget, flight)
                flight.wait(lambda: self._tell(report, count, count, size_bytes))
            except BaseException:
                self._stop()
                raise
        self._room.trim()
        for error in (self._error, self._problem):
            if error is not None:
                raise error
        is_complete = not (budget.is_spent or self._is_refused)
        done_bytes = size_bytes if is_complete else self._done_bytes
        report(Progress("warm", count, count, done_bytes, size_bytes))
        return Warmed(count, size_bytes, self._fetched_bytes, self._found_bytes, is_complete)

    def _settle(self, window: Window, budget: Budget, flight: _Flight) -> None:
        """Requests those chunks of the window that are not in the cache."""
        chunks = window.chunks
        absent = set(self._engine.keep_chunks([(chunk.hash, chunk.raw_length) for chunk in chunks]))
        here = [chunk for at, chunk in enumerate(chunks) if at not in absent]
        budget.note(here)
        with self._lock:
            self._found_bytes += sum(chunk.raw_length for chunk in here)
            self._done_bytes += sum(chunk.raw_length for chunk in here)
        for run in runs(budget.take(chunks[at] for at in sorted(absent))):
            if self._is_stopped:
                return
            flight.start(partial(self._fetch, run))

    def _fetch(self, run: Sequence[ChunkRef]) -> None:
        if self._is_stopped:
            return
        try:
            for at in self._bring(run):
                with self._lock:
                    self._done_bytes += run[at].raw_length
                    self._untrimmed_bytes += run[at].raw_length
            self._engine.flush_cache()
            refused = self._engine.keep_chunks([(chunk.hash, chunk.raw_length) for chunk in run])
            with self._lock:
                self._fetched_bytes += sum(chunk.raw_length for chunk in run)
                self._fetched_bytes -= sum(run[at].raw_length for at in refused)
                if refused:
                    self._is_refused = True
                    self._stop()
        except (CorruptError, NotFoundError, SourceChangedError) as error:
            with self._lock:
                self._problem = self._problem or error
        except BaseException as error:  # noqa: BLE001 - on a helper thread; the main thread raises it
            with self._lock:
                self._error = self._error or error
            self._stop()

    def _bring(self, run: Sequence[ChunkRef]) -> Iterator[int]:
        number = run[0].pack
        requests = [
            ChunkRequest(each.offset, each.stored_length, each.raw_length, each.codec, ChunkHash(each.hash))
            for each in run
        ]
        if not is_linked(number):
            yield from self._packs.fill(self._engine, self._numbers.id(number), requests)
            return
        for at, raw in self._linked.read_each(number, requests, self._index.link):
            self._engine.cache_chunk(run[at].hash, raw)
            yield at

    def _trim(self) -> None:
        with self._lock:
            is_due = self._untrimmed_bytes >= TRIM_BYTES
            if is_due:
                self._untrimmed_bytes = 0
        if is_due:
            self._room.trim()

    def _tell(self, report: ProgressListener, done: int, total: int, total_bytes: int) -> None:
        now_s = clock.monotonic_s()
        if now_s - self._reported_s >= REPORT_S:
            self._reported_s = now_s
            report(Progress("warm", done, total, min(self._done_bytes, total_bytes), total_bytes))


class _Flight:
    """Requests in flight; at most WAITING_MAX of them wait for a thread."""

    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self._changed = threading.Condition()
        self._count = 0

    def start(self, task: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._count < WAITING_MAX)
            self._count += 1
        self._helpers.submit(task).add_done_callback(lambda _: self._end())

    def wait(self, meanwhile: Callable[[], None]) -> None:
        """Waits until all have ended."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._count == 0, REPORT_S):
                    return
            meanwhile()

    def _end(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify()
