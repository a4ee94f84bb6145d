"""Loads into the engine what it says is not resident: directory rows, file contents, chunks.

The engine answers from memory and local disk only; when it raises `NotResident`, `Residency.load`
fetches what the exception names from the index or the packs and hands it in. Blocking and
thread-safe: threads that miss the same thing wait for one load. Nothing is cached here: rows live
in the engine, chunks in its chunk cache, index blocks in theirs.

What a linked file is made of comes from where it lies (`linked`).

Chunks are fetched in parallel, neighbours of a pack in one request of at most REQUEST_BYTES. What
the engine expects sequential readers to want next is fetched too: a thread takes it from the
engine, which has the readers take turns, as long as less than AHEAD_BYTES of it are under way, all
readers together. Nobody waits for that, what somebody waits for goes before it (`fetching`), and an
error there is dropped, since the reader that really needs the chunk will meet it again.

Small chunks come in company: files that were committed together lie together in a pack and are
mostly read together. From the second small miss in a pack on, one request brings the
NEIGHBOURHOOD_BYTES that follow the chunk, as the pack's directory lists them; a tree of small files
then costs a request a megabyte, not one a file.

Every load has somebody who is at it: a task of `fetching`, or the thread that asked first.
`fail_abandoned`, called now and then, ends loads whose thread has gone, so that an error nobody
thought of costs a request and not the mount.

Not here: what is needed (the engine says), verification (`PackReader`), eviction (the engine's
cache).
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cowfs import log
from cowfs.errors import CorruptError, InvalidStateError, NotFoundError, UnavailableError
from cowfs.flights import Flights
from cowfs.ids import ChunkHash, PackId
from cowfs.index import content_with_links
from cowfs.native import DirectoryRows
from cowfs.session.fetching import Fetchers
from cowfs.session.linked import LinkedBytes, is_linked
from cowfs.store.packs import ChunkRequest, DirectoryCache, PackReader
from cowfs.version.pack_numbers import PackNumbers

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, Index, InodeRow
    from cowfs.native import Engine, NotResident, Recovery
    from cowfs.native.chunks import ChunkRef

REQUEST_BYTES = 4 << 20  # one ranged read: long enough that 2 ms of latency cost little at 1 GB/s
AHEAD_BYTES = 64 << 20
SMALL_BYTES = 64 << 10
NEIGHBOURHOOD_BYTES = 1 << 20
REPLAY_BATCH = 1000
TRANSFER_TRIES = 3  # before commits wait for a load
DIRECTORY_BYTES = 8 << 20  # pack directories kept in memory: 170,000 chunks
ABANDONED_LOOKS = 3

T = TypeVar("T")

_log = log.get("residency")


class Residency:
    """Fills one engine from one version. `rebase` names the next version's index after a commit.
    linked: None: the version's links lead to places that need no more than the environment has."""

    def __init__(self, engine: Engine, index: Index, packs: PackReader, linked: LinkedBytes | None = None) -> None:
        self._engine = engine
        self._linked = linked or LinkedBytes()
        self._packs = packs
        self._index = index
        self.pack_numbers = PackNumbers(index)
        self._lock = threading.Lock()
        self._taking_in = (
            threading.Lock()
        )  # held while rows go to the engine: the index they came from is the newest then
        self._loads: Flights[Hashable, None] = Flights()
        self._suspects: Counter[Future[None]] = Counter()  # how often nobody was found at it
        self._room = threading.Condition(self._lock)
        self._ahead_bytes = 0
        self._closed = False
        self._small_misses: Counter[int] = Counter()  # by pack number
        self._directories = DirectoryCache(packs, DIRECTORY_BYTES)
        self._fetchers = Fetchers()
        threading.Thread(target=self._read_ahead, name="cowfs-ahead", daemon=True).start()

    def load(self, missing: NotResident) -> None:
        """Loads what `missing` names; the caller then repeats its call. CorruptError,
        UnavailableError as the store has it."""
        for future in self._fetch(self.load_rows(missing), urgent=True):
            future.result()

    def load_rows(self, missing: NotResident) -> Sequence[ChunkRef]:
        """As `load`, but for chunks: it returns those that the caller needs besides. A first read
        of a file is told of the chunks as soon as its extents are here, so it asks once and not
        twice."""
        if missing.what == "inode":
            self._loads.load(("inode", missing.ino), partial(self._load_known_inode, missing.ino))
        elif missing.what == "parent":
            self._loads.load(("parent", missing.ino), partial(self._load_parent, missing.ino))
        elif missing.what == "directory":
            self._loads.load(("directory", missing.ino), lambda: self._load_directory(missing.ino))
        elif missing.what == "content":
            self._loads.load(("content", missing.ino), partial(self._load_content, missing.ino))
            start, end = missing.wanted
            return self._engine.absent_chunks(missing.ino, start, end) if start < end else []
        elif missing.what == "file":
            self._loads.load(("file", missing.ino), lambda: self._engine.assemble_file(missing.ino))
        return missing.chunks

    def load_chunks(
        self, chunks: Iterable[ChunkRef], done: Callable[[BaseException | None], None]
    ) -> Sequence[Future[None]]:
        """Fetches them without waiting: `done` is called once, with the first error if there was
        any, by the thread that fetched the last of them, or by this one. Waiting requests hold no
        thread, so a slow store does not exhaust the pool. Returns what is waited for."""
        futures = self._fetch(chunks, urgent=True)
        _when_all_are_done(futures, done)
        return futures

    def load_for_replay(
        self, recovery: Recovery, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Loads every directory and inode the journal touches, as far as the base version has them.

        progress receives how many were done, of how many, every REPLAY_BATCH.
        """
        loads: list[tuple[Callable[[int], None], list[int]]] = [
            (self._load_inode, recovery.inodes),
            (self._load_content, recovery.contents),
            (self._load_directory_of, recovery.directories),
        ]
        done, total = 0, sum(len(inodes) for _, inodes in loads)
        for load, inodes in loads:
            for ino in inodes:
                load(ino)
                done += 1
                if done % REPLAY_BATCH == 0:
                    progress(done, total)

    def load_namespace(self) -> None:
        """Loads every directory with its entries' attributes: from then on no look-up, stat or
        listing needs the store.

        Contents stay where they are until something reads them. A directory at a time from the
        root, and from what a replayed journal has moved, down: what it has removed stays removed.
        For one thread, before anybody else uses the engine.
        """
        waiting = self._engine.unloaded_directories()
        while waiting:
            ino = waiting.pop()
            waiting += reversed(self._engine.load_directory(ino, _entries(self._index, ino)))

    def load_nameless(self) -> None:
        """Loads what files without a name hold, which the version that a commit makes has not got:
        for that commit, before `rebase`.

        One whose rows are damaged stays as it is: reading it fails, whichever version is asked.
        """
        for ino in self._engine.nameless_without_content():
            with contextlib.suppress(CorruptError):
                self._loads.load(("content", ino), partial(self._load_content, ino))

    def fail_abandoned(self) -> int:
        """Ends loads that nobody has been at for ABANDONED_LOOKS calls, with UnavailableError;
        returns how many."""
        idle = [load for load, loader in self._loads.under_way() if not self._is_attended(load, loader)]
        with self._lock:
            self._suspects = Counter({load: self._suspects[load] + 1 for load in idle})
            abandoned = [load for load, looks in self._suspects.items() if looks >= ABANDONED_LOOKS]
        error = UnavailableError("a load was given up: the thread that made it is gone", hint="Read again.")
        for load in abandoned:
            self._loads.end(load, error)
        return len(abandoned)

    def _is_attended(self, load: Future[None], loader: threading.Thread | None) -> bool:
        return loader.is_alive() if loader is not None else self._fetchers.has(load)

    def rebase(self, index: Index) -> None:
        """Reads from `index` from now on; the caller may close the one used so far."""
        with self._taking_in, self._lock:
            self._index = index

    def names_of(self, inodes: Iterable[int]) -> dict[int, tuple[int, bytes]]:
        """(parent, name) of those inodes that have one in the version. Reads every entry of its
        index."""
        wanted = set(inodes)
        return self._query(lambda index: index.names_of(wanted))[1]

    def close(self) -> None:
        """Waits for fetches under way; further loads fail."""
        with self._room:
            self._closed = True
            self._room.notify_all()
        self._linked.close()
        self._fetchers.close()

    def read_linked(self, chunk: ChunkRef) -> bytes:
        """A range of a linked object, from the cache or from where it lies. SourceChangedError."""
        raw = self._engine.cached_chunk(chunk.hash, chunk.raw_length)
        if raw is None:
            [(_, raw)] = self._read_each(chunk.pack, [_request(chunk)])
            self._engine.cache_chunk(chunk.hash, raw)
        return raw

    # -- rows

    def _load_inode(self, ino: int) -> None:
        """The inode, if the version has it."""

        def take_in(row: InodeRow | None) -> None:
            if row is not None:
                self._engine.load_inode(row)

        self._transfer(lambda index: index.inode(ino), take_in)

    def _load_known_inode(self, ino: int) -> None:
        """An inode that somebody has a number of. ESTALE: it was removed since."""

        def take_in(row: InodeRow | None) -> None:
            if row is None:
                raise OSError(errno.ESTALE, f"inode {ino} was removed")
            self._engine.load_inode(row)

        self._transfer(lambda index: index.inode(ino), take_in)

    def _load_parent(self, ino: int) -> None:
        """Looks through all names of the version, since the index is by directory: only file
        handles of directories need it."""

        def take_in(names: dict[int, tuple[int, bytes]]) -> None:
            if ino not in names:
                raise OSError(errno.ESTALE, f"inode {ino} was removed")
            self._engine.load_parent(ino, names[ino][0])

        self._transfer(lambda index: index.names_of({ino}), take_in)

    def _load_directory_of(self, ino: int) -> None:
        """The directory, if the version has it."""
        if self._index.inode(ino) is not None:
            self._load_directory(ino)

    def _load_directory(self, ino: int) -> None:
        self._transfer(lambda index: _entries(index, ino), lambda rows: self._engine.load_directory(ino, rows))

    def _load_content(self, ino: int) -> None:
        self._transfer(lambda index: content_with_links(index, ino), lambda rows: self._take_in_content(ino, *rows))

    def _take_in_content(self, ino: int, extents: Sequence[ExtentRow], xattrs: Sequence[tuple[bytes, bytes]]) -> None:
        try:
            self._engine.load_content(ino, extents, xattrs)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise CorruptError(
                f"the index's extents and attributes of inode {ino} are not those that its row counts",
                hint="The version is damaged; read another version of the volume.",
            ) from error

    def _transfer(self, ask: Callable[[Index], T], take_in: Callable[[T], object]) -> None:
        """Asks the index of the moment and hands its answer to the engine; again if a commit
        replaced the index meanwhile.

        Rows of an older version must not come in: the engine may have changed, committed and
        evicted what they describe since they were read, and would take them for the present. Where
        commits come faster than answers, the next one waits.
        """
        for _ in range(TRANSFER_TRIES):
            index, rows = self._query(ask)
            with self._taking_in:
                if index is self._index:
                    take_in(rows)
                    return
        with self._taking_in:
            take_in(ask(self._index))

    def _query(self, ask: Callable[[Index], T]) -> tuple[Index, T]:
        """Asks the index of the moment, again if a commit replaced and closed it before it was
        asked; says which it was."""
        while True:
            index = self._index
            try:
                return index, ask(index)
            except InvalidStateError:
                if index is self._index:
                    raise

    # -- chunks

    def _fetch(self, chunks: Iterable[ChunkRef], *, urgent: bool) -> list[Future[None]]:
        """Starts fetching those chunks that nobody fetches yet; the futures of all of them."""
        loads: dict[Future[None], None] = {}
        wanted = {chunk.hash: chunk for chunk in chunks}
        missing = [chunk for hash, chunk in wanted.items() if not self._joins(hash, loads, urgent=urgent)]
        for run in _runs(missing):
            load: Future[None] = Future()
            mine = self._loads.board([chunk.hash for chunk in run], load)
            for chunk in run:
                if chunk.hash not in mine:  # another thread was faster, just now
                    self._joins(chunk.hash, loads, urgent=urgent)
            if mine:
                loads[load] = None
                self._submit([chunk for chunk in run if chunk.hash in mine], load, urgent=urgent)
        return list(loads)

    def _joins(self, hash: bytes, loads: dict[Future[None], None], *, urgent: bool) -> bool:
        """Whether a thread is at the chunk; its load is then one of `loads`."""
        load = self._loads.of(hash)
        if load is None:
            return False
        loads[load] = None
        if urgent:
            self._fetchers.promote(load)
        return True

    def _submit(self, run: list[ChunkRef], load: Future[None], *, urgent: bool) -> None:
        try:
            size_bytes = sum(chunk.stored_length for chunk in run)
            task = partial(self._fetch_run, run, load)
            if not self._fetchers.submit(load, task, urgent=urgent, size_bytes=size_bytes):
                raise InvalidStateError("the mount is ending", hint="Mount the volume again.")
        except BaseException as error:  # noqa: BLE001 — others may wait for it already; they and the caller get it
            self._loads.end(load, error)

    def _fetch_run(self, run: list[ChunkRef], load: Future[None]) -> None:
        try:
            self._fetch_with_neighbours(run, load)
        except BaseException as error:  # noqa: BLE001 — it goes to all who wait
            self._loads.end(load, error)
        else:
            self._loads.end(load, None)

    def _fetch_with_neighbours(self, run: list[ChunkRef], load: Future[None]) -> None:
        requests = [_request(chunk) for chunk in run]
        number = run[0].pack
        if not is_linked(number) and max(request.stored_length for request in requests) < SMALL_BYTES:
            pack = self.pack_numbers.id(number)
            try:
                self._read(number, [*requests, *self._neighbours(run[-1], pack, load)])
                return
            except (CorruptError, NotFoundError) as error:
                _log.debug("neighbours of a chunk in pack %s: %s", pack, error)  # not what was asked for
        self._read(number, requests)

    def _read(self, number: int, requests: list[ChunkRequest]) -> None:
        for i, data in self._read_each(number, requests):
            self._engine.cache_chunk(requests[i].hash, data)

    def _read_each(self, number: int, requests: list[ChunkRequest]) -> Iterator[tuple[int, bytes]]:
        if is_linked(number):
            return self._linked.read_each(number, requests, lambda ino: self._query(lambda index: index.link(ino))[1])
        return self._packs.read_each(self.pack_numbers.id(number), requests)

    def _neighbours(self, chunk: ChunkRef, pack: PackId, load: Future[None]) -> list[ChunkRequest]:
        """What follows a small chunk in its pack and no thread is at, brought by `load` too;
        nothing at a pack's first miss."""
        with self._lock:
            self._small_misses[chunk.pack] += 1
            if self._small_misses[chunk.pack] < 2:
                return []
        following = self._directories.get(pack).after(chunk.offset, NEIGHBOURHOOD_BYTES)
        mine = self._loads.board([entry.hash for entry in following], load)
        return [
            ChunkRequest(entry.offset, entry.stored_length, entry.raw_length, entry.codec, entry.hash)
            for entry in following
            if entry.hash in mine
        ]

    def _read_ahead(self) -> None:
        """Fetches what sequential readers will want, until the engine is closed."""
        while not self._closed:
            try:
                if (chunks := self._engine.next_ahead()) is None:
                    return
                self._fetch_ahead(chunks)
            except BaseException as error:  # noqa: BLE001 — nobody waits; the next reader is followed again
                _log.warning("read-ahead failed: %r", error)

    def _fetch_ahead(self, chunks: list[ChunkRef]) -> None:
        size = sum(chunk.raw_length for chunk in chunks)
        with self._room:
            self._room.wait_for(lambda: self._closed or self._ahead_bytes < AHEAD_BYTES)
            if self._closed:
                return
            self._ahead_bytes += size
        try:
            futures = self._fetch(chunks, urgent=False)
        except BaseException as error:
            self._fetched_ahead(size, error)
            raise
        _when_all_are_done(futures, partial(self._fetched_ahead, size))

    def _fetched_ahead(self, size: int, error: BaseException | None) -> None:
        if error is not None:
            _log.debug("read-ahead failed: %s", error)
        with self._room:
            self._ahead_bytes -= size
            self._room.notify()


def _entries(index: Index, ino: int) -> DirectoryRows:
    """The entries of a directory, of which there may be millions: as objects no more than a page of
    them at a time."""
    rows = DirectoryRows()
    for page in index.directory_pages(ino):
        rows.add(page)
    return rows


def _request(chunk: ChunkRef) -> ChunkRequest:
    return ChunkRequest(chunk.offset, chunk.stored_length, chunk.raw_length, chunk.codec, ChunkHash(chunk.hash))


def _runs(chunks: Iterable[ChunkRef]) -> list[list[ChunkRef]]:
    """Chunks by pack and offset, in runs that one request of about REQUEST_BYTES can fetch."""
    runs: list[list[ChunkRef]] = []
    pack, size = -1, 0
    for chunk in sorted(chunks, key=lambda chunk: (chunk.pack, chunk.offset)):
        if chunk.pack != pack or size + chunk.stored_length > REQUEST_BYTES:
            runs.append([])
            pack, size = chunk.pack, 0
        runs[-1].append(chunk)
        size += chunk.stored_length
    return runs


def _when_all_are_done(futures: list[Future[None]], done: Callable[[BaseException | None], None]) -> None:
    """Calls `done` once, with the first error in order of the futures, by whichever thread finishes
    the last."""
    left = [len(futures) + 1]
    lock = threading.Lock()

    def one(_: Future[None] | None) -> None:
        with lock:
            left[0] -= 1
            if left[0]:
                return
        done(next((error for future in futures if (error := future.exception()) is not None), None))

    for future in futures:
        future.add_done_callback(one)
    one(None)
