"""What malloc keeps of this process's memory: few arenas, and nothing large that nobody uses. And
when Python looks for cycles of objects.

Chunks and packs pass through many threads in blocks of 100 KiB to 16 MiB. glibc gives each thread
an arena of its own and returns only the end of an arena to the system, so that what is free grows
to many times of what is used (a commit a second: 400 MB after 5 minutes, 40 MB of it used). Here
threads share ARENAS, and `release` returns free pages from anywhere in them once there are enough
to be worth the walk. The largest blocks are mapped, so that they leave no holes; for smaller ones
that costs too much processor time, for pages that are zeroed again and again
(docs/decisions/0024-malloc.md).

Only for a process of our own; only with glibc, elsewhere nothing happens. Any thread may call.
"""

from __future__ import annotations

import ctypes
import gc
import os
from functools import cache

ARENAS = 2
MAPPED_BYTES = 4 << 20  # packs, and what else is as large
READ_ONLY_MAPPED_BYTES = 2 << 20  # a chunk has less
RELEASE_BYTES = 16 << 20
YOUNG_OBJECTS = 50_000
"""More than a window of rows has: a commit's rows are gone before anybody looks at them. With
Python's 700, looking took 6 % of a commit of 200,000 new files."""
_M_ARENA_MAX = -8  # malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def limit_arenas() -> None:
    """For the start of a process, before it has threads. What the user's environment says about
    arenas stands."""
    libc = _glibc()
    if libc is not None and "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(_M_ARENA_MAX, ARENAS)


def map_large_blocks(from_bytes: int) -> None:
    """Blocks of that size are returned as soon as they are free; the free end of an arena only when
    it has RELEASE_BYTES, or its pages would be zeroed for each chunk anew. glibc no longer adapts
    both limits to the largest block it has seen. For the start of a process; the user's environment
    has the last word.
    """
    libc = _glibc()
    if libc is not None and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        libc.mallopt(_M_MMAP_THRESHOLD, from_bytes)
        libc.mallopt(_M_TRIM_THRESHOLD, RELEASE_BYTES)


def collect_seldom() -> None:
    """Cycles of objects are looked for once YOUNG_OBJECTS more were made than freed, and not among
    what the process has begun with; what large ones hold, `Heap.release` frees. For the start of a
    process, once its modules are loaded."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


class Heap:
    """For one thread that calls `release` now and then."""

    def __init__(self) -> None:
        self._kept_bytes = 0

    def release(self) -> bool:
        """Frees cycles of objects, and returns free pages to the system, if the process took
        RELEASE_BYTES more since the last time. Walks all objects, and all that is free."""
        libc = _glibc()
        taken_bytes = _private_bytes()
        self._kept_bytes = min(self._kept_bytes, taken_bytes)
        if libc is None or taken_bytes < self._kept_bytes + RELEASE_BYTES:
            return False
        gc.collect()
        libc.malloc_trim(0)
        self._kept_bytes = _private_bytes()
        return True


def _private_bytes() -> int:
    """Resident memory that is not of files."""
    with open("/proc/self/statm", "rb") as statm:
        _, resident, shared, *_ = statm.read().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGESIZE")


@cache
def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None)
    if not all(hasattr(libc, name) for name in ("mallopt", "malloc_trim")):
        return None
    libc.malloc_trim.argtypes = [ctypes.c_size_t]
    return libc
