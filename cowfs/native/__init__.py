"""The engine and the lane. With `chunks` and `constants` the only import of the extension module.

`cowfs/_native.pyi` documents the names. Not here: conversion or policy of any kind.
"""

from cowfs._native import (
    INODE_HAS_XATTRS,
    Attr,
    Caller,
    ChunkRun,
    DirectoryRows,
    Engine,
    JournalCorrupt,
    Lane,
    NotResident,
    Owners,
    Recovery,
)

__all__ = [
    "INODE_HAS_XATTRS",
    "Attr",
    "Caller",
    "ChunkRun",
    "DirectoryRows",
    "Engine",
    "JournalCorrupt",
    "Lane",
    "NotResident",
    "Owners",
    "Recovery",
]
