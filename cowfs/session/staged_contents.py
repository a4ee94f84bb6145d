"""Stores files as the engine has them: reads what is staged, or is in a chunk that is on this
machine, and makes rows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cowfs.index import ExtentRow
    from cowfs.native import Engine
    from cowfs.native.chunks import LayerExtent
    from cowfs.version.publish import Publisher


class StagedContents:
    def __init__(self, engine: Engine, publisher: Publisher) -> None:
        self._engine = engine
        self._publisher = publisher

    def rows(self, ino: int, extents: Sequence[LayerExtent]) -> list[ExtentRow]:
        """All rows of a file of these extents. OSError: staged bytes cannot be read, or are not
        those that were written."""
        return self._publisher.rows(ino, extents, self._read)

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
