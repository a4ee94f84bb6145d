"""A server on cowfs' own device loop that answers everything with constants: the limit of FUSE for this design.

It remembers which names exist and nothing else (native/lane/examples/do_nothing.rs), so that what is read is zeros and
directories cannot be listed. Built with the repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.errors import LeftOut
from benchmarks.library import Library
from benchmarks.systems import servers
from benchmarks.systems.contract import Group, Session, System
from cowfs.bench import machine
from cowfs.machine import mount_table


class DoNothing(System):
    name = "do-nothing"
    title = "do-nothing server"
    groups = frozenset({Group.FILES, Group.FILES_4, Group.LARGE})
    keeps_content = False

    def __init__(self, given: str | os.PathLike[str] | None) -> None:
        self._given = given

    def check(self) -> str:
        if os.geteuid() != 0:
            raise LeftOut("it mounts by itself, which takes root")
        self._program = servers.program(self._given, "do_nothing", "it is built in the repository: make bench")
        return "this repository's"

    @contextmanager
    def open(self, place: Path, library: Library, group: Group) -> Iterator[Session]:
        session = DoNothingSession(self._program, place, library.sizes.large_bytes, library.sizes.small_bytes)
        try:
            session.start()
            yield session
        finally:
            session.end()


class DoNothingSession(Session):
    def __init__(self, program: Path, place: Path, large_bytes: int, small_bytes: int) -> None:
        self.root, self._log = place / "mount", place / "log"
        self.root.mkdir()
        self._command = [str(program), str(self.root), str(small_bytes), str(large_bytes)]
        self._running = ExitStack()
        self._pid = 0

    def start(self) -> None:
        self._pid = self._running.enter_context(servers.served(self._command, self.root, self._log))
        mount = mount_table.mount_at(str(self.root))
        assert mount is not None
        mount_table.set_read_ahead(mount, 4096)  # as a cowfs mount has it

    def remount(self) -> None:
        """Mounting anew would lose the names, so only the kernel's caches are emptied."""
        if machine.can_drop_caches():
            machine.drop_caches()

    def end(self) -> None:
        self._running.close()

    def pids(self) -> list[int]:
        return [self._pid]
