"""One large file.

write          1 MiB at a time, until the last write returned; and until fsync returned
read-disk      kernel caches dropped
read-warm      the same again
random-read    4 KiB at pseudo-random places
random-write   the same, without fsync
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cowfs.bench import hardware
from cowfs.bench.material import Material
from cowfs.bench.trial import Trial

LARGE = "large"


def run(trial: Trial) -> None:
    write(trial)
    if hardware.can_drop_caches():
        hardware.drop_caches()
        read(trial, "read-disk")
    read(trial, "read-warm")
    read_at_random(trial)
    write_at_random(trial)


def write(trial: Trial) -> None:
    megabytes = trial.sizes.large_bytes / 1e6
    outcome = trial.work("write", **paths(trial.root, trial.material), syncs=True)
    trial.record("write", megabytes / outcome.results[0])
    trial.record("write-sync", megabytes / outcome.seconds)


def read(trial: Trial, row: str, *, checks: bool = True) -> None:
    outcome = trial.work("sequential_read", **paths(trial.root, trial.material), checks=checks)
    trial.record(row, trial.sizes.large_bytes / 1e6 / outcome.seconds)


def read_at_random(trial: Trial, *, checks: bool = True) -> None:
    outcome = trial.work(
        "random_read", **paths(trial.root, trial.material), checks=checks, count=trial.sizes.random_reads
    )
    trial.record("random-read", outcome.results[0] / outcome.seconds)


def write_at_random(trial: Trial, *, checks: bool = True) -> None:
    outcome = trial.work(
        "random_write", **paths(trial.root, trial.material), checks=checks, count=trial.sizes.random_writes
    )
    trial.record("random-write", outcome.results[0] / outcome.seconds)


def paths(root: Path, material: Material) -> dict[str, Any]:
    return {"path": str(root / LARGE), "material": str(material.large)}
