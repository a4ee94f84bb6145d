"""What a purge is to take: the chunks of some versions, or of one path in them.

    NAME                every version of the volume, pruned ones included, as far as they are still there
    NAME@VERSION        that one
    …:PATH              only what lies at or below the path, in each of these versions that has it

Whole versions lose their indexes as well: the index blobs that no other version of the store has.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from cowfs.base.errors import CorruptError, NotFoundError, PurgedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import ChunkHash, VersionId
from cowfs.format.manifest import Manifest
from cowfs.index import ChunkUses, Index, open_index
from cowfs.index.cache import BlockCache
from cowfs.native.constants import ROOT_INO
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader
from cowfs.store.refs import refs
from cowfs.version.history import open_named, open_version
from cowfs.version.publish.tree_changes import MODE

BATCH_PAGES = 128


@dataclass(frozen=True)
class Target:
    """volume: its name is to be typed. version None: all of the volume. path None: whole
    versions."""

    volume: str
    version: VersionId | None = None
    path: bytes | None = None


@dataclass(frozen=True)
class Found:
    """The versions of a target that are there, and what it takes: hashes of chunks, and of index
    blobs if whole versions go."""

    versions: frozenset[VersionId]
    chunks: frozenset[ChunkHash]
    index_blobs: frozenset[ChunkHash] = frozenset()


def find_versions(store: ObjectStore, target: Target, there: Set[VersionId]) -> list[VersionId]:
    """Oldest first. there: the versions that the store lists."""
    if target.version is not None:
        open_named(store, target.volume, target.version)  # raises NotFoundError
        return [target.version]
    line = refs.history(store, refs.head(target.volume))
    if not line:
        raise NotFoundError(f"{store.url} has no volume {target.volume!r}", hint="Check the name.")
    versions = dict.fromkeys(head.version for _, head in reversed(line))
    return [version for version in versions if version is not None and version in there]


class Finder:
    """purged: versions that were purged as a whole before, and may have lost their indexes."""

    def __init__(self, store: ObjectStore, cache_dir: Path, purged: Set[VersionId]) -> None:
        self._store = store
        self._cache_dir = cache_dir
        self._purged = purged
        self._reader = PackReader(store)
        self._cache = BlockCache(cache_dir, name=self._reader.sealing.name)
        self._pages: set[ChunkHash] = set()
        self._segments: set[ChunkHash] = set()

    def find(self, target: Target, versions: Sequence[VersionId], others: Iterable[VersionId]) -> Found:
        """others: all other versions of the store. NotFoundError: no version has the path."""
        manifests = {version: open_version(self._store, version) for version in versions}
        if target.path:
            return self._find_path(target.path, manifests)
        chunks: set[ChunkHash] = set()
        blobs: set[ChunkHash] = set()
        found: set[VersionId] = set()
        for version, manifest in manifests.items():
            try:
                chunks.update(self._chunks(manifest))
                blobs.update(self._index_blobs(manifest))
            except PurgedError:
                if version not in self._purged:
                    raise
            found.add(version)
        self._segments = set()
        for version in others:
            if version not in found and version not in self._purged:
                blobs.difference_update(self._index_blobs_if_whole(version))
        return Found(frozenset(found), frozenset(chunks), frozenset(blobs))

    # -- whole versions

    def _uses(self, manifest: Manifest) -> ChunkUses:
        return ChunkUses(self._reader, manifest.index, self._cache, url=self._store.url)

    def _chunks(self, manifest: Manifest) -> Iterator[ChunkHash]:
        uses = self._uses(manifest)
        pages = {number: ref.hash for number, ref in uses.pages().items() if ref.hash not in self._pages}
        numbers = sorted(pages)
        for at in range(0, len(numbers), BATCH_PAGES):
            for _, rows in uses.uses(numbers[at : at + BATCH_PAGES]):
                yield from (ChunkHash(digest) for _, _, _, digest in rows)
        self._pages.update(pages.values())

    def _index_blobs(self, manifest: Manifest) -> Iterator[ChunkHash]:
        section = manifest.index
        yield from (ref.hash for ref in section.segments)
        yield from (ref.hash for ref in section.catalogues)
        uses = self._uses(manifest)
        for position, ref in enumerate(section.segments):
            if ref.hash not in self._segments:
                yield from (block.hash for block in uses.segment(position))
                self._segments.add(ref.hash)

    def _index_blobs_if_whole(self, version: VersionId) -> set[ChunkHash]:
        try:
            return set(self._index_blobs(open_version(self._store, version)))
        except (CorruptError, NotFoundError):  # of a version that something keeps, the plan's marking says so
            return set()

    # -- a path

    def _find_path(self, path: bytes, manifests: Mapping[VersionId, Manifest]) -> Found:
        chunks: set[ChunkHash] = set()
        found: set[VersionId] = set()
        for version, manifest in manifests.items():
            if version in self._purged:
                continue
            with open_index(self._store, self._reader, manifest.index, cache_dir=self._cache_dir) as index:
                if (ino := index.find(path)) is not None:
                    found.add(version)
                    for each in _files(index, ino):
                        chunks.update(ChunkHash(bytes(row[2])) for row in index.read_stored_content(each)[0])
        if not found:
            raise NotFoundError(
                f"no version that was asked for has {path.decode(errors='replace')!r}",
                hint=f"NAME:PATH means the path in every version of the volume. Links are not followed, and patterns are not "
                f"expanded: {Command('ls', 'SOURCE:PATTERN')} shows what one matches.",
            )
        return Found(frozenset(found), frozenset(chunks))


def _files(index: Index, ino: int) -> Iterator[int]:
    """The inode, or those below it."""
    waiting, seen = [ino], {ino}
    while waiting:
        row = index.inode(waiting[-1])
        at = waiting.pop()
        if row is None or not stat.S_ISDIR(row[MODE]):
            yield at
            continue
        for page in index.directory_pages(at):
            for _, child in page:
                if child[0] not in seen and child[0] != ROOT_INO:
                    seen.add(child[0])
                    waiting.append(child[0])
