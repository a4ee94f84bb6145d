"""Marking: finds everything that a set of versions needs of its store.

    version ─▶ manifest ─▶ segments, catalogues   ranges of index packs
                              └─▶ blocks          ranges of index packs
                              └─▶ extents         ranges of data packs     once for each different page, whatever versions it is in

The results are addresses; `places` resolves those whose bytes have moved. Catalogues count,
although they only save work: everything that a manifest names must exist. Packs that only a
catalogue names do not count.

A page of extents names packs by numbers, which are only valid in one line of versions. So a page is
processed again where its numbers mean other packs than before.

Purged chunks are not needed: their addresses are collected apart (`purged`), and the versions that
name some (`touched`). Of a version that was purged as a whole nothing is needed but its manifest.

If something cannot be read, marking ends with an error: its references are not known, so nothing
may be deleted. Memory: ten bytes a live chunk (`LiveRanges`), 150 for each different page of
extents, of block lists and for each version. Blocks are read from the machine's cache and stored
there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from cowfs.base.errors import CorruptError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash, PackId, VersionId
from cowfs.base.thread_pool import Helpers
from cowfs.format.manifest import CatalogueRef, Manifest, SegmentRef
from cowfs.index import ChunkUses
from cowfs.index.blocks import enter
from cowfs.index.cache import BlockCache
from cowfs.index.chunk_uses import Use
from cowfs.maintain.collect.live_ranges import LiveRanges
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, load_purged
from cowfs.version.history import open_version

BATCH_PAGES = 128  # fetched together: 2 MiB of pages
CACHED_BYTES = 4 << 20
"""Index pages in memory: the upper ones, which every version shares. Any other is read once."""
AT_ONCE = 64  # versions whose manifests, and the beginnings of their indexes, are read ahead
THREADS = 16
MANY = 64
"""The number of versions from which marking elsewhere pays."""

Listener = Callable[[VersionId, Collection[PackId]], None]


@dataclass(frozen=True)
class Marked:
    """The result of a marker, for another one. live, purged: `LiveRanges.pack_ranges` of each
    pack."""

    versions: frozenset[VersionId]
    live: Mapping[PackId, bytes]
    purged: Mapping[PackId, bytes]
    index_packs: frozenset[PackId]


InParts = Callable[[Sequence[VersionId]], Iterator[Marked]]


class Dropped(Protocol):
    """What versions name and do not need: `Purged`, or what a purge would add to that."""

    @property
    def versions(self) -> frozenset[VersionId]: ...

    def __bool__(self) -> bool: ...

    def has(self, pack: PackId, hash: ChunkHash) -> bool: ...


class Marker:
    """listen is called with each version and the packs it names. in_parts: marks many versions
    elsewhere, in any order. dropped None: what the store's records say."""

    def __init__(
        self,
        store: ObjectStore,
        cache_dir: Path,
        *,
        threads: int = THREADS,
        listen: Listener | None = None,
        in_parts: InParts | None = None,
        dropped: Dropped | None = None,
    ) -> None:
        self._store = store
        self._dropped = dropped if dropped is not None else load_purged(store)
        self._reader = PackReader(store)
        self._cache = BlockCache(cache_dir, memory_bytes=CACHED_BYTES, name=self._reader.sealing.name)
        self._threads = threads
        self._listen = listen
        self._in_parts = in_parts
        self._segments: set[ChunkHash] = set()
        self._pages: dict[
            ChunkHash, list[tuple[PackId | None, ...]]
        ] = {}  # the packs that the page's numbers stood for, each time
        self._numbers: dict[ChunkHash, tuple[int, ...]] = {}  # that the page names
        self._touched_pages: set[ChunkHash] = set()
        self.live = LiveRanges()
        self.purged = LiveRanges()
        self.touched: set[VersionId] = set()
        self.index_packs: set[PackId] = set()
        self.versions: set[VersionId] = set()
        self.pages_read = 0

    def mark(self, versions: Iterable[VersionId]) -> None:
        """CorruptError, NotFoundError: something that one of them needs cannot be read."""
        new = [version for version in dict.fromkeys(versions) if version not in self.versions]
        self.versions.update(self._dropped.versions.intersection(new))
        new = [version for version in new if version not in self.versions]
        if self._in_parts is not None and len(new) >= MANY:
            for found in self._in_parts(new):
                self._add(found)
            return
        left = sorted(new)
        for at in range(0, len(left), AT_ONCE):
            batch = left[at : at + AT_ONCE]
            for version, manifest in zip(batch, self._open_all(batch), strict=True):
                self._mark(version, manifest)

    def export(self) -> Marked:
        live, purged = ({pack: found.pack_ranges(pack) for pack in found} for found in (self.live, self.purged))
        return Marked(frozenset(self.versions), live, purged, frozenset(self.index_packs))

    def _add(self, found: Marked) -> None:
        for pack, ranges in found.live.items():
            self.live.add_packed(pack, ranges)
        for pack, ranges in found.purged.items():
            self.purged.add_packed(pack, ranges)
        self.index_packs |= found.index_packs
        self.versions |= found.versions

    def mark_if_whole(self, version: VersionId) -> bool:
        """As `mark`, for a version that nothing protects; False: it is incomplete."""
        try:
            self.mark([version])
        except (NotFoundError, CorruptError):
            return False
        return True

    def _open_all(self, versions: Sequence[VersionId]) -> list[Manifest]:
        if self._threads == 1 or len(versions) == 1:
            return [open_version(self._store, version) for version in versions]
        with Helpers(self._threads, name="cowfs-mark") as threads:
            return list(threads.map(self._open_ahead, versions))

    def _open_ahead(self, version: VersionId) -> Manifest:
        manifest = open_version(self._store, version)
        enter(self._reader, manifest.index, self._cache)
        return manifest

    def _mark(self, version: VersionId, manifest: Manifest) -> None:
        section = manifest.index
        named: set[PackId] = set()
        blobs: list[SegmentRef | CatalogueRef] = [*section.segments, *section.catalogues]
        for blob in blobs:
            self.live.add(blob.pack, [(blob.offset, blob.stored_length)])
            named.add(blob.pack)
        self.index_packs |= named
        uses = ChunkUses(self._reader, section, self._cache, url=self._store.url)
        for position, ref in enumerate(section.segments):
            if ref.hash not in self._segments or self._listen is not None:
                named |= self._mark_segment(uses, position)
                self._segments.add(ref.hash)
        named |= self._mark_extents(version, uses)
        self.versions.add(version)
        if self._listen is not None:
            self._listen(version, named)

    def _mark_segment(self, uses: ChunkUses, position: int) -> set[PackId]:
        blocks: dict[PackId, list[tuple[int, int]]] = {}
        for block in uses.segment(position):
            blocks.setdefault(block.pack, []).append((block.offset, block.stored_length))
        for pack, ranges in blocks.items():
            self.live.add(pack, ranges)
        self.index_packs |= blocks.keys()
        return set(blocks)

    def _mark_extents(self, version: VersionId, uses: ChunkUses) -> set[PackId]:
        """The data packs of the version."""
        pages = uses.pages()
        new = [number for number, ref in pages.items() if not self._is_known(ref.hash, uses.pack_ids)]
        for at in range(0, len(new), BATCH_PAGES):
            for number, rows in uses.uses(new[at : at + BATCH_PAGES]):
                self._mark_rows(pages[number].hash, rows, uses.pack_ids)
        self.pages_read += len(new)
        if self._touched_pages and not self._touched_pages.isdisjoint(ref.hash for ref in pages.values()):
            self.touched.add(version)
        if self._listen is None:
            return set()
        return {uses.pack_ids[n] for ref in pages.values() for n in self._numbers[ref.hash]}

    def _is_known(self, page: ChunkHash, packs: Mapping[int, PackId]) -> bool:
        numbers = self._numbers.get(page)
        return numbers is not None and _resolve_numbers(numbers, packs) in self._pages[page]

    def _mark_rows(self, page: ChunkHash, rows: Sequence[Use], packs: Mapping[int, PackId]) -> None:
        ranges: dict[int, list[tuple[int, int]]] = {}
        for number, offset, length, digest in rows:
            needed = ranges.setdefault(number, [])
            if self._dropped and number in packs and self._dropped.has(packs[number], ChunkHash(digest)):
                self.purged.add(packs[number], [(offset, length)])
                self._touched_pages.add(page)
            else:
                needed.append((offset, length))
        numbers = tuple(sorted(ranges))
        if (missing := [number for number in numbers if number not in packs]) != []:
            raise CorruptError(
                f"{self._store.url}: a page of extents names pack {missing[0]}, which its index does not have"
            )
        for number in numbers:
            if ranges[number]:
                self.live.add(packs[number], ranges[number])
        self._numbers[page] = numbers
        self._pages.setdefault(page, []).append(_resolve_numbers(numbers, packs))


def _resolve_numbers(numbers: tuple[int, ...], packs: Mapping[int, PackId]) -> tuple[PackId | None, ...]:
    return tuple(packs.get(number) for number in numbers)
