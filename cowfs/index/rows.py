"""Checks the rows of an index when they are read from a database and when they are written.

A crafted index can hold anything that SQLite can store; the engine takes numbers of a certain width
and byte strings. A row that passes here fits the engine and is valid by itself: types, ranges, an
extent inside its chunk, names that a directory can hold. Lists must also be strictly ascending,
which a damaged tree that leads to one page twice is not. Not here: relations between rows (the
writer checks its own rows; a reader relies only on those that it needs).
"""

from __future__ import annotations

import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cowfs.format.codec import MAX_RAW_BYTES
from cowfs.index.changes import ExtentRow, InodeRow
from cowfs.index.damage import damage_error
from cowfs.native.constants import LAST_INO, ROOT_INO

NAME_BYTES = 255
TARGET_BYTES = 4095
XATTR_NAME_BYTES = 255
XATTR_VALUE_BYTES = 65536
XATTRS_BYTES = 64 << 20
"""The most that one inode of a readable version may have: before there was a limit for all values
together, writers made more than the 1 MiB that an inode may have now."""
LAST_PACK = (1 << 31) - 1
"""The engine uses larger numbers for linked objects; an index never has them."""

_U32 = (1 << 32) - 1
_I64 = (1 << 63) - 1
_INODE_TYPES = (int,) * 12 + (bytes,)
_EXTENT_TYPES = (int, int, bytes, int, int, int, int, int, int)
_FILE_TYPES = frozenset(
    (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)
)


def _fits(row: Sequence[Any], types: tuple[type, ...]) -> bool:
    """Exact types, as SQLite returns them, or subclasses of them (ids), as callers pass them."""
    return tuple(map(type, row)) == types or (len(row) == len(types) and all(map(isinstance, row, types)))


def inode_problem(row: Sequence[Any]) -> str | None:
    """The fault of an inode row; None if it has none."""
    if not _fits(row, _INODE_TYPES):
        return "an inode row has values of the wrong type"
    ino, mode, nlink, uid, gid, rdev, size, mapped_bytes, _, _, _, flags, target = row
    if not ROOT_INO <= ino <= LAST_INO:
        return f"{ino} is not an inode number"
    if not (0 <= mode <= 0o177777 and stat.S_IFMT(mode) in _FILE_TYPES):
        return f"inode {ino} has mode {mode:o}"
    if not (1 <= nlink <= _U32 and 0 <= uid <= _U32 and 0 <= gid <= _U32 and 0 <= rdev <= _U32 and 0 <= flags <= _U32):
        return f"inode {ino} has a number out of range"
    if size < 0 or len(target) > TARGET_BYTES or b"\0" in target:
        return f"inode {ino} has an impossible size or target"
    if stat.S_ISLNK(mode) and not target:
        return f"inode {ino} is a symbolic link without a target"
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
    """The fault of an extent row; None if it has none. end: the end of the file's extent before
    it."""
    if not _fits(row, _EXTENT_TYPES):
        return "an extent row has values of the wrong type"
    offset, length, digest, pack, pack_offset, stored_length, raw_length, skip, codec = row
    if offset < end or length < 1 or offset > _I64 - length:
        return f"the extent at {offset} overlaps another or has an impossible length"
    if len(digest) != 32 or not 1 <= pack <= LAST_PACK or pack_offset < 0 or codec not in (0, 1):
        return f"the extent at {offset} names no chunk"
    if skip < 0 or skip + length > raw_length or not (0 < stored_length <= _U32 and raw_length <= MAX_RAW_BYTES):
        return f"the extent at {offset} shows bytes its chunk does not have"
    return None


def xattr_problem(row: Sequence[Any]) -> str | None:
    name, value = row
    if not isinstance(name, bytes) or not 0 < len(name) <= XATTR_NAME_BYTES or b"\0" in name:
        return "an extended attribute has an impossible name"
    if not isinstance(value, bytes) or len(value) > XATTR_VALUE_BYTES:
        return "an extended attribute has an impossible value"
    return None


def check_inode(title: str, row: Any) -> InodeRow:
    _refuse(title, inode_problem(row))
    return row  # type: ignore[no-any-return]


class EntryChecker:
    """Checks the entries of one directory, page by page. last: the last name read."""

    def __init__(self) -> None:
        self.last = b""
        self._directories: set[int] = set()

    def entries(self, title: str, rows: Iterator[Any]) -> Iterator[tuple[bytes, InodeRow]]:
        """From (name, inode columns…) rows: entries with ascending names, and no directory
        twice."""
        for row in rows:
            name, inode = row[0], row[1:]
            problem = name_problem(name)
            if problem is None:
                problem = (
                    inode_problem(inode)
                    if inode[0] is not None
                    else "a directory entry names an inode that does not exist"
                )
            if problem is None and name <= self.last:
                problem = "the entries of a directory are out of order"
            if problem is None and stat.S_ISDIR(inode[1]):
                problem = f"directory {inode[0]} has two names" if inode[0] in self._directories else None
                self._directories.add(inode[0])
            _refuse(title, problem)
            self.last = name
            yield name, inode


def check_places(title: str, rows: Iterable[Any], last: tuple[int, bytes]) -> list[tuple[int, tuple[int, bytes]]]:
    """From (parent, name, inode) rows: (inode, place), with places ascending behind `last`."""
    places: list[tuple[int, tuple[int, bytes]]] = []
    for parent, name, ino in rows:
        problem = name_problem(name)
        if problem is None and not (type(parent) is int and type(ino) is int and (parent, name) > last):
            problem = "directory entries are out of order"
        _refuse(title, problem)
        last = (parent, name)
        places.append((ino, last))
    return places


def check_extent(title: str, row: Any) -> ExtentRow:
    _refuse(title, extent_problem(row, 0))
    return row  # type: ignore[no-any-return]


def check_extents(title: str, rows: Iterator[Any]) -> Iterator[ExtentRow]:
    end = 0
    for row in rows:
        _refuse(title, extent_problem(row, end))
        end = row[0] + row[1]
        yield row


def check_xattrs(title: str, rows: Iterator[Any]) -> Iterator[tuple[bytes, bytes]]:
    last = b""
    size_bytes = 0
    for row in rows:
        problem = xattr_problem(row)
        if problem is None and row[0] <= last:
            problem = "the extended attributes of an inode are out of order"
        _refuse(title, problem)
        size_bytes += len(row[0]) + len(row[1])
        if size_bytes > XATTRS_BYTES:
            raise damage_error(title, f"an inode has more than {XATTRS_BYTES >> 20} MiB of extended attributes")
        last = row[0]
        yield row


def group_by_inode(title: str, rows: Iterable[Any]) -> dict[int, list[Any]]:
    """From (inode, column…) rows: the columns for each inode, unchecked."""
    found: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row[1:])
    if not all(type(ino) is int for ino in found):
        raise damage_error(title, "a row names no inode")
    return found


def _refuse(title: str, problem: str | None) -> None:
    if problem is not None:
        raise damage_error(title, problem)
