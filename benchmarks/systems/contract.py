"""What the runner needs of a file system under test.

    System     one way to have a file system, tried once (`check`), then opened anew for every group of workloads
    Session    a fresh, empty one under `root`, alone on the machine while it lives

What `cold` means is made of three steps of a session and one of the machine:

    remount             the mount's own pages and names are gone; what the disk keeps in memory stays      (local: nothing)
    clear_local_cache   remount with every local cache deleted: contents come from the store
    settle              everything written is in the store
    machine.drop_caches the kernel's caches of every file system are empty

Threads: one. A session touches its own mount only in other processes, so that a file system that
hangs can be ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path

from benchmarks import processes
from benchmarks.library import Library


class LeftOut(Exception):
    """No program, no right, or no kernel support for a system here. The page says why; the run goes
    on."""


class Group(StrEnum):
    """Workloads that share one session, in the order in which a round runs them."""

    FILES = "files"
    FILES_4 = "files4"
    LARGE = "large"
    PROGRAMS = "programs"
    COMMIT = "commit"
    MOUNTS = "mounts"


class Session(ABC):
    root: Path

    def remount(self) -> None:  # noqa: B027 - a file system without a mount of its own has nothing to do
        """Makes the kernel forget what it knows of this mount."""

    def clear_local_cache(self) -> None:
        """Afterwards contents come from the store."""
        self.remount()

    def settle(self) -> None:  # noqa: B027
        """Returns when everything written is where the system keeps it for good."""

    def pids(self) -> list[int]:
        """The processes whose memory the system needs."""
        return []

    def memory_bytes(self) -> int:
        """Their own share of memory (Pss: shared pages count once among those who share them)."""
        lines = (line for pid in self.pids() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))

    def cpu_s(self) -> float:
        """What they have used; what the kernel does for callers is not counted."""
        return sum(processes.cpu_s(pid) for pid in self.pids())

    def peak_bytes(self) -> int:
        return sum(processes.status_bytes(pid, "VmHWM") for pid in self.pids())


class System(ABC):
    """keeps_content: what is read is what was written. has_store: contents can be fetched from a
    store. is_reader: serves a version that was made before, and takes no writes."""

    name: str
    title: str
    groups: frozenset[Group]
    keeps_content = True
    has_store = True
    is_reader = False

    def check(self) -> str:
        """The version of what runs. LeftOut: it cannot run here."""
        return ""

    @abstractmethod
    def open(self, place: Path, library: Library, group: Group) -> AbstractContextManager[Session]:
        """A fresh one below `place`, an empty directory that is removed afterwards."""
