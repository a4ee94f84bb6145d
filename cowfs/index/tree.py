"""Checks that the rows of an index form a tree, which readers cannot see from single rows.

    inodes      `rows` accepts each row; next_ino is larger than all of them
    entries     each names an inode; only directories have entries
    tree        each directory but the root has one name, and the root is above it

Three scans of two tables, about 3 s a million files, and memory for its directories. Used by
`verify`; nothing else reads a whole index.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cowfs.index import statements
from cowfs.index.rows import inode_problem, name_problem
from cowfs.native.constants import ROOT_INO
from cowfs.native.rows import plain_inodes

if TYPE_CHECKING:
    from cowfs.index.changes import InodeRow
    from cowfs.index.connection import Connection
    from cowfs.index.index import Index

ROWS_AT_ONCE = 10_000
NAMED_PROBLEMS = 1000
_KIND = 0o170000  # `stat.S_ISDIR` refuses some values that may occur here

Place = tuple[int, bytes]


def tree_problems(index: Index) -> dict[bytes, str]:
    """Path → problem, at most NAMED_PROBLEMS. An inode without a complete path has one made of its
    known names."""
    with index.connections.connection() as connection:
        return dict(_Tree(connection, index.next_ino).problems())


class _Tree:
    def __init__(self, connection: Connection, next_ino: int) -> None:
        self._connection = connection
        self._next_ino = next_ino
        self._directories: set[int] = set()
        self._places: dict[int, Place] = {}

    def problems(self) -> list[tuple[bytes, str]]:
        damaged_rows = [*self._read_inodes(), *self._read_packs()]
        entries = self._read_entries()
        found = [(self._path(place), problem) for place, problem in entries]
        found += [(self._path_of(ino), problem) for ino, problem in self._unreachable()]
        if damaged_rows:
            named = {ino for ino, _ in damaged_rows}
            rows = self._connection.rows(statements.READ_ENTRIES, (0, b"", -1))
            places = {ino: (parent, name) for parent, name, ino in rows if ino in named}
            found += [(self._path(places[ino]) if ino in places else b"", problem) for ino, problem in damaged_rows]
        return found[:NAMED_PROBLEMS]

    def _read_inodes(self) -> list[tuple[int, str]]:
        """Checks inodes, and collects the directories."""
        found: list[tuple[int, str]] = []
        last = -(1 << 63)
        while rows := self._connection.execute(statements.READ_INODES_BEHIND, (last, ROWS_AT_ONCE)):
            if plain_inodes(rows, last, self._next_ino) < len(rows):
                found += self._problems_of(rows)
            self._directories.update(row[0] for row in rows if row[1] & _KIND == stat.S_IFDIR)
            last = rows[-1][0]
        if ROOT_INO not in self._directories:
            found.append((ROOT_INO, "it has no root directory"))
        return found

    def _read_packs(self) -> list[tuple[int, str]]:
        """Files whose extents name a pack that is missing in the table of packs."""
        rows = self._connection.execute(statements.READ_INODES_WITHOUT_PACK, (NAMED_PROBLEMS,))
        return [(ino, "it names a pack that the version's table of packs does not have") for (ino,) in rows]

    def _problems_of(self, rows: Iterable[InodeRow]) -> Iterator[tuple[int, str]]:
        for row in rows:
            if (problem := inode_problem(row)) is not None:
                yield row[0], problem
            elif row[0] >= self._next_ino:
                yield row[0], f"inode {row[0]} lies beyond next_ino {self._next_ino}"

    def _read_entries(self) -> list[tuple[Place, str]]:
        """Checks entries of directories, and entries without an inode."""
        found: list[tuple[Place, str]] = []
        for parent, name, ino, is_missing in self._connection.rows(statements.READ_DIRECTORY_PLACES, ()):
            place = (parent, name)
            if is_missing:
                found.append((place, f"it names inode {ino}, which does not exist"))
            elif ino in self._places or ino == ROOT_INO:
                found.append((place, f"directory {ino} has another name, too"))
            else:
                self._places[ino] = place
            if (problem := name_problem(name)) is not None:
                found.append((place, problem))
        for (parent,) in self._connection.rows(statements.READ_PARENTS, ()):
            if parent not in self._directories:
                found.append(((parent, b""), f"inode {parent} is not a directory and has entries"))
        return found

    def _unreachable(self) -> Iterator[tuple[int, str]]:
        reached = {ROOT_INO}
        for ino in sorted(self._directories):
            way: dict[int, None] = {}
            while ino not in reached and ino not in way:
                way[ino] = None
                if ino not in self._places:
                    break
                ino = self._places[ino][0]
            if ino in reached:
                reached.update(way)
            elif way:
                yield next(iter(way)), f"directory {next(iter(way))} is not below the root"
                reached.update(way)  # each directory is checked once

    def _path_of(self, ino: int) -> bytes:
        return self._path(self._places[ino]) if ino in self._places else b""

    def _path(self, place: Place) -> bytes:
        parent, name = place
        names, passed = [name], set()
        while parent != ROOT_INO and parent in self._places and parent not in passed:
            passed.add(parent)
            parent, name = self._places[parent]
            names.append(name)
        return b"/".join(reversed(names))
