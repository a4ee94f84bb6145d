"""Where needed blobs lie, some of which have moved: from addresses to objects.

    address (pack, offset) ─▶ the pack has no moved record ─▶ in that pack
                           ─▶ newest moved record lists it ─▶ in the new pack, and for as long as it is there in the old one

An old pack is **superseded** once all that is needed of it lies in new packs that stay: then it may
go, while its moved records must not. Of an old pack that is still there the new packs count as
needed too, since it may be there because it is damaged.

Moved records never change, so each is read once, however often a collection looks. Memory: ten bytes
for each needed blob that has moved. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cowfs.format.records import MovedRecord
from cowfs.ids import PackId
from cowfs.maintain.live_ranges import LiveRanges
from cowfs.store import ObjectStore, refs


class MovedRecords:
    """The moved records of a store by their numbers."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._read: dict[PackId, tuple[int, MovedRecord]] = {}

    def read(self, pack: PackId, number: int) -> MovedRecord:
        """NotFoundError: a collection has taken it since it was listed."""
        known = self._read.get(pack)
        if known is None or known[0] != number:
            known = self._read[pack] = number, refs.read(self._store, refs.moved(pack), number)
        return known[1]


class Places:
    """live: addresses. there: packs that the store lists. moved: packs with moved records, and the
    number of the newest. doubtful: packs that may be deleted although they are needed."""

    def __init__(
        self,
        live: Sequence[LiveRanges],
        there: Collection[PackId],
        moved: Mapping[PackId, int],
        records: MovedRecords,
        *,
        doubtful: Collection[PackId] = (),
    ) -> None:
        self._live = live
        self._there = there
        self._doubtful = doubtful
        self._records: dict[PackId, MovedRecord] = {}
        self._new = LiveRanges()
        self.superseded: set[PackId] = set()
        self.lodgers: dict[PackId, set[PackId]] = {}
        """By new pack: those whose needed blobs lie there."""
        for pack, number in moved.items():
            if self.is_named(pack):
                self._records[pack] = records.read(pack, number)
                self._follow(pack, self._records[pack])

    def is_named(self, pack: PackId) -> bool:
        """Whether an address names it: its moved records are needed."""
        return any(pack in live for live in self._live)

    def is_needed(self, pack: PackId) -> bool:
        """Whether something is read from it."""
        return pack in self._new or (self.is_named(pack) and pack not in self.superseded)

    def needed(self) -> set[PackId]:
        return {pack for live in (*self._live, self._new) for pack in live} - (self.superseded - set(self._new))

    def named(self) -> set[PackId]:
        return {pack for live in self._live for pack in live}

    def record(self, pack: PackId) -> MovedRecord | None:
        """The newest moved record of a pack that addresses name."""
        return self._records.get(pack)

    def addresses(self, pack: PackId) -> list[tuple[int, int]]:
        """(offset, stored length) of what versions name in it, ascending."""
        return _union([live.of(pack) for live in self._live])

    def ranges(self, pack: PackId) -> list[tuple[int, int]]:
        """(offset, stored length) of what is read from it, ascending."""
        own = [] if pack in self.superseded else self.addresses(pack)
        return _union([own, self._new.of(pack)])

    def _follow(self, pack: PackId, record: MovedRecord) -> None:
        homes: set[PackId] = set()
        is_whole = True
        for offset, length in self.addresses(pack):
            blob = record.locate(offset)
            if blob is None or blob.stored_length != length or blob.new_pack not in self._there:
                is_whole = False
                continue
            self._new.add(blob.new_pack, [(blob.new_offset, length)])
            homes.add(blob.new_pack)
        for home in homes:
            self.lodgers.setdefault(home, set()).add(pack)
        if is_whole and homes.isdisjoint(self._doubtful):
            self.superseded.add(pack)


def _union(found: Sequence[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    some = [ranges for ranges in found if ranges]
    if len(some) < 2:
        return some[0] if some else []
    return sorted({each for ranges in some for each in ranges})
