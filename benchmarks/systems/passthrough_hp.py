"""libfuse's `passthrough_hp` over a local directory: a whole file system without versions, at the speed of FUSE itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.library import Library
from benchmarks.systems import servers
from benchmarks.systems.contract import Group, Session, System


class PassthroughHp(System):
    name = "passthrough_hp"
    title = "passthrough_hp"
    has_store = False
    groups = frozenset({Group.FILES, Group.FILES_4, Group.LARGE, Group.PROGRAMS})

    def __init__(self, given: str | os.PathLike[str] | None) -> None:
        self._given = given

    def check(self) -> str:
        self._program = servers.program(
            self._given,
            "passthrough_hp",
            "it is an example of libfuse (meson setup build; ninja -C build), give its path",
        )
        return "libfuse's example"

    @contextmanager
    def open(self, place: Path, library: Library, group: Group) -> Iterator[Session]:
        session = PassthroughSession(self._program, place)
        try:
            session.remount()
            yield session
        finally:
            session.end()


class PassthroughSession(Session):
    def __init__(self, program: Path, place: Path) -> None:
        self._source, self.root, self._log = place / "source", place / "mount", place / "log"
        self._source.mkdir()
        self.root.mkdir()
        self._program = program
        self._running = ExitStack()
        self._pid = 0

    def remount(self) -> None:
        self.end()
        command = [str(self._program), "--foreground", str(self._source), str(self.root)]
        self._pid = self._running.enter_context(servers.served(command, self.root, self._log))

    def end(self) -> None:
        self._running.close()

    def pids(self) -> list[int]:
        return [self._pid]
