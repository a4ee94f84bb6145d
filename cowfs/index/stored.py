"""Queries by pack: the chunks that the files of a version name in packs, for repair, verification
and counts. There is no index by pack, so each query reads all extents of the version.

Each query holds a connection, so each is a context manager. A plain generator would hold the
connection as long as anything refers to it, including an exception's traceback, and closing the
index would wait for that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cowfs.index import statements
from cowfs.index.damage import damage_error
from cowfs.index.rows import extent_problem

if TYPE_CHECKING:
    from cowfs.index.changes import ExtentRow
    from cowfs.index.connection import Connection
    from cowfs.index.index import Index


@contextmanager
def extents_in(index: Index, packs: Collection[int]) -> Iterator[Iterator[tuple[int, ExtentRow]]]:
    """(inode, extent) of all extents in packs of these numbers, by inode and offset."""
    with index.connections.connection() as connection:
        yield _extents_in(connection, packs)


def _extents_in(connection: Connection, packs: Collection[int]) -> Iterator[tuple[int, ExtentRow]]:
    last, end = 0, 0
    for row in connection.rows(statements.READ_EXTENTS_IN, (json.dumps(sorted(packs)),)) if packs else ():
        ino, extent = row[0], row[1:]
        if type(ino) is not int or ino < last:
            raise damage_error(connection.title, "its extents are out of order")
        problem = extent_problem(extent, end if ino == last else 0)
        if problem is not None:
            raise damage_error(connection.title, problem)
        last, end = ino, extent[0] + extent[1]
        yield ino, extent


@contextmanager
def last_extents(index: Index) -> Iterator[Iterator[ExtentRow]]:
    """For each pack that files name, the extent whose chunk is the last in the pack."""
    with index.connections.connection() as connection:
        yield _last_extents(connection)


def _last_extents(connection: Connection) -> Iterator[ExtentRow]:
    for row in connection.rows(statements.READ_LAST_EXTENTS):
        extent = row[1:]
        problem = extent_problem(extent, 0)
        if problem is not None:
            raise damage_error(connection.title, problem)
        yield extent


@contextmanager
def list_places(index: Index) -> Iterator[Iterator[tuple[int, int, int]]]:
    """(number of the pack, offset, stored length) of each chunk that files name, unordered."""
    with index.connections.connection() as connection:
        yield _read_places(connection)


def _read_places(connection: Connection) -> Iterator[tuple[int, int, int]]:
    for row in connection.rows(statements.READ_STORED_PLACES):
        pack, offset, length = row
        if not (type(pack) is type(offset) is type(length) is int and pack > 0 <= offset < 1 << 32 and length > 0):
            raise damage_error(connection.title, "an extent names no chunk")
        yield pack, offset, length
