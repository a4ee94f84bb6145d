"""The bytes of one object, taken in order, and fetched ahead while they are taken in order.

The object is read in pieces of PIECE_BYTES, each in the state that was listed. The first piece is
fetched alone; each step to the piece behind it doubles how many are under way, up to AHEAD. A jump,
as to the directory at the end of a zip, begins anew. So a pass over the object costs one read of
each of its bytes, and the memory of AHEAD pieces. One piece before the present one is kept, for a
step back to a structure that crosses the border of two.

A file for `zipfile`: read, seek, tell. For one thread at a time.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future

from cowfs.base.thread_pool import Threads
from cowfs.store.origin.contract import Origin, OriginObject

PIECE_BYTES = 2 << 20
AHEAD = 8


class Input:
    """found: the object as it was listed."""

    def __init__(self, origin: Origin, found: OriginObject) -> None:
        self.size = found.size
        self._origin = origin
        self._found = found
        self._position = 0
        self._ahead = 1
        self._pieces: deque[tuple[int, Future[bytes]]] = deque()  # (offset, bytes), one behind the other
        self._threads = Threads(AHEAD, name="cowfs-archive")

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, length: int = -1) -> bytes:
        """Fewer bytes only at the end."""
        left = self.size - self._position if length < 0 else length
        found = []
        while left > 0 and (piece := self._rest()):
            piece = piece[:left]
            self._position += len(piece)
            left -= len(piece)
            found.append(piece)
        return bytes(found[0]) if len(found) == 1 else b"".join(found)

    def piece(self) -> memoryview:
        """The fetched bytes from the position on; empty only at the end."""
        piece = self._rest()
        self._position += len(piece)
        return piece

    def _rest(self) -> memoryview:
        """Of the piece that the position is in."""
        if self._position >= self.size:
            return memoryview(b"")
        start = self._position - self._position % PIECE_BYTES
        if not any(offset == start for offset, _ in self._pieces):
            self._pieces.clear()
            self._ahead = 1
        while self._pieces and self._pieces[0][0] < start - PIECE_BYTES:  # one before it is kept
            self._pieces.popleft()
            self._ahead = min(2 * self._ahead, AHEAD)
        following = self._pieces[-1][0] + PIECE_BYTES if self._pieces else start
        while following < min(self.size, start + self._ahead * PIECE_BYTES):
            length = min(PIECE_BYTES, self.size - following)
            self._pieces.append((following, self._threads.submit(self._origin.read, self._found, following, length)))
            following += PIECE_BYTES
        piece = next(piece for offset, piece in self._pieces if offset == start)
        return memoryview(piece.result())[self._position - start :]
