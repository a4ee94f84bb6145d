"""The inputs and decisions of a merge, as plain values: `merging` decides, `merge_changes` turns
the decisions into a change set, `prefixes` reads for it.

A part of a file is named by its index, given by the place in `Merged.sides`: the target's is the
first, followed by those of each branch and its merge bases.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId
from cowfs.index import Index, InodeRow
from cowfs.version.merge.conflicts import Conflict
from cowfs.version.publish.tree_changes import INO, MODE, MTIME

if TYPE_CHECKING:
    from cowfs.version.publish.publisher import Draft

TARGET_SIDE = 0

What: TypeAlias = Literal["added", "removed", "changed"]


class ChangedBy(dict[bytes, str]):
    """Path → the branch that changed it last; the target's name for all other paths."""

    def __init__(self, target: str) -> None:
        self._target = target

    def __missing__(self, path: bytes) -> str:
        return self._target


@dataclass(frozen=True)
class Branch:
    """shared, shared_by_target: inode numbers below mean the same file in base and branch, in base
    and target (`ancestry.find_shared_numbering`). others: merge bases besides `base`, each with the
    common ancestor of it and `base`, if there is one."""

    name: str
    index: Index
    base: Index
    shared: int
    shared_by_target: int
    others: Sequence[tuple[Index, Index | None]] = ()


class Part(NamedTuple):
    """A file in one of the indexes."""

    side: int
    row: InodeRow


class Tail(NamedTuple):
    """Bytes of a file from `start` on, to be appended."""

    part: Part
    start: int


class State(NamedTuple):
    """The intended entry at a path."""

    body: Part
    attributes: Part
    tails: tuple[Tail, ...] = ()

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.body.row[MODE])

    @property
    def mtime_ns(self) -> int:
        return max(self.body.row[MTIME], *(tail.part.row[MTIME] for tail in self.tails), -(1 << 63))


class Earlier:
    """The result of the branches that were merged before: `drafts`, each on top of the one before,
    with pack numbers that are used only among them (`number`), and their effect on each path
    (`told`, from `merge_changes.becomes`)."""

    def __init__(self, target: Index) -> None:
        self.drafts: list[Draft] = []
        self.told: dict[bytes, What] = {}
        self.new_packs: dict[int, PackId] = {}
        self._numbers = {pack: number for number, pack in target.pack_ids().items()}
        self._next = target.last_pack_number() + 1

    def number(self, pack: PackId) -> int:
        found = self._numbers.get(pack)
        if found is None:
            found = self._numbers[pack] = self._next + len(self.new_packs)
            self.new_packs[found] = pack
        return found


@dataclass
class Merged:
    """paths: the entry at each path that a branch changed; None: no entry. conflicts: including
    resolved ones. sides: the indexes that parts refer to. shared: for a side, the inode number
    below which its numbers mean the same file in the target. earlier: the changes that the first
    side has over the target, if any; `paths` are then those of the last branch."""

    sides: list[Index]
    paths: dict[bytes, State | None] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    shared: dict[int, int] = field(default_factory=dict)
    earlier: Earlier | None = None

    def number(self, state: State | None) -> int | None:
        """The number of a file that target and branch have from one version. None: it is a
        directory, joined from two files, or a file that the target cannot have."""
        if state is None or state.is_directory:
            return None
        body, attributes = self._number(state.body), self._number(state.attributes)
        return body if body == attributes else None

    def _number(self, part: Part) -> int | None:
        number = part.row[INO]
        return number if part.side == TARGET_SIDE or number < self.shared.get(part.side, 0) else None

    @property
    def failed(self) -> list[Conflict]:
        return [each for each in self.conflicts if each.how == "fail"]
