"""How much of a pack comes along with a chunk that somebody has missed.

Files that were committed together lie together in a pack, nearly in order (several threads pack
them), and are mostly read together and in order. So a walk through a directory is seen as misses
that follow one another in a pack:

    miss                                                  what comes along behind the chunk
    the first in a pack                                   nothing; if a walk has left another pack at its end, as much as there
    within NEAR_BYTES of where the last one's ended       twice as much, FIRST_BYTES at least, at most MOST_BYTES: a usual pack
    anywhere else, of a small chunk                       FIRST_BYTES
    anywhere else, of another                             nothing: files of that size are read at random, too
    of a chunk of LARGE_BYTES                             nothing: those are read ahead by file

On a walk what lies up to NEAR_BYTES before the chunk comes along, too, or it would be missed later,
one by one. A walk is remembered until more than STRAYS_MAX misses were elsewhere. Reading small
files in order so costs some requests a pack. Readers at random get as much as ever. Thread-safe;
nothing is fetched here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from cowfs.values import dataclass

SMALL_BYTES = 64 << 10
LARGE_BYTES = 256 << 10
FIRST_BYTES = 1 << 20
MOST_BYTES = 16 << 20
NEAR_BYTES = 1 << 20
STRAYS_MAX = 3
PACKS_MAX = 1024
"""Packs whose misses are remembered."""


@dataclass(slots=True)
class _Walk:
    end: int
    company_bytes: int
    strays: int = 0
    """Misses elsewhere since."""


class Neighbourhoods:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards everything below
        self._walks: OrderedDict[int, _Walk] = OrderedDict()  # by number of the pack
        self._left_bytes = 0  # what came along at the end of a pack

    def company(self, pack: int, start: int, end: int, longest_bytes: int) -> tuple[int, int]:
        """How many bytes before `start` and behind `end` come along with what is missed between
        them, chunks that are no longer than longest_bytes."""
        if longest_bytes >= LARGE_BYTES:
            return 0, 0
        with self._lock:
            walk = self._walks.pop(pack, None)
            if walk is None:
                walk = _Walk(end, self._left_bytes)
                before, behind, self._left_bytes = 0, walk.company_bytes, 0
            elif abs(start - walk.end) <= NEAR_BYTES:
                behind = min(max(2 * walk.company_bytes, FIRST_BYTES), MOST_BYTES)
                before, walk = NEAR_BYTES, _Walk(max(end, walk.end), behind)
            else:
                before, behind = 0, FIRST_BYTES if longest_bytes < SMALL_BYTES else 0
                walk.strays += 1
                if walk.strays > STRAYS_MAX:
                    walk = _Walk(end, behind)
            self._walks[pack] = walk
            if len(self._walks) > PACKS_MAX:
                self._walks.popitem(last=False)
            return before, behind

    def brought(self, pack: int, end: int, *, is_last: bool) -> None:
        """What came along ended there; is_last: and so does the pack."""
        with self._lock:
            walk = self._walks.get(pack)
            if walk is not None and walk.strays == 0:
                walk.end = max(walk.end, end)
                if is_last and walk.company_bytes > FIRST_BYTES:
                    self._left_bytes = walk.company_bytes
