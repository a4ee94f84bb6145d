"""Stores what changed files hold: their staged bytes become chunks in packs, their extents rows of the index.

`rows` takes a file's extents as the engine froze them and gives the complete list of rows that replaces the old one.
Large pieces are hashed and compressed on a small pool (both release the GIL), small ones at once. Chunks already known are
not stored again (`known_chunks`). What `rows` names is durable only after the uploader was flushed.

Pack numbers: an index names packs by number. `PackNumbers` hands out numbers for new packs, never the same one twice in
a working copy, so that rows prepared before a commit stay right whichever commit publishes them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from blake3 import blake3

from cowfs.errors import CorruptError
from cowfs.ids import ChunkHash, PackId
from cowfs.store.packs import PackLocation
from cowfs.version.recut import Piece, recut

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine, LayerExtent
    from cowfs.store.packs import PackUploader
    from cowfs.version.known_chunks import KnownChunks

INLINE_BYTES = 64 << 10  # below this a thread switch costs more than hashing
JUDGED_FILES = 1000
MAX_PIECES_IN_FLIGHT = 64  # at most 2 MiB each


class PackNumbers:
    """Numbers of packs within one working copy's indexes. Thread-safe."""

    def __init__(self, known: Mapping[int, PackId]) -> None:
        self._ids = dict(known)
        self._numbers = {pack: number for number, pack in known.items()}
        self._next = max(known, default=0) + 1
        self._lock = threading.Lock()

    def number(self, pack: PackId) -> int:
        with self._lock:
            number = self._numbers.get(pack)
            if number is None:
                number = self._numbers[pack] = self._next
                self._next += 1
                self._ids[number] = pack
            return number

    def id(self, number: int) -> PackId:
        with self._lock:
            pack = self._ids.get(number)
        if pack is None:
            raise CorruptError(
                f"the index names pack number {number} but has no pack of that number",
                hint="The base version is damaged. Fork an older version.",
            )
        return pack


class ContentStorer:
    def __init__(self, engine: Engine, known: KnownChunks, numbers: PackNumbers) -> None:
        self._engine = engine
        self._known = known
        self._numbers = numbers
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="cowfs-hash")
        self._room = threading.BoundedSemaphore(MAX_PIECES_IN_FLIGHT)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def new_bytes(self, layer: int) -> int:
        """About how much the layer has to store, judged by its first files."""
        files = self._engine.layer_contents(layer)
        judged = files[:JUDGED_FILES]
        extents = (extent for ino, _ in judged for extent in self._engine.layer_extents(layer, ino))
        staged_bytes = sum(extent.length for extent in extents if extent.chunk is None)
        return staged_bytes * len(files) // max(len(judged), 1)

    def note(self, rows: Iterable[ExtentRow]) -> None:
        """Chunks of a file's earlier content, so that what is written again is found again."""
        for _, _, hash, pack, offset, stored_length, raw_length, _, codec in rows:
            location = PackLocation(self._numbers.id(pack), offset, stored_length, raw_length, codec)
            self._known.note(ChunkHash(hash), location)

    def rows(self, extents: Sequence[LayerExtent], uploader: PackUploader) -> list[ExtentRow]:
        """The rows of a file made of `extents`, in order of offset. Raises the first error of storing any piece."""
        rows: list[ExtentRow | Future[ExtentRow]] = []
        try:
            for part in recut(extents, self._read):
                if not isinstance(part, Piece):
                    rows.append(_kept(part))
                elif len(part.data) < INLINE_BYTES:
                    rows.append(self._store(part, uploader))
                else:
                    rows.append(self._submit(part, uploader))
        finally:  # after an error nothing may still be adding to an uploader that is about to be given up
            if futures := [row for row in rows if isinstance(row, Future)]:
                wait(futures)
        return [row.result() if isinstance(row, Future) else row for row in rows]

    def _submit(self, piece: Piece, uploader: PackUploader) -> Future[ExtentRow]:
        self._room.acquire()
        future = self._pool.submit(self._store, piece, uploader)
        future.add_done_callback(lambda _: self._room.release())
        return future

    def _store(self, piece: Piece, uploader: PackUploader) -> ExtentRow:
        hash = ChunkHash(blake3(piece.data).digest())
        location = self._known.place(hash, lambda: uploader.add(hash, piece.data))
        return (
            piece.offset,
            len(piece.data),
            bytes(hash),
            self._numbers.number(location.pack),
            location.offset,
            location.stored_length,
            location.raw_length,
            0,
            location.codec,
        )

    def _read(self, extent: LayerExtent, first: int, length: int) -> bytes | None:
        if extent.segment >= 0:
            try:
                return self._engine.read_staged(extent.segment, extent.segment_offset + first, length)
            except OSError:
                if extent.chunk is None:
                    raise  # else the segment was trimmed meanwhile: its bytes are in the chunk
        assert extent.chunk is not None
        raw = self._engine.cached_chunk(extent.chunk.hash, extent.chunk.raw_length)
        return None if raw is None else raw[extent.skip + first : extent.skip + first + length]


def _kept(extent: LayerExtent) -> ExtentRow:
    chunk = extent.chunk
    assert chunk is not None
    return (
        extent.offset,
        extent.length,
        chunk.hash,
        chunk.pack,
        chunk.offset,
        chunk.stored_length,
        chunk.raw_length,
        extent.skip,
        chunk.codec,
    )
