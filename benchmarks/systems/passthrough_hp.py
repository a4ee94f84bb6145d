"""libfuse's `passthrough_hp` over a local directory: a whole file system without versions, at the
speed of FUSE itself."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
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

    def open(self, place: Path, library: Library, group: Group) -> AbstractContextManager[Session]:
        (place / "source").mkdir()
        command = [str(self._program), "--foreground", str(place / "source"), str(place / "mount")]
        return servers.running(servers.ServerSession(place, command))
