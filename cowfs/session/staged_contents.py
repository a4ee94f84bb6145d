"""Stores files from the engine: reads bytes that are staged or in a chunk on this machine, and
makes extent rows. Ranges of a linked object (`linked`) are read from that object and stored as if
they had been written. `name_rows` computes the rows without storing anything.

A large file that keeps none of its chunks is read natively into reused buffers
(`version.publish.cut_file`); any other is cut together with adjacent extents
(`version.publish.recut`). Both cut at the same places.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cowfs.base import interruptible
from cowfs.base.errors import SourceChangedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.transfer.linked import is_linked
from cowfs.version.publish.recut import to_fetch

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import ChunkRef, LayerExtent
    from cowfs.session.growing import Begun
    from cowfs.version.publish.publisher import Publisher
    from cowfs.version.publish.unstored_chunks import UnstoredChunks


# The size from which reading into buffers pays: each range takes a buffer, and there are few.
LARGE_RANGE_BYTES = 1 << 20
FETCHED_CHUNKS = 128
"""Per commit: half a second where a request takes 30 ms. Later commits join the remaining
chunks."""


@dataclass(frozen=True, slots=True)
class _FromLink:
    """An `Extent` of `version.publish.recut` that must be stored. source: a range of a linked
    object."""

    offset: int
    length: int
    source: ChunkRef
    first: int
    chunk: ChunkRef | None = None
    skip: int = 0


class StagedContents:
    """read_linked returns a whole range of a linked object. fetch tries to load chunks into the
    cache."""

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
        """Starts a commit, which may fetch FETCHED_CHUNKS."""
        self._fetches_left = FETCHED_CHUNKS

    def rows(self, ino: int, extents: Sequence[LayerExtent], begun: Begun) -> list[ExtentRow]:
        """All rows of a file with these extents; `begun` holds those already stored. OSError:
        staged bytes cannot be read, or are not what was written. SourceChangedError: the remaining
        bytes of a linked file cannot be read."""
        if (ranges := _large_ranges(extents)) is not None:
            rest = _clip(ranges, begun.until, sum(ranges[-1]))
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
                hint="A file that was linked to it was partly changed or copied, and its remaining bytes can no longer be read. "
                "Remove that file or overwrite all of it, and commit again; nothing that was written is lost.",
                details=error.details,
            ) from error

    def first_rows(self, ino: int, extents: Sequence[LayerExtent], begin: int, end: int) -> list[ExtentRow]:
        """The rows of a part of a large staged file, up to where chunk boundaries are certain; none
        for any other file. The part begins at a chunk boundary. OSError: as `rows`."""
        if (ranges := _large_ranges(extents)) is None or not (part := _clip(ranges, begin, end)):
            return []
        read_into = _StagedFile(self._engine, extents).read_into
        goes_on = sum(part[-1]) == end
        return self._publisher.file_rows(ino, part, read_into, goes_on=goes_on, is_first=begin == 0)

    def name_rows(self, extents: Sequence[LayerExtent], chunks: UnstoredChunks) -> list[ExtentRow]:
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
                    raise  # otherwise the segment was trimmed meanwhile, and the chunk has its bytes
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
        """Fills target from a range without holes."""
        place = bisect_right(self._offsets, offset) - 1
        done = 0
        while done < len(target):
            interruptible.require_wanted()
            extent = self._extents[place]
            first = offset + done - extent.offset
            length = min(extent.length - first, len(target) - done)
            self._engine.read_staged_into(extent.segment, extent.segment_offset + first, target[done : done + length])
            done += length
            place += 1


def _large_ranges(extents: Sequence[LayerExtent]) -> list[tuple[int, int]] | None:
    """(offset, length) of each range between the holes of a large file that is staged and in no
    chunk; None for any other file."""
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


def _clip(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """The parts of the ranges between begin and end."""
    clipped = ((max(offset, begin), min(offset + length, end)) for offset, length in ranges)
    return [(first, last - first) for first, last in clipped if first < last]


def _to_store(extent: LayerExtent) -> LayerExtent | _FromLink:
    if extent.segment >= 0 or extent.chunk is None or not is_linked(extent.chunk.pack):
        return extent
    return _FromLink(extent.offset, extent.length, extent.chunk, extent.skip)
