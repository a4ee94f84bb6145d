"""The `publish.Source` of a merge. Its chunks are in the store already: nothing is stored, looked
up or read.

The chunks exist because the manifests of the versions existed when the pin was there and the
condemned lists had been read, and no list read since names one of those versions. If a collection
has continued without this writer (it found the pin dead, or no holder of the lease), that no longer
proves anything. So a merge is never drafted again behind such a fence: it raises LeaseLostError,
and the caller begins anew.
"""

from __future__ import annotations

from collections.abc import Collection

from cowfs.base import clock
from cowfs.base.errors import LeaseLostError
from cowfs.base.ids import VersionId
from cowfs.version.merge.merge_changes import MergeChanges
from cowfs.version.merge.merge_states import Merged
from cowfs.version.publish.publisher import Draft, Publisher, Source


class MergeSource(Source):
    """A `publish.Source`. versions: those merged into the target, or restored from; their manifests
    were read after the publisher was made. are_parents: whether they become parents of the new
    version."""

    def __init__(
        self, merged: Merged, publisher: Publisher, versions: tuple[VersionId, ...], *, are_parents: bool
    ) -> None:
        self._merged = merged
        self._publisher = publisher
        self._versions = versions
        self._are_parents = are_parents
        self._doubts = publisher.chunks.doubts

    def draft(self) -> Draft:
        if self._publisher.chunks.doubts != self._doubts:
            raise LeaseLostError(
                "a garbage collection has continued without this writer, perhaps while this machine slept; nothing was published",
                hint="Do it again: the collection may have deleted a version that was to be merged or restored.",
            )
        draft = MergeChanges(self._merged, self._publisher.pack_number, clock.now_ns()).draft()
        return Draft(draft.changes, draft.contents, self._versions if self._are_parents else (), self._versions)

    def list_kept(self, ino: int) -> Collection[tuple[int, bytes, int]]:
        return {(row[0], bytes(row[2]), row[3]) for row in self._publisher.index.content(ino)[0]}
