"""Finds where versions show whole chunks: paths, and offsets in these files. Used to find lost
chunks in a directory that has the files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from cowfs.base.errors import CorruptError
from cowfs.base.ids import ChunkHash, PackId
from cowfs.index import extents_in, open_index
from cowfs.maintain.check.broken_paths import paths_of
from cowfs.maintain.check.references import numbers_of
from cowfs.maintain.kept_versions import KeptVersion
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader

PLACES = 8
"""Per chunk: otherwise a chunk shared by many files would be tried in all of them."""


class ChunkPlaces:
    """Places of chunks in some packs, as these versions show them. The first call searches."""

    def __init__(
        self, store: ObjectStore, versions: Iterable[KeptVersion], packs: Collection[PackId], cache_dir: Path
    ) -> None:
        self._store = store
        self._versions = versions
        self._packs = packs
        self._cache_dir = cache_dir
        self._found: dict[ChunkHash, dict[tuple[bytes, int], None]] | None = None

    def __call__(self, chunk: ChunkHash) -> Sequence[tuple[bytes, int]]:
        if self._found is None:
            self._found = defaultdict(dict)
            for version in self._versions:
                with suppress(CorruptError):
                    self._look(version)
        return list(self._found.get(chunk, ()))

    def _look(self, version: KeptVersion) -> None:
        if version.manifest is None:
            return
        assert self._found is not None
        reader = PackReader(self._store)
        with open_index(self._store, reader, version.manifest.index, cache_dir=self._cache_dir) as index:
            numbers = numbers_of(index, self._packs)
            shown: dict[int, list[tuple[ChunkHash, int]]] = defaultdict(list)
            with extents_in(index, numbers) as extents:
                for ino, extent in extents:
                    offset, length, digest, raw_length, skip = extent[0], extent[1], extent[2], extent[6], extent[7]
                    if skip == 0 and length == raw_length and len(self._found[ChunkHash(digest)]) < PLACES:
                        shown[ino].append((ChunkHash(digest), offset))
            for ino, chunks in shown.items():
                for path in paths_of(index, [ino]):
                    for chunk, offset in chunks:
                        self._found[chunk][path, offset] = None
