"""A server on cowfs' own device loop that answers everything with constants: the limit of FUSE for
this design.

It remembers which names exist and nothing else (native/lane/examples/do_nothing.rs), so that what
is read is zeros and directories cannot be listed. Built with the repository.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.library import Library
from benchmarks.systems import servers
from benchmarks.systems.contract import Group, LeftOut, Session, System
from cowfs.bench import hardware
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

    def open(self, place: Path, library: Library, group: Group) -> AbstractContextManager[Session]:
        amounts = [str(library.sizes.small_bytes), str(library.sizes.large_bytes)]
        return servers.running(DoNothingSession(place, [str(self._program), str(place / "mount"), *amounts]))


class DoNothingSession(servers.ServerSession):
    def remount(self) -> None:
        """Mounting anew would lose the names: after the first time, only the kernel's caches are
        emptied."""
        if not self._pid:
            super().remount()
            mount = mount_table.mount_at(str(self.root))
            assert mount is not None
            mount_table.set_read_ahead(mount)  # as a cowfs mount has it
        elif hardware.can_drop_caches():
            hardware.drop_caches()
