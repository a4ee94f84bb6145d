"""Compares for a merge: the differences of indexes by path, and the states of one path.

Merge bases besides the first one are compared with it: where they differ, the result of their own
merge is the base of the path. If they do not agree, the base is `UNKNOWN`.
"""

from __future__ import annotations

import stat
from collections import defaultdict
from collections.abc import Collection
from typing import TypeAlias

from cowfs.index import ExtentRow, Index, InodeRow
from cowfs.version.differences import RDEV, UID, comparable_extents, compare, find_inode
from cowfs.version.merge.merge_states import Branch, Merged, Part, State
from cowfs.version.publish.tree_changes import FLAGS, GID, HAS_XATTRS, INO, MODE, NLINK, SIZE, TARGET

Change: TypeAlias = "tuple[InodeRow | None, InodeRow | None]"


class Unknown:
    """The result of merge bases that do not agree."""


UNKNOWN = Unknown()


class States:
    """Compares states of one path. merged: its sides are read for contents and attributes."""

    def __init__(self, merged: Merged) -> None:
        self._merged = merged

    def are_same(self, one: State | Unknown | None, other: State | Unknown | None) -> bool:
        """As `are_equal`. No entry equals no entry; an unknown one equals nothing."""
        if isinstance(one, State) and isinstance(other, State):
            return self.are_equal(one, other)
        return one is None and other is None

    def are_equal(self, base: State, state: State) -> bool:
        return self.have_same_body(base, state) and self.have_same_attributes(base, state)

    def have_same_body(self, a: State, b: State) -> bool:
        one, other = a.body.row, b.body.row
        if a.tails or b.tails:
            return a == b
        if stat.S_IFMT(one[MODE]) != stat.S_IFMT(other[MODE]):
            return False
        if (one[TARGET], one[RDEV], one[SIZE]) != (other[TARGET], other[RDEV], other[SIZE]):
            return False
        return not stat.S_ISREG(one[MODE]) or comparable_extents(self._content(a.body)) == comparable_extents(
            self._content(b.body)
        )

    def have_same_attributes(self, a: State, b: State) -> bool:
        one, other = a.attributes.row, b.attributes.row
        if (stat.S_IMODE(one[MODE]), one[UID], one[GID]) != (stat.S_IMODE(other[MODE]), other[UID], other[GID]):
            return False
        return self._xattrs(a.attributes) == self._xattrs(b.attributes)

    def _content(self, part: Part) -> list[ExtentRow]:
        return self._merged.sides[part.side].content(part.row[INO])[0]

    def _xattrs(self, part: Part) -> list[tuple[bytes, bytes]]:
        if not part.row[FLAGS] & HAS_XATTRS:
            return []
        return self._merged.sides[part.side].content(part.row[INO])[1]


def find_disputed(branch: Branch, merged: Merged, base: int) -> dict[bytes, State | Unknown | None]:
    """Paths at which merge bases differ, with the result of their merge there."""
    states = States(merged)
    found: dict[bytes, State | Unknown | None] = {}
    sides: list[tuple[int, int | None]] = []
    for other, before in branch.others:
        sides.append((len(merged.sides), len(merged.sides) + 1 if before is not None else None))
        merged.sides += [other, before] if before is not None else [other]
        found.update(dict.fromkeys(changes_by_path(branch.base, other, 0)))
    for path in found:
        came_to: State | Unknown | None = _state_on(merged, base, path)
        for other_side, before_side in sides:
            before_state = _state_on(merged, before_side, path) if before_side is not None else UNKNOWN
            came_to = _merge_two(states, came_to, before_state, _state_on(merged, other_side, path))
        found[path] = came_to
    return found


def _merge_two(
    states: States, one: State | Unknown | None, before: State | Unknown | None, other: State | None
) -> State | Unknown | None:
    if states.are_same(one, other) or states.are_same(before, other):
        return one
    return other if states.are_same(before, one) else UNKNOWN


def _state_on(merged: Merged, side: int, path: bytes) -> State | None:
    return state_of(side, find_inode(merged.sides[side], path))


def leave_out(paths: Collection[bytes], changes: dict[bytes, Change]) -> dict[bytes, Change]:
    return {path: change for path, change in changes.items() if path not in paths} if paths else changes


def state_of(side: int, row: InodeRow | None) -> State | None:
    return State(Part(side, row), Part(side, row)) if row is not None else None


def changes_by_path(base: Index, index: Index, shared: int) -> dict[bytes, Change]:
    """The changes of an index to its base: the old and the new row of each path."""
    found: dict[bytes, Change] = {}
    if base is index:
        return found
    for each in compare(base, index, shared=shared, times=True, renames=False, files=True):
        old, new = found.get(each.path, (None, None))
        found[each.path] = (each.old or old, each.new or new)
    return found


def find_moves(changes: dict[bytes, Change], shared: int) -> dict[bytes, bytes]:
    """Old path → new path of moved files with one name."""
    gone: dict[int, bytes] = {}
    came: dict[int, list[bytes]] = defaultdict(list)
    for path, (old, new) in changes.items():
        if old is not None and new is None and not stat.S_ISDIR(old[MODE]) and old[INO] < shared and old[NLINK] == 1:
            gone[old[INO]] = path
        if new is not None and old is None and not stat.S_ISDIR(new[MODE]) and new[INO] < shared:
            came[new[INO]].append(path)
    return {path: came[ino][0] for ino, path in gone.items() if len(came.get(ino, ())) == 1}
