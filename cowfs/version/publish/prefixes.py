"""Tells whether one file begins with the whole content of another, in two versions: by chunks as
far as these are equal, and byte for byte where they are cut differently, which is mostly the last
one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cowfs.base.errors import CorruptError
from cowfs.base.ids import ChunkHash
from cowfs.index import ExtentRow, Index
from cowfs.store.packs import PackReader
from cowfs.version.differences import comparable_extents
from cowfs.version.merge.merge_states import Part
from cowfs.version.publish.tree_changes import INO, SIZE

WINDOW_BYTES = 4 << 20


class Prefixes:
    def __init__(self, packs: PackReader) -> None:
        self._packs = packs

    def begins_with(self, sides: Sequence[Index], whole: Part, first: Part) -> bool:
        """For regular files; `first` is not longer than `whole`."""
        rows = [sides[part.side].content(part.row[INO])[0] for part in (whole, first)]
        size = first.row[SIZE]
        start = 0
        for one, other in zip(comparable_extents(rows[0]), comparable_extents(rows[1]), strict=False):
            if one != other:
                break
            start = one[0] + one[1]
        while start < size:
            end = min(size, start + WINDOW_BYTES)
            if self._read(sides[whole.side], rows[0], start, end) != self._read(sides[first.side], rows[1], start, end):
                return False
            start = end
        return True

    def _read(self, index: Index, rows: Sequence[ExtentRow], start: int, end: int) -> bytes:
        data = bytearray(end - start)
        for row in _rows_between(rows, start, end):
            pack = index.pack_id(row[3])
            if pack is None:
                raise CorruptError(f"the index has no pack of number {row[3]}", hint="The version is damaged.")
            chunk = self._packs.read(pack, row[4], row[5], row[6], row[8], ChunkHash(row[2]))
            begin, until = max(start, row[0]), min(end, row[0] + row[1])
            skip = row[7] + begin - row[0]
            data[begin - start : until - start] = chunk[skip : skip + until - begin]
        return bytes(data)


def _rows_between(rows: Sequence[ExtentRow], start: int, end: int) -> Iterator[ExtentRow]:
    return (row for row in rows if row[0] < end and start < row[0] + row[1])
