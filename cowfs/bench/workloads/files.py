"""Small files, one worker or four at once, each worker in directories of its own.

create     open, write 1 KiB, close            in directories that are there already
stat       by name, kernel caches dropped
traverse   names and types of every directory, kernel caches dropped
read       open, read, close, kernel caches dropped
rename     within the directory                unlink
"""

from __future__ import annotations

from typing import Any

from benchmarks.library import directory_names, directory_shares, shares
from benchmarks.trial import Trial


def run(trial: Trial) -> None:
    _Files(trial, 1, "").run()


def run_4(trial: Trial) -> None:
    _Files(trial, 4, "-4").run()


class _Files:
    def __init__(self, trial: Trial, workers: int, suffix: str) -> None:
        self._trial, self._workers, self._suffix = trial, workers, suffix
        self._common = {"count": trial.sizes.per_directory, "size": trial.sizes.small_bytes}
        self._checks = {"checks": trial.checks}
        self._shares: list[dict[str, Any]] = []

    def run(self) -> None:
        trial = self._trial
        if trial.system.is_reader:
            self._shares = shares(directory_names(trial.root, trial.sizes.directories), self._workers)
        else:
            self._create()
        self._cold("stat")
        if trial.checks:  # what keeps nothing has nothing to list
            self._cold("traverse")
        self._cold("read", **self._checks)
        if not trial.system.is_reader:
            self._measure("rename", **self._checks)
            self._measure("unlink", **self._checks)

    def _create(self) -> None:
        trial = self._trial
        self._shares = directory_shares(trial.crew, trial.root, trial.sizes.directories, self._workers)
        before = trial.memory_bytes()
        self._measure("create")
        if trial.session.pids() and not self._suffix and trial.checks:
            trial.record("memory-changed", max(0, trial.memory_bytes() - before) / trial.sizes.files)

    def _cold(self, job: str, **more: Any) -> None:
        self._trial.forget()
        self._measure(job, **more)

    def _measure(self, job: str, **more: Any) -> None:
        outcome = self._trial.crew.run(job, [{**share, **self._common, **more} for share in self._shares])
        self._trial.record(job + self._suffix, sum(outcome.results) / outcome.seconds)
