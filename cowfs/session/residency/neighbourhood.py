"""Decides how much of a pack to fetch around a missed chunk.

Files that were committed together are stored together in a pack, nearly in order (several threads
pack them), and are mostly read together and in order. A walk through a directory therefore appears
as misses that follow one another in a pack:

    miss                                                  what is fetched after the chunk
    the first in a pack                                   nothing; after a walk that reached the end of another pack, as much as there
    within NEAR_BYTES of where the last one ended         twice as much, FIRST_BYTES at least, at most MOST_BYTES: a usual pack
    anywhere else, of a small chunk                       FIRST_BYTES
    anywhere else, of another                             nothing: files of that size are read at random, too
    of a chunk of LARGE_BYTES                             nothing: those are read ahead by file

On a walk, up to NEAR_BYTES before the chunk are fetched as well; otherwise those chunks would be
missed later, one by one. A walk is forgotten after more than STRAYS_MAX misses elsewhere. Reading
small files in order thus costs a few requests a pack. Random reads of larger chunks fetch
nothing extra. Thread-safe; nothing is fetched here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from cowfs.base.fast_dataclass import dataclass

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
    """Misses elsewhere since the walk was last extended."""


class Neighbourhoods:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards everything below
        self._walks: OrderedDict[int, _Walk] = OrderedDict()  # by number of the pack
        self._left_bytes = 0  # fetched with the last chunk at the end of a pack

    def company(self, pack: int, start: int, end: int, longest_bytes: int) -> tuple[int, int]:
        """How many bytes to fetch before `start` and after `end`, around a miss of the bytes
        between. longest_bytes: the longest chunk missed."""
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
        """Records that the extra bytes ended at `end`; is_last: so does the pack."""
        with self._lock:
            walk = self._walks.get(pack)
            if walk is not None and walk.strays == 0:
                walk.end = max(walk.end, end)
                if is_last and walk.company_bytes > FIRST_BYTES:
                    self._left_bytes = walk.company_bytes
