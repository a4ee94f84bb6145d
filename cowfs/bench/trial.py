"""One group of workloads in one directory, with its input and the target of its numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cowfs.base.fast_dataclass import dataclass
from cowfs.bench import hardware
from cowfs.bench.crew import Crew, Outcome
from cowfs.bench.material import Material
from cowfs.bench.sizes import Sizes


@dataclass
class Trial:
    """name: the column of the table for the numbers. save: takes row, column, value."""

    name: str
    root: Path
    sizes: Sizes
    material: Material
    crew: Crew
    save: Callable[[str, str, float], None]

    def record(self, row: str, value: float) -> None:
        self.save(row, self.name, value)

    def work(self, job: str, **arguments: Any) -> Outcome:
        """Runs a job on one worker."""
        return self.crew.run(job, [arguments])

    def forget(self) -> None:
        """Empties the kernel's caches, if this process may."""
        if hardware.can_drop_caches():
            hardware.drop_caches()
