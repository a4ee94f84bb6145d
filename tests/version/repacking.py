"""What a collection does to a sparse pack, as far as readers and writers see it: its blobs go
elsewhere."""

from __future__ import annotations

from cowfs import clock
from cowfs.format import keys
from cowfs.format.records import MovedBlob, MovedRecord
from cowfs.ids import PackId, WriteId
from cowfs.store import ObjectStore, refs
from cowfs.store.packs import PackReader


def move(store: ObjectStore, pack: PackId, number: int) -> PackId:
    """Writes the blobs to a new pack and moved record `number`, and deletes the old pack."""
    whole = store.get(keys.pack(pack))
    new_pack = PackId(clock.random_bytes(PackId.length))
    blobs = tuple(
        MovedBlob(entry.offset, new_pack, entry.offset, entry.stored_length)
        for entry in PackReader(store).directory(pack)
    )
    store.put(keys.pack(new_pack), whole)
    record = MovedRecord(pack, clock.now_ns(), WriteId(clock.random_bytes(WriteId.length)), blobs)
    refs.append(store, refs.moved(pack), number, record)
    store.delete([keys.pack(pack)])
    return new_pack
