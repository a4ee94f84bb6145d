"""What malloc keeps of this process's memory: few arenas, and nothing large that nobody uses.

Chunks and packs pass through many threads in blocks of 100 KiB to 16 MiB. glibc gives each thread an arena of its own and
returns only the end of an arena to the system, so that what is free grows to many times of what is used (a commit a second:
400 MB after 5 minutes, 40 MB of it used). Here threads share ARENAS, and `release` returns free pages from anywhere in them
once there are enough to be worth the walk. A fixed threshold above which blocks are mapped keeps memory small as well, but
for blocks of all sizes costs 0.6 s of processor time a GB for pages that are zeroed again and again; read-only mounts map what a
request brings, which pays for itself (docs/decisions/0024-malloc.md).

Only for a process of our own; only with glibc, elsewhere nothing happens. Any thread may call.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

ARENAS = 2
MAPPED_BYTES = 2 << 20
RELEASE_BYTES = 16 << 20
_M_ARENA_MAX = -8  # malloc.h
_M_MMAP_THRESHOLD = -3


def limit_arenas() -> None:
    """For the start of a process, before it has threads. What the user's environment says about arenas stands."""
    libc = _glibc()
    if libc is not None and "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(_M_ARENA_MAX, ARENAS)


def map_large_blocks() -> None:
    """Blocks of MAPPED_BYTES and more are returned as soon as they are free, and cost their page faults each time.

    For a process that only reads: a request of up to 4 MiB is decoded once, smaller blocks stay in arenas.
    """
    libc = _glibc()
    if libc is not None and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        libc.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)


class Heap:
    """For one thread that calls `release` now and then."""

    def __init__(self) -> None:
        self._kept_bytes = 0

    def release(self) -> bool:
        """Returns free pages to the system if the process took RELEASE_BYTES more since the last time. Walks all that is free."""
        libc = _glibc()
        taken_bytes = _private_bytes()
        self._kept_bytes = min(self._kept_bytes, taken_bytes)
        if libc is None or taken_bytes < self._kept_bytes + RELEASE_BYTES:
            return False
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
