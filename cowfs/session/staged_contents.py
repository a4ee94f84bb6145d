"""Stores files as the engine has them: reads what is staged, or is in a chunk that is on this
machine, and makes rows of it. What shows bytes of a linked object (`linked`) is read from there and
stored as if it had been written. `named_rows` says what would be stored.

A large file that keeps none of its chunks is read natively into buffers that are used again
(`version.cut_file`); any other is cut with its neighbours (`version.recut`). Both cut at the same
places.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cowfs import apart
from cowfs.errors import SourceChangedError
from cowfs.session.linked import is_linked
from cowfs.values import dataclass
from cowfs.version.recut import to_fetch

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import ChunkRef, LayerExtent
    from cowfs.session.growing import Begun
    from cowfs.version.publish import Publisher
    from cowfs.version.unstored_chunks import UnstoredChunks


# Where cutting in buffers pays: each range takes one, and so few would wait for each other.
LARGE_RANGE_BYTES = 1 << 20
FETCHED_CHUNKS = 128
"""Of a commit: half a second where a request takes 30 ms. What is left over is joined by the next
ones."""


@dataclass(frozen=True, slots=True)
class _FromLink:
    """An `Extent` of `version.recut` that is stored anew. source: a range of a linked object."""

    offset: int
    length: int
    source: ChunkRef
    first: int
    chunk: ChunkRef | None = None
    skip: int = 0


class StagedContents:
    """read_linked: a whole range of a linked object. fetch: brings chunks into the cache, as far as
    they can be had."""

    def __init__(
        self,
        engine: Engine,
        publisher: Publisher,
        read_linked: Callable[[ChunkRef], bytes],
        fetch: Callable[[Sequence[ChunkRef]], None],
    ) -> None:
        self._engine = engine
        self._publisher = publisher
        self._read_linked = read_linked
        self._fetch = fetch
        self._fetches_left = 0

    def begin(self) -> None:
        """A commit begins: so much may be fetched for it."""
        self._fetches_left = FETCHED_CHUNKS

    def rows(self, ino: int, extents: Sequence[LayerExtent], begun: Begun) -> list[ExtentRow]:
        """All rows of a file of these extents, of which `begun` is stored. OSError: staged bytes
        cannot be read, or are not those that were written. SourceChangedError: neither can the rest
        of a linked file."""
        if (ranges := _large_ranges(extents)) is not None:
            rest = _clipped(ranges, begun.until, sum(ranges[-1]))
            return begun.rows + self._publisher.file_rows(ino, rest, _StagedFile(self._engine, extents).read_into)
        parts = [_to_store(extent) for extent in extents]
        if self._fetches_left > 0 and (wanted := to_fetch(parts)):
            absent = self._engine.keep_chunks([(chunk.hash, chunk.raw_length) for chunk in wanted])
            fetched = [wanted[number] for number in absent[: self._fetches_left]]
            self._fetches_left -= len(fetched)
            self._fetch(fetched)
        try:
            return self._publisher.rows(ino, parts, self._read)
        except SourceChangedError as error:
            raise SourceChangedError(
                error.message,
                hint="A file that was linked to it was changed in part, or copied, and its other bytes cannot be had any more. "
                "Remove that file or overwrite all of it, and commit again; nothing that was written is lost.",
                details=error.details,
            ) from error

    def first_rows(self, ino: int, extents: Sequence[LayerExtent], begin: int, end: int) -> list[ExtentRow]:
        """The rows of a part of a large staged file, which begins where a chunk does, as far as it
        is settled where chunks end; none of any other file. OSError: as `rows`."""
        if (ranges := _large_ranges(extents)) is None or not (part := _clipped(ranges, begin, end)):
            return []
        read_into = _StagedFile(self._engine, extents).read_into
        goes_on = sum(part[-1]) == end
        return self._publisher.file_rows(ino, part, read_into, goes_on=goes_on, is_first=begin == 0)

    def named_rows(self, extents: Sequence[LayerExtent], chunks: UnstoredChunks) -> list[ExtentRow]:
        """As `rows`, but nothing is stored."""
        return chunks.rows([_to_store(extent) for extent in extents], self._read)

    def _read(self, extent: LayerExtent | _FromLink, first: int, length: int) -> bytes | None:
        if isinstance(extent, _FromLink):
            first += extent.first
            return self._read_linked(extent.source)[first : first + length]
        if extent.segment >= 0:
            try:
                return self._engine.read_staged(extent.segment, extent.segment_offset + first, length)
            except OSError:
                if extent.chunk is None:
                    raise  # else the segment was trimmed meanwhile: its bytes are in the chunk
        assert extent.chunk is not None
        raw = self._engine.cached_chunk(extent.chunk.hash, extent.chunk.raw_length)
        return None if raw is None else raw[extent.skip + first : extent.skip + first + length]


class _StagedFile:
    """The bytes of a file that is staged in `extents`, in order of offset."""

    def __init__(self, engine: Engine, extents: Sequence[LayerExtent]) -> None:
        self._engine = engine
        self._extents = extents
        self._offsets = [extent.offset for extent in extents]

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fills it, from a range without holes."""
        place = bisect_right(self._offsets, offset) - 1
        done = 0
        while done < len(target):
            apart.require_wanted()
            extent = self._extents[place]
            first = offset + done - extent.offset
            length = min(extent.length - first, len(target) - done)
            self._engine.read_staged_into(extent.segment, extent.segment_offset + first, target[done : done + length])
            done += length
            place += 1


def _large_ranges(extents: Sequence[LayerExtent]) -> list[tuple[int, int]] | None:
    """(offset, length) of what lies between the holes of a file that is staged and in no chunk;
    None: it is not, or not large."""
    ranges: list[tuple[int, int]] = []
    total_bytes = 0
    for extent in extents:
        if extent.chunk is not None:
            return None
        total_bytes += extent.length
        if ranges and sum(ranges[-1]) == extent.offset:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + extent.length)
        else:
            ranges.append((extent.offset, extent.length))
    return ranges if ranges and total_bytes >= len(ranges) * LARGE_RANGE_BYTES else None


def _clipped(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """What lies between them."""
    clipped = ((max(offset, begin), min(offset + length, end)) for offset, length in ranges)
    return [(first, last - first) for first, last in clipped if first < last]


def _to_store(extent: LayerExtent) -> LayerExtent | _FromLink:
    if extent.segment >= 0 or extent.chunk is None or not is_linked(extent.chunk.pack):
        return extent
    return _FromLink(extent.offset, extent.length, extent.chunk, extent.skip)
