"""Windows over the chunks of some files, and a budget for the space they may take in the cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cowfs.native.chunks import ChunkRef

if TYPE_CHECKING:
    from cowfs.index import ExtentRow

KNOWN_MAX = 1_000_000
"""Chunks that are remembered. Beyond that, a chunk shared by many files may count several times."""


class Window:
    """Chunks of some files, each once, in the order of the files."""

    def __init__(self, most_bytes: int, most_chunks: int) -> None:
        self._most_bytes = most_bytes
        self._most_chunks = most_chunks
        self._chunks: dict[bytes, ChunkRef] = {}
        self._bytes = 0

    def add(self, row: ExtentRow) -> None:
        """Adds one row. Check `is_full` after each one, since a file may have any number of
        rows."""
        hash = bytes(row[2])
        if hash not in self._chunks:
            self._chunks[hash] = ChunkRef(hash, row[3], row[4], row[5], row[6], row[8])
            self._bytes += row[6]

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._most_bytes or len(self._chunks) >= self._most_chunks

    @property
    def chunks(self) -> list[ChunkRef]:
        return list(self._chunks.values())


class Budget:
    """The share of the cache that may be filled; once it is spent, nothing more fits."""

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes
        self._known: set[int] = set()
        self.is_spent = False

    def note(self, chunks: Iterable[ChunkRef]) -> None:
        """Counts chunks that are in the cache already."""
        for chunk in chunks:
            self._count(chunk)

    def take(self, chunks: Iterable[ChunkRef]) -> list[ChunkRef]:
        """The first chunks, as many as fit; each chunk counts once."""
        taken: list[ChunkRef] = []
        for chunk in chunks:
            self._count(chunk)
            if self._left_bytes < 0:
                self.is_spent = True
                break
            taken.append(chunk)
        return taken

    def _count(self, chunk: ChunkRef) -> None:
        known = int.from_bytes(chunk.hash[:8])
        if known not in self._known:
            self._left_bytes -= _file_bytes(chunk.raw_length)
            if len(self._known) < KNOWN_MAX:
                self._known.add(known)


def _file_bytes(raw_length: int) -> int:
    """The approximate size of a chunk in the cache, checksums included."""
    return raw_length + raw_length // 1024 + 16
