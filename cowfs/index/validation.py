"""Whether a change set makes sense by itself: types, ranges, order, nothing twice. What it says
about the base is the writer's.

A caller's mistake must not become a version that nobody can read, so rows are held to exactly what
readers accept (`rows`). Each function passes rows on as it has checked them and raises
InvalidInputError at the first that is wrong: a change set may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from cowfs.errors import InvalidInputError
from cowfs.ids import PackId
from cowfs.index.changes import ChangeSet, Content, Entry, InodeRow, Xattrs
from cowfs.index.links import MAX_INO, Link, link_problem
from cowfs.index.rows import extent_problem, inode_problem, name_problem, xattr_problem
from cowfs.native.constants import ROOT_INO

T = TypeVar("T")


def refuse(problem: str) -> NoReturn:
    raise InvalidInputError(f"the change set is wrong: {problem}", hint="Nothing was published. Please report this.")


def checked_inodes(changes: ChangeSet) -> Iterator[InodeRow]:
    removed = iter(changes.removed)
    gone = next(removed, None)
    for row in _in_order("inode", changes.inodes, lambda row: row[0], inode_problem):
        if row[0] >= changes.next_ino:
            refuse(f"inode {row[0]} lies beyond next_ino {changes.next_ino}")
        while gone is not None and gone < row[0]:
            gone = next(removed, None)
        if gone == row[0]:
            refuse(f"inode {row[0]} is both written and removed")
        yield row


def checked_removed(changes: ChangeSet) -> Iterator[int]:
    problem = {ROOT_INO: "the root is removed"}
    return _in_order("removed inode", changes.removed, lambda ino: ino, problem.get)


def checked_entries(changes: ChangeSet) -> Iterator[Entry]:
    return _in_order("entry", changes.entries, lambda entry: entry[:2], lambda entry: name_problem(entry[1]))


def checked_contents(changes: ChangeSet) -> Iterator[Content]:
    return _in_order(
        "the content of inode", changes.contents, lambda some: some[0], lambda some: _extents_problem(some[1])
    )


def checked_xattrs(changes: ChangeSet) -> Iterator[Xattrs]:
    for ino, xattrs in _in_order("the attributes of inode", changes.xattrs, lambda some: some[0], lambda _: None):
        for xattr in xattrs:
            _hold(xattr_problem(xattr))
        _once("extended attribute", (name for name, _ in xattrs))
        yield ino, xattrs


def checked_links(changes: ChangeSet) -> Iterator[tuple[int, Link]]:
    for ino, link in _in_order(
        "the link of inode", changes.links, lambda some: some[0], lambda some: link_problem(some[1])
    ):
        if ino > MAX_INO:
            refuse(f"inode {ino} is too large a number for a link")
        yield ino, link


def check_packs(packs: Mapping[int, PackId]) -> None:
    for number, pack in packs.items():
        if number < 1 or len(pack) != 16:
            refuse(f"pack {number} has an impossible number or id")
    _once("pack", packs.values())


def _in_order(what: str, rows: Iterable[T], key: Callable[[T], Any], problem: Callable[[T], str | None]) -> Iterator[T]:
    last: Any = None
    for row in rows:
        _hold(problem(row))
        at = key(row)
        if last is not None and at <= last:
            refuse(f"{what} {at!r} is there twice or out of order")
        last = at
        yield row


def _extents_problem(rows: Sequence[Any]) -> str | None:
    end = 0
    for row in rows:
        if (problem := extent_problem(row, end)) is not None:
            return problem
        end = row[0] + row[1]
    return None


def _hold(problem: str | None) -> None:
    if problem is not None:
        refuse(problem)


def _once(what: str, keys: Iterable[Any]) -> None:
    seen = set()
    for key in keys:
        if key in seen:
            refuse(f"{what} {key!r} is there twice")
        seen.add(key)
