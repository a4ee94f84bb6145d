"""Where needed blobs lie, some of which have moved: from addresses to objects.

    address (pack, offset) ─▶ the pack has no moved record ─▶ in that pack
                           ─▶ newest moved record lists it ─▶ in the new pack, and for as long as it is there in the old one
                                └─ the new pack is gone, or may go ─▶ also where earlier moved records say

An old pack is **superseded** once all that is needed of it lies in new packs that stay: then it may
go, while its moved records must not. Of an old pack that is still there the new packs count as
needed too, since it may be there because it is damaged. A new pack may be gone although the newest
record names it: whoever wrote the record slept before, and a collection took the pack that nothing
named.

Moved records never change, so each is read once, however often a collection looks. Memory: ten
bytes for each needed blob that has moved. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from cowfs.errors import NotFoundError
from cowfs.format.records import MovedBlob, MovedRecord
from cowfs.ids import PackId
from cowfs.maintain.live_ranges import LiveRanges
from cowfs.store import ObjectStore, refs


class MovedRecords:
    """The moved records of a store by their numbers."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._read: dict[PackId, dict[int, MovedRecord]] = {}

    def backwards(self, pack: PackId, number: int) -> Iterator[MovedRecord]:
        """The record of that number, and those before it. NotFoundError: a collection has taken it
        since it was listed."""
        known = self._read.setdefault(pack, {})
        for each in range(number, refs.FIRST - 1, -1):
            try:
                record = known[each] = known.get(each) or refs.read(self._store, refs.moved(pack), each)
            except NotFoundError:
                if each == number:
                    raise
                return  # a collection has taken the first ones: others were put meanwhile
            yield record


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
        self._records = records
        self._moved = moved
        self._new = LiveRanges()
        self.superseded: set[PackId] = set()
        self.lodgers: dict[PackId, set[PackId]] = {}
        """By new pack: those whose needed blobs lie there."""
        for pack in moved:
            if self.is_named(pack):
                self._follow(pack)

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

    def records(self, pack: PackId) -> Iterator[MovedRecord]:
        """The moved records of a pack, the newest first."""
        return self._records.backwards(pack, self._moved.get(pack, 0))

    def moved_to(self, pack: PackId, offset: int, length: int) -> list[MovedBlob]:
        """Where the blob may lie, the newest place first: the last one stays, if any of them
        does."""
        found: list[MovedBlob] = []
        for record in self.records(pack):
            blob = record.locate(offset)
            if blob is not None and blob.stored_length == length and blob.new_pack in self._there:
                found.append(blob)
                if blob.new_pack not in self._doubtful:
                    break
        return found

    def addresses(self, pack: PackId) -> list[tuple[int, int]]:
        """(offset, stored length) of what versions name in it, ascending."""
        return _union([live.of(pack) for live in self._live])

    def ranges(self, pack: PackId) -> list[tuple[int, int]]:
        """(offset, stored length) of what is read from it, ascending."""
        own = [] if pack in self.superseded else self.addresses(pack)
        return _union([own, self._new.of(pack)])

    def _follow(self, pack: PackId) -> None:
        homes: set[PackId] = set()
        is_whole = True
        for offset, length in self.addresses(pack):
            found = self.moved_to(pack, offset, length)
            for blob in found:
                self._new.add(blob.new_pack, [(blob.new_offset, length)])
                homes.add(blob.new_pack)
            is_whole = is_whole and bool(found) and found[-1].new_pack not in self._doubtful
        for home in homes:
            self.lodgers.setdefault(home, set()).add(pack)
        if is_whole:
            self.superseded.add(pack)


def _union(found: Sequence[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    some = [ranges for ranges in found if ranges]
    if len(some) < 2:
        return some[0] if some else []
    return sorted({each for ranges in some for each in ranges})
