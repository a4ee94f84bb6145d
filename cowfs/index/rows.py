"""What rows of an index may hold, checked on the way out of a database and on the way in.

A crafted index can hold anything SQLite can store; the engine takes numbers of a certain width and
byte strings. A row that passes here fits the engine and makes sense by itself: types, ranges, an
extent inside its chunk, names a directory can hold. Also: that a list is strictly ascending, which
a damaged tree that leads to one page twice is not. Not here: what rows say about each other (the
writer checks what it writes; a reader asks only for what it needs).
"""

from __future__ import annotations

import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cowfs.format.codec import MAX_RAW_BYTES
from cowfs.index.changes import ExtentRow, InodeRow
from cowfs.index.damage import damaged
from cowfs.native.constants import ROOT_INO

NAME_BYTES = 255
TARGET_BYTES = 4095
XATTR_NAME_BYTES = 255
XATTR_VALUE_BYTES = 65536
LAST_PACK = (1 << 31) - 1
"""Larger numbers stand for linked objects in the engine, and never in an index."""

_U32 = (1 << 32) - 1
_I64 = (1 << 63) - 1
_INODE_TYPES = (int,) * 12 + (bytes,)
_EXTENT_TYPES = (int, int, bytes, int, int, int, int, int, int)
_FILE_TYPES = frozenset(
    (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)
)


def _fits(row: Sequence[Any], types: tuple[type, ...]) -> bool:
    """Exact types, as SQLite gives them, or subclasses of them (ids), as callers do."""
    return tuple(map(type, row)) == types or (len(row) == len(types) and all(map(isinstance, row, types)))


def inode_problem(row: Sequence[Any]) -> str | None:
    """What is wrong with an inode row; None when nothing is."""
    if not _fits(row, _INODE_TYPES):
        return "an inode row has values of the wrong type"
    ino, mode, nlink, uid, gid, rdev, size, mapped_bytes, _, _, _, flags, target = row
    if not (ino >= ROOT_INO and 0 <= mode <= 0o177777 and stat.S_IFMT(mode) in _FILE_TYPES):
        return f"inode {ino} has mode {mode:o}" if ino >= ROOT_INO else f"{ino} is no inode number"
    if not (0 <= nlink <= _U32 and 0 <= uid <= _U32 and 0 <= gid <= _U32 and 0 <= rdev <= _U32 and 0 <= flags <= _U32):
        return f"inode {ino} has a number out of range"
    if size < 0 or len(target) > TARGET_BYTES or b"\0" in target:
        return f"inode {ino} has an impossible size or target"
    if not 0 <= mapped_bytes <= (size if stat.S_ISREG(mode) else 0):
        return f"inode {ino} maps more bytes than it has"
    return None


def name_problem(name: Any) -> str | None:
    if not isinstance(name, bytes) or not 0 < len(name) <= NAME_BYTES or b"/" in name or b"\0" in name:
        return "a directory entry has an impossible name"
    if name in (b".", b".."):
        return f"a directory entry is named {name.decode()}"
    return None


def extent_problem(row: Sequence[Any], end: int) -> str | None:
    """end: where the file's extent before this one ends."""
    if not _fits(row, _EXTENT_TYPES):
        return "an extent row has values of the wrong type"
    offset, length, digest, pack, pack_offset, stored_length, raw_length, skip, codec = row
    if offset < end or length < 1 or offset > _I64 - length:
        return f"the extent at {offset} overlaps another or has an impossible length"
    if len(digest) != 32 or not 1 <= pack <= LAST_PACK or pack_offset < 0 or codec not in (0, 1):
        return f"the extent at {offset} names no chunk"
    if skip < 0 or skip + length > raw_length or not (stored_length > 0 and raw_length <= MAX_RAW_BYTES):
        return f"the extent at {offset} shows bytes its chunk does not have"
    return None


def xattr_problem(row: Sequence[Any]) -> str | None:
    name, value = row
    if not isinstance(name, bytes) or not 0 < len(name) <= XATTR_NAME_BYTES or b"\0" in name:
        return "an extended attribute has an impossible name"
    if not isinstance(value, bytes) or len(value) > XATTR_VALUE_BYTES:
        return "an extended attribute has an impossible value"
    return None


def checked_inode(title: str, row: Any) -> InodeRow:
    _refuse(title, inode_problem(row))
    return row  # type: ignore[no-any-return]


def checked_entries(title: str, rows: Iterator[Any]) -> Iterator[tuple[bytes, InodeRow]]:
    """From (name, inode columns…) rows: entries with ascending names."""
    last = b""
    for row in rows:
        name, inode = row[0], row[1:]
        problem = name_problem(name)
        if problem is None:
            problem = (
                inode_problem(inode) if inode[0] is not None else "a directory entry names an inode that does not exist"
            )
        if problem is None and name <= last:
            problem = "the entries of a directory are out of order"
        _refuse(title, problem)
        last = name
        yield name, inode


def checked_places(title: str, rows: Iterable[Any], last: tuple[int, bytes]) -> list[tuple[int, tuple[int, bytes]]]:
    """From (parent, name, inode) rows: (inode, place) with places ascending behind `last`."""
    places: list[tuple[int, tuple[int, bytes]]] = []
    for parent, name, ino in rows:
        problem = name_problem(name)
        if problem is None and not (type(parent) is int and type(ino) is int and (parent, name) > last):
            problem = "directory entries are out of order"
        _refuse(title, problem)
        last = (parent, name)
        places.append((ino, last))
    return places


def checked_extent(title: str, row: Any) -> ExtentRow:
    _refuse(title, extent_problem(row, 0))
    return row  # type: ignore[no-any-return]


def checked_extents(title: str, rows: Iterator[Any]) -> Iterator[ExtentRow]:
    end = 0
    for row in rows:
        _refuse(title, extent_problem(row, end))
        end = row[0] + row[1]
        yield row


def checked_xattrs(title: str, rows: Iterator[Any]) -> Iterator[tuple[bytes, bytes]]:
    last = b""
    for row in rows:
        problem = xattr_problem(row)
        if problem is None and row[0] <= last:
            problem = "the extended attributes of an inode are out of order"
        _refuse(title, problem)
        last = row[0]
        yield row


def by_inode(title: str, rows: Iterable[Any]) -> dict[int, list[Any]]:
    """From (inode, column…) rows: the columns, for each inode. They are not checked."""
    found: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row[1:])
    if not all(type(ino) is int for ino in found):
        raise damaged(title, "a row names no inode")
    return found


def _refuse(title: str, problem: str | None) -> None:
    if problem is not None:
        raise damaged(title, problem)
