"""Finds the paths of a version that cannot be read, given the blobs that cannot be read.

data blobs      the files whose extents name one, under all their names
index blocks    the tree is walked without any local cache: a directory that cannot be listed, a file whose extents or
                attributes cannot be read. An index that cannot be opened: "/" is broken
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from cowfs.base.errors import CorruptError, NotFoundError
from cowfs.base.ids import ChunkHash, PackId
from cowfs.format.manifest import Manifest
from cowfs.index import Index, extents_in, find_places, open_index
from cowfs.maintain.check.references import numbers_of
from cowfs.native.constants import ROOT_INO
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader
from cowfs.version.publish.tree_changes import MODE, NLINK

Broken = Mapping[PackId, Collection[int]]
"""Offsets of unreadable blobs, by pack."""

LOST_CONTENT = "some of its bytes are lost"
LOST_INDEX = "its entry in the version's index is lost"
PURGED = "some of its bytes were purged"
PURGED_WHOLE = "the whole version was purged"


def broken_files(
    store: ObjectStore, reader: PackReader, manifest: Manifest, broken: Broken, cache_dir: Path
) -> dict[bytes, str]:
    """Maps path to problem, for a version with a readable index. A few requests if it names no
    broken pack."""
    with open_index(store, reader, manifest.index, cache_dir=cache_dir) as index:
        inodes = _inodes_with(index, broken)
        return dict.fromkeys(paths_of(index, inodes), LOST_CONTENT) if inodes else {}


def files_with(
    store: ObjectStore,
    reader: PackReader,
    manifest: Manifest,
    packs: Collection[PackId],
    is_meant: Callable[[PackId, ChunkHash], bool],
    cache_dir: Path,
) -> tuple[int, list[bytes]]:
    """How many files of a version name a chunk in one of these packs that is meant, and all their
    paths."""
    with open_index(store, reader, manifest.index, cache_dir=cache_dir) as index:
        numbers = numbers_of(index, packs)
        with extents_in(index, numbers) as extents:
            inodes = {ino for ino, extent in extents if is_meant(numbers[extent[3]], ChunkHash(bytes(extent[2])))}
        return len(inodes), sorted(paths_of(index, inodes))


def walk_damaged(
    store: ObjectStore, reader: PackReader, manifest: Manifest, broken: Broken, cache_dir: Path
) -> dict[bytes, str]:
    """The same for a version with a damaged index. cache_dir: an empty one."""
    try:
        with open_index(store, reader, manifest.index, cache_dir=cache_dir) as index:
            return _Walk(index, numbers_of(index, broken), broken).run()
    except CorruptError:
        return {b"": LOST_INDEX}


def paths_of(index: Index, inodes: Collection[int]) -> Iterator[bytes]:
    """Yields every path of each inode."""
    wanted = {ino: _names(index, ino) for ino in inodes}
    known: dict[int, set[tuple[int, bytes]]] = {}
    while wanted:
        places = find_places(index, wanted)
        known |= {ino: set(entries) for ino, entries in places.items()}
        parents = {parent for entries in places.values() for parent, _ in entries}
        wanted = {parent: 1 for parent in parents if parent != ROOT_INO and parent not in known}
    for ino in sorted(inodes):
        yield from _join_names(known, ino)


def _join_names(known: Mapping[int, Collection[tuple[int, bytes]]], ino: int) -> Iterator[bytes]:
    for parent, name in sorted(known.get(ino, ())):
        names, above = [name], parent
        while above != ROOT_INO:
            places = known.get(above, ())
            if len(places) != 1 or len(names) > len(known):
                raise CorruptError(f"directory {above} of a version has no path, or several")
            [(above, name)] = places
            names.append(name)
        yield b"/".join(reversed(names))


def _names(index: Index, ino: int) -> int:
    row = index.inode(ino)
    return max(row[NLINK], 1) if row is not None and not stat.S_ISDIR(row[MODE]) else 1


def _inodes_with(index: Index, broken: Broken) -> set[int]:
    numbers = numbers_of(index, broken)
    with extents_in(index, numbers) as extents:
        return {ino for ino, extent in extents if extent[4] in broken[numbers[extent[3]]]}


class _Walk:
    def __init__(self, index: Index, numbers: Mapping[int, PackId], broken: Broken) -> None:
        self._index = index
        self._numbers = numbers
        self._broken = broken
        self._found: dict[bytes, str] = {}

    def run(self) -> dict[bytes, str]:
        waiting = [(b"", ROOT_INO)]
        seen = {ROOT_INO}
        while waiting:
            path, ino = waiting.pop()
            try:
                for page in self._index.directory_pages(ino):
                    for name, row in page:
                        below = path + b"/" + name if path else name
                        if stat.S_ISDIR(row[MODE]):
                            if row[0] not in seen:
                                seen.add(row[0])
                                waiting.append((below, row[0]))
                        else:
                            self._look(below, row[0])
            except (CorruptError, NotFoundError):
                self._found[path] = LOST_INDEX
        return self._found

    def _look(self, path: bytes, ino: int) -> None:
        try:
            extents, _ = self._index.read_stored_content(ino)
        except (CorruptError, NotFoundError):
            self._found[path] = LOST_INDEX
            return
        for extent in extents:
            pack = self._numbers.get(extent[3])
            if pack is not None and extent[4] in self._broken[pack]:
                self._found[path] = LOST_CONTENT
                return
