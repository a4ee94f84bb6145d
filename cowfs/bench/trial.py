"""One group of workloads below one directory: what they use, and where their numbers go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cowfs.bench import machine
from cowfs.bench.crew import Crew, Outcome
from cowfs.bench.material import Material
from cowfs.bench.sizes import Sizes
from cowfs.values import dataclass


@dataclass
class Trial:
    """name: the column of the table that the numbers belong to. save: takes row, column, value."""

    name: str
    root: Path
    sizes: Sizes
    material: Material
    crew: Crew
    save: Callable[[str, str, float], None]

    def record(self, row: str, value: float) -> None:
        self.save(row, self.name, value)

    def work(self, job: str, **arguments: Any) -> Outcome:
        """One worker does a job."""
        return self.crew.run(job, [arguments])

    def forget(self) -> None:
        """Empties the kernel's caches, if this process may."""
        if machine.can_drop_caches():
            machine.drop_caches()
