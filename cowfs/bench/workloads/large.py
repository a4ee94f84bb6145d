"""One large file.

write          1 MiB at a time, until the last write returned; and until fsync returned
read-store     every local cache deleted, mounted anew, kernel caches dropped
read-disk      kernel caches dropped: the local cache lies on the disk
read-cache     mounted anew: the local cache lies in the kernel's memory, the mount's own pages are gone
read-warm      the same again
random-read    as read-cache, 4 KiB at pseudo-random places
random-write   4 KiB at pseudo-random places of the file, without fsync
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.library import LARGE
from benchmarks.trial import Trial
from cowfs.bench import machine


def run(trial: Trial) -> None:
    path = trial.root / LARGE
    megabytes = trial.sizes.large_bytes / 1e6
    if not trial.system.is_reader:
        outcome = trial.work("write", **trial.library.writing(path, syncs=True))
        trial.record("write", megabytes / outcome.results[0])
        trial.record("write-sync", megabytes / outcome.seconds)
        trial.session.settle()
    if trial.checks:
        _read_from_afar(trial, path)
    trial.session.remount()
    _read(trial, path, "read-cache")
    _read(trial, path, "read-warm")
    trial.session.remount()
    given = {"path": str(path), "material": str(trial.material.large), "checks": trial.checks}
    outcome = trial.work("random_read", **given, count=trial.sizes.random_reads)
    trial.record("random-read", outcome.results[0] / outcome.seconds)
    if not trial.system.is_reader:
        outcome = trial.work("random_write", **given, count=trial.sizes.random_writes)
        trial.record("random-write", outcome.results[0] / outcome.seconds)


def _read_from_afar(trial: Trial, path: Path) -> None:
    if trial.system.name not in ("local", "passthrough_hp"):  # they have no store
        trial.session.clear_local_cache()
        if machine.can_drop_caches():
            machine.drop_caches()
        _read(trial, path, "read-store")
    if machine.can_drop_caches():
        machine.drop_caches()
        _read(trial, path, "read-disk")


def _read(trial: Trial, path: Path, row: str) -> None:
    outcome = trial.work("sequential_read", path=str(path), material=str(trial.material.large), checks=trial.checks)
    trial.record(row, trial.sizes.large_bytes / 1e6 / outcome.seconds)
