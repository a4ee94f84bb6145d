"""Reads chunks out of packs, wherever their bytes lie today, and verifies each one.

An address (pack, offset) is permanent; the bytes may have moved. A chunk is looked for

    1. in the pack itself
    2. where the pack's newest moved record says, byte for byte the same blob; moved records are complete, never chained
    3. where an earlier one says, if the pack that the newest names is gone

and the first copy with the right hash and length is the answer; without one: CorruptError naming
both places. A wrong answer is requested again first, since the transfer may have damaged it
(`damaged`). Once a pack is known to have moved, its record is asked first. Requests: one for each
chunk, or for each run of neighbours in `read_many` and `fill`: of neighbours where they lie now.
The directory of a moved pack is composed of those of the packs that its record names.

Successful and failed reads are remembered for deduplication, which must not rely on bytes that are
gone or damaged: `has_read` says that a pack was there, `has_failed` that a chunk in it, or all of
it, cannot be read from where it belongs.

A chunk that cannot be read anywhere may have been purged (`purged`): then it is PurgedError.

Lengths come from an index that is itself untrusted, so they are bounded before any fetch. Only
moved records are cached (`moved`); thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TypeVar

from cowfs.base.errors import CorruptError, CowfsError, NotFoundError, PurgedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import ChunkHash, PackId
from cowfs.format import codec, keys
from cowfs.format.pack import FOOTER_BYTES, PackDirectory, PackFooter, parse_directory, parse_footer, parse_tail
from cowfs.format.records import MovedRecord
from cowfs.format.sealing import Buffer
from cowfs.store.contract import ObjectStore
from cowfs.store.packs.filling import ChunkCache, ChunkRun, SealedRun, Wanted
from cowfs.store.packs.moved import MovedPacks, directory_at_old_places, places_now
from cowfs.store.packs.purged import NOTHING, load_purged
from cowfs.store.reliability.damaged import read_range_as
from cowfs.store.sealed import sealing_of
from cowfs.store.streams import stream_range

# Fetching a gap costs less than another request: 64 KiB at 50 MB/s is 1.3 ms, a request to S3 10 ms
# and more.
GAP_BYTES = 64 << 10
_RUN_BYTES = 8 << 20
FILL_BYTES = 18 << 20
"""All of a usual pack; only a few pieces of it are in memory at a time."""
_TAIL_BYTES = 64 << 10
_FAILED_CHUNKS = 64  # of a pack; with more of them all of it counts as failed
_CHANGED_HINT = (
    f"If {Command('verify')} finds nothing wrong, something between this machine and the server changes answers: a cache, or "
    "another proxy. Go around it."
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """One chunk of a pack, as an index extent or a catalogue names it."""

    offset: int
    stored_length: int
    raw_length: int
    codec: int
    hash: ChunkHash


@dataclass(frozen=True, slots=True)
class Lead:
    """Stored bytes of a pack from `start` on, not verified."""

    pack: PackId
    start: int
    data: memoryview

    def has(self, pack: PackId, offset: int, length: int) -> bool:
        return pack == self.pack and self.start <= offset and offset + length <= self.start + len(self.data)


class PackReader:
    """Verified reads from packs. Any thread may call. sealing: how the store's blobs are named and
    sealed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.sealing = sealing_of(store)
        self._lock = threading.Lock()  # guards everything below; never held during a request
        self._moved = MovedPacks(store)
        self._read_packs: set[PackId] = set()
        self._purged = NOTHING  # as of the last failed read
        self._failed: dict[PackId, set[ChunkHash] | None] = {}  # None: all of the pack

    def read(
        self, pack: PackId, offset: int, stored_length: int, raw_length: int, codec: int, hash: ChunkHash
    ) -> bytes:
        """The raw bytes of one chunk, checked against hash and length. CorruptError names the pack
        and offset."""
        request = ChunkRequest(offset, stored_length, raw_length, codec, hash)
        self._check_bounds(pack, request)
        known = self._moved.find_known(pack)
        if known is not None:
            try:
                return self._read_moved(pack, known, request)
            except (CorruptError, NotFoundError):
                pass  # moved again since; the pack and its newest record are asked below
        try:
            return self._fetch(pack, request.offset, request, pack)
        except (CorruptError, NotFoundError) as error:
            return self._recover(pack, request, error)

    def read_with_lead(self, pack: PackId, request: ChunkRequest, lead_bytes: int) -> tuple[bytes, Lead | None]:
        """As `read`, and with the same request the bytes before the chunk, at most lead_bytes.
        None: the pack has moved, or the chunk is not there."""
        self._check_bounds(pack, request)
        if self._moved.find_known(pack) is None:
            start = max(request.offset - lead_bytes, 0)
            before = request.offset - start
            with suppress(CorruptError, NotFoundError):  # `read` reports a permanent error
                found = self._store.get_range(keys.pack(pack), start, before + request.stored_length)
                lead = Lead(pack, start, memoryview(found))
                return self.read_lead(lead, request), lead
        r = request
        return self.read(pack, r.offset, r.stored_length, r.raw_length, r.codec, r.hash), None

    def read_lead(self, lead: Lead, request: ChunkRequest) -> bytes:
        """A chunk that lies in it. CorruptError: it is not whole there."""
        self._check_bounds(lead.pack, request)
        at = request.offset - lead.start
        stored = lead.data[at : at + request.stored_length]
        raw = self._open_blob(stored, lead.pack, request.offset, request, f"pack {lead.pack}")
        return self._note_read(lead.pack, raw)

    def read_many(self, pack: PackId, requests: Sequence[ChunkRequest]) -> list[bytes]:
        """As `read` for each request, in order, with neighbours fetched in one range."""
        found = dict(self.read_each(pack, requests))
        return [found[i] for i in range(len(requests))]

    def read_each(self, pack: PackId, requests: Sequence[ChunkRequest]) -> Iterator[tuple[int, bytes]]:
        """As `read_many`, but each one's number and bytes as they come, in no order: only stored
        bytes of one range are kept meanwhile."""
        for request in requests:
            self._check_bounds(pack, request)
        left = set(range(len(requests)))
        for i, raw in self._together(pack, requests, left, self._read_run, _RUN_BYTES):
            if i in left:
                left.remove(i)
                yield i, raw
        for i in sorted(left):
            r = requests[i]
            yield i, self.read(pack, r.offset, r.stored_length, r.raw_length, r.codec, r.hash)

    def fill(
        self, cache: ChunkCache, pack: PackId, requests: Sequence[ChunkRequest], needed: int | None = None
    ) -> Iterator[int]:
        """Puts chunks of one pack into `cache`, and yields the number of each request when its
        chunk is there, in no order. Neighbours are fetched in one range, piece by piece, and
        processed natively.

        Errors are those of `read`, and come last: all readable chunks are there by then. needed:
        only the first so many may cost a request of their own; the others are fetched only as a
        part of their run.
        """
        left = set(range(len(requests)))
        possible = {i for i in left if self._is_possible(requests[i])}
        for i in self._together(pack, requests, possible, partial(self._fill_run, cache), FILL_BYTES):
            if i in left:
                left.remove(i)
                possible.discard(i)
                yield i
        problem: CorruptError | NotFoundError | None = None
        for i in sorted(left):
            if needed is not None and i >= needed:
                break
            r = requests[i]
            try:
                raw = self.read(pack, r.offset, r.stored_length, r.raw_length, r.codec, r.hash)
            except (CorruptError, NotFoundError) as error:
                problem = problem or error
                continue
            cache.cache_chunk(r.hash, raw)
            yield i
        if problem is not None:
            raise problem

    def directory(
        self, pack: PackId, *, directory_offset: int | None = None, directory_length: int | None = None
    ) -> PackDirectory:
        """The pack's directory: one request if the place of the directory is known, else two (three
        for a huge one).

        For a pack that has moved: its remaining entries, and two requests more than for the packs
        that hold them now.
        """
        known = self._moved.find_known(pack)
        if known is not None:
            return self._compose_directory(pack, chain([known], self._moved.records(pack)))
        try:
            return self._note_read(pack, self.own_directory(pack, directory_offset, directory_length))
        except (CorruptError, NotFoundError):
            records = self._moved.records(pack)
            if (newest := next(records, None)) is None:
                raise
            return self._compose_directory(pack, chain([newest], records))

    # -- results of earlier reads

    def has_read(self, pack: PackId) -> bool:
        """Whether the pack itself has given something whole since the last `forget_read`."""
        return pack in self._read_packs

    def forget_read(self) -> None:
        """Forgets successful reads: the packs may be gone by now."""
        with self._lock:
            self._read_packs.clear()

    def has_failed(self, pack: PackId, hash: ChunkHash) -> bool:
        """Whether reading this chunk has failed, for good, in this reader's life. Once failed it
        never counts again."""
        if pack not in self._failed:
            return False
        with self._lock:
            hashes = self._failed[pack]
            return hashes is None or hash in hashes

    @property
    def failed_packs(self) -> frozenset[PackId]:
        """Packs with a failed chunk."""
        with self._lock:
            return frozenset(self._failed)

    def has_moved(self, pack: PackId) -> bool:
        """Whether its blobs lie in other packs by now, as the store says."""
        return self._moved.newest(pack) is not None

    def homes(self, pack: PackId) -> frozenset[PackId]:
        """Where the pack had moved to when its `directory` was read; nothing: it had not."""
        return self._moved.homes(pack)

    def list_moved_into(self, packs: Collection[PackId]) -> frozenset[PackId]:
        """All packs with a home in `packs`."""
        return self._moved.list_moved_into(packs)

    def _note_read(self, pack: PackId, found: T) -> T:
        if pack not in self._read_packs:
            with self._lock:
                self._read_packs.add(pack)
        return found

    def _note_failure(self, pack: PackId, hash: ChunkHash, *, is_gone: bool) -> None:
        with self._lock:
            hashes = self._failed.setdefault(pack, set())
            if hashes is not None:
                hashes.add(hash)
            if is_gone or (hashes is not None and len(hashes) > _FAILED_CHUNKS):
                self._failed[pack] = None

    # -- one place after the other

    def _read_moved(self, pack: PackId, record: MovedRecord, request: ChunkRequest) -> bytes:
        blob = record.locate(request.offset)
        if blob is None:
            raise NotFoundError(f"the moved record of pack {pack} names nothing at {request.offset}")
        if blob.stored_length != request.stored_length:
            raise CorruptError(
                f"the moved record of pack {pack} says {blob.stored_length} bytes at {request.offset}, "
                f"the index says {request.stored_length}"
            )
        return self._fetch(blob.new_pack, blob.new_offset, request, pack)

    def _recover(self, pack: PackId, request: ChunkRequest, first: CorruptError | NotFoundError) -> bytes:
        """Asks the moved records, from the newest on, after the pack itself failed with `first`."""
        problem, has_moved = first.message, False
        records = self._moved.records(pack)
        while True:
            try:
                if (record := next(records, None)) is None:
                    break
                has_moved = True
                raw = self._read_moved(pack, record, request)
                self._moved.keep(record)
                return raw
            except (CorruptError, NotFoundError) as error:
                problem += f"; and where it was moved to: {error.message}"
        self._require_not_purged(pack, request, first)
        is_gone = not has_moved and isinstance(first, NotFoundError)
        self._note_failure(pack, request.hash, is_gone=is_gone)
        collected = "The version may have been pruned, and collected since it was opened. " if is_gone else ""
        changed = "" if isinstance(first, NotFoundError) else f" {_CHANGED_HINT}"
        raise CorruptError(
            f"chunk {request.hash} at {request.offset} of pack {pack} cannot be read: {problem}",
            hint=f"{collected}If another store or machine holds this version, copy it again from there.{changed}",
            details={"pack": pack.hex(), "offset": request.offset, "hash": request.hash.hex()},
        ) from first

    def _require_not_purged(self, pack: PackId, request: ChunkRequest, first: CorruptError | NotFoundError) -> None:
        """PurgedError: the chunk was purged here. Records are read only when a chunk cannot be."""
        with suppress(CowfsError):
            if not self._purged.has(pack, request.hash):
                self._purged = load_purged(self._store)
        if self._purged.has(pack, request.hash):
            self._note_failure(pack, request.hash, is_gone=False)
            raise PurgedError(
                f"chunk {request.hash} at {request.offset} of pack {pack} was purged from {self._store.url}",
                hint=f"Nothing is damaged, and nothing brings it back. {Command('verify')} lists what was purged. "
                "Whoever still has the file can write it again.",
                details={"pack": pack.hex(), "offset": request.offset, "hash": request.hash.hex()},
            ) from first

    def _fetch(self, pack: PackId, offset: int, request: ChunkRequest, named: PackId) -> bytes:
        what = f"{request.stored_length} bytes at {offset} of pack {pack}"
        if pack != named:
            what += f" (moved from pack {named})"

        def open_blob(stored: bytes) -> bytes:
            return self._open_blob(stored, pack, offset, request, what)

        raw = read_range_as(self._store, keys.pack(pack), offset, request.stored_length, open_blob)
        return self._note_read(pack, raw) if pack == named else raw

    def _open_blob(self, stored: Buffer, pack: PackId, offset: int, request: ChunkRequest, what: str) -> bytes:
        """The blob, from the bytes that are stored at this offset of the pack."""
        plain = self.sealing.pack(pack).open(stored, offset, request.codec, request.raw_length, what=what)
        return codec.decompress(plain, request.codec, request.raw_length, request.hash, what, name=self.sealing.name)

    def _check_bounds(self, pack: PackId, request: ChunkRequest) -> None:
        """Stored bytes are never longer than raw ones (`codec.compress` sees to that), but for what
        sealing adds, and those have a limit."""
        if not self._is_possible(request):
            raise CorruptError(
                f"impossible address: {request.stored_length} stored and {request.raw_length} raw bytes at "
                f"{request.offset} of pack {pack}"
            )

    def _is_possible(self, request: ChunkRequest) -> bool:
        plain_length = request.stored_length - self.sealing.blob_overhead_bytes
        return request.offset >= 0 and 0 <= plain_length <= request.raw_length <= codec.MAX_RAW_BYTES

    def _together(
        self,
        pack: PackId,
        requests: Sequence[ChunkRequest],
        wanted: Collection[int],
        read_run: Callable[[PackId, Sequence[ChunkRequest], Sequence[tuple[int, int]]], Iterator[T]],
        run_bytes: int,
    ) -> Iterator[T]:
        """What arrives whole of runs of neighbours, some of it perhaps twice; `read` deals with the
        others. wanted: indexes of requests."""
        try:
            for home, run in _locate_runs(pack, requests, wanted, self._moved.find_known(pack), run_bytes):
                yield from read_run(home, requests, run)
            return
        except NotFoundError:
            pass  # it has moved, perhaps again
        try:
            if (newest := self._moved.newest(pack)) is not None:
                for home, run in _locate_runs(pack, requests, wanted, newest, run_bytes):
                    yield from read_run(home, requests, run)
        except (CorruptError, NotFoundError):
            return

    def _fill_run(
        self, cache: ChunkCache, home: PackId, requests: Sequence[ChunkRequest], run: Sequence[tuple[int, int]]
    ) -> Iterator[int]:
        start, end = _extent(requests, run)
        overhead = self.sealing.blob_overhead_bytes
        places: list[Wanted] = [
            (offset, r.stored_length, r.raw_length, r.codec, r.hash) for offset, i in run for r in [requests[i]]
        ]
        plain: list[Wanted] = [(offset, stored - overhead, raw, how, hash) for offset, stored, raw, how, hash in places]
        chunks = cache.chunk_run(start, plain, self.sealing.name_key)
        taker: SealedRun | ChunkRun = SealedRun(chunks, self.sealing.pack(home), places, start) if overhead else chunks
        settled = 0
        try:
            for piece in stream_range(self._store, keys.pack(home), start, end - start):
                before, settled = settled, taker.take(piece)
                failed = set(chunks.failed)
                yield from (run[place][1] for place in range(before, settled) if place not in failed)
        except CorruptError:
            return

    def _read_run(
        self, home: PackId, requests: Sequence[ChunkRequest], run: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, bytes]]:
        if len(run) == 1:  # `read` makes one request, too
            return
        start, end = _extent(requests, run)
        try:
            data = memoryview(self._store.get_range(keys.pack(home), start, end - start))
        except CorruptError:
            return
        for offset, i in run:
            request = requests[i]
            stored = data[offset - start :][: request.stored_length]
            try:
                raw = self._open_blob(stored, home, offset, request, f"pack {home}")
            except CorruptError:
                continue
            yield i, raw

    # -- directories

    def own_directory(self, pack: PackId, offset: int | None = None, length: int | None = None) -> PackDirectory:
        """As `directory`, of the pack itself, wherever its blobs have moved."""
        what = f"pack {pack} of {self._store.url}"
        key, blobs = keys.pack(pack), self.sealing.pack(pack)
        if offset is not None and length is not None:
            known = partial(parse_tail, directory_offset=offset, what=what, blobs=blobs)
            return read_range_as(self._store, key, offset, length + FOOTER_BYTES, known)
        size = self._store.size(key)
        if size is None:
            raise NotFoundError(f"{what} does not exist")
        tail_at = size - min(size, _TAIL_BYTES)

        def parse_end(tail: bytes) -> PackDirectory | PackFooter:
            footer = parse_footer(tail, size, what=what, blobs=blobs)
            start = footer.directory_offset - tail_at
            if start < 0:
                return footer
            return parse_directory(tail[start : start + footer.directory_length], footer, what=what, blobs=blobs)

        found = read_range_as(self._store, key, tail_at, size - tail_at, parse_end)
        if isinstance(found, PackDirectory):
            return found
        listed = partial(parse_directory, footer=found, what=what, blobs=blobs)
        return read_range_as(self._store, key, found.directory_offset, found.directory_length, listed)

    def _compose_directory(self, pack: PackId, records: Iterable[MovedRecord]) -> PackDirectory:
        directories: dict[PackId, PackDirectory] = {}
        gone: set[PackId] = set()

        def is_there(home: PackId) -> bool:
            if home not in directories and home not in gone:
                try:
                    directories[home] = self.own_directory(home)
                except NotFoundError:  # nothing needed lay there any more when it was collected
                    gone.add(home)
            return home in directories

        blobs = places_now(records, is_there).values()
        if not blobs:
            raise NotFoundError(f"the packs of {self._store.url} where blobs of pack {pack} were moved to are gone")
        self._moved.rely_on(pack, {blob.new_pack for blob in blobs})
        return directory_at_old_places(pack, blobs, directories)


