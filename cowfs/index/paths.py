"""Finds the names of inodes. There is no index by inode, so the search begins where the names
probably are, and only then covers all entries.

The interior pages of `dirents` have one row for each of its leaves, so they are a sample of the
table: one row in some 500. Files that were made together have neighbouring numbers and lie in
neighbouring directories. So for an inode the search first reads the leaves whose neighbouring
samples have the nearest numbers. After an eighth of the leaves it reads all of them.

The result does not depend on the numbers; only the cost does.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cowfs.index import statements
from cowfs.index.btree import INTERIOR_INDEX, MAX_DEPTH
from cowfs.index.cells import LEAF_INDEX, Entry, cells, child_pages, entry_inode, owner
from cowfs.index.damage import damage_error
from cowfs.index.rows import check_places

if TYPE_CHECKING:
    from cowfs.index.index import Index
    from cowfs.index.overlay import Blocks

FEW_LEAVES = 16
ASKED_AT_ONCE = 32
NEAREST = 2


def find_places(
    index: Index, wanted: Mapping[int, int], known: Mapping[int, Iterable[Entry]] | None = None
) -> dict[int, set[Entry]]:
    """The names of inodes. wanted: the number of names of each inode. known: some of them. If fewer
    names exist, fewer are returned."""
    found: dict[int, set[Entry]] = {ino: set((known or {}).get(ino, ())) for ino in wanted}

    def missing() -> list[int]:
        return sorted(ino for ino, count in wanted.items() if len(found[ino]) < count)

    if not missing():
        return found
    leaves = _Leaves(index, found)
    budget = leaves.count // 8
    tried = 0
    while leaves.count > FEW_LEAVES and tried < budget and (left := missing()):
        some = left[:: -(-len(left) // ASKED_AT_ONCE)]
        chosen = leaves.nearest(some, NEAREST)
        if not chosen:
            break
        leaves.read(chosen)
        tried += len(chosen)
    if left := missing():
        with index.connections.connection() as connection:
            rows = connection.execute(statements.READ_PLACES, (json.dumps(left),))
            for ino, (parent, name) in check_places(connection.title, rows, (0, b"")):
                found[ino].add(Entry(parent, name))
    return found


class _Leaves:
    """The leaves of `dirents` in order, and between each two the inode of the row above them."""

    def __init__(self, index: Index, found: dict[int, set[Entry]]) -> None:
        with index.connections.connection() as connection:
            [(root,)] = connection.execute(statements.READ_ENTRIES_ROOT)
        self._blocks: Blocks = index.blocks
        self._found = found
        self._unread: set[int] = set()
        self._pages: list[int] = []
        self._samples: list[int] = []
        self._walk(root - 1)
        order = sorted(range(len(self._samples)), key=self._samples.__getitem__)
        self._by_number = [(self._samples[place], place) for place in order]
        self._unread.update(range(len(self._pages)))

    @property
    def count(self) -> int:
        return len(self._pages)

    def nearest(self, inodes: Iterable[int], each: int) -> list[int]:
        """Leaves that were not read yet."""
        chosen: set[int] = set()
        for ino in inodes:
            taken = 0
            right = bisect_left(self._by_number, (ino, -1))
            left = right - 1
            while taken < each and (left >= 0 or right < len(self._by_number)):
                to_left = ino - self._by_number[left][0] if left >= 0 else None
                to_right = self._by_number[right][0] - ino if right < len(self._by_number) else None
                if to_right is None or (to_left is not None and to_left <= to_right):
                    sample, left = self._by_number[left][1], left - 1
                else:
                    sample, right = self._by_number[right][1], right + 1
                for leaf in (sample, sample + 1):  # on both sides of the sample
                    if leaf in self._unread:
                        chosen.add(leaf)
                        taken += 1
        return sorted(chosen)

    def read(self, places: Iterable[int]) -> None:
        numbers = [self._pages[place] for place in places]
        self._unread.difference_update(places)
        self._blocks.prefetch(numbers)
        for number in numbers:
            self._learn(self._blocks.read(number))

    def _walk(self, root: int) -> None:
        """Walks down to the leaves, level by level, without reading them."""
        level: list[int] = [root]  # pages, and between them the rows above
        above: list[int] = []
        for _ in range(MAX_DEPTH):
            self._check(level)
            if self._blocks.read(level[0])[0] != INTERIOR_INDEX:
                self._pages, self._samples = level, above
                return
            self._blocks.prefetch(level)
            below: list[int] = []
            between: list[int] = []
            for place, number in enumerate(level):
                page = self._blocks.read(number)
                between += [above[place - 1]] if place else []
                between += self._learn(page)
                below += child_pages(page)
            level, above = below, between
        raise damage_error(self._blocks.title, "its tree of entries is too deep")

    def _check(self, level: list[int]) -> None:
        if len(set(level)) != len(level) or not all(0 <= number < self._blocks.count for number in level):
            raise damage_error(self._blocks.title, "its tree of entries leads to no page, or to one twice")

    def _learn(self, page: bytes) -> list[int]:
        """Records the wanted names on the page; returns the inodes of its rows."""
        inodes = []
        try:
            if page[0] not in (INTERIOR_INDEX, LEAF_INDEX):
                raise ValueError("not a page of the table")
            for row, _ in cells(page):
                ino = entry_inode(row)
                inodes.append(ino)
                if ino in self._found and isinstance(entry := owner(row), Entry):
                    self._found[ino].add(entry)
        except (IndexError, ValueError) as error:
            raise damage_error(self._blocks.title, "a page of entries does not hold any") from error
        return inodes
