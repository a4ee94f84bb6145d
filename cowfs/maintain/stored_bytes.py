"""Counts the bytes that groups of versions take in a store, alone and shared.

    stored    every blob that the group's versions name: the bytes to transfer to another store
    unique    those of them that no version outside of the group names: the bytes freed with the group
    shared    the others

Groups are versions, volumes, owners of volumes, or all versions that a store keeps. A version in
several groups makes nothing unique. Blobs count as they are stored (compressed, encrypted), once
however often they are named; manifests, pack directories and unreferenced blobs are not counted.
A version that was purged as a whole needs nothing, and its index cannot be read: it is not counted.

Reads the whole index of each version that is kept. Memory: some 150 bytes for each blob of the
store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cowfs.base.ids import ChunkHash, PackId
from cowfs.index import list_places, open_index
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cache import BlockCache
from cowfs.maintain.kept_versions import KeptVersion
from cowfs.maintain.stored_report import StoredBytes
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, load_purged
from cowfs.version.commit import Progress, ProgressListener

_OFFSET_BITS = 32


def count(
    store: ObjectStore,
    versions: Sequence[KeptVersion],
    groups: Mapping[str, Sequence[KeptVersion]],
    cache_dir: Path,
    progress: ProgressListener,
) -> list[StoredBytes]:
    """versions: all that the store keeps; groups: some of these, by name. CorruptError: an index
    cannot be read, so nothing can be counted."""
    members: dict[bytes, set[int]] = {}
    for number, group in enumerate(groups.values()):
        for version in group:
            members.setdefault(version.id, set()).add(number)
    nobody = frozenset[int]()
    counter = _Counter(store, cache_dir)
    purged = load_purged(store).versions
    sets: dict[frozenset[int], frozenset[int]] = {}  # equal ones once
    of_blob: dict[int, frozenset[int]] = {}
    lengths: dict[int, int] = {}
    outside = len(groups)  # stands for versions in no group
    for done, version in enumerate(versions):
        progress(Progress("versions", done, len(versions)))
        if version.id in purged:
            continue
        own = frozenset(members.get(version.id) or {outside})
        for blob, length in counter.blobs(version):
            lengths[blob] = length
            before = of_blob.get(blob, nobody)
            if not own <= before:
                joined = before | own
                of_blob[blob] = sets.setdefault(joined, joined)
    stored, unique = [0] * (len(groups) + 1), [0] * (len(groups) + 1)
    for blob, having in of_blob.items():
        for number in having:
            stored[number] += lengths[blob]
        if len(having) == 1:
            unique[next(iter(having))] += lengths[blob]
    return [
        StoredBytes(
            name,
            len(group),
            stored[number],
            unique[number],
            stored[number] - unique[number],
            purged_count=sum(version.id in purged for version in group),
        )
        for number, (name, group) in enumerate(groups.items())
    ]


class _Counter:
    """Numbers blobs: the pack, in order of first use, and the offset."""

    def __init__(self, store: ObjectStore, cache_dir: Path) -> None:
        self._store = store
        self._cache_dir = cache_dir
        self._reader = PackReader(store)
        self._cache = BlockCache(cache_dir, name=self._reader.sealing.name)
        self._packs: dict[PackId, int] = {}
        self._segments: dict[ChunkHash, list[tuple[int, int]]] = {}

    def blobs(self, version: KeptVersion) -> Iterator[tuple[int, int]]:
        """Yields (number, stored length); some blobs several times."""
        if version.manifest is None:
            return
        section = version.manifest.index
        for ref in section.segments:
            yield self._number(ref.pack, ref.offset), ref.stored_length
        for place in section.catalogues:
            yield self._number(place.pack, place.offset), place.stored_length
        blocks = StoreBlocks(self._reader, section, self._cache, url=self._store.url)
        for position, ref in enumerate(section.segments):
            if ref.hash not in self._segments:
                self._segments[ref.hash] = [
                    (self._number(block.pack, block.offset), block.stored_length)
                    for block in blocks.segment(position)
                    if block is not None
                ]
            yield from self._segments[ref.hash]
        with open_index(self._store, self._reader, section, cache_dir=self._cache_dir) as index:
            ids = index.pack_ids()
            with list_places(index) as places:
                for pack, offset, length in places:
                    yield self._number(ids[pack], offset), length

    def _number(self, pack: PackId, offset: int) -> int:
        return self._packs.setdefault(pack, len(self._packs)) << _OFFSET_BITS | offset
