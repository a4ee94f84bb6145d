"""A server on cowfs' own device loop that answers everything with constants: the limit of FUSE for this design.

It remembers which names exist and nothing else (native/lane/examples/do_nothing.rs), so that what is read is zeros and
directories cannot be listed. Built with the repository; an installed cowfs does not have it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.library import Library
from benchmarks.systems import servers
from benchmarks.systems.contract import Group, Session, System
from cowfs.bench import machine
from cowfs.bench.errors import LeftOut


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
        servers.read_ahead_in_large_steps(self.root)

    def remount(self) -> None:
        """It would forget the names; there is nothing on the disk, so the kernel's pages can all go instead."""
        with contextlib.suppress(OSError):
            machine.drop_pages()

    def end(self) -> None:
        self._running.close()

    def pids(self) -> list[int]:
        return [self._pid]
