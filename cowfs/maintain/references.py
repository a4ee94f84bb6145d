"""What versions name in some packs: the blobs that must be readable there, whatever the packs
themselves say.

    manifest ─▶ segments, catalogues ─▶ blocks (index packs)         index ─▶ extents ─▶ chunks (data packs)

Used where a pack cannot be asked, since it is damaged or gone. An index that cannot be read names
nothing here; `broken_paths` deals with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from cowfs.errors import CorruptError
from cowfs.format.manifest import CatalogueRef, IndexSection, SegmentRef
from cowfs.format.pack import BlobKind, PackEntry
from cowfs.ids import ChunkHash, PackId
from cowfs.index import Index, extents_in, open_index
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cache import BlockCache
from cowfs.index.changes import ExtentRow
from cowfs.index.overlay import PAGE_BYTES
from cowfs.maintain.kept_versions import KeptVersion
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader

References = dict[PackId, dict[int, PackEntry]]
"""By pack and offset."""


def index_packs(section: IndexSection) -> set[PackId]:
    found = {use.pack for use in section.packs}
    return found | {ref.pack for ref in section.segments} | {ref.pack for ref in section.catalogues}


def in_index_packs(
    reader: PackReader, versions: Iterable[KeptVersion], packs: Collection[PackId], cache_dir: Path
) -> References:
    found: References = defaultdict(dict)
    seen: set[ChunkHash] = set()  # of segments: versions share most of them
    cache = BlockCache(cache_dir, name=reader.sealing.name)
    for version in versions:
        if version.manifest is None or index_packs(version.manifest.index).isdisjoint(packs):
            continue
        section = version.manifest.index
        for pack, entry in (*map(_segment, section.segments), *map(_catalogue, section.catalogues)):
            if pack in packs:
                found[pack][entry.offset] = entry
        with suppress(CorruptError):
            blocks = StoreBlocks(reader, section, cache)
            for position, segment in enumerate(section.segments):
                if segment.hash not in seen:
                    seen.add(segment.hash)
                    for pack, entry in _blocks(blocks, position):
                        if pack in packs:
                            found[pack][entry.offset] = entry
    return found


def _segment(ref: SegmentRef) -> tuple[PackId, PackEntry]:
    return ref.pack, PackEntry(ref.hash, ref.offset, ref.stored_length, ref.raw_length, ref.codec, BlobKind.SEGMENT)


def _catalogue(ref: CatalogueRef) -> tuple[PackId, PackEntry]:
    return ref.pack, PackEntry(ref.hash, ref.offset, ref.stored_length, ref.raw_length, ref.codec, BlobKind.CATALOGUE)


def _blocks(blocks: StoreBlocks, position: int) -> Iterator[tuple[PackId, PackEntry]]:
    with suppress(CorruptError):
        for ref in blocks.segment(position):
            if ref is not None:
                yield (
                    ref.pack,
                    PackEntry(ref.hash, ref.offset, ref.stored_length, PAGE_BYTES, ref.codec, BlobKind.BLOCK),
                )


def in_data_packs(
    store: ObjectStore,
    reader: PackReader,
    versions: Iterable[KeptVersion],
    packs: Collection[PackId],
    cache_dir: Path,
) -> References:
    found: References = defaultdict(dict)
    for version in versions if packs else ():
        if version.manifest is None:
            continue
        with suppress(CorruptError), open_index(store, reader, version.manifest.index, cache_dir=cache_dir) as index:
            numbers = numbers_of(index, packs)
            for _, extent in extents_in(index, numbers) if numbers else ():
                found[numbers[extent[3]]][extent[4]] = entry_of(extent)
    return found


def numbers_of(index: Index, packs: Collection[PackId]) -> dict[int, PackId]:
    return {number: pack for number, pack in index.pack_ids().items() if pack in packs}


def entry_of(extent: ExtentRow) -> PackEntry:
    _, _, digest, _, pack_offset, stored_length, raw_length, _, codec = extent
    return PackEntry(ChunkHash(bytes(digest)), pack_offset, stored_length, raw_length, codec, BlobKind.CHUNK)
