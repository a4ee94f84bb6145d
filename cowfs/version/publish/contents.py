"""Stores the content of changed files: new bytes become chunks in packs, extents become rows of the
index.

`rows` takes a file's extents and returns the complete list of rows that replaces the old one. The
caller supplies the bytes of an extent (`Read`): from a working copy's staging, or from an imported
file. Large pieces are hashed and compressed on a small pool (both release the GIL), small ones at
once. Pieces of a large file that is read as it is (`file_rows`) are added to packs in their order,
since it will usually be read in that order. Known chunks are not stored again (`known_chunks`). The
chunks that `rows` names are durable only after the uploader was flushed.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cowfs.base.ids import ChunkHash, PackId
from cowfs.base.thread_pool import Threads
from cowfs.format.codec import Blob, Codec
from cowfs.store.packs import PackLocation
from cowfs.version.publish.cut_file import Buffers, ReadInto, View, cut_file
from cowfs.version.publish.recut import E, Piece, Read, Run, recut

if TYPE_CHECKING:
    from cowfs.format.sealing import Sealing
    from cowfs.index import ExtentRow
    from cowfs.native.chunks import FileRows
    from cowfs.store.packs import PackUploader

INLINE_BYTES = 64 << 10  # below this a thread switch costs more than hashing
MAX_PIECES_IN_FLIGHT = 64  # at most 2 MiB each
PAGE_FILES = 1024


def files_of(contents: FileRows) -> Iterator[tuple[int, int, list[ExtentRow]]]:
    """(ino, data version, rows) of each file, in the order in which they were put."""
    place = 0
    while True:
        page, place = contents.page(place, PAGE_FILES)
        if not page:
            return
        yield from page


class Places(Protocol):
    """The places of chunks: as `KnownChunks`."""

    def place(self, hash: ChunkHash, upload: Callable[[], PackLocation]) -> PackLocation: ...
    def find(self, hash: ChunkHash) -> PackLocation | None: ...
    def may_know(self, hash: ChunkHash) -> bool: ...
    def note(self, chunks: Iterable[tuple[ChunkHash, PackLocation]]) -> None: ...


class Numbers(Protocol):
    """As `PackNumbers`."""

    def id(self, number: int) -> PackId: ...
    def number(self, pack: PackId) -> int: ...


class _Prepared(NamedTuple):
    """A hashed piece. stored: its stored form; None: it may be known already."""

    hash: ChunkHash
    stored: tuple[Codec, bytes | memoryview] | None


class ContentStorer:
    def __init__(self, known: Places, numbers: Numbers, sealing: Sealing) -> None:
        self._known = known
        self._sealing = sealing
        self._numbers = numbers
        self._pool = Threads(os.cpu_count() or 1, name="cowfs-hash")
        self._room = threading.BoundedSemaphore(MAX_PIECES_IN_FLIGHT)
        self._one_file = threading.Lock()  # guards the buffers, and keeps the chunks of one file together
        self._buffers = Buffers()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def rest(self) -> None:
        """Frees reserved memory: nothing more is stored for a while."""
        with self._one_file:
            self._buffers.rest()

    def note(self, rows: Iterable[ExtentRow]) -> None:
        """Chunks of a file's earlier content, so that content written again is found."""
        chunks = [
            (ChunkHash(hash), PackLocation(self._numbers.id(pack), offset, stored_length, raw_length, codec))
            for _, _, hash, pack, offset, stored_length, raw_length, _, codec in rows
        ]
        self._known.note(chunks)

    def rows(self, extents: Sequence[E], read: Read[E], uploader: PackUploader) -> list[ExtentRow]:
        """The rows of a file made of `extents`, in order of offset. Raises the first error of
        storing any piece."""
        rows: list[ExtentRow | Future[ExtentRow]] = []
        try:
            for part in recut(extents, read, self._sealing.gear):
                if not isinstance(part, Piece):
                    rows.append(keep_row(part))
                elif len(part.data) < INLINE_BYTES:
                    rows.append(self._store(part, uploader))
                else:
                    rows.append(self._submit(part, uploader))
        finally:  # after an error no piece may still be adding to an uploader that will be given up
            if futures := [row for row in rows if isinstance(row, Future)]:
                wait(futures)
        return [row.result() if isinstance(row, Future) else row for row in rows]

    def blob_rows(self, blob: Blob, length: int, uploader: PackUploader) -> list[ExtentRow]:
        """As `rows`, for a file with `length` bytes that are one blob; no rows for an empty
        file."""
        hash, how, stored = blob
        if not length:
            return []
        location = self._known.place(hash, lambda: uploader.add_stored(hash, how, stored, length))
        return [self._row(0, length, hash, location)]

    def file_rows(
        self,
        ranges: Iterable[tuple[int, int]],
        read_into: ReadInto,
        uploader: PackUploader,
        *,
        goes_on: bool = False,
    ) -> list[ExtentRow]:
        """As `rows`, for a large file with new bytes in `ranges`, (offset, length) in order, and
        holes elsewhere; goes_on: as for `cut_file`. One at a time."""
        rows: list[ExtentRow] = []
        waiting: deque[tuple[View, Future[_Prepared]]] = deque()

        def settle() -> None:
            view, future = waiting.popleft()
            try:
                rows.append(self._place(view, future.result(), uploader))
            finally:
                self._buffers.release(view.buffer)

        with self._one_file:
            try:
                pieces = cut_file(ranges, read_into, self._buffers, settle, self._sealing.gear, goes_on=goes_on)
                with closing(pieces) as views:
                    for view in views:
                        waiting.append((view, self._pool.submit(self._prepare, view.data, uploader)))
                        while waiting[0][1].done() and len(waiting) > 1:
                            settle()
                while waiting:
                    settle()
            finally:
                wait([future for _, future in waiting])  # they use buffers that the next file will fill
                for view, _ in waiting:
                    self._buffers.release(view.buffer)
        return rows

    def find_rows(self, parts: Iterable[tuple[int, int, ChunkHash]]) -> list[ExtentRow] | None:
        """The rows of a file of these whole chunks, if all of them are known."""
        rows = []
        for offset, length, hash in parts:
            location = self._known.find(hash)
            if location is None or location.raw_length != length:
                return None
            rows.append(self._row(offset, length, hash, self._known.place(hash, lambda found=location: found)))  # type: ignore[misc]
        return rows

    def _prepare(self, data: memoryview, uploader: PackUploader) -> _Prepared:
        hash = self._sealing.name(data)
        return _Prepared(hash, None if self._known.may_know(hash) else uploader.compress(data))

    def _place(self, view: View, prepared: _Prepared, uploader: PackUploader) -> ExtentRow:
        hash, stored = prepared

        def upload() -> PackLocation:
            how, data = stored if stored is not None else uploader.compress(view.data)
            return uploader.add_stored(hash, how, data, len(view.data))

        return self._row(view.offset, len(view.data), hash, self._known.place(hash, upload))

    def _submit(self, piece: Piece, uploader: PackUploader) -> Future[ExtentRow]:
        self._room.acquire()
        try:
            future = self._pool.submit(self._store, piece, uploader)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def _store(self, piece: Piece, uploader: PackUploader) -> ExtentRow:
        hash = self._sealing.name(piece.data)
        location = self._known.place(hash, lambda: uploader.add(hash, piece.data))
        return self._row(piece.offset, len(piece.data), hash, location)

    def _row(self, offset: int, length: int, hash: ChunkHash, location: PackLocation) -> ExtentRow:
        return (
            offset,
            length,
            bytes(hash),
            self._numbers.number(location.pack),
            location.offset,
            location.stored_length,
            location.raw_length,
            0,
            location.codec,
        )


def keep_row(run: Run[E]) -> ExtentRow:
    """The row of bytes that are in a chunk already."""
    chunk = run.chunk
    assert chunk is not None
    return (
        run.offset,
        run.length,
        chunk.hash,
        chunk.pack,
        chunk.offset,
        chunk.stored_length,
        chunk.raw_length,
        run.skip,
        chunk.codec,
    )
