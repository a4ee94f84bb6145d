"""Whether a change set makes sense by itself: types, ranges, order, nothing twice. What it says about the base is the writer's.

A caller's mistake must not become a version that nobody can read, so rows are held to exactly what readers accept (`rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from cowfs.errors import InvalidInputError
from cowfs.index.changes import ChangeSet
from cowfs.index.rows import ROOT_INO, extent_problem, inode_problem, name_problem, xattr_problem


def refuse(problem: str) -> NoReturn:
    raise InvalidInputError(f"the change set is wrong: {problem}", hint="Nothing was published. Please report this.")


def check_rows(changes: ChangeSet) -> None:
    """InvalidInputError for the first thing that is wrong."""
    removed = set(changes.removed)
    for row in changes.inodes:
        _hold(inode_problem(row))
        if row[0] >= changes.next_ino:
            refuse(f"inode {row[0]} lies beyond next_ino {changes.next_ino}")
        if row[0] in removed:
            refuse(f"inode {row[0]} is both written and removed")
    if ROOT_INO in removed:
        refuse("the root is removed")
    for _, name, _ in changes.entries:
        _hold(name_problem(name))
    _once("inode", (row[0] for row in changes.inodes))
    _once("entry", (entry[:2] for entry in changes.entries))
    for extents in changes.contents.values():
        _check_extents(extents)
    for xattrs in changes.xattrs.values():
        for xattr in xattrs:
            _hold(xattr_problem(xattr))
        _once("extended attribute", (name for name, _ in xattrs))
    for number, pack in changes.packs.items():
        if number < 1 or len(pack) != 16:
            refuse(f"pack {number} has an impossible number or id")
    _once("pack", changes.packs.values())


def _check_extents(rows: Sequence[Any]) -> None:
    end = 0
    for row in rows:
        _hold(extent_problem(row, end))
        end = row[0] + row[1]


def _hold(problem: str | None) -> None:
    if problem is not None:
        refuse(problem)


def _once(what: str, keys: Iterable[Any]) -> None:
    seen = set()
    for key in keys:
        if key in seen:
            refuse(f"{what} {key!r} is there twice")
        seen.add(key)
