"""Resolves the addresses of needed blobs to objects, following moved records.

    address (pack, offset) ─▶ the pack has no moved record ─▶ in that pack
                           ─▶ newest moved record lists it ─▶ in the new pack, and while the old one exists in that one, too
                                └─ the new pack is gone, or may go ─▶ also where earlier moved records say

An old pack is **superseded** once all needed blobs of it are in new packs that stay: then it may be
deleted, while its moved records must stay. While an old pack exists, its new packs count as needed
as well, since it may have been kept because it is damaged. A new pack may be gone although the
newest record names it: its writer was suspended before it wrote the record, and a collection
deleted the unreferenced pack.

Moved records never change, so each is read once, however often a collection looks. Memory: ten
bytes for each needed blob that has moved. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from cowfs.base.errors import NotFoundError
from cowfs.base.ids import PackId
from cowfs.format.records import MovedBlob, MovedRecord
from cowfs.maintain.collect.live_ranges import LiveRanges
from cowfs.store import ObjectStore
from cowfs.store.refs import refs


class MovedRecords:
    """The moved records of a store by their numbers."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._read: dict[PackId, dict[int, MovedRecord]] = {}

    def backwards(self, pack: PackId, number: int) -> Iterator[MovedRecord]:
        """Yields the record of that number, and those before it. NotFoundError: a collection has
        deleted it since it was listed."""
        known = self._read.setdefault(pack, {})
        for each in range(number, refs.FIRST - 1, -1):
            try:
                record = known[each] = known.get(each) or refs.read(self._store, refs.moved(pack), each)
            except NotFoundError:
                if each == number:
                    raise
                return  # a collection has deleted the first ones: others were put meanwhile
            yield record


class Places:
    """live: needed addresses. there: packs that the store lists. moved: packs with moved records,
    and the number of the newest. doubtful: packs that may be deleted although they are needed."""

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
        self._placed: set[PackId] = set()
        """Packs whose needed blobs are all elsewhere, perhaps only for now."""
        self.superseded: set[PackId] = set()
        self.lodgers: dict[PackId, set[PackId]] = {}
        """By new pack: the old packs whose needed blobs it holds."""
        for pack in moved:
            if self.is_named(pack):
                self._follow(pack)

    def is_named(self, pack: PackId) -> bool:
        """Whether an address names it, so that its moved records are needed."""
        return any(pack in live for live in self._live)

    def is_needed(self, pack: PackId) -> bool:
        """Whether readers need the pack itself."""
        return pack in self._new or (self.is_named(pack) and pack not in self.superseded)

    def list_needed(self) -> set[PackId]:
        return {pack for live in (*self._live, self._new) for pack in live} - (self.superseded - set(self._new))

    def list_lost(self) -> set[PackId]:
        """Needed packs that neither exist nor have moved as a whole."""
        return {pack for pack in self.list_named() if pack not in self._there and pack not in self._placed}

    def list_named(self) -> set[PackId]:
        return {pack for live in self._live for pack in live}

    def records(self, pack: PackId) -> Iterator[MovedRecord]:
        """The moved records of a pack, the newest first."""
        return self._records.backwards(pack, self._moved.get(pack, 0))

    def find_moved(self, pack: PackId, offset: int, length: int) -> list[MovedBlob]:
        """The places where the blob may be, newest first. If any of them stays, the last one
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
        """(offset, stored length) of the blobs that versions name in it, ascending."""
        return _union([live.of(pack) for live in self._live])

    def ranges(self, pack: PackId) -> list[tuple[int, int]]:
        """(offset, stored length) of the blobs that are read from it, ascending."""
        own = [] if pack in self.superseded else self.addresses(pack)
        return _union([own, self._new.of(pack)])

    def _follow(self, pack: PackId) -> None:
        homes: set[PackId] = set()
        is_whole = is_placed = True
        for offset, length in self.addresses(pack):
            found = self.find_moved(pack, offset, length)
            for blob in found:
                self._new.add(blob.new_pack, [(blob.new_offset, length)])
                homes.add(blob.new_pack)
            is_placed = is_placed and bool(found)
            is_whole = is_whole and bool(found) and found[-1].new_pack not in self._doubtful
        for home in homes:
            self.lodgers.setdefault(home, set()).add(pack)
        if is_placed:
            self._placed.add(pack)
        if is_whole:
            self.superseded.add(pack)


def _union(found: Sequence[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    some = [ranges for ranges in found if ranges]
    if len(some) < 2:
        return some[0] if some else []
    return sorted({each for ranges in some for each in ranges})
