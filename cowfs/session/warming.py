"""Contents of a version into this machine's cache, before anybody reads them: no kernel, no daemon.

    index blocks ─▶ files of a directory, by inode number ─▶ windows of extents ─▶ what the cache has not ─▶ runs of a pack
                                                                                        (`chunk_requests`: whole packs, in order)

Index blocks that are read on the way stay in the cache, too; of a whole version they are fetched
together. What the cache has counts as used now and is not fetched, so that a warming that was ended
or killed is repeated. THREADS requests are under way at once; their bytes are taken as they arrive.

What was fetched is looked for once more: a cache takes no chunk that its disk refuses, and says
nothing. Nothing that was warmed is deleted again to make room for the rest: as soon as all of it
would be more than the cache may hold, or than its disk has room for, the warming ends and says so.
What was used least recently before goes first, as ever (`room`).

A chunk that is damaged, or a linked object that has changed, keeps nothing else from being fetched;
its error is raised at the end.
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

from cowfs import apart, clock
from cowfs.errors import CorruptError, CowfsError, NotFoundError, SourceChangedError
from cowfs.helpers import Helpers
from cowfs.ids import ChunkHash
from cowfs.index import content_with_links
from cowfs.native import Engine
from cowfs.native.chunks import ChunkRef
from cowfs.native.constants import ROOT_INO
from cowfs.session.chunk_requests import runs
from cowfs.session.chunk_windows import Budget, Window
from cowfs.session.linked import LinkedBytes, is_linked
from cowfs.session.profile_places import ProfilePlaces
from cowfs.session.reading import opened
from cowfs.session.room import Room
from cowfs.session.version_tree import VersionTree
from cowfs.store import AMBIENT, Access
from cowfs.store.packs import ChunkRequest, PackReader
from cowfs.values import dataclass
from cowfs.version.commit import Progress, ProgressListener
from cowfs.version.pack_numbers import PackNumbers

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
    """files, bytes: of what was asked for. fetched_bytes, found_bytes: of chunks, decompressed.
    is_complete: all of it is in the cache now."""

    files: int
    bytes: int
    fetched_bytes: int
    found_bytes: int
    is_complete: bool


@contextmanager
def warming(spec: SessionSpec, *, access: Access = AMBIENT) -> Iterator[Warmer]:
    """Of a read-only spec's version, or folder of it, for the length of a block."""
    with ExitStack() as stack:
        found = opened(spec, stack, access)
        engine = _cache_of(spec, found.index)
        stack.callback(engine.close)
        yield Warmer(found.index, found.packs, found.linked, engine, Room(spec, engine), found.tree)


def _cache_of(spec: SessionSpec, index: Index) -> Engine:
    """An engine for its cache alone."""
    root = index.inode(ROOT_INO)
    if root is None:
        raise CorruptError("the version's index has no root directory", hint="Use another version; report this.")
    return Engine.open(root=root, next_ino=index.next_ino, cache_dir=str(spec.options.cache_path), memory_cache_bytes=0)


class Warmer:
    """tree: the version's names, for who asks for a path."""

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
        self._lock = threading.Lock()  # guards what helpers change: the next six
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
        """What is at `path`, a file or a directory with all below it; report hears of the stage
        "warm". Errors are the store's."""

        def work() -> Warmed:
            files, size_bytes = self._files(path)
            rows = (content_with_links(self._index, ino)[0] for ino in files)
            return self._warm(rows, len(files), size_bytes, report or (lambda _: None))

        return apart.run(work, self._stop)

    def replay(self, ranges: Iterable[ReadRange], report: ProgressListener | None = None) -> Warmed:
        """As `warm`: what a profile has of the version, in this order. files, bytes: of what it
        has."""

        def work() -> Warmed:
            places = ProfilePlaces(lambda question: question(self._index))
            found = [place for each in self._while_wanted(ranges) if (place := places.place(each)) is not None]
            size_bytes = sum(place.end - place.start for place in found)
            done = self._warm(map(places.extents, found), len(found), size_bytes, report or (lambda _: None))
            return replace(done, files=len({place.ino for place in found}))

        return apart.run(work, self._stop)

    def _while_wanted(self, ranges: Iterable[ReadRange]) -> Iterator[ReadRange]:
        return takewhile(lambda _: not self._is_stopped, ranges)

    def _stop(self) -> None:
        self._is_stopped = True

    # -- which files

    def _files(self, path: bytes) -> tuple[array[int], int]:
        """Numbers of the files' inodes, ascending: as they lie in packs; and their bytes."""
        attr = self.tree.stat(path)
        if not stat.S_ISDIR(attr.mode):
            return (array("Q", [attr.ino]), attr.size) if stat.S_ISREG(attr.mode) else (array("Q"), 0)
        if attr.ino == ROOT_INO:
            self._index.blocks.prefetch(range(self._index.blocks.count))
        files: array[int] = array("Q")
        linked: set[int] = set()  # with several names
        size_bytes = 0
        waiting, seen = [attr.ino], {attr.ino}
        while waiting and not self._is_stopped:
            for page in self._index.directory_pages(waiting.pop()):
                for _, row in page:
                    ino, mode, nlink = row[0], row[1], row[2]
                    if stat.S_ISDIR(mode):
                        if ino in seen:
                            raise CorruptError(f"directory {ino} of the version lies in itself", hint="Report this.")
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
        """count: how many contents there are; size_bytes: of all of them."""
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
        """What of the window is not here is asked for."""
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
        except BaseException as error:  # noqa: BLE001 - of a helper; the thread that runs the warming raises it
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
    """Requests under way, of which no more than WAITING_MAX wait."""

    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self._changed = threading.Condition()
        self._count = 0

    def start(self, task: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._count < WAITING_MAX)
            self._count += 1
        self._helpers.submit(task).add_done_callback(lambda _: self._ended())

    def wait(self, meanwhile: Callable[[], None]) -> None:
        """Until all have ended."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._count == 0, REPORT_S):
                    return
            meanwhile()

    def _ended(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify()
