"""A merge as what `publish` makes a version of. Its chunks lie in the store already: nothing is
stored, looked up or read.

They are there because the manifests of the versions were, when the pin was there and the condemned
lists had been read, and no list that was read by the last moment names one of those versions. Once
a collection has gone on without this writer, whether it found the pin dead or nobody holding the
lease, that says nothing any more, so a merge is never drafted again behind its fence:
LeaseLostError, and whoever merges begins anew.
"""

from __future__ import annotations

from collections.abc import Collection

from cowfs import clock
from cowfs.errors import LeaseLostError
from cowfs.ids import VersionId
from cowfs.version.merge_changes import MergeChanges
from cowfs.version.merge_states import Merged
from cowfs.version.publish import Draft, Publisher, Source


class MergeSource(Source):
    """A `publish.Source`. versions: those that were merged into the target's, or brought back;
    their manifests were read after the publisher was made. are_parents: of what is published."""

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
                "a garbage collection has gone on without this, perhaps while this machine slept; nothing was published",
                hint="Do it again: it may have deleted a version that was to be merged or restored.",
            )
        draft = MergeChanges(self._merged, self._publisher.pack_number, clock.now_ns()).draft()
        return Draft(draft.changes, draft.contents, self._versions if self._are_parents else (), self._versions)

    def kept(self, ino: int) -> Collection[tuple[int, bytes, int]]:
        return {(row[0], bytes(row[2]), row[3]) for row in self._publisher.index.content(ino)[0]}
