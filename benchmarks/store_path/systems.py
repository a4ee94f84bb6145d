"""The systems that a run compares: cowfs, and JuiceFS with and without its write-back."""

from __future__ import annotations

import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.systems.juicefs import JuiceFS, JuiceSession
from cowfs import clock
from cowfs.blocking import RWVolume, Volume
from cowfs.format.store_url import StoreUrl
from cowfs.machine import registry

TICKS = os.sysconf("SC_CLK_TCK")


class Mounted(ABC):
    """One mount. Its own processes do its work; what the kernel does for callers is not counted."""

    path: Path

    @abstractmethod
    def pids(self) -> list[int]: ...

    def settle(self) -> None:  # noqa: B027
        """Returns when all that was written is in the store."""

    def cpu_s(self) -> float:
        return sum(_cpu_s(pid) for pid in self.pids())

    def peak_bytes(self) -> int:
        return sum(_peak_bytes(pid) for pid in self.pids())


class System(ABC):
    """has_commits: what is written is not in the store until somebody says so (`settle`)."""

    has_commits = False

    @abstractmethod
    def writable(self) -> AbstractContextManager[Mounted]: ...

    @abstractmethod
    def cold(self) -> AbstractContextManager[Mounted]:
        """What `writable` has written, mounted without any cache."""

    def end(self) -> None:  # noqa: B027
        """Nothing runs or is mounted afterwards."""


@dataclass
class CowfsMounted(Mounted):
    path: Path
    volume: RWVolume | None = None

    def pids(self) -> list[int]:
        entry = registry.find_by_path(str(self.path))
        return [entry.pid] if entry else []

    def settle(self) -> None:
        if self.volume is not None:
            self.volume.commit("bench")


class Cowfs(System):
    has_commits = True

    def __init__(self, place: Path, store: StoreUrl) -> None:
        self._place = place
        self._volume = Volume.new(f"bench-{clock.random_bytes(6).hex()}", store=str(store))

    @contextmanager
    def writable(self) -> Iterator[Mounted]:
        cache = self._fresh_cache()
        path = Path(self._volume.mount(self._place / "rw", cache_dir=cache, meta_dir=self._place / "meta"))
        try:
            yield CowfsMounted(path, self._volume)
        finally:
            self._volume.unmount()

    @contextmanager
    def cold(self) -> Iterator[Mounted]:
        version = Volume.version(self._volume.name, store=self._volume.store_url)
        path = Path(version.mount(self._place / "ro", cache_dir=self._fresh_cache()))
        try:
            yield CowfsMounted(path)
        finally:
            version.unmount()

    def _fresh_cache(self) -> Path:
        shutil.rmtree(self._place / "cache", ignore_errors=True)
        (self._place / "cache").mkdir(parents=True)
        return self._place / "cache"


@dataclass
class JuiceMounted(Mounted):
    session: JuiceSession

    def __post_init__(self) -> None:
        self.path = self.session.root

    def pids(self) -> list[int]:
        return self.session.pids()

    def settle(self) -> None:
        self.session.settle()


class Juice(System):
    """writes_back: as most run it. Without, a write is done when the store has it (when the file is
    closed)."""

    def __init__(self, place: Path, store: StoreUrl, *, writes_back: bool) -> None:
        place.mkdir(parents=True)
        self._running = ExitStack()
        program = Path(sys.executable).with_name("juicefs")
        system = JuiceFS(program, "sqlite3", store, writes_back=writes_back)
        system.check()
        self._session = self._running.enter_context(system.session(place))

    @contextmanager
    def writable(self) -> Iterator[Mounted]:
        yield JuiceMounted(self._session)

    @contextmanager
    def cold(self) -> Iterator[Mounted]:
        self._session.clear_local_cache()
        yield JuiceMounted(self._session)

    def end(self) -> None:
        self._running.close()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
