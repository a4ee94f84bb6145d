"""Finds the versions that a volume keeps behind a missing version. Parents lead no further than to
the missing one; the volume's heads and tags name the versions behind it.

    heads     1 v1   2 v2   3 v3   4 v4   5 v5      pruned: 2 to 4; v2 has a tag; v3 and v4 were collected
    history   v5, v4 (missing) ─▶ KeptBehind(v5) ─▶ heads that are not pruned: v1; tags: v2

Heads are not parents: in a volume whose line was copied from several others, or in another order,
the heads behind a version may name versions that it did not come from, even newer ones. They are
listed like the others, in the order of the heads: clocks that differ cannot tell them apart.

Cost, once for a volume and only if a version is missing: the newest head, the pruned heads, the
heads from the newest one to the version's (all, if there is none), and the tags (`tags`); then one
request for each further head that is not pruned, when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from cowfs.base.errors import AccessDeniedError, CorruptError, InvalidInputError, NotFoundError, UnsupportedFormatError
from cowfs.base.ids import VersionId
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.version.names import head_line, tags
from cowfs.version.names.head_line import Step
from cowfs.version.retention import pruned
from cowfs.version.retention.pruned import Pruned

_UNREADABLE = (AccessDeniedError, CorruptError, InvalidInputError, NotFoundError, UnsupportedFormatError)


class KeptBehind:
    """For one history (`history.history`). volume: of that history; it may have versions made in
    another volume, or with a volume name from another store."""

    def __init__(self, store: ObjectStore, volume: str) -> None:
        self._store = store
        self._volume = volume
        self._told = set[str]()
        self._whole: dict[str, tuple[Pruned, dict[VersionId, Step]]] = {}  # lines that were read completely

    def __call__(self, version: VersionId, made_in: str) -> list[Iterator[VersionId]]:
        """The lines kept behind the version, each newest first; empty for a volume that was
        returned before. Unreadable parts are left out."""
        for volume in dict.fromkeys((made_in, self._volume)):
            if volume in self._told:
                break
            if lines := self._lines(volume, version):
                self._told.add(volume)
                return lines
        return []

    def _lines(self, volume: str, version: VersionId) -> list[Iterator[VersionId]]:
        """Empty: the volume's line does not have the version."""
        if volume in self._whole:
            hidden, known = self._whole[volume]
            if version not in known:
                return []
            steps = iter(known.values())
        else:
            hidden, steps = self._steps(volume)
        newer: dict[VersionId, Step] = {}
        for step in steps:
            if step.version == version:
                break
            newer.setdefault(step.version, step)
        else:
            self._whole[volume] = hidden, newer
            return []
        tagged = (iter((each,)) for each in self._list_tagged(volume) if each not in newer)
        return [self._heads(volume, step.first - 1, hidden), *tagged]

    def _steps(self, volume: str) -> tuple[Pruned, Iterator[Step]]:
        try:
            newest = refs.newest(self._store, refs.head(volume))
            if newest is not None and newest[1].kind != "void":  # the versions of a void line are not kept
                hidden = pruned.read(self._store, volume)
                return hidden, _readable(head_line.steps(self._store, volume, newest[0], hidden))
        except _UNREADABLE:
            pass
        return Pruned(0, None), iter(())

    def _list_tagged(self, volume: str) -> list[VersionId]:
        try:
            return [tag.version for tag in tags.all_tags(self._store, volume, tell=lambda _: None)]
        except _UNREADABLE:
            return []

    def _heads(self, volume: str, number: int, hidden: Pruned) -> Iterator[VersionId]:
        """The versions of heads that are not pruned, from this number back."""
        for each in range(number, refs.FIRST - 1, -1):
            if not hidden.has(each):
                try:
                    record = refs.read(self._store, refs.head(volume), each)
                except _UNREADABLE:
                    return
                if record.version is not None:
                    yield record.version


def _readable(steps: Iterator[Step]) -> Iterator[Step]:
    try:
        yield from steps
    except _UNREADABLE:
        return
