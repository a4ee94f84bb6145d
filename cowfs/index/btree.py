"""Finds the pages on the paths to keys in a SQLite tree, without SQLite, so that they can be
fetched together.

SQLite asks for one page at a time; a thousand scattered keys would be a thousand round trips. This
module walks down all trees at once, level by level, and prefetches the pages of each level
together: as many round trips as the deepest tree has levels.

    page     type (1: 2 interior index, 5 interior table, 10 and 13 leaves), cells (2 bytes at 3), right child (4 at 8),
             pointers to cells (2 bytes each from 12); page 1 has 100 bytes before all this
    cell     left child (4), then a varint rowid (table) or a varint payload length and a record (index, WITHOUT ROWID)
    record   varint header length, a varint type for each value, the values

(https://sqlite.org/fileformat2.html.) Prefetching only: pages are untrusted, and the walk ends
silently at an invalid page; SQLite will read the same page and report the fault.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from cowfs.index.overlay import PAGE_BYTES, Blocks

Key: TypeAlias = tuple[int | bytes, ...]
INTERIOR_INDEX, INTERIOR_TABLE = 2, 5
MAX_DEPTH = 20
"""SQLite's own limit."""


def prefetch_paths(blocks: Blocks, keys: Mapping[int, Sequence[Key]]) -> None:
    """Fetches the pages that look-ups of these keys will read. keys: root page of a tree → sorted
    keys (a prefix of a key is enough)."""
    level: dict[int, Sequence[Key]] = {root: wanted for root, wanted in keys.items() if wanted}
    for _ in range(MAX_DEPTH):
        level = {page: wanted for page, wanted in level.items() if 0 < page <= blocks.count}
        blocks.prefetch(page - 1 for page in level)
        below: dict[int, Sequence[Key]] = {}
        for page, wanted in level.items():
            try:
                below.update(_children(blocks.read(page - 1), page == 1, wanted))
            except (IndexError, ValueError, TypeError):
                continue  # not a page of a tree
        if not below:
            return
        level = below


def _children(page: bytes, first: bool, wanted: Sequence[Key]) -> dict[int, Sequence[Key]]:
    """Child page → the keys to look for below it. Empty for a leaf."""
    start = 100 if first else 0
    if page[start] not in (INTERIOR_INDEX, INTERIOR_TABLE):
        return {}
    cells = _Cells(page, start)
    found: dict[int, Sequence[Key]] = {}
    position = 0
    while position < len(wanted):
        cell = bisect_left(cells, wanted[position])
        if cell == len(cells):
            found[cells.right_child] = wanted[position:]
            break
        bound = cells[cell]
        end = position + 1
        while end < len(wanted) and wanted[end] <= bound:
            end += 1
        found[cells.child(cell)] = wanted[position:end]
        position = end
    return found


class _Cells(Sequence[Key]):
    """The keys of an interior page, decoded on access."""

    def __init__(self, page: bytes, start: int) -> None:
        self._page = page
        self._is_table = page[start] == INTERIOR_TABLE
        self._count = int.from_bytes(page[start + 3 : start + 5])
        self._pointers = start + 12
        self.right_child = int.from_bytes(page[start + 8 : start + 12])
        if self._pointers + 2 * self._count > PAGE_BYTES:
            raise ValueError("more cells than a page has room for")

    def __len__(self) -> int:
        return self._count

    def child(self, cell: int) -> int:
        at = self._offset(cell)
        return int.from_bytes(self._page[at : at + 4])

    def __getitem__(self, cell: int) -> Key:  # type: ignore[override]  # no slices
        at = self._offset(cell) + 4
        number, at = varint(self._page, at)
        if self._is_table:
            return (number,)
        return first_two(self._page, at)

    def _offset(self, cell: int) -> int:
        at = self._pointers + 2 * cell
        return int.from_bytes(self._page[at : at + 2])


def first_two(page: bytes, at: int) -> Key:
    """The first two values of a record: no primary key here has more."""
    header, types_at = varint(page, at)
    first, types_at = varint(page, types_at)
    second, _ = varint(page, types_at)
    body = at + header
    left, body = _value(page, body, first)
    right, _ = _value(page, body, second)
    return left, right


def _value(page: bytes, at: int, serial: int) -> tuple[int | bytes, int]:
    if serial in (8, 9):
        return serial - 8, at
    if 1 <= serial <= 6:
        size = (0, 1, 2, 3, 4, 6, 8)[serial]
        return int.from_bytes(page[at : at + size], signed=True), at + size
    if serial >= 12 and serial % 2 == 0:
        size = (serial - 12) // 2
        return page[at : at + size], at + size
    raise ValueError("a value no key has")


def varint(page: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(8):
        byte = page[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    return value << 8 | page[at + 8], at + 9
