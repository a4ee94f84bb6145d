"""What a version's files name in packs: looked up by pack, for whoever checks, repairs or counts a
store. There is no index by pack, so each query goes through all extents of the version."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from cowfs.index import statements
from cowfs.index.damage import damaged
from cowfs.index.rows import extent_problem

if TYPE_CHECKING:
    from cowfs.index.changes import ExtentRow
    from cowfs.index.index import Index


def extents_in(index: Index, packs: Collection[int]) -> Iterator[tuple[int, ExtentRow]]:
    """(inode, extent) of all that lies in packs of these numbers, by inode and offset."""
    last, end = 0, 0
    with index.connections.connection() as connection:
        for row in connection.rows(statements.READ_EXTENTS_IN, (json.dumps(sorted(packs)),)):
            ino, extent = row[0], row[1:]
            if type(ino) is not int or ino < last:
                raise damaged(connection.title, "its extents are out of order")
            problem = extent_problem(extent, end if ino == last else 0)
            if problem is not None:
                raise damaged(connection.title, problem)
            last, end = ino, extent[0] + extent[1]
            yield ino, extent


def last_extents(index: Index) -> Iterator[ExtentRow]:
    """Of each pack that files name the extent whose chunk lies last in it."""
    with index.connections.connection() as connection:
        for row in connection.rows(statements.READ_LAST_EXTENTS):
            extent = row[1:]
            problem = extent_problem(extent, 0)
            if problem is not None:
                raise damaged(connection.title, problem)
            yield extent


def stored_places(index: Index) -> Iterator[tuple[int, int, int]]:
    """(number of the pack, offset, stored length) of each chunk that files name, in no order."""
    with index.connections.connection() as connection:
        for row in connection.rows(statements.READ_STORED_PLACES):
            pack, offset, length = row
            if not (type(pack) is type(offset) is type(length) is int and pack > 0 <= offset < 1 << 32 and length > 0):
                raise damaged(connection.title, "an extent names no chunk")
            yield pack, offset, length
