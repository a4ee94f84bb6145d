"""Packs that have moved: the newest moved record of each, and what packs it makes readers rely on.

An address names a pack for good (docs/format/moved.md). When the pack is gone, its newest moved
record says where each blob lies. A record costs a listing and a read, once, and is kept in memory;
a newer one may have been written since, so a reader that does not find what a record promises asks
for the newest again.

Whoever lets a new version name an address in a moved pack relies on the pack where the blob lies
now, too: `homes` says which those are, for as long as the reader lives.

Reading and verifying blobs is `read`'s business. Thread-safe; the lock is never held during a
request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import replace

from cowfs.errors import CorruptError
from cowfs.format.pack import MAX_PACK_BYTES, PackDirectory
from cowfs.format.records import MovedRecord
from cowfs.ids import PackId
from cowfs.store import refs
from cowfs.store.contract import ObjectStore

_RECORDS = 256


class MovedPacks:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._records: OrderedDict[PackId, MovedRecord] = OrderedDict()
        self._homes: dict[PackId, frozenset[PackId]] = {}

    def known(self, pack: PackId) -> MovedRecord | None:
        """The record of a pack that is known to have moved. No request."""
        with self._lock:
            return self._records.get(pack)

    def newest(self, pack: PackId) -> MovedRecord | None:
        """The newest record in the store; None: the pack has not moved."""
        found = refs.newest(self._store, refs.moved(pack))
        if found is None:
            return None
        record = found[1]
        with self._lock:
            self._records[pack] = record
            self._records.move_to_end(pack)
            while len(self._records) > _RECORDS:
                self._records.popitem(last=False)
        return record

    def rely_on(self, record: MovedRecord) -> None:
        """Somebody may make a version that names blobs of the record's pack because they were seen
        where it says."""
        homes = frozenset(blob.new_pack for blob in record.blobs)
        with self._lock:
            self._homes[record.pack] = self._homes.get(record.pack, frozenset()) | homes

    def homes(self, pack: PackId) -> frozenset[PackId]:
        return self._homes.get(pack, frozenset())

    def into(self, packs: Collection[PackId]) -> frozenset[PackId]:
        """The packs that have a home among `packs`."""
        with self._lock:
            return frozenset(pack for pack, homes in self._homes.items() if not homes.isdisjoint(packs))


def directory_at_old_places(record: MovedRecord, directories: Mapping[PackId, PackDirectory]) -> PackDirectory:
    """The directory of a moved pack, from those of the packs where its blobs lie now: CorruptError
    where they disagree. What lay in packs that are gone is left out."""
    moved = []
    for blob in record.blobs:
        if blob.new_pack not in directories:
            continue
        entry = directories[blob.new_pack].at(blob.new_offset)
        if entry is None or entry.stored_length != blob.stored_length or blob.offset > MAX_PACK_BYTES:
            raise CorruptError(
                f"the moved record of pack {record.pack} names {blob.stored_length} bytes at {blob.new_offset} "
                f"of pack {blob.new_pack}, whose directory does not list them"
            )
        moved.append(replace(entry, offset=blob.offset))
    return PackDirectory.of(moved)
