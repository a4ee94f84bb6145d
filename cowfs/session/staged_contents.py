"""Stores files as the engine has them: reads what is staged, or is in a chunk that is on this
machine, and makes rows of it. What shows bytes of a linked object (`linked`) is read from there and
stored as if it had been written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cowfs.errors import SourceChangedError
from cowfs.session.linked import is_linked

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import ChunkRef, LayerExtent
    from cowfs.version.publish import Publisher


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
    """read_linked: a whole range of a linked object."""

    def __init__(self, engine: Engine, publisher: Publisher, read_linked: Callable[[ChunkRef], bytes]) -> None:
        self._engine = engine
        self._publisher = publisher
        self._read_linked = read_linked

    def rows(self, ino: int, extents: Sequence[LayerExtent]) -> list[ExtentRow]:
        """All rows of a file of these extents. OSError: staged bytes cannot be read, or are not
        those that were written. SourceChangedError: neither can the rest of a linked file."""
        try:
            return self._publisher.rows(ino, [_to_store(extent) for extent in extents], self._read)
        except SourceChangedError as error:
            raise SourceChangedError(
                error.message,
                hint="A file that was linked to it was changed in part, or copied, and its other bytes cannot be had any more. "
                "Remove that file or overwrite all of it, and commit again; nothing that was written is lost.",
                details=error.details,
            ) from error

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


def _to_store(extent: LayerExtent) -> LayerExtent | _FromLink:
    if extent.segment >= 0 or extent.chunk is None or not is_linked(extent.chunk.pack):
        return extent
    return _FromLink(extent.offset, extent.length, extent.chunk, extent.skip)
