"""Tunes malloc and Python's garbage collector for this process: few arenas, no large unused blocks,
rare collections.

Chunks and packs pass through many threads in blocks of 100 KiB to 16 MiB. glibc gives each thread
its own arena and returns only the end of an arena to the system, so free memory grows to many times
the used amount (a commit a second: 400 MB after 5 minutes, 40 MB of it used). Here threads share
ARENAS, and `release` returns free pages from anywhere in them once there are enough to be worth the
walk. The largest blocks are mapped, so that they leave no holes; for smaller ones mapping costs too
much processor time, because their pages are zeroed again and again (docs/decisions/0024-malloc.md).

Only for a process that cowfs owns, and only with glibc; elsewhere nothing happens. Any thread may
call.
"""

from __future__ import annotations

import ctypes
import gc
import os
from functools import cache

ARENAS = 2
MAPPED_BYTES = 4 << 20  # packs, and blocks of that size
READ_ONLY_MAPPED_BYTES = 2 << 20  # larger than a chunk
RELEASE_BYTES = 16 << 20
YOUNG_OBJECTS = 50_000
"""More than a window of rows has, so a commit's rows are freed before a collection scans them. With
Python's 700, scanning took 6 % of a commit of 200,000 new files."""
_M_ARENA_MAX = -8  # malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def limit_arenas() -> None:
    """Limits the arenas. Call at the start of a process, before it has threads. MALLOC_ARENA_MAX in
    the user's environment takes precedence."""
    libc = _glibc()
    if libc is not None and "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(_M_ARENA_MAX, ARENAS)


def map_large_blocks(from_bytes: int) -> None:
    """Maps blocks of that size, so that they are returned as soon as they are free. The free end of
    an arena is returned only from RELEASE_BYTES on; otherwise its pages would be zeroed for each
    chunk anew. glibc then no longer adapts either limit to the largest block it has seen. Call at
    the start of a process; the user's environment takes precedence.
    """
    libc = _glibc()
    if libc is not None and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        libc.mallopt(_M_MMAP_THRESHOLD, from_bytes)
        libc.mallopt(_M_TRIM_THRESHOLD, RELEASE_BYTES)


def collect_seldom() -> None:
    """Makes Python collect cycles only after YOUNG_OBJECTS more objects were created than freed,
    and never among the objects the process started with. `Heap.release` frees cycles that hold much
    memory. Call at the start of a process, once its modules are loaded."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


class Heap:
    """For one thread that calls `release` regularly."""

    def __init__(self) -> None:
        self._kept_bytes = 0

    def release(self) -> bool:
        """Frees cycles of objects, and returns free pages to the system, if the process grew by
        RELEASE_BYTES since the last time. Scans all objects and all free blocks."""
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
    """Resident memory that is not backed by files."""
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
