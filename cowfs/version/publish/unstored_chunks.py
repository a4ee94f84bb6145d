"""Makes the rows that files would have if they were stored: cut and named as for a version, but not
stored.

For comparing work without publishing it (docs/decisions/0051-work-as-an-index.md): equal content
has equal rows, except for the pack that a row names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cowfs.base.ids import PackId
from cowfs.format.codec import Codec
from cowfs.version.publish.contents import keep_row
from cowfs.version.publish.cut_file import Buffers, ReadInto, cut_file
from cowfs.version.publish.recut import E, Piece, Read, recut

if TYPE_CHECKING:
    from cowfs.base.ids import ChunkHash
    from cowfs.format.codec import Blob
    from cowfs.format.sealing import Sealing
    from cowfs.index import ExtentRow

NOT_STORED = PackId(bytes(PackId.length))
"""The pack of chunks that are in no pack, in an index that is not published."""


class UnstoredChunks:
    """As `StoredChunks`, as far as an upload needs it (`transfer.upload.upload_reading.Chunks`).

    sealing: how the store's chunks are cut and named. pack: returns the number of NOT_STORED;
    called only if there is new content. Thread-safe.
    """

    def __init__(self, sealing: Sealing, pack: Callable[[], int]) -> None:
        self._sealing = sealing
        self._pack = pack

    @property
    def name_key(self) -> bytes | None:
        """The key by which blobs are named, as of `Sealing`."""
        return self._sealing.name_key

    @property
    def compresses(self) -> bool:
        """False: nothing is stored, so compression saves no space."""
        return False

    def wait_for_uploads(self) -> None:
        """Does nothing: the store is not searched."""

    def rows(self, extents: Sequence[E], read: Read[E], earlier: Iterable[ExtentRow] = ()) -> list[ExtentRow]:
        """All rows of a file that is made of `extents`; existing chunks are kept."""
        return [
            self._row(part.offset, len(part.data), self._sealing.name(part.data))
            if isinstance(part, Piece)
            else keep_row(part)
            for part in recut(extents, read, self._sealing.gear)
        ]

    def blob_rows(self, blob: Blob, length: int, earlier: Iterable[ExtentRow] = ()) -> list[ExtentRow]:
        """As `rows`, for a small file that is one blob, of `length` raw bytes; no rows for an empty
        file."""
        return [self._row(0, length, blob[0])] if length else []

    def file_rows(
        self, ranges: Iterable[tuple[int, int]], read_into: ReadInto, earlier: Iterable[ExtentRow] = ()
    ) -> list[ExtentRow]:
        """As `rows`, for a large file with bytes in `ranges`, (offset, length) in order, and holes
        elsewhere. Uses at most two buffers, since each piece is released at once."""
        rows: list[ExtentRow] = []
        buffers = Buffers()
        for view in cut_file(ranges, read_into, buffers, lambda: None, self._sealing.gear):
            rows.append(self._row(view.offset, len(view.data), self._sealing.name(view.data)))
            buffers.release(view.buffer)
        return rows

    def find_rows(self, parts: Iterable[tuple[int, int, ChunkHash]]) -> None:
        """None: nothing is known to be in the store."""
        return

    def _row(self, offset: int, length: int, hash: ChunkHash) -> ExtentRow:
        return (offset, length, bytes(hash), self._pack(), 0, length, length, 0, Codec.RAW)
