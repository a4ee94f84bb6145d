"""The needed byte ranges of packs: the result of marking, in about ten bytes a chunk.

A range is one blob, by its offset in its pack and its stored length, kept as one number of 64 bits.
The same blob is found many times (in many versions, in many files), so a pack's ranges are sorted
and made unique whenever they have doubled. Not thread-safe.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from cowfs.base.ids import PackId

_LENGTH_BITS = 32
_FEW = 64


class LiveRanges:
    def __init__(self) -> None:
        self._ranges: dict[PackId, array[int]] = {}
        self._unique: dict[PackId, int] = {}  # the number of ranges after the last clean-up

    def __contains__(self, pack: object) -> bool:
        return pack in self._ranges

    def __iter__(self) -> Iterator[PackId]:
        return iter(self._ranges)

    def add(self, pack: PackId, ranges: Iterable[tuple[int, int]]) -> None:
        """ranges: (offset, stored length), in any order, repetitions included."""
        found = self._ranges.setdefault(pack, array("Q"))
        found.extend(offset << _LENGTH_BITS | length for offset, length in ranges)
        if len(found) > 2 * self._unique.get(pack, 0) + _FEW:
            self._tidy(pack)

    def of(self, pack: PackId) -> list[tuple[int, int]]:
        """(offset, stored length), ascending."""
        if pack not in self._ranges:
            return []
        mask = (1 << _LENGTH_BITS) - 1
        return [(number >> _LENGTH_BITS, number & mask) for number in self._tidy(pack)]

    def pack_ranges(self, pack: PackId) -> bytes:
        """The ranges of a pack, for `add_packed`, in this machine's byte order."""
        return self._tidy(pack).tobytes()

    def add_packed(self, pack: PackId, ranges: bytes) -> None:
        found = self._ranges.setdefault(pack, array("Q"))
        found.frombytes(ranges)
        if len(found) > 2 * self._unique.get(pack, 0) + _FEW:
            self._tidy(pack)

    @property
    def count(self) -> int:
        return sum(len(self._tidy(pack)) for pack in list(self._ranges))

    def _tidy(self, pack: PackId) -> array[int]:
        found = self._ranges[pack]
        if len(found) != self._unique.get(pack, -1):
            found = self._ranges[pack] = array("Q", sorted(set(found)))
            self._unique[pack] = len(found)
        return found
