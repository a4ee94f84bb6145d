"""Local disk that a mount takes beyond its uncommitted work: what may stay, and what is given up
when the disk is full.

    committed staged bytes   a cache of what was written last     at most a quarter of the cache size, none once unmounted;
                             files for segments to come           half of that quarter at most (native/staging/src/spares.rs)
    chunks, whole files,     the cache that a user's mounts share   what the cache size leaves to all of them together
      blocks of indexes

`trim` keeps these bounds, and the disk from running full because of them: soon after a mount has
begun, now and then, when it has added a part of what it may have, and when it ends. `relieve` is
for a call that met ENOSPC: it frees in steps, on the file system that is full and nowhere else,
staging first. The engine keeps a ballast for those who leave a full disk
(native/staging/src/ballast.rs); both take it back when they can. Any thread may call; both may take
long.
"""

from __future__ import annotations

import os
from pathlib import Path

from cowfs import clock
from cowfs.control import SessionSpec
from cowfs.format.store_url import StoreUrl
from cowfs.native import Engine

CACHE_DEFAULT_BYTES = 20 << 30
STAGED_PART = 4
RELIEF_BYTES = 64 << 20
"""A segment of staging: what one ENOSPC frees, if it can."""
FREE_FLOOR_BYTES = 1 << 30
FREE_FLOOR_PART = 20
"""Caches leave this much of their disk free, or that part of it if that is less."""
TRIM_PAUSE_S = 30.0
GROWN_PART = 16
"""Caches exceed their size by this part of it, for a moment."""


class Room:
    def __init__(self, spec: SessionSpec, engine: Engine) -> None:
        self._engine = engine
        self._cache_dir = spec.options.cache_path
        self._working_copy = Path(spec.working_copy) if spec.working_copy is not None else None
        size_bytes = spec.options.cache_size_bytes
        self._cache_bytes = CACHE_DEFAULT_BYTES if size_bytes is None else size_bytes
        self._trimmed_s = -TRIM_PAUSE_S

    def trim_if_due(self) -> None:
        is_late = clock.monotonic_s() - self._trimmed_s >= TRIM_PAUSE_S
        if is_late or self._engine.cache_grown_bytes() > self._cache_bytes // GROWN_PART:
            self.trim()

    def end(self) -> None:
        """Others may not look at the cache for long."""
        if not self._engine.is_broken() and self._engine.cache_grown_bytes() > 0:
            self._engine.trim_cache(self._cache_bytes)

    def trim(self) -> None:
        self._trimmed_s = clock.monotonic_s()
        staged_bytes = 0
        if self._working_copy is not None:
            staged_bytes = self._trim_staging()
            self._engine.restore_ballast()
        self._engine.trim_cache(max(self._cache_bytes - staged_bytes, 0))
        if (missing_bytes := _missing_bytes(self._cache_dir)) > 0:
            self._engine.free_cache(missing_bytes)

    def cacheable_bytes(self) -> int:
        """How much can be put into the cache before some of it is deleted again. A trim frees a
        little more than it must, and blocks of indexes take their part."""
        free_bytes = -_missing_bytes(self._cache_dir)
        return min(self._cache_bytes * 7 // 8, max(self._engine.cache_bytes() + free_bytes, 0))

    def release_committed(self) -> None:
        """What of a commit's bytes is beyond their part goes at once."""
        if self._working_copy is not None:
            self._trim_staging()

    def relieve(self) -> int:
        """Bytes freed; 0: trying again is in vain."""
        if self._working_copy is None:
            return 0
        freed_bytes = self._engine.relieve(RELIEF_BYTES)
        if freed_bytes < RELIEF_BYTES and self._is_short() and _same_disk(self._working_copy, self._cache_dir):
            freed_bytes += self._engine.free_cache(RELIEF_BYTES)
            self._engine.restore_ballast()
        return freed_bytes

    def makes_room_for(self, store: StoreUrl) -> bool:
        """Whether space was freed for a store that met ENOSPC: one in a directory of the working
        copy's disk, which is full."""
        return (
            self._working_copy is not None
            and is_near(store, self._working_copy)
            and self._is_short()
            and self.relieve() > 0
        )

    def _is_short(self) -> bool:
        assert self._working_copy is not None
        return _free_bytes(self._working_copy) < RELIEF_BYTES

    def _trim_staging(self) -> int:
        """How much is left of what is committed."""
        assert self._working_copy is not None
        engine = self._engine
        engine.trim_staging(self._cache_bytes // STAGED_PART)
        staged_bytes = engine.committed_staged_bytes()
        if (missing_bytes := _missing_bytes(self._working_copy)) > 0:
            engine.relieve(missing_bytes)
            staged_bytes = engine.committed_staged_bytes()
        return staged_bytes


def is_near(store: StoreUrl, directory: Path) -> bool:
    """Whether the store is a directory on the disk of the other one."""
    return store.protocol == "file" and _same_disk(Path("/" + store.path), directory)


def _missing_bytes(path: Path) -> int:
    """How much less than the floor is free."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    floor_bytes = min(FREE_FLOOR_BYTES, found.f_blocks * found.f_frsize // FREE_FLOOR_PART)
    return floor_bytes - found.f_bavail * found.f_frsize


def _free_bytes(path: Path) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _same_disk(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False
