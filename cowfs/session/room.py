"""Bounds the local disk space that a mount uses beyond its uncommitted work, and frees space when
the disk is full.

    committed staged bytes   a cache of recent writes             at most a quarter of the cache size, none once unmounted;
                             recycled segment files               half of that quarter at most (native/staging/src/spares.rs)
    chunks, whole files,     the cache that a user's mounts share   the rest of the cache size, for all of them together
      blocks of indexes

`trim` enforces these limits, and keeps the caches from filling the disk: soon after a mount has
begun, regularly, when it has added a part of its limit, and when it ends. `relieve` is for a call
that failed with ENOSPC: it frees space in steps, only on the full file system, staging first. The
engine keeps a ballast for unmounting from a full disk (native/staging/src/ballast.rs); both
functions restore it when they can. Any thread may call both; both may take long.
"""

from __future__ import annotations

import os
from pathlib import Path

from cowfs.base import clock
from cowfs.control import SessionSpec
from cowfs.control.options import CACHE_DEFAULT_BYTES
from cowfs.format.store_url import StoreUrl
from cowfs.native import Engine

STAGED_PART = 4
RELIEF_BYTES = 64 << 20
"""A segment of staging: the amount that one ENOSPC frees, if possible."""
FREE_FLOOR_BYTES = 1 << 30
FREE_FLOOR_PART = 20
"""Caches leave this much of their disk free, or this fraction of it if that is less."""
TRIM_PAUSE_S = 30.0
GROWN_PART = 16
"""Caches may exceed their size by this fraction of it for a short time."""


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
        """Trims the cache at the end of a mount: the next trim by another mount may be far off."""
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
        """The amount that can be added to the cache before something is deleted again. A trim frees
        a little more than it must, and index blocks take their part."""
        free_bytes = -_missing_bytes(self._cache_dir)
        return min(self._cache_bytes * 7 // 8, max(self._engine.cache_bytes() + free_bytes, 0))

    def release_committed(self) -> None:
        """Frees committed staged bytes beyond their limit at once."""
        if self._working_copy is not None:
            self._trim_staging()

    def relieve(self) -> int:
        """Frees space; returns the bytes freed. 0: retrying is pointless."""
        if self._working_copy is None:
            return 0
        freed_bytes = self._engine.relieve(RELIEF_BYTES, is_refused=True)
        if freed_bytes < RELIEF_BYTES and self._is_short() and _same_disk(self._working_copy, self._cache_dir):
            freed_bytes += self._engine.free_cache(RELIEF_BYTES)
            self._engine.restore_ballast()
        return freed_bytes

    def makes_room_for(self, store: StoreUrl) -> bool:
        """Whether space was freed for a store that reported ENOSPC: it must be a directory on the
        working copy's disk, which is full."""
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
        """Returns the committed bytes that are left."""
        assert self._working_copy is not None
        engine = self._engine
        engine.trim_staging(self._cache_bytes // STAGED_PART)
        staged_bytes = engine.committed_staged_bytes()
        if (missing_bytes := _missing_bytes(self._working_copy)) > 0:
            engine.relieve(missing_bytes, is_refused=False)
            staged_bytes = engine.committed_staged_bytes()
        return staged_bytes


def is_near(store: StoreUrl, directory: Path) -> bool:
    """Whether the store is in a directory on the same disk as `directory`."""
    return store.protocol == "file" and _same_disk(Path("/" + store.path), directory)


def _missing_bytes(path: Path) -> int:
    """How far the free space is below the floor."""
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
