"""Repacking: what is needed of sparse packs is written to new ones, so that the old ones can go.

    sparse packs, old enough ─▶ batches, each a new pack ─▶ blobs read and verified ─▶ new pack put and read back
                                                         ─▶ a moved record for every pack whose addresses lay there

Nothing is deleted here. A collection condemns the old packs afterwards, waits for writers and looks
again, and an old pack goes only if everything that is needed by then is where the moved records say
(`places`). So a kill, a second collector or a version that revives a blob cost room, not data.

A record takes effect for readers at once, and a writer may have begun to use what the record before
it lists. So a new record keeps all rows of the one before whose packs are there, needed or not. A
pack with a damaged blob is left alone; `verify` and `repair` tell more.

Memory: a batch, and the new pack made of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from cowfs.errors import ConflictError, CorruptError, NotFoundError
from cowfs.failpoints import hit
from cowfs.format import codec, keys
from cowfs.format.pack import ENTRY_BYTES, FOOTER_BYTES, HEADER_BYTES, PackEntry, PackKind
from cowfs.format.records import MovedBlob, MovedRecord
from cowfs.ids import PackId
from cowfs.maintain.moving import append_record, moved_record, put_blobs, record_bytes
from cowfs.maintain.places import Places
from cowfs.store import ObjectInfo, ObjectStore, refs
from cowfs.store.damaged import read_range_as
from cowfs.store.packs import GAP_BYTES, PackReader, earlier_moved_records, places_now
from cowfs.store.sealed import sealing_of
from cowfs.values import dataclass

SPARSE_PART = 0.5
GAIN_BYTES = 256 << 10
"""A pack that has less to gain stays: each reader of a moved pack asks for its record first.
Chosen: what a request takes is worth some 100 KB of transfer."""
ROW_BYTES = 32
"""A blob of a moved record, about."""
BATCH_BYTES = 16 << 20
"""A usual pack."""
ATTEMPTS = 5


@dataclass(frozen=True)
class Batch:
    """Old packs whose needed blobs make one new pack. size_bytes: of the new pack and the moved
    records, to the byte."""

    kind: PackKind
    packs: tuple[PackId, ...]
    size_bytes: int


@dataclass(frozen=True)
class Sparse:
    """batches: to be written. left: sparse packs that are not worth it, with what is unused in
    each."""

    batches: tuple[Batch, ...]
    left: Mapping[PackId, int]

    @property
    def packs(self) -> frozenset[PackId]:
        return frozenset(pack for batch in self.batches for pack in batch.packs)

    @property
    def written_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)

    def only(self, keep: Callable[[PackId], bool]) -> Sparse:
        """Of the batches those of which all packs are kept: sizes are then as planned."""
        return replace(self, batches=tuple(batch for batch in self.batches if all(map(keep, batch.packs))))


class Repacker:
    """there: packs as the store lists them. index_packs: those that versions name as such."""

    def __init__(
        self,
        store: ObjectStore,
        places: Places,
        there: Mapping[PackId, ObjectInfo],
        index_packs: Collection[PackId],
        *,
        gain_bytes: int = GAIN_BYTES,
    ) -> None:
        self._store = store
        self._sealing = sealing_of(store)
        self._places = places
        self._there = there
        self._index_packs = index_packs
        self._gain_bytes = gain_bytes
        self._reader = PackReader(store)

    def plan(self, spared: Collection[PackId], young_ns: int) -> Sparse:
        """spared: packs that pins name. young_ns: what was put since then stays as it is."""
        left: dict[PackId, int] = {}
        worth: dict[PackKind, list[PackId]] = {PackKind.DATA: [], PackKind.INDEX: []}
        needed: dict[PackId, int] = {}
        for pack, info in sorted(self._there.items(), key=lambda item: (item[1].mtime_ns, item[0])):
            if not self._places.is_needed(pack):
                continue
            ranges = self._places.ranges(pack)
            used = sum(length for _, length in ranges)
            if used >= SPARSE_PART * info.size:
                continue
            needed[pack] = used + len(ranges) * ENTRY_BYTES
            is_old = info.mtime_ns < young_ns and pack not in spared
            new_bytes = self._size(needed[pack]) + len(ranges) * ROW_BYTES
            if is_old and info.size - new_bytes >= self._gain_bytes:
                worth[self._kind(pack)].append(pack)
            else:
                left[pack] = info.size - used
        parts = [(kind, some) for kind, packs in worth.items() for some in self._parts(packs, needed)]
        rows: dict[PackId, dict[int, MovedBlob]] = {}
        times = Counter(name for _, some in parts for name in self._names(some))
        batches = []
        for number, (kind, some) in enumerate(parts):
            size = self._size(sum(needed[pack] for pack in some))
            batches.append(Batch(kind, some, size + self._records_bytes(some, rows, number)))
            for name in self._names(some):
                times[name] -= 1
                if times[name] == 0:
                    del rows[name]
        return Sparse(tuple(batches), left)

    def _parts(self, packs: list[PackId], needed: Mapping[PackId, int]) -> Iterator[tuple[PackId, ...]]:
        some: list[PackId] = []
        size = self._size(0)
        for pack in packs:
            if some and size + needed[pack] > BATCH_BYTES:
                yield tuple(some)
                some, size = [], self._size(0)
            some.append(pack)
            size += needed[pack]
        if some:
            yield tuple(some)

    def _records_bytes(self, packs: Sequence[PackId], rows: dict[PackId, dict[int, MovedBlob]], number: int) -> int:
        """Of the moved records that batch `number` needs. rows: of those before it, and its own
        after."""
        new: dict[tuple[PackId, int], MovedBlob] = {}
        new_pack = PackId(number.to_bytes(PackId.length, "big"))
        end = HEADER_BYTES
        for pack in packs:
            for offset, length in self._places.ranges(pack):
                new[pack, offset] = MovedBlob(offset, new_pack, end, length)
                end += length
        size = 0
        for name, sources in self._names(packs).items():
            before = rows.get(name) or self._kept(self._places.records(name))
            rows[name] = before | self._rows(name, sources, new)
            size += record_bytes(self._store, moved_record(name, rows[name].values()))
        return size

    def _size(self, blobs_bytes: int) -> int:
        """Of a pack whose blobs, and their entries in its directory, take that many."""
        return HEADER_BYTES + blobs_bytes + self._sealing.blob_overhead_bytes + FOOTER_BYTES

    def _kind(self, pack: PackId) -> PackKind:
        names = {pack, *self._places.lodgers.get(pack, ())}
        return PackKind.DATA if names.isdisjoint(self._index_packs) else PackKind.INDEX

    # -- writing

    def write(self, batch: Batch) -> tuple[frozenset[PackId], int]:
        """(packs of the batch that may go now, if nothing else needs them; bytes that were
        written). A pack that is damaged stays."""
        blobs: list[tuple[PackId, PackEntry, bytes]] = []
        whole: set[PackId] = set()
        for pack in batch.packs:
            try:
                blobs += [(pack, entry, stored) for entry, stored in self._read(pack)]
            except (CorruptError, NotFoundError):
                continue
            whole.add(pack)
        if not blobs:
            return frozenset(), 0
        moved = put_blobs(self._store, batch.kind, ((entry, stored) for _, entry, stored in blobs))
        hit("gc-after-repacked")
        new = {(pack, entry.offset): blob for (pack, entry, _), blob in zip(blobs, moved, strict=True)}
        size = self._size(sum(entry.stored_length + ENTRY_BYTES for _, entry, _ in blobs))
        stuck: set[PackId] = set()
        for name, sources in self._names(whole).items():
            record_bytes = self._record(name, self._rows(name, sources, new))
            size += record_bytes
            if not record_bytes:
                stuck |= sources
            hit("gc-after-moved")
        return frozenset(whole - stuck), size

    def _names(self, packs: Collection[PackId]) -> dict[PackId, set[PackId]]:
        """The packs by which addresses name what lies in `packs`, each with those of `packs` that
        it lies in."""
        found: dict[PackId, set[PackId]] = {}
        for pack in packs:
            own = {pack} if self._places.is_named(pack) and pack not in self._places.superseded else set()
            for name in own | self._places.lodgers.get(pack, set()):
                found.setdefault(name, set()).add(pack)
        return found

    def _rows(
        self, name: PackId, sources: Collection[PackId], new: Mapping[tuple[PackId, int], MovedBlob]
    ) -> dict[int, MovedBlob]:
        """What is to be said of addresses in `name`: offset there, and where the blob lies now."""
        rows: dict[int, MovedBlob] = {}
        for offset, length in self._places.addresses(name):
            if name in sources:
                places = [(name, offset)]
            else:
                moved = self._places.moved_to(name, offset, length)
                places = [(blob.new_pack, blob.new_offset) for blob in moved]
            for place in places:
                if (blob := new.get(place)) is not None:
                    rows[offset] = replace(blob, offset=offset)
        return rows

    def _record(self, name: PackId, rows: dict[int, MovedBlob]) -> int:
        """Its size; 0: others move the pack again and again."""
        for _ in range(ATTEMPTS):
            newest = refs.newest(self._store, refs.moved(name))
            number, kept = 0, dict[int, MovedBlob]()
            if newest is not None:
                number = newest[0]
                kept = self._kept(chain([newest[1]], earlier_moved_records(self._store, name, number)))
            try:
                return append_record(self._store, name, number, (kept | rows).values())
            except ConflictError:
                continue
        return 0

    def _kept(self, before: Iterable[MovedRecord]) -> dict[int, MovedBlob]:
        """Of the records before: a writer may be about to name what nothing needs yet."""
        return places_now(before, self._is_there)

    def _is_there(self, pack: PackId) -> bool:
        return pack in self._there or self._store.size(keys.pack(pack)) is not None

    # -- reading

    def _read(self, pack: PackId) -> Iterator[tuple[PackEntry, bytes]]:
        """Needed blobs, verified, as they are before they are sealed, ascending. CorruptError,
        NotFoundError: one cannot be had from this pack."""
        directory = self._reader.directory(pack)
        run: list[PackEntry] = []
        for offset, length in self._places.ranges(pack):
            entry = directory.at(offset)
            if entry is None or entry.stored_length != length:
                raise CorruptError(f"pack {pack} lists no {length} bytes at {offset}")
            if run and offset - (run[-1].offset + run[-1].stored_length) > GAP_BYTES:
                yield from self._read_run(pack, run)
                run = []
            run.append(entry)
        if run:
            yield from self._read_run(pack, run)

    def _read_run(self, pack: PackId, run: list[PackEntry]) -> list[tuple[PackEntry, bytes]]:
        start, end = run[0].offset, run[-1].offset + run[-1].stored_length

        def opened(data: bytes) -> list[tuple[PackEntry, bytes]]:
            found = []
            for entry in run:
                sealed = memoryview(data)[entry.offset - start :][: entry.stored_length]
                what = f"the blob at {entry.offset} of pack {pack}"
                plain = self._sealing.pack(pack).open(sealed, entry.offset, entry.codec, entry.raw_length, what=what)
                codec.decompress(plain, entry.codec, entry.raw_length, entry.hash, what, name=self._sealing.name)
                found.append((entry, bytes(plain)))
            return found

        return read_range_as(self._store, keys.pack(pack), start, end - start, opened)
