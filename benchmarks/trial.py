"""One session of one system while one group of workloads runs: what workloads use, and where their numbers go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.library import Library
from benchmarks.systems.contract import Session, System
from cowfs.bench import machine
from cowfs.bench.crew import Crew, Outcome
from cowfs.bench.material import Material
from cowfs.bench.sizes import Sizes


@dataclass
class Trial:
    """record(row, value) keeps a measured value; one system may record for another (the store's own speed)."""

    system: System
    session: Session
    library: Library
    place: Path
    save: Callable[[str, str, float], None]

    @property
    def root(self) -> Path:
        return self.session.root

    @property
    def sizes(self) -> Sizes:
        return self.library.sizes

    @property
    def material(self) -> Material:
        return self.library.material

    @property
    def crew(self) -> Crew:
        return self.library.crew

    @property
    def checks(self) -> bool:
        return self.system.keeps_content

    def record(self, row: str, value: float, *, system: str | None = None) -> None:
        self.save(row, system or self.system.name, value)

    def work(self, job: str, **arguments: Any) -> Outcome:
        """One worker does a job."""
        return self.crew.run(job, [arguments])

    def forget(self) -> None:
        """Empties the kernel's caches, where it may be done; else only this mount's."""
        if machine.can_drop_caches():
            machine.drop_caches()
        else:
            self.session.remount()

    def memory_bytes(self) -> int:
        return machine.memory_bytes(self.session.pids())
