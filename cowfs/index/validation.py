"""Checks a change set by itself: types, ranges, order, duplicates. The writer checks it against the
base.

A change set is read in windows of WINDOW_ROWS. Native code accepts most rows of a window
(`native.rows`); the others are checked here one by one.

A caller's mistake must not become an unreadable version, so rows must be exactly as readers accept
them (`rows`). Each function yields the windows that it has checked, and raises InvalidInputError at
the first fault: a change set may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NoReturn, TypeVar

from cowfs.base.errors import InvalidInputError
from cowfs.base.ids import PackId
from cowfs.index.changes import ChangeSet, Content, Entry, InodeRow, Xattrs
from cowfs.index.links import MAX_INO, Link, link_problem
from cowfs.index.rows import extent_problem, inode_problem, name_problem, xattr_problem
from cowfs.native.constants import ROOT_INO
from cowfs.native.rows import plain_contents, plain_entries, plain_inodes

WINDOW_ROWS = 4096
"""About 4 MB of rows as objects, and enough scattered keys for one round trip. Guessed."""

T = TypeVar("T")


def refuse(problem: str) -> NoReturn:
    raise InvalidInputError(f"the change set is wrong: {problem}", hint="Nothing was published. Please report this.")


def check_inodes(changes: ChangeSet) -> Iterator[list[InodeRow]]:
    removed = iter(changes.removed)
    gone = next(removed, None)

    def plain(rows: list[InodeRow], last: InodeRow | None) -> int:
        return plain_inodes(rows, last[0] if last is not None else 0, changes.next_ino)

    for window in _check_order("inode", _windows(changes.inodes), lambda row: row[0], inode_problem, plain):
        if window[-1][0] >= changes.next_ino:
            refuse(f"inode {window[-1][0]} lies beyond next_ino {changes.next_ino}")
        while gone is not None and gone <= window[-1][0]:
            if gone >= window[0][0] and any(row[0] == gone for row in window):
                refuse(f"inode {gone} is both written and removed")
            gone = next(removed, None)
        yield window


def check_removed(changes: ChangeSet) -> Iterator[list[int]]:
    problem = {ROOT_INO: "the root is removed"}
    return _check_order("removed inode", _windows(changes.removed), lambda ino: ino, problem.get)


def check_entries(changes: ChangeSet) -> Iterator[list[Entry]]:
    def plain(rows: list[Entry], last: Entry | None) -> int:
        return plain_entries(rows, last[:2] if last is not None else (0, b""))

    windows = _windows(changes.entries)
    return _check_order("entry", windows, lambda entry: entry[:2], lambda entry: name_problem(entry[1]), plain)


def check_contents(changes: ChangeSet) -> Iterator[list[Content]]:
    def plain(rows: list[Content], last: Content | None) -> int:
        return plain_contents(rows, last[0] if last is not None else 0)  # type: ignore[arg-type]  # else not plain

    windows = _windows(changes.contents, lambda some: len(some[1]) + 1)
    return _check_order(
        "the content of inode", windows, lambda some: some[0], lambda some: _extents_problem(some[1]), plain
    )


def check_xattrs(changes: ChangeSet) -> Iterator[list[Xattrs]]:
    windows = _windows(changes.xattrs, lambda some: WINDOW_ROWS // 64)  # short windows: values may be large
    for window in _check_order("the attributes of inode", windows, lambda some: some[0], lambda _: None):
        for _, xattrs in window:
            for xattr in xattrs:
                _hold(xattr_problem(xattr))
            _once("extended attribute", (name for name, _ in xattrs))
        yield window


def check_links(changes: ChangeSet) -> Iterator[list[tuple[int, Link]]]:
    windows = _windows(changes.links)
    for window in _check_order("the link of inode", windows, lambda some: some[0], lambda some: link_problem(some[1])):
        if window[-1][0] > MAX_INO:
            refuse(f"inode {window[-1][0]} is too large a number for a link")
        yield window


def check_packs(packs: Mapping[int, PackId]) -> None:
    for number, pack in packs.items():
        if number < 1 or len(pack) != 16:
            refuse(f"pack {number} has an impossible number or id")
    _once("pack", packs.values())


def _windows(rows: Iterable[T], weight: Callable[[T], int] | None = None) -> Iterator[list[T]]:
    """Windows of WINDOW_ROWS rows, or of rows whose weights add up to that."""
    rest = iter(rows)
    if weight is None:
        while window := list(islice(rest, WINDOW_ROWS)):
            yield window
        return
    window, size = [], 0
    for row in rest:
        window.append(row)
        size += weight(row)
        if size >= WINDOW_ROWS:
            yield window
            window, size = [], 0
    if window:
        yield window


def _check_order(
    what: str,
    windows: Iterable[list[T]],
    key: Callable[[T], Any],
    problem: Callable[[T], str | None],
    plain: Callable[[list[T], T | None], int] = lambda rows, last: 0,
) -> Iterator[list[T]]:
    """plain: returns how many of the first rows behind `last` are already known to be valid."""
    last: T | None = None
    for window in windows:
        done = plain(window, last)
        if done:
            last = window[done - 1]
        for row in window[done:]:
            _hold(problem(row))
            if last is not None and key(row) <= key(last):
                refuse(f"{what} {key(row)!r} is there twice or out of order")
            last = row
        yield window


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
