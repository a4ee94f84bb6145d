"""A frozen layer as the change set of an index.

The engine returns a layer in pages, in the order of the index's keys; so does `FileRows`, since
files are stored in the order of their numbers. The change set reads both page by page on each
iteration: however much has changed, no more than a page of rows is in memory as objects.

The rows of the files (`FileRows`) are passed to `version.publish.publisher` separately, which needs
no engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cowfs.index import ChangeSet, Entry, InodeRow, Stream, Xattrs

if TYPE_CHECKING:
    from cowfs.native import Engine
    from cowfs.native.chunks import FileRows

PAGE_ROWS = 1024
PAGE_XATTRS = 32  # each may have several of 64 KiB


def layer_changes(engine: Engine, layer: int, contents: FileRows) -> ChangeSet:
    """All changes except the contents themselves, which are every file of `layer_files`, in that
    order."""
    return ChangeSet(
        next_ino=engine.layer_next_ino(layer),
        inodes=Stream(lambda: _inodes(engine, layer, contents)),
        removed=Stream(lambda: _removals(engine, layer)),
        entries=Stream(lambda: _entries(engine, layer)),
        xattrs=Stream(lambda: _xattrs(engine, layer)),
    )


def layer_files(engine: Engine, layer: int) -> Iterator[tuple[int, int]]:
    """(ino, data version) of each file whose extents changed."""
    after = 0
    while page := engine.layer_contents(layer, after, PAGE_ROWS):
        yield from page
        after = page[-1][0]


def _inodes(engine: Engine, layer: int, contents: FileRows) -> Iterator[InodeRow]:
    """Yields inodes with the bytes mapped after cutting, which may have turned zeros into holes."""
    after = 0
    while page := engine.layer_inodes(layer, after, PAGE_ROWS, contents):
        yield from page
        after = page[-1][0]


def _removals(engine: Engine, layer: int) -> Iterator[int]:
    after = 0
    while page := engine.layer_removed(layer, after, PAGE_ROWS):
        yield from page
        after = page[-1]


def _entries(engine: Engine, layer: int) -> Iterator[Entry]:
    after = (0, b"")
    while page := engine.layer_entries(layer, after, PAGE_ROWS):
        yield from page
        after = page[-1][:2]


def _xattrs(engine: Engine, layer: int) -> Iterator[Xattrs]:
    after = 0
    while page := engine.layer_xattrs(layer, after, PAGE_XATTRS):
        yield from page
        after = page[-1][0]
