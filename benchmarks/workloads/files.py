"""Small files, as in `cowfs.bench.workloads.small_files`, with these differences:

A reader gets a version that has them. The do-nothing server has no lists and no contents to check.
memory-changed    what the daemon needs for each file after they were created
"""

from __future__ import annotations

from benchmarks.trial import SystemTrial
from cowfs.bench.workloads.small_files import Files


def run(trial: SystemTrial, workers: int = 1) -> None:
    files = Files(trial, workers)
    checks = trial.system.keeps_content
    if not trial.system.is_reader:
        files.make_directories()
        before = trial.session.memory_bytes()
        files.measure("create")
        if before and workers == 1 and checks:
            grown = trial.session.memory_bytes() - before
            trial.record("memory-changed", max(0, grown) / trial.sizes.files)
    files.cold("stat")
    if checks:
        files.cold("traverse")
    files.cold("read", checks=checks)
    if not trial.system.is_reader:
        files.measure("rename", checks=checks)
        files.measure("unlink", checks=checks)


def run_4(trial: SystemTrial) -> None:
    run(trial, 4)
