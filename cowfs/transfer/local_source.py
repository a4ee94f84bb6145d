"""Adapts the source of an upload (`upload_reading.SourceTree`: local files, files of a version,
objects of a bucket) to the source of a copy into a mount (`copying`).

A file that is written to meanwhile is copied as `cp` copies it: with the bytes present at the time
of reading. A file that has become shorter, and an object that was replaced, are read again from the
beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from cowfs.base.errors import ConflictError
from cowfs.transfer.imports.object_tree import ObjectFile
from cowfs.transfer.source_files import SourceChanged

if TYPE_CHECKING:
    from cowfs.transfer.copying import Attributes
    from cowfs.transfer.upload.upload_reading import ReadFile, SourceTree

PIECE_BYTES = 1 << 20
OBJECT_PIECE_BYTES = 16 << 20
"""Fetched in parallel ranges."""
READS_MAX = 5


class LocalSource:
    """leaves_out: tells which paths are skipped."""

    def __init__(
        self, tree: SourceTree, leaves_out: Callable[[bytes, Attributes], bool] = lambda path, attr: False
    ) -> None:
        self._tree = tree
        self._leaves_out = leaves_out

    def stat(self, path: bytes) -> Attributes:
        return self._tree.stat(path)

    def list(self, path: bytes) -> Sequence[tuple[bytes, Attributes]]:
        found = self._tree.list(path)
        return [each for each in found if not self._leaves_out(path + b"/" + each[0] if path else each[0], each[1])]

    def readlink(self, path: bytes) -> bytes:
        return self._tree.readlink(path)

    def pieces(self, path: bytes) -> Generator[tuple[int, bytes]]:
        """Yields all bytes, holes included. A piece without bytes states the size of the file: 0
        when reading begins anew, and the final one at the end."""
        with closing(self._tree.open_file(path)) as file:
            for _ in range(READS_MAX):
                try:
                    yield from _read(file)
                except SourceChanged:
                    file.settle()  # looks up the object again
                    yield 0, b""
                else:
                    return
        raise ConflictError(
            f"{os.fsdecode(path)} was written to while it was read, {READS_MAX} times",
            hint="Try again when the file is not being written to.",
        )


def _read(file: ReadFile) -> Generator[tuple[int, bytes]]:
    size = file.stamp().size
    piece_bytes = OBJECT_PIECE_BYTES if isinstance(file, ObjectFile) else PIECE_BYTES
    for extent in file.extents(size):
        for first in range(0, extent.length, piece_bytes):
            yield extent.offset + first, file.read(extent, first, min(piece_bytes, extent.length - first))
    yield size, b""
