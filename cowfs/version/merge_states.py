"""What a merge is told and what it decides, as plain values: `merging` decides, `merge_changes`
makes a change set of it, `prefixes` reads for it.

A part of a file is named by the index that has it, by its place in `Merged.sides`: the target's is
the first, then those of each branch and its merge bases follow.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from cowfs.ids import PackId
from cowfs.index import Index, InodeRow
from cowfs.values import dataclass
from cowfs.version.conflicts import Conflict
from cowfs.version.tree_changes import INO, MODE, MTIME

if TYPE_CHECKING:
    from cowfs.version.publish import Draft

TARGET_SIDE = 0

What: TypeAlias = Literal["added", "removed", "changed"]


class ChangedBy(dict[bytes, str]):
    """Path → who changed it last: the target, by its name, unless a branch did."""

    def __init__(self, target: str) -> None:
        self._target = target

    def __missing__(self, path: bytes) -> str:
        return self._target


@dataclass(frozen=True)
class Branch:
    """shared, shared_by_target: inode numbers below mean the same file in base and branch, in base
    and target (`ancestry.numbered_alike`). others: merge bases besides `base`, each with what it
    and `base` come from, if there is such a one."""

    name: str
    index: Index
    base: Index
    shared: int
    shared_by_target: int
    others: Sequence[tuple[Index, Index | None]] = ()


class Part(NamedTuple):
    """A file as one of the indexes has it."""

    side: int
    row: InodeRow


class Tail(NamedTuple):
    """Bytes of a file from `start` on, to be appended."""

    part: Part
    start: int


class State(NamedTuple):
    """What is to be at a path."""

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
    """What the branches that were merged before come to: `drafts`, each on top of the one before,
    with numbers of packs that are used only among them (`number`), and what they do to each path
    (`told`, of `merge_changes.becomes`)."""

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
    """paths: what is at each that a branch changed; None: nothing. conflicts: those that were
    resolved, too. sides: the indexes that parts count. shared: of a side, below which its inode
    numbers mean the same file in the target. earlier: what the first of them has over the target,
    if there is anything; paths are of the last branch then."""

    sides: list[Index]
    paths: dict[bytes, State | None] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    shared: dict[int, int] = field(default_factory=dict)
    earlier: Earlier | None = None

    def number(self, state: State | None) -> int | None:
        """Of a file that target and branch have from one version. None: it is a directory, made of
        two files, or no file that the target may have, too."""
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
