"""A directory of this machine that is copied from to another one: what `copying` asks of its source.

A file that is written to meanwhile is copied as `cp` copies it: what is there when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from cowfs.session.source_files import SourceChanged

if TYPE_CHECKING:
    from cowfs.session.copying import Attributes
    from cowfs.session.upload_reading import SourceTree

PIECE_BYTES = 1 << 20


class LocalSource:
    """tree: `LocalFiles`, or the pipe that was named. leaves_out: paths that are not looked at."""

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
        """Without holes; at last the size, with no bytes."""
        with closing(self._tree.open_file(path)) as file:
            size = file.stamp().size
            for extent in file.extents(size):
                for first in range(0, extent.length, PIECE_BYTES):
                    try:
                        piece = file.read(extent, first, min(PIECE_BYTES, extent.length - first))
                    except SourceChanged:  # it has become shorter
                        size = file.stamp().size
                        break
                    yield extent.offset + first, piece
            yield size, b""
