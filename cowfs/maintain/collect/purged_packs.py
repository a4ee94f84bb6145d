"""Packs with purged chunks: what of them stays, and has to be written to new packs.

    purged records ─▶ the packs that they name, as far as they are still there       ─┐
    purged addresses of versions ─▶ the packs where moved records say they lie now   ─┴▶ directories ─▶ all other blobs

All other blobs are kept, needed or not: a writer that has uploaded the pack, or has just found a
blob in it, may be about to name one. What nothing needs goes with a later collection. What a pin
names stays: if the pack is gone, where its moved records say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash, PackId
from cowfs.base.thread_pool import Helpers
from cowfs.format.pack import BlobKind, PackDirectory
from cowfs.maintain.collect.blob_places import Places
from cowfs.maintain.collect.live_ranges import LiveRanges
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, load_purged

THREADS = 16


@dataclass
class PurgedPacks:
    """packs: of the store, with purged chunks. kept: their other blobs. index_packs: those that
    hold index blobs. hashes: of all purged blobs."""

    packs: frozenset[PackId] = frozenset()
    kept: LiveRanges = field(default_factory=LiveRanges)
    index_packs: frozenset[PackId] = frozenset()
    hashes: frozenset[ChunkHash] = frozenset()

    @classmethod
    def find(
        cls, store: ObjectStore, purged_places: Places, there: Collection[PackId], pinned: Collection[PackId]
    ) -> PurgedPacks:
        """purged_places: of the purged chunks that versions name. pinned: packs that pins name.
        CorruptError: the directory of a pack with purged chunks cannot be read."""
        purged = load_purged(store)
        packs = sorted((purged.packs | purged_places.list_needed()).intersection(there))
        kept, index_packs = LiveRanges(), set[PackId]()
        for pack, directory in read_directories(store, packs).items():
            moved = {offset for offset, _ in purged_places.ranges(pack)}
            for entry in directory:
                if entry.offset not in moved and not purged.has(pack, entry.hash):
                    kept.add(pack, [(entry.offset, entry.stored_length)])
                    if entry.blob_kind != BlobKind.CHUNK:
                        index_packs.add(pack)
        for pack in purged.packs.intersection(pinned).difference(there):
            for record in purged_places.records(pack):
                kept.add(pack, [(blob.offset, blob.stored_length) for blob in record.blobs])
        return cls(frozenset(packs), kept, frozenset(index_packs), purged.hashes)


def read_directories(store: ObjectStore, packs: Collection[PackId]) -> Mapping[PackId, PackDirectory]:
    """The directories of packs that are there: not what moved records make of them."""
    if not packs:
        return {}
    reader = PackReader(store)
    with Helpers(THREADS, name="cowfs-purge") as threads:
        return dict(zip(packs, threads.map(reader.own_directory, packs), strict=True))
