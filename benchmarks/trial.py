"""One group of workloads in one session of one system."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.library import Library
from benchmarks.material import Material
from benchmarks.systems.contract import Session, System
from cowfs.bench import hardware
from cowfs.bench.trial import Trial


@dataclass
class SystemTrial(Trial):
    """place: a directory for anything else that a workload mounts."""

    material: Material
    system: System
    session: Session
    library: Library
    place: Path

    def forget(self) -> None:
        """Empties the kernel's caches; without the right to, mounts anew."""
        if hardware.can_drop_caches():
            hardware.drop_caches()
        else:
            self.session.remount()
