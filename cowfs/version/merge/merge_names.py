"""Tracks the file of the target that each name in a merge leads to, as far as branches were merged.
Files are identified by the numbers that target and branch have from one version.
"""

from __future__ import annotations

from collections import defaultdict

from cowfs.version.merge.merge_states import TARGET_SIDE, Merged, Part, State


class MergeNames:
    """Must be notified of every state that is put."""

    def __init__(self, merged: Merged) -> None:
        self._merged = merged
        self._put: dict[int, set[bytes]] = defaultdict(set)

    def put(self, path: bytes, state: State | None) -> None:
        if (number := self._merged.number(state)) is not None:
            self._put[number].add(path)

    def put_for(self, number: int) -> list[bytes]:
        """Paths at which that file was put and still is."""
        found = self._put.get(number, ())
        return sorted(path for path in found if self._merged.number(self._merged.paths.get(path)) == number)

    def now(self, number: int) -> State | None:
        """The file in its current state. None: the target does not have it."""
        for path in self.put_for(number):
            return self._merged.paths[path]
        own = self._merged.sides[TARGET_SIDE].inode(number)
        return State(Part(TARGET_SIDE, own), Part(TARGET_SIDE, own)) if own is not None else None
