"""The engine and the lane. With `chunks` and `constants` the only import of the extension module.

`cowfs/_native.pyi` documents the names. Not here: conversion or policy of any kind.
"""

from cowfs._native import (
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
    SurvivalTable,
    take_faults,
)

Handle = tuple[int, int]
"""The inode of an open file or directory, and a number."""

__all__ = [
    "Attr",
    "Caller",
    "ChunkRun",
    "DirectoryRows",
    "Engine",
    "Handle",
    "JournalCorrupt",
    "Lane",
    "NotResident",
    "Owners",
    "Recovery",
    "SurvivalTable",
    "take_faults",
]
