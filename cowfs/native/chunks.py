"""Cutting bytes into chunks, chunks that this machine has, and compact tables of chunks and rows:
the part of the extension that needs no engine.

What turns changes into versions may use this and not the engine, so that a merge or an import can
publish as a mount does. `cowfs/_native.pyi` documents the names.
"""

from cowfs._native import (
    CODEC_RAW,
    CODEC_ZSTD,
    CachedChunks,
    ChunkPlaces,
    ChunkRef,
    FileRows,
    LayerExtent,
    SmallFiles,
    compressed,
    cut_points,
    zero_runs,
)

__all__ = [
    "CODEC_RAW",
    "CODEC_ZSTD",
    "CachedChunks",
    "ChunkPlaces",
    "ChunkRef",
    "FileRows",
    "LayerExtent",
    "SmallFiles",
    "compressed",
    "cut_points",
    "zero_runs",
]
