"""The descent of versions: along first parents, which pass on inode numbers, and along all parents,
from which a merge starts.

    first parent    the version that a commit was based on: the same inode number is the same file in both, permanently
    other parents   versions that were merged: their inodes were renumbered, so their numbers mean
    nothing here

Manifests never change, so each is fetched once. A line ends at a pruned parent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import heappop, heappush

from cowfs.base.errors import InvalidStateError, NotFoundError
from cowfs.base.ids import VersionId
from cowfs.format.manifest import Manifest
from cowfs.store import ObjectStore
from cowfs.version.history import open_version

LINE_LIMIT = 10_000
"""How many versions are searched for a common one. Beyond that, files are matched by their paths
and contents alone."""


class Ancestry:
    """The versions of one store. One thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._manifests: dict[VersionId, Manifest | None] = {}

    def manifest(self, version: VersionId) -> Manifest | None:
        """None: it is pruned."""
        if version not in self._manifests:
            try:
                self._manifests[version] = open_version(self._store, version)
            except NotFoundError:
                self._manifests[version] = None
        return self._manifests[version]

    def find_shared_numbering(self, a: VersionId, b: VersionId) -> VersionId | None:
        """The newest version that is in both lines of first parents; None: there is none."""
        lines: tuple[dict[VersionId, None], dict[VersionId, None]] = ({a: None}, {b: None})
        ends: list[VersionId | None] = [a, b]
        for _ in range(LINE_LIMIT):
            for own, other in ((0, 1), (1, 0)):
                if (end := ends[own]) is not None and end in lines[other]:
                    return end
            own = self._newer(ends[0], ends[1])
            if (end := ends[own]) is None:
                return None
            manifest = self.manifest(end)
            parent = manifest.parents[0] if manifest is not None and manifest.parents else None
            ends[own] = parent
            if parent is not None:
                lines[own][parent] = None
        return None

    def _newer(self, a: VersionId | None, b: VersionId | None) -> int:
        def creation_ns(version: VersionId | None) -> int:
            manifest = self.manifest(version) if version is not None else None
            return manifest.created_ns if manifest is not None else -1 if version is None else 0

        return 0 if creation_ns(a) >= creation_ns(b) else 1

    def merge_bases(self, a: VersionId, b: VersionId, *, merged: Collection[VersionId] = ()) -> list[VersionId]:
        """The common ancestors of both that are not ancestors of another common one: several if two
        lines have been merged into each other. Newest first, and among equally old ones smallest id
        first, so that the order of a and b does not matter. Empty: no common ancestor. merged:
        versions that were merged into a in a version that is not published yet."""
        if b == a or b in merged:
            return [b]
        of_a, of_b = set(self._ancestors([a, *merged])), set(self._ancestors([b]))
        common = of_a & of_b
        older = set(self._ancestors(self._parents(common)))
        return sorted(common - older, key=lambda version: (-self._creation_ns(version), version.hex()))

    def _parents(self, versions: Iterable[VersionId]) -> list[VersionId]:
        return [parent for version in versions for parent in self._parents_of(version)]

    def _parents_of(self, version: VersionId) -> tuple[VersionId, ...]:
        manifest = self.manifest(version)
        return tuple(manifest.parents) if manifest is not None else ()

    def _creation_ns(self, version: VersionId) -> int:
        manifest = self.manifest(version)
        return manifest.created_ns if manifest is not None else 0

    def _ancestors(self, versions: Iterable[VersionId]) -> list[VersionId]:
        """These versions and all their ancestors that are not pruned, newest first."""
        seen = set(versions)
        waiting = [(-self._creation_ns(version), version.hex(), version) for version in seen]
        waiting.sort()
        found = []
        while waiting:
            _, _, version = heappop(waiting)
            if self.manifest(version) is None:
                continue
            found.append(version)
            if len(found) > LINE_LIMIT:
                raise InvalidStateError(
                    f"no common version among the last {LINE_LIMIT} of a history",
                    hint="Merge newer versions: each merge begins a new common history.",
                )
            for parent in self._parents_of(version):
                if parent not in seen:
                    seen.add(parent)
                    heappush(waiting, (-self._creation_ns(parent), parent.hex(), parent))
        return found
