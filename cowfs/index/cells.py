"""Splits a page into its rows without SQLite, to compare versions by rows.

    type 2    interior page of a WITHOUT ROWID table: its cells are rows too, behind a child's number (4 bytes)
    type 10   leaf of such a table
    type 13   leaf of a table with rowids (inodes, links, packs, origins); interior ones (5) hold no rows

A row is its bytes as the page has them, so that equal rows on different pages are equal. The number
and types of its columns tell which table it belongs to. A row that continues in overflow pages is
`is_long`: the page has only a part of its bytes. Only an attribute's value can be that large.

Pages are untrusted. An invalid one raises ValueError or IndexError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cowfs.index.btree import INTERIOR_INDEX, first_two, varint
from cowfs.index.overlay import PAGE_BYTES
from cowfs.native.constants import LAST_INO

LEAF_INDEX, LEAF_TABLE = 10, 13
LOCAL_BYTES = (PAGE_BYTES - 12) * 64 // 255 - 23
"""A longer row of a WITHOUT ROWID table continues in overflow pages."""
INODE_COLUMNS, EXTENT_COLUMNS, LINK_COLUMNS = 13, 10, 7


class Entry(NamedTuple):
    """A row of `dirents`."""

    parent: int
    name: bytes


class Ino(NamedTuple):
    """A row of `inodes`, or of `extents`, `xattrs` or `links`, which belong to an inode."""

    number: int


def holds_rows(page: bytes) -> bool:
    return page[0] in (INTERIOR_INDEX, LEAF_INDEX, LEAF_TABLE)


def cells(page: bytes) -> Iterator[tuple[bytes, bool]]:
    """Each row of a page that holds rows, and whether it is long."""
    kind = page[0]
    skip, header = (4, 12) if kind == INTERIOR_INDEX else (0, 8)
    count = int.from_bytes(page[3:5])
    if header + 2 * count > PAGE_BYTES:
        raise ValueError("more cells than a page has room for")
    for place in range(header, header + 2 * count, 2):
        start = int.from_bytes(page[place : place + 2]) + skip
        size, at = varint(page, start)
        if kind == LEAF_TABLE:
            _, at = varint(page, at)
        is_long = kind != LEAF_TABLE and size > LOCAL_BYTES
        end = at + (0 if is_long else size)
        if end > PAGE_BYTES:
            raise ValueError("a cell goes beyond its page")
        yield bytes([kind == LEAF_TABLE]) + (page[start : at + 600] if is_long else page[start:end]), is_long


def child_pages(page: bytes) -> list[int]:
    """The children of an interior page, in order; numbered from 0."""
    count = int.from_bytes(page[3:5])
    if 12 + 2 * count > PAGE_BYTES:
        raise ValueError("more cells than a page has room for")
    starts = [int.from_bytes(page[place : place + 2]) for place in range(12, 12 + 2 * count, 2)]
    children = [int.from_bytes(page[start : start + 4]) for start in starts]
    return [number - 1 for number in [*children, int.from_bytes(page[8:12])]]


def owner(cell: bytes) -> Entry | Ino | None:
    """The entry or inode that a row belongs to; None: the row does not affect the tree (meta,
    packs, origins)."""
    is_table = cell[0]
    _, at = varint(cell, 1)
    if is_table:
        ino, at = varint(cell, at)
        return _of_inode(ino) if _columns(cell, at)[0] in (INODE_COLUMNS, LINK_COLUMNS) else None
    count, last = _columns(cell, at)
    if count == EXTENT_COLUMNS:
        return _of_inode(_first(cell, at))
    if count != 3:
        return None
    first, name = first_two(cell, at)
    if not isinstance(first, int) or not isinstance(name, bytes):
        raise ValueError("a key of the wrong kind")
    return _of_inode(first) if last >= 12 else Entry(first, name)


def _of_inode(number: int) -> Ino:
    if not 0 < number <= LAST_INO:
        raise ValueError("a row of no inode")
    return Ino(number)


def entry_inode(cell: bytes) -> int:
    """The inode in a row of `dirents`."""
    _, at = varint(cell, 1)
    return third(cell, at)


def third(record: bytes, at: int) -> int:
    """The third value of a record, an integer."""
    header, types_at = varint(record, at)
    body = at + header
    for _ in range(2):
        serial, types_at = varint(record, types_at)
        body += _size(serial)
    serial, _ = varint(record, types_at)
    if serial in (8, 9):
        return serial - 8
    return int.from_bytes(record[body : body + _size(serial)], signed=True)


def _first(record: bytes, at: int) -> int:
    header, types_at = varint(record, at)
    serial, _ = varint(record, types_at)
    if serial in (8, 9):
        return serial - 8
    return int.from_bytes(record[at + header : at + header + _size(serial)], signed=True)


def _columns(record: bytes, at: int) -> tuple[int, int]:
    """How many values a record has, and the type of the last."""
    header, types_at = varint(record, at)
    end, count, serial = at + header, 0, 0
    while types_at < end:
        serial, types_at = varint(record, types_at)
        count += 1
    return count, serial


def _size(serial: int) -> int:
    return (serial - 12) // 2 if serial >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[serial]
