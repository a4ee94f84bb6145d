"""What files would be made of if they were stored: cut and named as for a version, and put nowhere.

For work that is compared instead of published (docs/decisions/0051-work-as-an-index.md): equal
content has equal rows, but for the pack that a row names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cowfs.format.codec import Codec
from cowfs.ids import PackId
from cowfs.version.contents import kept
from cowfs.version.cut_file import Buffers, ReadInto, cut_file
from cowfs.version.recut import E, Piece, Read, recut

if TYPE_CHECKING:
    from cowfs.format.codec import Blob
    from cowfs.format.sealing import Sealing
    from cowfs.ids import ChunkHash
    from cowfs.index import ExtentRow

NOT_STORED = PackId(bytes(PackId.length))
"""Stands for where chunks would lie that are in no pack, in an index that is published nowhere."""


class UnstoredChunks:
    """As `StoredChunks`, as far as an upload needs it (`session.upload_reading.Chunks`).

    sealing: how the store's chunks are cut and named. pack: gives NOT_STORED's number, of which
    nobody needs to know before there is new content. Threads: any.
    """

    def __init__(self, sealing: Sealing, pack: Callable[[], int]) -> None:
        self._sealing = sealing
        self._pack = pack

    @property
    def name_key(self) -> bytes | None:
        """What blobs are named by, as `Sealing` has it."""
        return self._sealing.name_key

    def wait_for_uploads(self) -> None:
        """Nothing is looked up in the store."""

    def rows(self, extents: Sequence[E], read: Read[E], earlier: Iterable[ExtentRow] = ()) -> list[ExtentRow]:
        """All rows of a file that is made of `extents`; what is in chunks already stays there."""
        return [
            self._row(part.offset, len(part.data), self._sealing.name(part.data))
            if isinstance(part, Piece)
            else kept(part)
            for part in recut(extents, read, self._sealing.gear)
        ]

    def blob_rows(self, blob: Blob, length: int, earlier: Iterable[ExtentRow] = ()) -> list[ExtentRow]:
        """As `rows`, of a small file that is one blob, of `length` raw bytes; none for an empty
        one."""
        return [self._row(0, length, blob[0])] if length else []

    def file_rows(
        self, ranges: Iterable[tuple[int, int]], read_into: ReadInto, earlier: Iterable[ExtentRow] = ()
    ) -> list[ExtentRow]:
        """As `rows`, of a large file with bytes in `ranges`, (offset, length) in order, and holes
        elsewhere. Two buffers are in use at most, since each piece is released at once."""
        rows: list[ExtentRow] = []
        buffers = Buffers()
        for view in cut_file(ranges, read_into, buffers, lambda: None, self._sealing.gear):
            rows.append(self._row(view.offset, len(view.data), self._sealing.name(view.data)))
            buffers.release(view.buffer)
        return rows

    def known_rows(self, parts: Iterable[tuple[int, int, ChunkHash]]) -> None:
        """Nothing is known to be in the store."""
        return

    def _row(self, offset: int, length: int, hash: ChunkHash) -> ExtentRow:
        return (offset, length, bytes(hash), self._pack(), 0, length, length, 0, Codec.RAW)
