"""One large file, as in `cowfs.bench.workloads.large`, read from each place where it may be kept:

read-store     every local cache deleted, mounted anew, kernel caches dropped
read-again     kernel caches dropped: the second reading, with which a directory store on the cache's
               disk comes into the cache (decision 72)
read-disk      kernel caches dropped: the local cache is on the disk
read-cache     mounted anew: the local cache is in the kernel's memory, the mount's pages are gone
read-warm      the same again
random-read    as read-cache
"""

from __future__ import annotations

from benchmarks.trial import SystemTrial
from cowfs.bench import hardware
from cowfs.bench.workloads import large


def run(trial: SystemTrial) -> None:
    checks = trial.system.keeps_content
    if not trial.system.is_reader:
        large.write(trial)
        trial.session.settle()
    if checks:
        _read_from_afar(trial)
    trial.session.remount()
    large.read(trial, "read-cache", checks=checks)
    large.read(trial, "read-warm", checks=checks)
    trial.session.remount()
    large.read_at_random(trial, checks=checks)
    if not trial.system.is_reader:
        large.write_at_random(trial, checks=checks)


def _read_from_afar(trial: SystemTrial) -> None:
    rows = ["read-disk"]
    if trial.system.has_store:
        trial.session.clear_local_cache()
        if hardware.can_drop_caches():
            hardware.drop_caches()
        large.read(trial, "read-store")
        rows = ["read-again", "read-disk"]
    for row in rows if hardware.can_drop_caches() else ():
        hardware.drop_caches()
        large.read(trial, row)
