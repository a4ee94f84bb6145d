"""Finds the ranges of a profile in a version.

    path ─▶ inode, through its parent directories, whose entries are read whole as a mount reads them ─▶ extents

Ranges that the version does not have are skipped: paths that are gone, and bytes after a file's
end. Rows are not kept, except inode numbers and the extents of the most recent files: the index
blocks with the rows stay in the cache. For one thread.
"""

from __future__ import annotations

import stat
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from cowfs.index import content_with_links
from cowfs.native.constants import ROOT_INO

if TYPE_CHECKING:
    from cowfs.format.profile import ReadRange
    from cowfs.index import ExtentRow, Index

KEPT_EXTENTS = 200_000

T = TypeVar("T")


class Ask(Protocol):
    """Runs a query on the version's index."""

    def __call__(self, question: Callable[[Index], T], /) -> T: ...


class Place(NamedTuple):
    """A byte range of a file of the version."""

    ino: int
    start: int
    end: int


class ProfilePlaces:
    """folder: the directory of the version that is the index's root; paths outside are not found.
    Raises the index's errors."""

    def __init__(self, ask: Ask, folder: bytes = b"") -> None:
        self._ask = ask
        self._folder = folder
        self._inodes: dict[bytes, int | None] = {folder: ROOT_INO}
        self._visited: set[int] = set()
        self._extents: OrderedDict[int, Sequence[ExtentRow]] = OrderedDict()
        self._kept = 0

    def place(self, wanted: ReadRange) -> Place | None:
        """Finds a range. None: no existing file has such bytes, or the range stands for reading a
        directory, whose entries have then been read."""
        if (ino := self._find(wanted.path)) is None:
            return None
        if wanted.length == 0:
            self._visit(ino)
            return None
        row = self._ask(lambda index: index.inode(ino))
        if row is None or not stat.S_ISREG(row[1]) or wanted.offset >= row[6]:
            return None
        return Place(row[0], wanted.offset, min(wanted.offset + wanted.length, row[6]))

    def extents(self, place: Place) -> Iterator[ExtentRow]:
        """The extents that overlap the place."""
        rows = self._rows(place.ino)
        first = max(bisect_right(rows, place.start, key=lambda row: row[0]) - 1, 0)
        for row in rows[first:]:
            if row[0] >= place.end:
                return
            if row[0] + row[1] > place.start:
                yield row

    def _find(self, path: bytes) -> int | None:
        if path in self._inodes:
            return self._inodes[path]
        start = self._folder + b"/" if self._folder else b""
        if not path.startswith(start):
            return None
        ino, end = ROOT_INO, len(self._folder)
        for name in path[len(start) :].split(b"/"):
            end += len(name) + bool(end)
            found = self._entry(path[:end], ino, name)
            if found is None:
                return None
            ino = found
        return ino

    def _entry(self, path: bytes, parent: int, name: bytes) -> int | None:
        if path not in self._inodes:
            self._visit(parent)
            self._inodes[path] = self._ask(lambda index: index.entry(parent, name))
        return self._inodes[path]

    def _visit(self, ino: int) -> None:
        """Reads the entries of a directory; a no-op for anything else."""
        if ino in self._visited:
            return
        self._visited.add(ino)
        self._ask(lambda index: sum(1 for _ in index.directory_pages(ino)))

    def _rows(self, ino: int) -> Sequence[ExtentRow]:
        rows = self._extents.get(ino)
        if rows is None:
            rows = self._ask(lambda index: content_with_links(index, ino)[0])
            self._extents[ino] = rows
            self._kept += len(rows)
            while self._kept > KEPT_EXTENTS and len(self._extents) > 1:
                _, gone = self._extents.popitem(last=False)
                self._kept -= len(gone)
        self._extents.move_to_end(ino)
        return rows
