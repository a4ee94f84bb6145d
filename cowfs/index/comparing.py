"""Finds the rows in which two indexes differ, without reading equal parts.

    block lists ─▶ segments that differ ─▶ pages that only one side has ─▶ their rows, as bytes ─▶ owners of rows that only one side has

SQLite's tree is not a Merkle tree (docs/format/index.md), so equal interior pages prove nothing: a
row can differ only on a page that the other version does not have, and there rows are compared by
their bytes. Rows that only moved to another page cancel out.

The result is a set of keys: a superset of the differences, to be looked up in both indexes. It is
complete:

- a row on a page that both have is in both
- a value that continues in overflow pages never cancels out, and if an overflow page differs, every
  inode with such a value is returned

One of the indexes may be unpublished (`IndexDelta.open_unpublished`): pages that replace published
ones count as its own.

Cost: the differing segments of both block lists, and the differing pages of both. Memory: the rows
on those pages of one side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from cowfs.base.fast_dataclass import dataclass
from cowfs.format.manifest import SEGMENT_ENTRIES
from cowfs.index import statements
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cells import LOCAL_BYTES, Entry, Ino, cells, holds_rows, owner
from cowfs.index.damage import damage_error
from cowfs.index.overlay import ZERO_PAGE, Blocks, Overlay

if TYPE_CHECKING:
    from cowfs.index.index import Index

BATCH_PAGES = 1024
SCHEMA_PAGE = 0
FIRST_TRUNK_AT = 32  # of page 1


@dataclass
class Differing:
    """entries: (parent, name); inodes: those whose row, extents or attributes may differ."""

    entries: set[Entry] = field(default_factory=set)
    inodes: set[int] = field(default_factory=set)

    def add(self, found: Entry | Ino | None) -> None:
        if isinstance(found, Entry):
            self.entries.add(found)
        elif found is not None:
            self.inodes.add(found.number)


def differing(a: Index, b: Index) -> Differing:
    """CorruptError: a differing page is invalid."""
    only_a, only_b = _own_pages(a.blocks, b.blocks)
    found = Differing()
    rows: set[bytes] = set()
    has_overflow = False
    for page in _rows_and_others(a.blocks, only_a):
        has_overflow |= page is None
        rows.update(_short(page, found, a.blocks))
    for page in _rows_and_others(b.blocks, only_b):
        has_overflow |= page is None
        for row in _short(page, found, b.blocks):
            if row in rows:
                rows.remove(row)
            else:
                found.add(_owner(row, b.blocks))
    for row in rows:
        found.add(_owner(row, a.blocks))
    if has_overflow:
        found.inodes.update(_long_valued(a), _long_valued(b))
    return found


def _short(page: bytes | None, found: Differing, blocks: Blocks) -> Iterator[bytes]:
    """Complete rows; the owners of incomplete ones are added to `found`."""
    if page is None:
        return
    try:
        for row, is_long in cells(page):
            if is_long:
                found.add(owner(row))
            else:
                yield row
    except (IndexError, ValueError) as error:
        raise damage_error(blocks.title, "a page does not hold rows") from error


def _owner(row: bytes, blocks: Blocks) -> Entry | Ino | None:
    try:
        return owner(row)
    except (IndexError, ValueError) as error:
        raise damage_error(blocks.title, "a row is of no table") from error


def _own_pages(a: Blocks, b: Blocks) -> tuple[list[int], list[int]]:
    """Numbers of the pages that the other index does not have in any place."""
    below_a, changed_a = _split_published(a)
    below_b, changed_b = _split_published(b)
    if below_a is None or below_b is None:
        pages_a = {a.read(number): number for number in range(a.count)}
        pages_b = {b.read(number): number for number in range(b.count)}
        return (
            sorted(number for page, number in pages_a.items() if page not in pages_b),
            sorted(number for page, number in pages_b.items() if page not in pages_a),
        )
    segments_a, segments_b = below_a.section.segments, below_b.section.segments
    both = min(len(segments_a), len(segments_b))
    same = {place for place in range(both) if segments_a[place].hash == segments_b[place].hash}
    same -= {number // SEGMENT_ENTRIES for number in changed_a | changed_b}
    hashes_a = below_a.list_blocks((place for place in range(len(segments_a)) if place not in same), without=changed_a)
    hashes_b = below_b.list_blocks((place for place in range(len(segments_b)) if place not in same), without=changed_b)
    return (
        sorted(changed_a | {number for digest, number in hashes_a.items() if digest not in hashes_b}),
        sorted(changed_b | {number for digest, number in hashes_b.items() if digest not in hashes_a}),
    )


def _split_published(blocks: Blocks) -> tuple[StoreBlocks | None, set[int]]:
    """The published pages, if there are any, and the numbers of pages that replace some of them."""
    if isinstance(blocks, Overlay):
        return blocks.base if isinstance(blocks.base, StoreBlocks) else None, blocks.list_written_numbers()
    return blocks if isinstance(blocks, StoreBlocks) else None, set()


def _rows_and_others(blocks: Blocks, numbers: list[int]) -> Iterator[bytes | None]:
    """The rows of each page that holds rows; None for an overflow page."""
    trunks: set[int] | None = None
    for at in range(0, len(numbers), BATCH_PAGES):
        batch = [number for number in numbers[at : at + BATCH_PAGES] if number != SCHEMA_PAGE]
        blocks.prefetch(batch)
        for number in batch:
            page = blocks.read(number)
            if holds_rows(page):
                yield page
            elif page[0] == 0 and page != ZERO_PAGE:
                if trunks is None:
                    trunks = _trunks(blocks)
                if number not in trunks:
                    yield None


def _trunks(blocks: Blocks) -> set[int]:
    """Pages that list free pages: they begin like overflow pages, but hold no values."""
    found: set[int] = set()
    following = int.from_bytes(blocks.read(SCHEMA_PAGE)[FIRST_TRUNK_AT : FIRST_TRUNK_AT + 4])
    while 0 < following <= blocks.count and following - 1 not in found:
        found.add(following - 1)
        following = int.from_bytes(blocks.read(following - 1)[:4])
    return found


def _long_valued(index: Index) -> set[int]:
    with index.connections.connection() as connection:
        rows = connection.execute(statements.READ_LONG_XATTRS, (LOCAL_BYTES - 600,))
        return {ino for (ino,) in rows if type(ino) is int}
