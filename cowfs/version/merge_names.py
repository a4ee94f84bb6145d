"""Which file of the target each name in a merge leads to, as far as branches were merged. Files are
told by the numbers that target and branch have from one version.
"""

from __future__ import annotations

from collections import defaultdict

from cowfs.version.merge_states import TARGET_SIDE, Merged, Part, State
from cowfs.version.tree_changes import INO


class MergeNames:
    """To be told of every state that is put."""

    def __init__(self, merged: Merged) -> None:
        self._merged = merged
        self._limits: dict[int, int] = {}
        self._put: dict[int, set[bytes]] = defaultdict(set)

    def tell_apart(self, side: int, limit: int) -> None:
        """limit: numbers of that side below it mean the same file in the target."""
        self._limits[side] = limit

    def put(self, path: bytes, state: State | None) -> None:
        if (number := self.number(state)) is not None:
            self._put[number].add(path)

    def number(self, state: State | None) -> int | None:
        """None: it is a directory, made of two files, or no file that the target may have, too."""
        if state is None or state.is_directory:
            return None
        body, attributes = self._number(state.body), self._number(state.attributes)
        return body if body == attributes else None

    def _number(self, part: Part) -> int | None:
        number = part.row[INO]
        return number if part.side == TARGET_SIDE or number < self._limits.get(part.side, 0) else None

    def put_for(self, number: int) -> list[bytes]:
        """Paths at which that file was put and still is."""
        found = self._put.get(number, ())
        return sorted(path for path in found if self.number(self._merged.paths.get(path)) == number)

    def now(self, number: int) -> State | None:
        """The file as it is so far. None: the target has not got it."""
        for path in self.put_for(number):
            return self._merged.paths[path]
        own = self._merged.sides[TARGET_SIDE].inode(number)
        return State(Part(TARGET_SIDE, own), Part(TARGET_SIDE, own)) if own is not None else None
