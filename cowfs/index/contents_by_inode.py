"""Streams the contents of many inodes with one query for each table.

A row is checked before it is returned, and the rows of one inode are not kept: a file may have
millions of extents. Inodes without rows are left out. The groups of rows must be read in order,
within the block, which uses one connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cowfs.index import statements
from cowfs.index.damage import damage_error
from cowfs.index.rows import check_extents, check_xattrs

if TYPE_CHECKING:
    from cowfs.index.changes import ExtentRow
    from cowfs.index.index import Index


@contextmanager
def extents_by_inode(index: Index, inodes: Iterable[int]) -> Iterator[Iterator[tuple[int, Iterator[ExtentRow]]]]:
    """(inode, extents by offset), ascending. Linked files have none."""
    with index.connections.connection() as connection:
        rows = connection.rows(statements.READ_EXTENTS_OF_EACH, (json.dumps(list(inodes)),))
        title = connection.title
        yield ((ino, check_extents(title, group)) for ino, group in _group(title, rows))


@contextmanager
def xattrs_by_inode(
    index: Index, inodes: Iterable[int]
) -> Iterator[Iterator[tuple[int, Iterator[tuple[bytes, bytes]]]]]:
    """(inode, extended attributes by name), ascending."""
    with index.connections.connection() as connection:
        rows = connection.rows(statements.READ_XATTRS_OF_EACH, (json.dumps(list(inodes)),))
        title = connection.title
        yield ((ino, check_xattrs(title, group)) for ino, group in _group(title, rows))


def _group(title: str, rows: Iterable[Any]) -> Iterator[tuple[int, Iterator[Any]]]:
    last = 0
    for ino, group in groupby(rows, key=lambda row: row[0]):
        if type(ino) is not int or ino <= last:
            raise damage_error(title, "the contents of inodes are out of order")
        last = ino
        yield ino, (row[1:] for row in group)
