"""What an upload reads (`upload_reading.SourceTree`: files of this machine, of a version, objects
of a bucket), as the source of a copy into a mount: what `copying` asks of its source.

A file that is written to meanwhile is copied as `cp` copies it: what is there when it is read. One
that has become shorter, and an object that was replaced, is read anew from its beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from cowfs.errors import ConflictError
from cowfs.session.object_tree import ObjectFile
from cowfs.session.source_files import SourceChanged

if TYPE_CHECKING:
    from cowfs.session.copying import Attributes
    from cowfs.session.upload_reading import ReadFile, SourceTree

PIECE_BYTES = 1 << 20
OBJECT_PIECE_BYTES = 16 << 20
"""Fetched in ranges side by side."""
READS_MAX = 5


class LocalSource:
    """leaves_out: paths that are not looked at."""

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
        """Without holes. A piece without bytes says how large the file is: nothing before it begins
        anew, and at last all of it."""
        with closing(self._tree.open_file(path)) as file:
            for _ in range(READS_MAX):
                try:
                    yield from _read(file)
                except SourceChanged:
                    file.settled()  # an object is looked at again
                    yield 0, b""
                else:
                    return
        raise ConflictError(
            f"{os.fsdecode(path)} was written to while it was read, {READS_MAX} times",
            hint="Do it again when nobody writes to it.",
        )


def _read(file: ReadFile) -> Generator[tuple[int, bytes]]:
    size = file.stamp().size
    piece_bytes = OBJECT_PIECE_BYTES if isinstance(file, ObjectFile) else PIECE_BYTES
    for extent in file.extents(size):
        for first in range(0, extent.length, piece_bytes):
            yield extent.offset + first, file.read(extent, first, min(piece_bytes, extent.length - first))
    yield size, b""
