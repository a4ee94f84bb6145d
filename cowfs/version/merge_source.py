"""A merge as what `publish` makes a version of. Its chunks lie in the store already: nothing is
stored, looked up or read."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from cowfs import clock
from cowfs.ids import VersionId
from cowfs.version.merge_changes import MergeChanges
from cowfs.version.merging import Merged
from cowfs.version.publish import Draft, Publisher

if TYPE_CHECKING:
    from cowfs.index import Index


class MergeSource:
    """A `publish.Source`. parents: the versions that were merged, besides the target's."""

    layer = 0

    def __init__(self, merged: Merged, publisher: Publisher, parents: tuple[VersionId, ...]) -> None:
        self._merged = merged
        self._publisher = publisher
        self._parents = parents

    def draft(self) -> Draft:
        draft = MergeChanges(self._merged, self._publisher.pack_number, clock.now_ns()).draft()
        return Draft(draft.changes, draft.contents, self._parents)

    def kept(self, ino: int) -> Collection[tuple[int, bytes, int]]:
        return {(row[0], bytes(row[2]), row[3]) for row in self._publisher.index.content(ino)[0]}

    def published(self, index: Index) -> None:
        """Nobody reads the version here."""

    def abandoned(self) -> None:
        """The branches have everything still."""
