"""cowfs in its variants. Each session has a store, a cache and a working copy of its own.

    cowfs              writable, as `mount()` does it without options
    cowfs-pyfuse3      writable, without the fast lane
    cowfs-uring        writable, FUSE over io_uring
    cowfs-resident     writable fork of a committed version, its whole index in memory
    cowfs-ro           the version itself, read-only; the kernel reads the cache's files by itself where passthrough is possible

Every variant but cowfs-uring uses the device, also where `auto` would choose io_uring.
A variant that this kernel cannot serve is left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cowfs
from benchmarks import stores
from benchmarks.library import Library
from benchmarks.systems import servers
from benchmarks.systems.contract import Group, LeftOut, Session, System
from cowfs.base import clock
from cowfs.bench.crew import WorkloadFailed
from cowfs.blocking import ROVolume, RWVolume, Volume
from cowfs.errors import CowfsError
from cowfs.machine import kernel, registry

ALL = frozenset(Group)
READERS = frozenset({Group.FILES, Group.FILES_4, Group.LARGE, Group.MOUNTS})


class CowfsMount(System):
    def __init__(self, name: str, title: str, groups: frozenset[Group], *, reads: str = "", **options: Any) -> None:
        """reads: "version" (read-only) or "fork" of what is prepared; "": an empty writable
        volume."""
        self.name, self.title, self.groups = name, title, groups
        self.is_reader = bool(reads)
        self._reads, self._is_plain = reads, not options
        self._options = {"transport": "device", **options}

    def check(self) -> str:
        if self._options["transport"] == "uring" and not kernel.is_uring_enabled():
            raise LeftOut(f"the kernel's FUSE over io_uring is off ({kernel.URING_PARAMETER})")
        return cowfs.__version__

    @contextmanager
    def open(self, place: Path, library: Library, group: Group) -> Iterator[Session]:
        with stores.fresh(library.base) as store:
            session = self._session(place, library, group, str(store))
            try:
                self._start(session)
                yield session
            finally:
                session.end()

    def _start(self, session: CowfsSession) -> None:
        try:
            session.remount()
        except (CowfsError, OSError) as error:
            if self._is_plain:
                raise
            raise LeftOut(f"it does not mount: {error}") from error  # an option that cannot be had here

    def _session(self, place: Path, library: Library, group: Group, store: str) -> CowfsSession:
        if not self._reads:
            return WritableSession(place, Volume.new("bench", store=store), self._options)
        locator = library.large() if group is Group.LARGE else library.tree()
        return self.reader(place, locator)

    def reader(self, place: Path, locator: str) -> CowfsSession:
        """A session on a version, not mounted yet; on an empty volume's system: on a fork of it."""
        version = Volume.from_locator(locator)
        if self._reads == "version":
            return CowfsSession(place, version, self._options)
        fork = version.fork(f"fork-{clock.random_bytes(6).hex()}")
        return WritableSession(place, fork, self._options)


class CowfsSession(Session):
    def __init__(self, place: Path, volume: ROVolume | RWVolume, options: dict[str, Any]) -> None:
        self.root, self._cache = place / "mount", place / "cache"
        self._volume, self._options = volume, options

    def remount(self) -> None:
        self._volume.unmount()
        self._cache.mkdir(exist_ok=True)
        self._volume.mount(self.root, cache_dir=self._cache, **self._options)

    def clear_local_cache(self) -> None:
        self._volume.unmount()
        shutil.rmtree(self._cache, ignore_errors=True)
        self.remount()

    def pids(self) -> list[int]:
        entry = registry.find_by_path(str(self.root))
        return [entry.pid] if entry else []

    def end(self) -> None:
        """Unmounts; a daemon that does not is killed, and the run fails."""
        pids = self.pids()
        try:
            self._volume.unmount()
        except CowfsError as error:
            servers.unmount(self.root)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            raise WorkloadFailed(f"cowfs did not unmount: {error}") from error


class WritableSession(CowfsSession):
    def __init__(self, place: Path, volume: RWVolume, options: dict[str, Any]) -> None:
        super().__init__(place, volume, {**options, "meta_dir": place / "meta"})
        self.volume = volume

    def settle(self) -> None:
        self.volume.commit("bench")


def variants() -> list[System]:
    return [
        CowfsMount("cowfs", "cowfs", ALL),
        CowfsMount("cowfs-pyfuse3", "cowfs, lane off", ALL - {Group.COMMIT, Group.MOUNTS}, fast_lane=False),
        CowfsMount("cowfs-uring", "cowfs, io_uring", ALL - {Group.COMMIT, Group.MOUNTS}, transport="uring"),
        CowfsMount("cowfs-resident", "cowfs, resident", READERS - {Group.LARGE}, reads="fork", resident=True),
        CowfsMount("cowfs-ro", "cowfs, read-only", READERS, reads="version"),
    ]
