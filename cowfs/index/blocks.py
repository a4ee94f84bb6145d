"""The pages of a published index, fetched from its packs as they are needed.

    section.segments[n // 256] ──▶ list segment (256 BlockRefs) ──▶ BlockRef ──▶ cache, or a ranged read of an index pack

Every byte is verified by its hash before use (`PackReader`, `BlockCache`). A miss fetches, in one
request, the blocks that follow in the index and lie next to each other in the pack: at least 256
KiB, or 64 KiB while a caller has declared its reads `expect_scattered_reads`, doubling up to 4 MiB
while misses follow on one another. The first segment is fetched together with the blocks before it
in its pack: usually those are needed next. Two threads that miss the same block wait for one
request. `prefetch` fetches many blocks with parallel requests.

A damaged neighbour does not affect readers that do not need it: the wanted block is then fetched
alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeVar

from cowfs.base.errors import CorruptError, NotFoundError, UnsupportedFormatError
from cowfs.base.ids import ChunkHash, PackId
from cowfs.base.single_flight import Flights, was_left
from cowfs.base.thread_pool import Helpers
from cowfs.format.blocklist import BlockRef, decode_segment
from cowfs.format.manifest import SEGMENT_ENTRIES, IndexSection
from cowfs.index.cache import BlockCache
from cowfs.index.overlay import PAGE_BYTES, ZERO_PAGE
from cowfs.store.packs import ChunkRequest, Lead, PackReader

FETCH_FLOOR_BYTES = 256 << 10
FETCH_CEILING_BYTES = 4 << 20
SCATTERED_FLOOR_BYTES = 64 << 10
"""Comparing two versions of a million files that differ in ten fetches 1.4 MB; with
FETCH_FLOOR_BYTES 3.2 MB."""
LEAD_BYTES = 128 << 10
"""The first pages of most indexes, all pages of a small one."""
PREFETCH_BATCH_BYTES = 1 << 20
PREFETCH_THREADS = 16
"""For a scattered change, each level of the tree costs the number of needed blocks divided by this
in round trips. Guessed."""

T = TypeVar("T")


class StoreBlocks:
    """Blocks of one section. Thread-safe. Needs no closing: the cache and the reader belong to the
    caller."""

    def __init__(self, reader: PackReader, section: IndexSection, cache: BlockCache, *, url: str = "") -> None:
        """url: of the store, for errors."""
        first = section.segments[0].hash.hex()[:16] if section.segments else "without pages"
        self.section = section
        self.url = url
        self.title = f"index {first} in {url}" if url else f"index {first}"
        if section.page_size != PAGE_BYTES:
            raise UnsupportedFormatError(
                f"{self.title} has pages of {section.page_size} bytes; this cowfs reads {PAGE_BYTES}",
                hint="Use a newer cowfs.",
            )
        if section.pages < 1 or len(section.segments) != -(-section.pages // SEGMENT_ENTRIES):
            raise CorruptError(f"{self.title} names {len(section.segments)} list segments for {section.pages} pages")
        self.reader = reader
        self.cache = cache
        self._segments: dict[int, Sequence[BlockRef | None]] = {}
        self._flights: Flights[ChunkHash, bytes] = Flights(cache.recent)  # a load may have just ended
        self._lock = threading.Lock()
        self._next_miss = -1
        self._window_bytes = FETCH_FLOOR_BYTES
        self._scattered = 0  # how many callers have declared their reads scattered

    @property
    def count(self) -> int:
        return self.section.pages

    def read(self, number: int) -> bytes:
        """CorruptError, UnavailableError as for packs."""
        ref = self.ref(number)
        if ref is None:
            return ZERO_PAGE
        raw = self.cache.get(ref.hash)
        if raw is None:
            raw = self._fetch_near(number, ref)
        if len(raw) != PAGE_BYTES:
            raise CorruptError(f"{self.title} is damaged: the block of page {number + 1} is not a page")
        return raw

    def prefetch(self, numbers: Iterable[int]) -> None:
        wanted = sorted(set(numbers))
        _run_parallel(self.segment, sorted({n // SEGMENT_ENTRIES for n in wanted} - self._segments.keys()))
        refs = {ref.hash: ref for n in wanted if (ref := self.ref(n)) is not None and not self.cache.holds(ref.hash)}
        _run_parallel(self._fetch, _batches(list(refs.values())))

    @contextmanager
    def expect_scattered_reads(self) -> Iterator[None]:
        with self._lock:
            self._scattered += 1
        try:
            yield
        finally:
            with self._lock:
                self._scattered -= 1

    def ref(self, number: int) -> BlockRef | None:
        """Where block `number` lies; None: it was never written."""
        return self.segment(number // SEGMENT_ENTRIES)[number % SEGMENT_ENTRIES]

    def list_blocks(self, positions: Iterable[int], *, without: Container[int] = ()) -> dict[ChunkHash, int]:
        """Hash and number of each block that these segments name, except the numbers in `without`;
        equal blocks are returned once."""
        wanted = list(positions)
        _run_parallel(self.segment, [position for position in wanted if position not in self._segments])
        return {
            ref.hash: SEGMENT_ENTRIES * position + place
            for position in wanted
            for place, ref in enumerate(self.segment(position))
            if ref is not None and SEGMENT_ENTRIES * position + place not in without
        }

    def segment(self, position: int) -> Sequence[BlockRef | None]:
        """The refs of blocks 256·position and following; stays in memory once loaded."""
        segment = self._segments.get(position)
        if segment is None:
            segment = self._segments[position] = self._load_segment(position)
        return segment

    def _load_segment(self, position: int) -> Sequence[BlockRef | None]:
        ref = self.section.segments[position]
        raw, lead = self.cache.get(ref.hash), None
        if raw is None:
            request = ChunkRequest(ref.offset, ref.stored_length, ref.raw_length, ref.codec, ref.hash)
            if self._segments:
                raw = self._brought(ref.pack, [request])
            else:
                raw, lead = self.reader.read_with_lead(ref.pack, request, LEAD_BYTES)
                self.cache.put(ref.hash, raw)
        what = f"list segment {position} of {self.title}"
        segment = decode_segment(raw, what=what)
        if len(segment) != min(SEGMENT_ENTRIES, self.count - position * SEGMENT_ENTRIES):
            raise CorruptError(f"{what} is damaged: it lists {len(segment)} blocks")
        if lead is not None:
            self._keep(segment, lead)
        return segment

    def _keep(self, segment: Sequence[BlockRef | None], lead: Lead) -> None:
        """Caches the blocks that came with the segment. Damage shows when a damaged block is
        read."""
        for ref in segment:
            if ref is not None and lead.has(ref.pack, ref.offset, ref.stored_length) and not self.cache.holds(ref.hash):
                with suppress(CorruptError):
                    self.cache.put(ref.hash, self.reader.read_lead(lead, _requests([ref])[0]))

    def _fetch_near(self, number: int, ref: BlockRef) -> bytes:
        with self._lock:
            follows = number == self._next_miss
            floor = SCATTERED_FLOOR_BYTES if self._scattered else FETCH_FLOOR_BYTES
            self._window_bytes = min(self._window_bytes * 2, FETCH_CEILING_BYTES) if follows else floor
            window = self._window_bytes
        run = self._run(number, ref, window)
        with self._lock:
            self._next_miss = number + len(run)
        try:
            return self._brought(ref.pack, _requests(run))
        except (CorruptError, NotFoundError):  # damage of this block, or of a neighbour, shows later
            return self._brought(ref.pack, _requests([ref]))

    def _run(self, number: int, ref: BlockRef, window_bytes: int) -> list[BlockRef]:
        """The block and the blocks behind it in index and pack that are not cached yet."""
        run, size = [ref], ref.stored_length
        for other in self.segment(number // SEGMENT_ENTRIES)[number % SEGMENT_ENTRIES + 1 :]:
            last = run[-1]
            if other is None or other.pack != last.pack or other.offset != last.offset + last.stored_length:
                break
            size += other.stored_length
            if size > window_bytes or self.cache.holds(other.hash):
                break
            run.append(other)
        return run

    def _fetch(self, refs: Sequence[BlockRef]) -> None:
        """Fetches blocks of one pack into the cache. Damage shows when a damaged block is read."""
        for flight in self._fly(refs[0].pack, _requests(refs)):
            try:
                flight.result()
            except (CorruptError, NotFoundError):
                continue
            except BaseException as error:
                if not was_left(flight, error):
                    raise

    def _brought(self, pack: PackId, requests: Sequence[ChunkRequest]) -> bytes:
        """Fetches blocks; returns the first."""
        while True:
            flight = self._fly(pack, requests)[0]
            try:
                return flight.result()
            except BaseException as error:
                if not was_left(flight, error):
                    raise

    def _fly(self, pack: PackId, requests: Sequence[ChunkRequest]) -> list[Future[bytes]]:
        """Fetches blocks that no other thread is fetching; returns the flights of all, in order. A
        failed request fails all its blocks."""
        flights, mine = self._flights.claim([request.hash for request in requests])
        if not mine:
            return flights
        wanted = [request for request in requests if request.hash in mine]
        try:
            for request, raw in zip(wanted, self.reader.read_many(pack, wanted), strict=True):
                self.cache.put(request.hash, raw)
                self._flights.end(mine[request.hash], None, raw)
        except BaseException as error:  # passed to every waiting thread
            for flight in mine.values():
                self._flights.end(flight, error)
            if not isinstance(error, Exception):
                raise
        return flights


def enter(reader: PackReader, section: IndexSection, cache: BlockCache) -> None:
    """Fetches the first blocks that a reader of the index needs, with one request: for a caller
    that reads many indexes in turn. Damage shows when they are read."""
    with suppress(CorruptError, NotFoundError):
        StoreBlocks(reader, section, cache).segment(0)


def _requests(refs: Sequence[BlockRef]) -> list[ChunkRequest]:
    return [ChunkRequest(ref.offset, ref.stored_length, PAGE_BYTES, ref.codec, ref.hash) for ref in refs]


def _run_parallel(work: Callable[[T], object], items: Sequence[T]) -> None:
    """Runs work on each item; raises the first error when all have ended."""
    if len(items) == 1:
        work(items[0])
    elif items:
        with Helpers(min(len(items), PREFETCH_THREADS), name="index") as threads:
            for outcome in [threads.submit(work, item) for item in items]:
                outcome.result()


def _batches(refs: list[BlockRef]) -> list[list[BlockRef]]:
    """Runs of one pack without gaps, of at most PREFETCH_BATCH_BYTES each: one request a batch."""
    batches: list[list[BlockRef]] = []
    size = 0
    for ref in sorted(refs, key=lambda ref: (ref.pack, ref.offset)):
        last = batches[-1][-1] if batches else None
        joins = last is not None and last.pack == ref.pack and last.offset + last.stored_length == ref.offset
        if joins and size + ref.stored_length <= PREFETCH_BATCH_BYTES:
            batches[-1].append(ref)
            size += ref.stored_length
        else:
            batches.append([ref])
            size = ref.stored_length
    return batches
