"""The only import of the extension module; every other part takes the engine's names from here.

`cowfs/_native.pyi` documents them. Not here: conversion or policy of any kind.
"""

from cowfs._native import (
    CODEC_RAW,
    CODEC_ZSTD,
    INODE_HAS_XATTRS,
    Attr,
    Caller,
    ChunkPlaces,
    ChunkRef,
    DirectoryRows,
    Engine,
    FileRows,
    JournalCorrupt,
    Lane,
    LayerExtent,
    NotResident,
    Recovery,
    cut_points,
    zero_runs,
)

__all__ = [
    "CODEC_RAW",
    "CODEC_ZSTD",
    "INODE_HAS_XATTRS",
    "Attr",
    "Caller",
    "ChunkPlaces",
    "ChunkRef",
    "DirectoryRows",
    "Engine",
    "FileRows",
    "JournalCorrupt",
    "Lane",
    "LayerExtent",
    "NotResident",
    "Recovery",
    "cut_points",
    "zero_runs",
]