def _locate_runs(
    pack: PackId,
    requests: Sequence[ChunkRequest],
    wanted: Collection[int],
    record: MovedRecord | None,
    run_bytes: int,
) -> Iterator[tuple[PackId, list[tuple[int, int]]]]:
    """Where the wanted requests lie now, according to the record: runs of a pack."""
    homes: dict[PackId, list[tuple[int, int]]] = {}  # (offset, index) by pack
    for i in wanted:
        if record is None:
            homes.setdefault(pack, []).append((requests[i].offset, i))
        elif (blob := record.locate(requests[i].offset)) is not None:
            homes.setdefault(blob.new_pack, []).append((blob.new_offset, i))
    for home, places in homes.items():
        for run in _runs(requests, places, run_bytes):
            yield home, run


def _extent(requests: Sequence[ChunkRequest], run: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Where a run begins and ends in its pack."""
    return run[0][0], max(offset + requests[i].stored_length for offset, i in run)


def _runs(
    requests: Sequence[ChunkRequest], places: Sequence[tuple[int, int]], run_bytes: int
) -> Iterator[list[tuple[int, int]]]:
    """places: (offset, index of the request). In order of offset, in runs of neighbours that one
    range serves."""
    run: list[tuple[int, int]] = []
    start = end = 0
    for offset, i in sorted(places):
        place_end = offset + requests[i].stored_length
        if run and (offset - end > GAP_BYTES or max(end, place_end) - start > run_bytes):
            yield run
            run = []
        if not run:
            start = end = offset
        run.append((offset, i))
        end = max(end, place_end)
    if run:
        yield run
