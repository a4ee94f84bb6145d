"""The versions that changed one path, newest first: `cowfs log SOURCE:PATH`.

Each version is compared with its parents at the path, by their indexes; contents are not read.

    equal to a parent    only this parent is followed, as in git
    differs from all     the version changed the path; all parents are followed
    not in a parent      the entry that was moved here is followed under its old path
    parent is missing    the newest version that the volume keeps behind it takes its place

Cost for each version: its manifest, a look-up of the path in its index, and for a directory the
blocks that it changed. A version where the path appears or disappears is compared as a whole.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.base.errors import NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.index import Index, content_with_links, open_index
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader
from cowfs.version.ancestry import Ancestry
from cowfs.version.differences import Difference, compare, file_bytes, find_inode
from cowfs.version.history import KeptLines, open_version
from cowfs.version.publish.tree_changes import INO, MODE
from cowfs.version.purged_versions import naming_purged_version

if TYPE_CHECKING:
    from cowfs.format.manifest import Manifest

OPEN_INDEXES = 8
"""So many are kept open: each has connections and a page cache of its own."""


@dataclass(frozen=True)
class PathStep:
    """A version that changed a path. path: the entry's path in this version, or in its parent if it
    was removed. found: its difference to the first parent; for a directory, the differences below
    it as well."""

    version: VersionId
    manifest: Manifest
    path: bytes
    found: list[Difference]


class Indexes:
    """Indexes of one store's versions, kept open. One thread; its owner closes it."""

    def __init__(self, store: ObjectStore, cache_dir: Path) -> None:
        self._store = store
        self._reader = PackReader(store)
        self._cache_dir = cache_dir
        self._ancestry = Ancestry(store)
        self._open = OrderedDict[VersionId, Index]()

    def open(self, version: VersionId, manifest: Manifest) -> Index:
        """Closed by this object, after OPEN_INDEXES others were used."""
        index = self._open.get(version)
        if index is None:
            with naming_purged_version(self._store, manifest.volume, version):
                index = open_index(self._store, self._reader, manifest.index, cache_dir=self._cache_dir)
            self._open[version] = index
        self._open.move_to_end(version)
        while len(self._open) > OPEN_INDEXES:
            self._open.popitem(last=False)[1].close()
        return index

    def manifest(self, version: VersionId) -> Manifest | None:
        """None: the version is not in the store."""
        return self._ancestry.manifest(version)

    def find_shared(self, old: VersionId, new: VersionId) -> int:
        """Inode numbers below this one mean the same file in both."""
        common = self._ancestry.find_shared_numbering(old, new)
        manifest = self.manifest(common) if common is not None else None
        return self.open(common, manifest).next_ino if common is not None and manifest is not None else 0

    def close(self) -> None:
        with ExitStack() as stack:
            for index in self._open.values():
                stack.callback(index.close)
        self._open.clear()


def path_history(
    store: ObjectStore, version: VersionId, path: bytes, *, cache_dir: Path, kept_behind: KeptLines | None = None
) -> Iterator[PathStep]:
    """The steps, newest first by the clocks of the writers, each version once. kept_behind: as for
    `history.history`. NotFoundError: no version has the path."""
    newest = open_version(store, version)
    indexes = Indexes(store, cache_dir)
    try:
        yield from _Walk(indexes, kept_behind).run(version, newest, path)
    finally:
        indexes.close()


