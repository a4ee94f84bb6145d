"""Repacking: writes the needed blobs of sparse packs to new ones, so that the old ones can be
deleted.

    sparse packs, old enough ─▶ batches, each a new pack ─▶ blobs read and verified ─▶ new pack put and read back
                                                         ─▶ a moved record for every pack whose addresses were there

Nothing is deleted here. A collection condemns the old packs afterwards, waits for writers and looks
again, and an old pack is deleted only if the moved records give new places for all blobs needed by
then (`places`). So a kill, a second collector or a version that revives a blob costs space, not
data.

A record takes effect for readers at once, and a writer may have begun to use blobs listed in the
record before it. So a new record keeps all rows of the previous one whose packs exist, needed or
not. A pack with a damaged blob is left alone; `verify` and `repair` report it.

Memory: a batch, and the new pack made of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from cowfs.base.errors import ConflictError, CorruptError, NotFoundError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId
from cowfs.format import codec, keys
from cowfs.format.pack import HEADER_BYTES, PackEntry, PackKind, size_of
from cowfs.format.records import MovedBlob, MovedRecord
from cowfs.maintain.collect.blob_places import Places
from cowfs.maintain.collect.moving import append_record, make_record, put_blobs, record_bytes
from cowfs.store import ObjectInfo, ObjectStore
from cowfs.store.packs import GAP_BYTES, PackReader, earlier_moved_records, places_now
from cowfs.store.refs import refs
from cowfs.store.reliability.damaged import read_range_as
from cowfs.store.sealed import sealing_of

SPARSE_PART = 0.5
GAIN_BYTES = 256 << 10
"""A pack with less to gain stays: each reader of a moved pack asks for its record first. Chosen: a
request takes as long as some 100 KB of transfer."""
ROW_BYTES = 32
"""The approximate size of a blob in a moved record."""
BATCH_BYTES = 16 << 20
"""The size of a usual pack."""
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
    """batches: to be written. left: sparse packs that are not worth it, with the unused bytes of
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
        """Keeps only batches without a dropped pack, so that sizes stay as planned."""
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
        self._blobs = self._sealing.pack(PackId(bytes(PackId.length)))  # of any pack: only for sizes
        self._places = places
        self._there = there
        self._index_packs = index_packs
        self._gain_bytes = gain_bytes
        self._reader = PackReader(store)

    def plan(self, spared: Collection[PackId], young_ns: int, purged: Collection[PackId] = ()) -> Sparse:
        """spared: packs that pins name. young_ns: packs put since then stay as they are. purged:
        packs to be written anew in any case."""
        left: dict[PackId, int] = {}
        worth: dict[PackKind, list[PackId]] = {PackKind.DATA: [], PackKind.INDEX: []}
        needed: dict[PackId, tuple[int, int]] = {}  # how many bytes in how many blobs
        for pack, info in sorted(self._there.items(), key=lambda item: (item[1].mtime_ns, item[0])):
            if not self._places.is_needed(pack):
                continue
            ranges = self._places.ranges(pack)
            used = sum(length for _, length in ranges)
            if pack not in purged and self._blobs.pad_size(used) >= SPARSE_PART * info.size:
                continue
            needed[pack] = used, len(ranges)
            is_old = info.mtime_ns < young_ns and pack not in spared
            new_bytes = self._size([needed[pack]]) + len(ranges) * ROW_BYTES
            if pack in purged or (is_old and info.size - new_bytes >= self._gain_bytes):
                worth[self._kind(pack)].append(pack)
            else:
                left[pack] = info.size - used
        parts = [(kind, some) for kind, packs in worth.items() for some in self._parts(packs, needed)]
        rows: dict[PackId, dict[int, MovedBlob]] = {}
        times = Counter(name for _, some in parts for name in self._names(some))
        batches = []
        for number, (kind, some) in enumerate(parts):
            size = self._size(needed[pack] for pack in some)
            batches.append(Batch(kind, some, size + self._records_bytes(some, rows, number)))
            for name in self._names(some):
                times[name] -= 1
                if times[name] == 0:
                    del rows[name]
        return Sparse(tuple(batches), left)

    def _parts(self, packs: list[PackId], needed: Mapping[PackId, tuple[int, int]]) -> Iterator[tuple[PackId, ...]]:
        some: list[PackId] = []
        together = (0, 0)
        for pack in packs:
            if some and self._size([together, needed[pack]]) > BATCH_BYTES:
                yield tuple(some)
                some, together = [], (0, 0)
            some.append(pack)
            together = together[0] + needed[pack][0], together[1] + needed[pack][1]
        if some:
            yield tuple(some)

    def _records_bytes(self, packs: Sequence[PackId], rows: dict[PackId, dict[int, MovedBlob]], number: int) -> int:
        """The size of the moved records of batch `number`. rows: those of the batches before; its
        own are added."""
        new: dict[tuple[PackId, int], MovedBlob] = {}
        new_pack = PackId(number.to_bytes(PackId.length, "big"))
        end = HEADER_BYTES
        for pack in packs:
            for offset, length in self._places.ranges(pack):
                new[pack, offset] = MovedBlob(offset, new_pack, end, length)
                end += length
        size = 0
        for name, sources in self._names(packs).items():
            before = rows.get(name) or self._keep_rows(self._places.records(name))
            rows[name] = before | self._rows(name, sources, new)
            size += record_bytes(self._store, make_record(name, rows[name].values()))
        return size

    def _size(self, blobs: Iterable[tuple[int, int]]) -> int:
        """The size of a pack. blobs: (bytes, number of blobs) from each of its source packs."""
        blobs_bytes, counts = zip(*blobs, strict=True)
        return size_of(sum(blobs_bytes), sum(counts), self._blobs)

    def _kind(self, pack: PackId) -> PackKind:
        names = {pack, *self._places.lodgers.get(pack, ())}
        return PackKind.DATA if names.isdisjoint(self._index_packs) else PackKind.INDEX

    # -- writing

    def write(self, batch: Batch) -> tuple[frozenset[PackId], int]:
        """Returns (packs of the batch that may be deleted unless something else needs them, bytes
        written). A damaged pack stays."""
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
        size = self._size((entry.stored_length, 1) for _, entry, _ in blobs)
        stuck: set[PackId] = set()
        for name, sources in self._names(whole).items():
            record_bytes = self._record(name, self._rows(name, sources, new))
            size += record_bytes
            if not record_bytes:
                stuck |= sources
            hit("gc-after-moved")
        return frozenset(whole - stuck), size

    def _names(self, packs: Collection[PackId]) -> dict[PackId, set[PackId]]:
        """Maps each pack whose addresses lead to blobs in `packs` to those of `packs` that hold
        them."""
        found: dict[PackId, set[PackId]] = {}
        for pack in packs:
            own = {pack} if self._places.is_named(pack) and pack not in self._places.superseded else set()
            for name in own | self._places.lodgers.get(pack, set()):
                found.setdefault(name, set()).add(pack)
        return found

    def _rows(
        self, name: PackId, sources: Collection[PackId], new: Mapping[tuple[PackId, int], MovedBlob]
    ) -> dict[int, MovedBlob]:
        """The new rows for addresses in `name`: the offset there, and the blob's new place."""
        rows: dict[int, MovedBlob] = {}
        for offset, length in self._places.addresses(name):
            if name in sources:
                places = [(name, offset)]
            else:
                moved = self._places.find_moved(name, offset, length)
                places = [(blob.new_pack, blob.new_offset) for blob in moved]
            for place in places:
                if (blob := new.get(place)) is not None:
                    rows[offset] = replace(blob, offset=offset)
        return rows

    def _record(self, name: PackId, rows: dict[int, MovedBlob]) -> int:
        """Appends a moved record. Returns its size; 0: other processes keep moving the pack."""
        for _ in range(ATTEMPTS):
            newest = refs.newest(self._store, refs.moved(name))
            number, kept = 0, dict[int, MovedBlob]()
            if newest is not None:
                number = newest[0]
                kept = self._keep_rows(chain([newest[1]], earlier_moved_records(self._store, name, number)))
            try:
                return append_record(self._store, name, number, (kept | rows).values())
            except ConflictError:
                continue
        return 0

    def _keep_rows(self, before: Iterable[MovedRecord]) -> dict[int, MovedBlob]:
        """The rows of earlier records that are kept: a writer may be about to name blobs that
        nothing needs yet."""
        return places_now(before, self._is_there)

    def _is_there(self, pack: PackId) -> bool:
        return pack in self._there or self._store.size(keys.pack(pack)) is not None

    # -- reading

    def _read(self, pack: PackId) -> Iterator[tuple[PackEntry, bytes]]:
        """Yields the needed blobs, verified, before they are sealed, ascending. CorruptError,
        NotFoundError: one cannot be read from this pack."""
        directory = self._reader.directory(pack)
        run: list[PackEntry] = []
        for offset, length in self._places.ranges(pack):
            entry = directory.find_at(offset)
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

        def open_run(data: bytes) -> list[tuple[PackEntry, bytes]]:
            found = []
            for entry in run:
                sealed = memoryview(data)[entry.offset - start :][: entry.stored_length]
                what = f"the blob at {entry.offset} of pack {pack}"
                plain = self._sealing.pack(pack).open(sealed, entry.offset, entry.codec, entry.raw_length, what=what)
                codec.decompress(plain, entry.codec, entry.raw_length, entry.hash, what, name=self._sealing.name)
                found.append((entry, bytes(plain)))
            return found

        return read_range_as(self._store, keys.pack(pack), start, end - start, open_run)
