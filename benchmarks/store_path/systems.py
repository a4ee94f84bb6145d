"""The systems that a run compares: cowfs, and JuiceFS with and without its write-back."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from benchmarks.systems.contract import Session
from benchmarks.systems.cowfs_mounts import CowfsSession, WritableSession
from benchmarks.systems.juicefs import JuiceFS
from cowfs.base import clock
from cowfs.blocking import Volume
from cowfs.format.store_url import StoreUrl


class System(ABC):
    """has_commits: what is written is not in the store until somebody says so (`settle`)."""

    has_commits = False

    @abstractmethod
    def writable(self) -> AbstractContextManager[Session]: ...

    @abstractmethod
    def cold(self) -> AbstractContextManager[Session]:
        """What `writable` has written, mounted without any cache."""

    def end(self) -> None:  # noqa: B027
        """Nothing runs or is mounted afterwards."""


class Cowfs(System):
    has_commits = True

    def __init__(self, place: Path, store: StoreUrl) -> None:
        place.mkdir(parents=True)
        self._place = place
        self._volume = Volume.new(f"bench-{clock.random_bytes(6).hex()}", store=str(store))

    def writable(self) -> AbstractContextManager[Session]:
        return _mounted(WritableSession(self._place, self._volume, {}))

    def cold(self) -> AbstractContextManager[Session]:
        version = Volume.version(self._volume.name, store=self._volume.store_url)
        return _mounted(CowfsSession(self._place, version, {}))


@contextmanager
def _mounted(session: CowfsSession) -> Iterator[Session]:
    session.clear_local_cache()
    try:
        yield session
    finally:
        session.end()


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
    def writable(self) -> Iterator[Session]:
        yield self._session

    @contextmanager
    def cold(self) -> Iterator[Session]:
        self._session.clear_local_cache()
        yield self._session

    def end(self) -> None:
        self._running.close()
