"""Finds the blobs that versions name in some packs: those that must be readable there, whatever the
packs themselves say.

    manifest ─▶ segments, catalogues ─▶ blocks (index packs)         index ─▶ extents ─▶ chunks (data packs)

Used where the pack itself cannot be read, because it is damaged or gone. References in an
unreadable part of an index are left out for callers that look for damage (`broken_paths`), and
raise CorruptError for callers that must know all (`strict`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from cowfs.base.errors import CorruptError
from cowfs.base.ids import ChunkHash, PackId
from cowfs.format.manifest import CatalogueRef, IndexSection, Manifest, SegmentRef
from cowfs.format.pack import BlobKind, PackEntry
from cowfs.index import Index, extents_in, last_extents, open_index
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cache import BlockCache
from cowfs.index.changes import ExtentRow
from cowfs.index.overlay import PAGE_BYTES
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader

References = dict[PackId, dict[int, PackEntry]]
"""By pack and offset."""


def index_packs(section: IndexSection) -> set[PackId]:
    found = {use.pack for use in section.packs}
    return found | {ref.pack for ref in section.segments} | {ref.pack for ref in section.catalogues}


def find_references(
    store: ObjectStore,
    reader: PackReader,
    manifests: Sequence[Manifest],
    packs: Collection[PackId],
    cache_dir: Path,
    *,
    strict: bool = False,
) -> References:
    found: References = defaultdict(dict)
    for references in (
        _find_in_index_packs(reader, manifests, packs, cache_dir, strict=strict),
        _find_in_data_packs(store, reader, manifests, packs, cache_dir, strict=strict),
    ):
        for pack, entries in references.items():
            found[pack] |= entries
    return found


def one_of_each(
    store: ObjectStore, reader: PackReader, section: IndexSection, cache_dir: Path, known: Set[PackId]
) -> dict[PackId, PackEntry | None]:
    """The packs that a version names, and for each that is not `known` one blob that it names
    there, the last if there are many; None: its pack table has more packs than its files use.
    Unreadable parts of the index are left out."""
    found = one_of_index_packs(reader, section, cache_dir, known)
    with _damage(strict=False), open_index(store, reader, section, cache_dir=cache_dir) as index:
        found |= dict.fromkeys(index.pack_ids().values())
        if not found.keys() <= known:
            found |= one_of_data_packs(index)
    return found


def one_of_index_packs(
    reader: PackReader, section: IndexSection, cache_dir: Path, known: Set[PackId]
) -> dict[PackId, PackEntry | None]:
    found: dict[PackId, PackEntry | None] = dict.fromkeys(index_packs(section))
    for pack, entry in (*map(_segment, section.segments), *map(_catalogue, section.catalogues)):
        _keep_last(found, pack, entry)
    blocks = StoreBlocks(reader, section, BlockCache(cache_dir, name=reader.sealing.name))
    for position in range(len(section.segments)):
        if all(entry is not None or pack in known for pack, entry in found.items()):
            break
        with _damage(strict=False):
            for pack, entry in _blocks(blocks, position):
                _keep_last(found, pack, entry)
    return found


def one_of_data_packs(index: Index) -> dict[PackId, PackEntry]:
    """One blob of each pack in which files name a chunk."""
    ids = index.pack_ids()
    try:
        with last_extents(index) as extents:
            return {ids[extent[3]]: entry_of(extent) for extent in extents}
    except KeyError as error:
        raise CorruptError(f"the index names pack {error}, which is not in its table") from error


def _keep_last(found: dict[PackId, PackEntry | None], pack: PackId, entry: PackEntry) -> None:
    before = found.get(pack)
    if before is None or before.offset < entry.offset:
        found[pack] = entry


def _find_in_index_packs(
    reader: PackReader,
    manifests: Iterable[Manifest],
    packs: Collection[PackId],
    cache_dir: Path,
    *,
    strict: bool,
) -> References:
    found: References = defaultdict(dict)
    seen: set[ChunkHash] = set()  # hashes of segments: versions share most of them
    cache = BlockCache(cache_dir, name=reader.sealing.name)
    for manifest in manifests:
        section = manifest.index
        if index_packs(section).isdisjoint(packs):
            continue
        for pack, entry in (*map(_segment, section.segments), *map(_catalogue, section.catalogues)):
            if pack in packs:
                found[pack][entry.offset] = entry
        with _damage(strict=strict):
            blocks = StoreBlocks(reader, section, cache)
            for position, segment in enumerate(section.segments):
                if segment.hash not in seen:
                    seen.add(segment.hash)
                    with _damage(strict=strict):
                        for pack, entry in _blocks(blocks, position):
                            if pack in packs:
                                found[pack][entry.offset] = entry
    return found


def _damage(*, strict: bool) -> AbstractContextManager[None]:
    return nullcontext() if strict else suppress(CorruptError)


def _segment(ref: SegmentRef) -> tuple[PackId, PackEntry]:
    return ref.pack, PackEntry(ref.hash, ref.offset, ref.stored_length, ref.raw_length, ref.codec, BlobKind.SEGMENT)


def _catalogue(ref: CatalogueRef) -> tuple[PackId, PackEntry]:
    return ref.pack, PackEntry(ref.hash, ref.offset, ref.stored_length, ref.raw_length, ref.codec, BlobKind.CATALOGUE)


def _blocks(blocks: StoreBlocks, position: int) -> Iterator[tuple[PackId, PackEntry]]:
    for ref in blocks.segment(position):
        if ref is not None:
            yield ref.pack, PackEntry(ref.hash, ref.offset, ref.stored_length, PAGE_BYTES, ref.codec, BlobKind.BLOCK)


def _find_in_data_packs(
    store: ObjectStore,
    reader: PackReader,
    manifests: Iterable[Manifest],
    packs: Collection[PackId],
    cache_dir: Path,
    *,
    strict: bool,
) -> References:
    found: References = defaultdict(dict)
    for manifest in manifests if packs else ():
        with _damage(strict=strict), open_index(store, reader, manifest.index, cache_dir=cache_dir) as index:
            numbers = numbers_of(index, packs)
            with extents_in(index, numbers) as extents:
                for _, extent in extents:
                    found[numbers[extent[3]]][extent[4]] = entry_of(extent)
    return found


def numbers_of(index: Index, packs: Collection[PackId]) -> dict[int, PackId]:
    return {number: pack for number, pack in index.pack_ids().items() if pack in packs}


def entry_of(extent: ExtentRow) -> PackEntry:
    _, _, digest, _, pack_offset, stored_length, raw_length, _, codec = extent
    return PackEntry(ChunkHash(bytes(digest)), pack_offset, stored_length, raw_length, codec, BlobKind.CHUNK)


def is_needed(blob: PackEntry) -> bool:
    """Whether losing the blob loses data: a catalogue only saves space."""
    return blob.blob_kind != BlobKind.CATALOGUE
