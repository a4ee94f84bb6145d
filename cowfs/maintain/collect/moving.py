"""Moves blobs of a pack to a new pack of the same store, with a moved record: shared by repair and
copies between stores. The new pack is read back before the record names it."""

from __future__ import annotations

from collections.abc import Iterable

from cowfs.base import clock
from cowfs.base.errors import CorruptError
from cowfs.base.ids import PackId, WriteId
from cowfs.format import keys
from cowfs.format.pack import BlobKind, PackBuilder, PackEntry, PackKind
from cowfs.format.records import MovedBlob, MovedRecord
from cowfs.maintain.check.pack_check import check_pack
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.store.sealed import sealing_of


def kind_of(blob: PackEntry) -> PackKind:
    """The kind of packs that contain such blobs."""
    return PackKind.DATA if blob.blob_kind == BlobKind.CHUNK else PackKind.INDEX


def put_blobs(store: ObjectStore, kind: PackKind, blobs: Iterable[tuple[PackEntry, bytes]]) -> tuple[MovedBlob, ...]:
    """blobs: with their stored bytes, before they are sealed, in order of offset."""
    sealing = sealing_of(store)
    new_pack = PackId(clock.random_bytes(PackId.length))
    builder = PackBuilder(kind, sealing.pack(new_pack))
    moved = []
    for blob, stored in blobs:
        new = builder.add(blob.hash, stored, blob.raw_length, blob.codec, blob.blob_kind)
        moved.append(MovedBlob(blob.offset, new_pack, new.offset, new.stored_length))
    store.put(keys.pack(new_pack), builder.seal())
    require_kept(store, new_pack)
    return tuple(moved)


def require_kept(store: ObjectStore, pack: PackId) -> None:
    """Checks that a pack that was just put is there, and right."""
    state = check_pack(store, pack)
    if state.problem:
        raise CorruptError(
            f"a pack just written to {store.url} reads back differently: pack {pack}: {state.problem}",
            hint="Fix the store first: it acknowledged a write that it did not keep.",
            details={"pack": pack.hex()},
        )


def append_record(store: ObjectStore, pack: PackId, after: int, blobs: Iterable[MovedBlob]) -> int:
    """Returns the size of the record. ConflictError: another process has moved the pack since
    record number `after`."""
    record = make_record(pack, blobs)
    refs.append(store, refs.moved(pack), after + 1, record)
    return record_bytes(store, record)


def record_bytes(store: ObjectStore, record: MovedRecord) -> int:
    """The size of the record in the store."""
    return len(sealing_of(store).seal_object(keys.move_record(record.pack, refs.FIRST), record.encode()))


def make_record(pack: PackId, blobs: Iterable[MovedBlob]) -> MovedRecord:
    ordered = tuple(sorted(blobs, key=lambda blob: blob.offset))
    return MovedRecord(pack, clock.now_ns(), WriteId(clock.random_bytes(WriteId.length)), ordered)
