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
    take_faults,
)

__all__ = [
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
    "take_faults",
]
