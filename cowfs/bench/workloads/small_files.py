"""Small files, one worker or four at once, each worker in its own directories.

create     open, write 1 KiB, close            in existing directories
stat       by name, kernel caches dropped
traverse   names and types of every directory, kernel caches dropped
read       open, read, close, kernel caches dropped
rename     within the directory                unlink
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cowfs.bench.trial import Trial


class Files:
    """The directories of small files; each worker has its share of them."""

    def __init__(self, trial: Trial, workers: int) -> None:
        self.trial = trial
        self._suffix = "" if workers == 1 else f"-{workers}"
        names = directory_names(trial.root, trial.sizes.directories)
        self._shares = [{"directories": names[worker::workers]} for worker in range(workers)]
        self._common = {"count": trial.sizes.per_directory, "size": trial.sizes.small_bytes}

    def make_directories(self) -> None:
        self.trial.crew.run("make_directories", self._shares)

    def cold(self, job: str, **more: Any) -> None:
        self.trial.forget()
        self.measure(job, **more)

    def measure(self, job: str, **more: Any) -> None:
        outcome = self.trial.crew.run(job, [{**share, **self._common, **more} for share in self._shares])
        self.trial.record(job + self._suffix, sum(outcome.results) / outcome.seconds)


def directory_names(root: Path, directories: int) -> list[str]:
    return [f"{root}/d{number}" for number in range(directories)]


def run(trial: Trial, workers: int = 1) -> None:
    files = Files(trial, workers)
    files.make_directories()
    files.measure("create")
    for job in ("stat", "traverse", "read"):
        files.cold(job)
    for job in ("rename", "unlink"):
        files.measure(job)


def run_4(trial: Trial) -> None:
    run(trial, 4)
