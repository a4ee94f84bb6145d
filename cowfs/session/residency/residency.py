"""Loads data that the engine reports as not resident: directory rows, file contents, chunks.

The engine answers from memory and local disk only. When it raises `NotResident`, `Residency.load`
fetches the data from the index or the packs and loads it into the engine. Blocking and thread-safe:
threads that miss the same thing share one load. Nothing is cached here: the engine holds rows, its
chunk cache holds chunks, and the index caches hold index blocks.

The contents of a linked file are read from the linked object (`linked`).

Chunks are fetched in parallel, neighbours of a pack in one request (`chunk_requests`); a reader of
a large file from end to end gets a whole pack per request. The bytes are consumed as they arrive,
so a request takes STREAM_BYTES of memory.

Read-ahead: the engine predicts what sequential readers need next, and a thread takes the chunks
from it, round-robin over the readers. No caller waits for read-ahead: requests with a waiting
caller go first (`fetching`), and errors are dropped, since a reader that needs the chunk meets the
error again. While less than AHEAD_BYTES, over all readers, are in flight or queued, a reader that
has reached the end of the fetched data gets the next pack requested as a whole. Beyond that limit
it requests its chunks one by one (decision 64).

A miss of a small chunk also fetches the chunks after it in the pack, as listed in the pack's
directory; the longer the misses are sequential, the more (`neighbourhood`). A tree of small files
thus costs a few requests a pack, not one a file.

File contents are loaded in blocks as well: after several misses in a block of inodes, one index
query loads the whole block (`content_blocks`, docs/decisions/0069-contents-in-blocks.md).

Every load belongs to a task of `fetching` or to the thread that requested it first.
`fail_abandoned`, called regularly, ends loads whose thread is gone, so an unforeseen error costs a
request and not the mount.

Not here: deciding what is needed (the engine), verification (`PackReader`), eviction (the engine's
cache).
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from cowfs.base import log
from cowfs.base.errors import CorruptError, InvalidStateError, NotFoundError, UnavailableError
from cowfs.base.ids import ChunkHash
from cowfs.base.single_flight import Flights
from cowfs.index import content_with_links
from cowfs.native import DirectoryRows
from cowfs.native.chunks import ChunkRef
from cowfs.native.constants import ROOT_INO
from cowfs.session.residency.chunk_requests import Load, Request, parts, runs
from cowfs.session.residency.content_blocks import ContentBlocks, Neighbours
from cowfs.session.residency.fetching import Fetchers
from cowfs.session.residency.neighbourhood import LARGE_BYTES, Neighbourhoods
from cowfs.store.packs import ChunkRequest, DirectoryCache, PackReader
from cowfs.transfer.linked import LinkedBytes, is_linked
from cowfs.version.publish.pack_numbers import PackNumbers

if TYPE_CHECKING:
    from cowfs.format.pack import PackDirectory, PackEntry
    from cowfs.index import ExtentRow, Index, InodeRow
    from cowfs.native import Engine, NotResident, Recovery

STREAM_BYTES = 3 << 20  # of a request in flight: a piece or two, a chunk, and its decompressed form
AHEAD_BYTES = 1 << 30  # 32 readers have 32 MiB each; a queued MiB takes some kB
NEIGHBOURS_MAX = 4096
REPLAY_BATCH = 1000
TRANSFER_TRIES = 3  # before commits wait for a load
DIRECTORY_BYTES = 8 << 20  # pack directories kept in memory: 170,000 chunks
ABANDONED_LOOKS = 3

T = TypeVar("T")

_log = log.get("residency")


class Residency:
    """Fills one engine from one version. `rebase` switches to the next version's index after a
    commit. linked: None if the version's links need only what the environment provides."""

    def __init__(self, engine: Engine, index: Index, packs: PackReader, linked: LinkedBytes | None = None) -> None:
        self._engine = engine
        self.linked = linked or LinkedBytes()
        self._packs = packs
        self._index = index
        self.pack_numbers = PackNumbers(index)
        self._lock = threading.Lock()
        self._taking_in = threading.Lock()  # held while rows are loaded into the engine: their index is the newest then
        self._loads: Flights[Hashable, None] = Flights()
        self._suspects: Counter[Future[None]] = Counter()  # how many checks found no thread working on it
        self._room = threading.Condition(self._lock)
        self._ahead_bytes = 0
        self._closed = False
        self._neighbourhoods = Neighbourhoods()
        self._blocks = ContentBlocks()
        self._neighbours = Neighbours(self._load_neighbours)
        self._directories = DirectoryCache(packs, DIRECTORY_BYTES)
        self._fetchers = Fetchers(at_rest=engine.flush_cache)  # so that other processes find the fetched chunks
        threading.Thread(target=self._read_ahead, name="cowfs-ahead", daemon=True).start()

    def load(self, missing: NotResident) -> None:
        """Loads what `missing` names; the caller then repeats its call. Raises CorruptError and
        UnavailableError from the store."""
        for future in self._fetch(self.load_rows(missing), urgent=True):
            future.result()

    def load_rows(self, missing: NotResident) -> Sequence[ChunkRef]:
        """As `load`, but returns the chunks still to be fetched. The first read of a file learns
        its chunks as soon as the extents are loaded, so it asks once and not twice."""
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
        self, chunks: Iterable[ChunkRef], done: Callable[[BaseException | None], None], *, urgent: bool = True
    ) -> Sequence[Future[None]]:
        """Fetches chunks without waiting. `done` is called once, with the first error if there was
        one, by the thread that fetched the last chunk, or by this one. Waiting requests hold no
        thread, so a slow store does not exhaust the pool. Returns the futures of the fetches.
        urgent: False puts them behind requests with a waiting caller."""
        futures = self._fetch(chunks, urgent=urgent)
        _when_all_are_done(futures, done)
        return futures

    def fetch(self, chunks: Iterable[ChunkRef]) -> None:
        """Fetches chunks into the cache, with lower priority than reads. Errors are ignored."""
        wait(self._fetch(chunks, urgent=False))

    def load_for_replay(
        self, recovery: Recovery, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Loads every directory and inode the journal touches, if the base version has it.

        progress is called with (done, total) every REPLAY_BATCH.
        """
        loads: list[tuple[Callable[[int], None], list[int]]] = [
            (self._load_inode, recovery.inodes),
            (self._load_content_alone, recovery.contents),
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
        """Loads every directory with its entries' attributes, so that no later lookup, stat or
        listing needs the store.

        Contents are not loaded. Directories are loaded top-down from the root and from those that a
        replayed journal has moved; what the journal removed stays removed. Call from one thread,
        before the engine is used otherwise.
        """
        waiting = self._engine.unloaded_directories()
        while waiting:
            ino = waiting.pop()
            waiting += reversed(self._take_in_directory(ino, _entries(self._index, ino)))

    def load_nameless(self) -> None:
        """Loads the contents of unlinked open files, which the version made by a commit will not
        have. Call for that commit, before `rebase`.

        A file whose rows are damaged is left as it is: reading it fails in either version.
        """
        for ino in self._engine.nameless_without_content():
            with contextlib.suppress(CorruptError):
                self._loads.load(("content", ino), partial(self._load_content, ino))

    def fail_abandoned(self) -> int:
        """Ends loads that no thread has worked on for ABANDONED_LOOKS calls, with UnavailableError.
        Returns their number."""
        idle = [load for load, loader in self._loads.list_flights() if not self._is_attended(load, loader)]
        with self._lock:
            self._suspects = Counter({load: self._suspects[load] + 1 for load in idle})
            abandoned = [load for load, looks in self._suspects.items() if looks >= ABANDONED_LOOKS]
        error = UnavailableError("a load was abandoned: its thread is gone", hint="Read again.")
        for load in abandoned:
            self._loads.end(load, error)
        return len(abandoned)

    def _is_attended(self, load: Future[None], loader: threading.Thread | None) -> bool:
        if loader is not None:
            return loader.is_alive()
        return isinstance(load, Load) and self._fetchers.has(load.request)

    def rebase(self, index: Index) -> None:
        """Reads from `index` from now on; the caller may close the previous one."""
        with self._taking_in, self._lock:
            self._index = index

    def names_of(self, inodes: Iterable[int]) -> dict[int, tuple[int, bytes]]:
        """Maps inodes to (parent, name), where the version has one. Reads every entry of the
        index."""
        wanted = set(inodes)
        return self.ask(lambda index: index.names_of(wanted))

    def ask(self, question: Callable[[Index], T]) -> T:
        """Runs a query on the index of the version that the mount is based on."""
        return self._query(question)[1]

    def close(self) -> None:
        """Waits for running fetches; queued and further loads fail."""
        with self._room:
            self._closed = True
            self._room.notify_all()
        self.linked.close()
        self._neighbours.close()
        self._fetchers.close()

    def read_linked(self, chunk: ChunkRef) -> bytes:
        """Returns a range of a linked object, from the cache or its source. Raises
        SourceChangedError."""
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
        """Loads an inode whose number is in use. Raises ESTALE if it was removed since."""

        def take_in(row: InodeRow | None) -> None:
            if row is None:
                raise OSError(errno.ESTALE, f"inode {ino} was removed")
            self._engine.load_inode(row)

        self._transfer(lambda index: index.inode(ino), take_in)

    def _load_parent(self, ino: int) -> None:
        """Searches all names of the version, since the index is sorted by directory. Only needed
        for file handles of directories."""

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
        self._transfer(lambda index: _entries(index, ino), partial(self._take_in_directory, ino))

    def _take_in_directory(self, ino: int, rows: DirectoryRows) -> list[int]:
        with _translate_refusal(f"directory {ino} has invalid entries, or one that is in another directory, too"):
            return self._engine.load_directory(ino, rows)

    def _load_content_alone(self, ino: int) -> None:
        self._transfer(lambda index: content_with_links(index, ino), lambda rows: self._take_in_content(ino, *rows))

    def _load_content(self, ino: int) -> None:
        self._load_content_alone(ino)
        if (block := self._blocks.note_miss(ino)) is not None:
            self._neighbours.bring(block)

    def _load_neighbours(self, block: range) -> None:
        """Loads the stored contents of these inodes; a later read of one that fails raises its
        error. Skips the root, because in a mounted subfolder another directory has that number."""
        first = max(block.start, ROOT_INO + 1)
        self._transfer(lambda index: index.read_stored_contents(first, block.stop - 1), self._engine.load_contents)

    def _take_in_content(self, ino: int, extents: Sequence[ExtentRow], xattrs: Sequence[tuple[bytes, bytes]]) -> None:
        with _translate_refusal(
            f"the index's extents and attributes of inode {ino} do not match the counts in its row"
        ):
            self._engine.load_content(ino, extents, xattrs)

    def _transfer(self, ask: Callable[[Index], T], take_in: Callable[[T], object]) -> None:
        """Queries the current index and passes the answer to the engine; repeats this if a commit
        replaced the index meanwhile.

        Rows of an older version must not be loaded: since they were read, the engine may have
        changed, committed and evicted what they describe, and would take them for current. If
        commits are faster than the answers, the next commit waits.
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
        """Queries the current index; retries if a commit replaced and closed it first. Returns it
        as well."""
        while True:
            index = self._index
            try:
                return index, ask(index)
            except InvalidStateError:
                if index is self._index:
                    raise

    # -- chunks

    def _fetch(self, chunks: Iterable[ChunkRef], *, urgent: bool) -> list[Future[None]]:
        """Starts fetching the chunks that are not being fetched yet. Returns the futures of all."""
        loads: dict[Future[None], None] = {}
        wanted = {chunk.hash: chunk for chunk in chunks}
        missing = [chunk for hash, chunk in wanted.items() if not self._joins(hash, loads, urgent=urgent)]
        for run in runs(self._still_absent(missing)):
            request = Request()
            for part in parts(run):
                load = Load(request)
                mine = self._loads.board([chunk.hash for chunk in part], load)
                for chunk in part:
                    if chunk.hash not in mine:  # another thread was faster, just now
                        self._joins(chunk.hash, loads, urgent=urgent)
                if mine:
                    loads[load] = None
                    request.add(load, [chunk for chunk in part if chunk.hash in mine])
            if request.chunks:
                self._submit(request, urgent=urgent)
        return list(loads)

    def _still_absent(self, chunks: list[ChunkRef]) -> list[ChunkRef]:
        """Drops chunks that have arrived since the caller looked."""
        if not chunks:
            return chunks
        absent = self._engine.keep_chunks([(chunk.hash, chunk.raw_length) for chunk in chunks])
        return [chunks[place] for place in absent]

    def _joins(self, hash: bytes, loads: dict[Future[None], None], *, urgent: bool) -> bool:
        """Whether the chunk is being fetched already; if so, adds its load to `loads`."""
        load = self._loads.of(hash)
        if load is None:
            return False
        loads[load] = None
        if urgent and isinstance(load, Load):
            self._fetchers.promote(load.request)
        return True

    def _submit(self, request: Request, *, urgent: bool) -> None:
        try:
            size_bytes = min(sum(chunk.stored_length for chunk in request.chunks), STREAM_BYTES)
            task = partial(self._fetch_request, request)
            if not self._fetchers.submit(request, task, urgent=urgent, size_bytes=size_bytes):
                raise InvalidStateError("the mount is ending", hint="Mount the volume again.")
        except BaseException as error:  # noqa: BLE001 — the caller and others waiting for it get the error
            self._end(request, error)

    def _fetch_request(self, request: Request) -> None:
        try:
            number, asked = request.chunks[0].pack, len(request.chunks)
            if not is_linked(number):
                self._add_neighbours(number, request)
            for i in self._bring(number, [_request(chunk) for chunk in request.chunks], asked):
                if (load := request.mark_arrived(i)) is not None:
                    self._loads.end(load, None)
                if self._closed:
                    raise InvalidStateError("the mount is ending", hint="Mount the volume again.")
        except BaseException as error:  # noqa: BLE001 — all waiting callers get the error
            self._end(request, error)
        else:
            self._end(request, None)

    def _end(self, request: Request, error: BaseException | None) -> None:
        """Ends all loads. Damage fails only the chunks that were requested; the others are
        refetched alone."""
        for load in request.along:
            self._loads.end(load, None if isinstance(error, CorruptError | NotFoundError) else error)
        for load in request.loads:
            self._loads.end(load, error)

    def _bring(self, number: int, requests: list[ChunkRequest], needed: int) -> Iterator[int]:
        """Caches chunks of one pack; yields the number of each request when its chunk has arrived.
        needed: as for `PackReader.fill`."""
        if not is_linked(number):
            yield from self._packs.fill(self._engine, self.pack_numbers.id(number), requests, needed)
            return
        for i, data in self._read_each(number, requests):
            self._engine.cache_chunk(requests[i].hash, data)
            yield i

    def _read_each(self, number: int, requests: list[ChunkRequest]) -> Iterator[tuple[int, bytes]]:
        if is_linked(number):
            return self.linked.read_each(number, requests, lambda ino: self.ask(lambda index: index.link(ino)))
        return self._packs.read_each(self.pack_numbers.id(number), requests)

    def _add_neighbours(self, number: int, request: Request) -> None:
        """Adds chunks that will probably be missed next and are neither cached nor being
        fetched."""
        first, last = request.chunks[0], request.chunks[-1]
        longest = max(chunk.stored_length for chunk in request.chunks)
        end = last.offset + last.stored_length
        before, behind = self._neighbourhoods.company(number, first.offset, end, longest)
        if behind == 0:
            return
        pack = self.pack_numbers.id(number)
        try:
            directory = self._directories.get(pack)
        except (CorruptError, NotFoundError) as error:
            _log.debug("neighbours of a chunk in pack %s: %s", pack, error)  # they are optional
            return
        earlier = directory.list_after(first.offset - before - 1, before)
        later = list(takewhile(_comes_along, directory.list_after(last.offset, behind)))[:NEIGHBOURS_MAX]
        if later:
            end = later[-1].offset + later[-1].stored_length
        self._neighbourhoods.brought(number, end, is_last=end == _end_of(directory))
        company = [
            ChunkRef(entry.hash, number, entry.offset, entry.stored_length, entry.raw_length, entry.codec)
            for entry in (*filter(_comes_along, earlier), *later)
        ]
        absent = self._engine.keep_chunks([(chunk.hash, chunk.raw_length) for chunk in company])
        for part in parts([company[at] for at in absent]):
            load = Load(request)
            request.bring_along(load)
            mine = self._loads.board([chunk.hash for chunk in part], load)
            request.add(load, [chunk for chunk in part if chunk.hash in mine])

    def _read_ahead(self) -> None:
        """Fetches what sequential readers will need, until the engine is closed."""
        while not self._closed:
            try:
                if (chunks := self._engine.next_ahead()) is None:
                    return
                self._fetch_ahead(chunks)
            except BaseException as error:  # noqa: BLE001 — no caller waits; read-ahead continues
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
            self._end_ahead(size, error)
            raise
        _when_all_are_done(futures, partial(self._end_ahead, size))

    def _end_ahead(self, size: int, error: BaseException | None) -> None:
        if error is not None:
            _log.debug("read-ahead failed: %s", error)
        with self._room:
            self._ahead_bytes -= size
            self._room.notify()


def count_base(engine: Engine, index: Index) -> None:
    """Passes the size of the base version to the engine."""
    totals = index.totals()
    engine.count_base(index.counted_bytes, totals.files + totals.directories + 1)  # and the root


@contextlib.contextmanager
def _translate_refusal(problem: str) -> Iterator[None]:
    """Raises CorruptError where the engine refuses rows."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise CorruptError(problem, hint="The version is damaged; read another version of the volume.") from error


def _entries(index: Index, ino: int) -> DirectoryRows:
    """The entries of a directory. There may be millions; at most a page of them exists as
    objects."""
    rows = DirectoryRows()
    for page in index.directory_pages(ino):
        rows.add(page)
    return rows


def _request(chunk: ChunkRef) -> ChunkRequest:
    return ChunkRequest(chunk.offset, chunk.stored_length, chunk.raw_length, chunk.codec, ChunkHash(chunk.hash))


def _comes_along(entry: PackEntry) -> bool:
    return entry.stored_length < LARGE_BYTES


def _end_of(directory: PackDirectory) -> int:
    return directory[-1].offset + directory[-1].stored_length


def _when_all_are_done(futures: list[Future[None]], done: Callable[[BaseException | None], None]) -> None:
    """Calls `done` once, with the first error in order of the futures, on the thread that finishes
    last."""
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
