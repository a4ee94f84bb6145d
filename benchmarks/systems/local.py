"""The directory itself: what the disk and the kernel give without anybody in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.library import Library
from benchmarks.systems.contract import Group, Session, System


class LocalDisk(System):
    name = "local"
    title = "local disk"
    has_store = False
    groups = frozenset({Group.FILES, Group.FILES_4, Group.LARGE, Group.PROGRAMS})

    @contextmanager
    def open(self, place: Path, library: Library, group: Group) -> Iterator[Session]:
        yield LocalSession(place)


class LocalSession(Session):
    def __init__(self, place: Path) -> None:
        self.root = place / "files"
        self.root.mkdir()
