"""What a collection does to a sparse pack, as far as readers and writers see it: its blobs go
elsewhere."""

from __future__ import annotations

from cowfs.base import clock
from cowfs.base.ids import PackId, WriteId
from cowfs.format import keys
from cowfs.format.pack import PackBuilder, parse_footer
from cowfs.format.records import MovedBlob, MovedRecord
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader
from cowfs.store.refs import refs
from cowfs.store.sealed import sealing_of


def move(store: ObjectStore, pack: PackId, number: int) -> PackId:
    """Writes the blobs to a new pack and moved record `number`, and deletes the old pack."""
    whole, sealing = store.get(keys.pack(pack)), sealing_of(store)
    old_blobs = sealing.pack(pack)
    new_pack = PackId(clock.random_bytes(PackId.length))
    builder = PackBuilder(parse_footer(whole, len(whole), what="pack", blobs=old_blobs).kind, sealing.pack(new_pack))
    blobs = []
    for entry in PackReader(store).directory(pack):
        sealed = whole[entry.offset : entry.offset + entry.stored_length]
        stored = old_blobs.open(sealed, entry.offset, entry.codec, entry.raw_length, what="blob")
        new = builder.add(entry.hash, stored, entry.raw_length, entry.codec, entry.blob_kind)
        blobs.append(MovedBlob(entry.offset, new_pack, new.offset, new.stored_length))
    store.put(keys.pack(new_pack), builder.seal())
    record = MovedRecord(pack, clock.now_ns(), WriteId(clock.random_bytes(WriteId.length)), tuple(blobs))
    refs.append(store, refs.moved(pack), number, record)
    store.delete([keys.pack(pack)])
    return new_pack
