"""Packs that have moved: the newest moved record of each, and the packs that readers rely on
because of it.

An address names a pack permanently (docs/format/moved.md). When the pack is gone, its newest moved
record says where each blob lies. A record costs a listing and a read, once, and is kept in memory.
A newer one may have been written since, so a reader that does not find a blob at its promised place
asks for the newest again. The writer of that record may have slept until its new pack was gone:
then the blob lies where an earlier record says (`places_now`).

A new version that names an address in a moved pack relies on the pack where the blob lies now as
well: `homes` returns these packs, as long as the reader lives.

`read` reads and verifies blobs. Thread-safe; the lock is never held during a request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from cowfs.base.errors import CorruptError, NotFoundError
from cowfs.base.ids import PackId
from cowfs.format.pack import MAX_PACK_BYTES, PackDirectory
from cowfs.format.records import MovedBlob, MovedRecord
from cowfs.store.contract import ObjectStore
from cowfs.store.refs import refs

_RECORDS = 256


class MovedPacks:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._records: OrderedDict[PackId, MovedRecord] = OrderedDict()
        self._homes: dict[PackId, frozenset[PackId]] = {}

    def find_known(self, pack: PackId) -> MovedRecord | None:
        """The record of a pack that is known to have moved. No request."""
        with self._lock:
            return self._records.get(pack)

    def newest(self, pack: PackId) -> MovedRecord | None:
        """The newest record in the store; None: the pack has not moved."""
        return next(self.records(pack), None)

    def records(self, pack: PackId) -> Iterator[MovedRecord]:
        """All of the pack, the newest first, which is kept in memory."""
        for place, record in enumerate(read_moved_records(self._store, pack)):
            if place == 0:
                self.keep(record)
            yield record

    def keep(self, record: MovedRecord) -> None:
        """It is asked first from now on."""
        with self._lock:
            self._records[record.pack] = record
            self._records.move_to_end(record.pack)
            while len(self._records) > _RECORDS:
                self._records.popitem(last=False)

    def rely_on(self, pack: PackId, homes: Iterable[PackId]) -> None:
        """Call it when blobs of the pack were seen in `homes`, since a new version may name
        them."""
        with self._lock:
            self._homes[pack] = self._homes.get(pack, frozenset()).union(homes)

    def homes(self, pack: PackId) -> frozenset[PackId]:
        return self._homes.get(pack, frozenset())

    def list_moved_into(self, packs: Collection[PackId]) -> frozenset[PackId]:
        """The packs that have a home among `packs`."""
        with self._lock:
            return frozenset(pack for pack, homes in self._homes.items() if not homes.isdisjoint(packs))


def read_moved_records(store: ObjectStore, pack: PackId) -> Iterator[MovedRecord]:
    """All moved records of a pack, the newest first; each is read when it is asked for."""
    newest = refs.newest(store, refs.moved(pack))
    if newest is not None:
        number, record = newest
        yield record
        yield from earlier_moved_records(store, pack, number)


def earlier_moved_records(store: ObjectStore, pack: PackId, number: int) -> Iterator[MovedRecord]:
    """Those before that number, the newest first."""
    with suppress(NotFoundError):  # a collection takes the first ones, if others were put meanwhile
        for _, record in refs.backwards(store, refs.moved(pack), number - 1, read=refs.read):
            yield record


def places_now(records: Iterable[MovedRecord], is_there: Callable[[PackId], bool]) -> dict[int, MovedBlob]:
    """Where the blobs of the newest record lie, by old offset: in the pack that it names, or, if
    that pack is gone, in the newest earlier one that exists. Blobs without an existing pack are
    left out."""
    found: dict[int, MovedBlob] = {}
    left: set[int] | None = None
    for record in records:
        for blob in record.blobs:
            if (left is None or blob.offset in left) and is_there(blob.new_pack):
                found[blob.offset] = blob
        left = ({blob.offset for blob in record.blobs} if left is None else left) - found.keys()
        if not left:
            break
    return found


def directory_at_old_places(
    pack: PackId, blobs: Iterable[MovedBlob], directories: Mapping[PackId, PackDirectory]
) -> PackDirectory:
    """The directory of a moved pack, from those of the packs where its blobs lie now: CorruptError
    where they disagree."""
    moved = []
    for blob in blobs:
        entry = directories[blob.new_pack].find_at(blob.new_offset)
        if entry is None or entry.stored_length != blob.stored_length or blob.offset > MAX_PACK_BYTES:
            raise CorruptError(
                f"the moved record of pack {pack} names {blob.stored_length} bytes at {blob.new_offset} "
                f"of pack {blob.new_pack}, whose directory does not list them"
            )
        moved.append(replace(entry, offset=blob.offset))
    return PackDirectory.of(moved)
