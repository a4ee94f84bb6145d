"""Chunks on their way from the pieces of a pack's range into a cache of chunks.

    plain store       pieces ─▶ ChunkRun: cut out, verified, decompressed, cached          native, no object for each chunk
    encrypted store   pieces ─▶ blobs, opened here ─▶ ChunkRun: the same from there on

`SealedRun` keeps the bytes of one blob at most, beside the piece at hand; so does a `ChunkRun`. For
one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cowfs.base.errors import CorruptError
from cowfs.format.sealing import BlobSealing, Buffer

# offset in the pack, stored length, raw length, codec, hash
Wanted = tuple[int, int, int, int, bytes]


class ChunkRun(Protocol):
    """Some chunks of a range. Both calls give how many of them are settled: the first ones, which
    are cached or have failed."""

    def take(self, piece: Buffer, /) -> int: ...

    def take_next(self, stored: Buffer, /) -> int: ...

    @property
    def failed(self) -> list[int]: ...


class ChunkCache(Protocol):
    """The engine's."""

    def chunk_run(self, start: int, wanted: list[Wanted], name_key: bytes | None = None) -> ChunkRun: ...

    def cache_chunk(self, hash: bytes, data: bytes) -> None: ...


class SealedRun:
    """Between the pieces of a sealed pack and the `run` of what its blobs hold. places: of the
    blobs, as they lie in the pack; start: where the first piece begins."""

    def __init__(self, run: ChunkRun, blobs: BlobSealing, places: Sequence[Wanted], start: int) -> None:
        self._run = run
        self._blobs = blobs
        self._places = places
        self._kept = bytearray()
        self._at = start  # where the kept bytes begin
        self._settled = 0

    def take(self, piece: Buffer, /) -> int:
        self._kept += piece
        end = self._at + len(self._kept)
        while self._settled < len(self._places):
            offset, stored_length, raw_length, codec, _ = self._places[self._settled]
            if offset + stored_length > end:
                break
            begin = offset - self._at
            sealed = self._kept[begin : begin + stored_length] if begin >= 0 else b""
            self._settled = self._run.take_next(self._open_blob(sealed, offset, codec, raw_length))
        following = self._places[self._settled][0] if self._settled < len(self._places) else end
        gone = min(max(following - self._at, 0), len(self._kept))
        del self._kept[:gone]
        self._at += gone
        return self._settled

    def _open_blob(self, sealed: Buffer, offset: int, codec: int, raw_length: int) -> bytes:
        """Empty, which is not a blob, if it cannot be opened: a read of this blob alone reports
        why."""
        try:
            return self._blobs.open(sealed, offset, codec, raw_length, what="a blob")
        except CorruptError:
            return b""
