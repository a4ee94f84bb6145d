"""Engines for tests: a working copy in a temporary directory, on an empty base version."""

from __future__ import annotations

import stat
from pathlib import Path

from cowfs.native import Caller, DirectoryRows, Engine

ROOT = 1
CALLER = Caller(0, 0, 1, 0o022, [0])
ROOT_ROW = (ROOT, stat.S_IFDIR | 0o755, 2, 0, 0, 0, 0, 0, 1, 2, 3, 0, b"")


def open_engine(directory: Path, *, after_layer: int = 0, writable: bool = True, boot_id: str = "boot") -> Engine:
    return Engine.open(
        root=ROOT_ROW,
        next_ino=2,
        cache_dir=str(directory / "cache"),
        staging_dir=str(directory / "working") if writable else None,
        after_layer=after_layer,
        boot_id=boot_id,
    )


def fresh_engine(directory: Path) -> Engine:
    engine = open_engine(directory)
    engine.load_directory(ROOT, DirectoryRows())
    return engine
