"""What a merge is told and what it decides, as plain values: `merging` decides, `merge_changes`
makes a change set of it, `prefixes` reads for it.

A part of a file is named by the index that has it, by its place in `Merged.sides`: the target's is
the first, then those of each branch and its merge bases follow.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cowfs.index import Index, InodeRow
from cowfs.version.conflicts import Conflict
from cowfs.version.tree_changes import MODE, MTIME

TARGET_SIDE = 0


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


@dataclass
class Merged:
    """paths: what is at each that a branch changed; None: nothing. conflicts: those that were
    resolved, too. sides: the indexes that parts count."""

    sides: list[Index]
    paths: dict[bytes, State | None] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)

    @property
    def failed(self) -> list[Conflict]:
        return [each for each in self.conflicts if each.how == "fail"]