class _Walk:
    def __init__(self, indexes: Indexes, kept_behind: KeptLines | None) -> None:
        self._indexes = indexes
        self._kept_behind = kept_behind
        self._seen = set[tuple[VersionId, bytes]]()
        self._waiting: list[tuple[int, int, VersionId, Manifest, bytes]] = []

    def run(self, version: VersionId, manifest: Manifest, path: bytes) -> Iterator[PathStep]:
        yielded = set[VersionId]()
        self._follow(version, manifest, path, -manifest.created_ns)
        while self._waiting:
            order, _, version, manifest, here = heappop(self._waiting)
            step = self._visit(order, version, manifest, here)
            if step is not None and version not in yielded:
                yielded.add(version)
                yield step
        if not yielded:
            raise NotFoundError(
                f"no version in this history has /{os.fsdecode(path)}",
                hint=f"{Command('find', 'SOURCE')} prints the paths of a version.",
            )

    def _follow(self, version: VersionId, manifest: Manifest, path: bytes, order: int) -> None:
        if (version, path) not in self._seen:
            self._seen.add((version, path))
            heappush(self._waiting, (max(-manifest.created_ns, order), len(self._seen), version, manifest, path))

    def _visit(self, order: int, version: VersionId, manifest: Manifest, path: bytes) -> PathStep | None:
        """The step, if the version differs from all its parents; follows the parents."""
        parents = self._parents(version, manifest)
        if not parents:
            return self._first(version, manifest, path)
        steps: list[tuple[VersionId, Manifest, bytes, list[Difference]]] = []
        for parent, parent_manifest in parents:
            old_path, found = self._compare(parent, parent_manifest, version, manifest, path)
            if not found:
                self._follow(parent, parent_manifest, path, order)
                return None
            steps.append((parent, parent_manifest, old_path, found))
        for parent, parent_manifest, old_path, _ in steps:
            self._follow(parent, parent_manifest, old_path, order)
        return PathStep(version, manifest, path, steps[0][3])

    def _first(self, version: VersionId, manifest: Manifest, path: bytes) -> PathStep | None:
        row = find_inode(self._indexes.open(version, manifest), path)
        if row is None:
            return None
        return PathStep(
            version, manifest, path, [Difference("added", path, None, None, row, added_bytes=file_bytes(row))]
        )

    def _parents(self, version: VersionId, manifest: Manifest) -> list[tuple[VersionId, Manifest]]:
        found = [(each, self._indexes.manifest(each)) for each in manifest.parents]
        if found and found[0][1] is None and self._kept_behind is not None:
            lines = self._kept_behind(version, manifest.volume)
            kept = next((each for line in lines for each in line if self._indexes.manifest(each) is not None), None)
            if kept is not None:
                found.insert(0, (kept, self._indexes.manifest(kept)))
        return [(each, manifest) for each, manifest in found if manifest is not None]

    def _compare(
        self, old: VersionId, old_manifest: Manifest, new: VersionId, manifest: Manifest, path: bytes
    ) -> tuple[bytes, list[Difference]]:
        """The path in the parent, and the differences; none: nothing changed at the path."""
        a, b = self._indexes.open(old, old_manifest), self._indexes.open(new, manifest)
        before, after = find_inode(a, path), find_inode(b, path)
        if before is None and after is None:
            return path, []
        if before is not None and before == after and not stat.S_ISDIR(before[MODE]):
            ino = before[INO]
            if content_with_links(a, ino) == content_with_links(b, ino):
                return path, []
        shared = self._indexes.find_shared(old, new)
        a, b = self._indexes.open(old, old_manifest), self._indexes.open(new, manifest)
        if before is not None and after is not None:
            return path, compare(a, b, shared=shared, path=path)
        return _find_move(compare(a, b, shared=shared), path, is_gone=after is None)


def _find_move(found: list[Difference], path: bytes, *, is_gone: bool) -> tuple[bytes, list[Difference]]:
    """The path in the parent of an entry that only one side has at `path`, and the differences that
    say how it came or went."""
    for each in found:
        if each.kind != "renamed" or each.old_path is None:
            continue
        here, there = (each.old_path, each.path) if is_gone else (each.path, each.old_path)
        if path == here or path.startswith(here + b"/"):
            return (path if is_gone else there + path[len(here) :]), [each]
    at = [each for each in found if each.path == path or each.path.startswith(path + b"/")]
    return path, at
