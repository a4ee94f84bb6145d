"""How mounting, and a mount's memory, depend on the number of files in the version.

mount-N        until the path can be used; no local cache of this version, or of its index
memory-clean   what the daemon holds for each file once all names and attributes were asked for: from the smallest
               to the largest version, so that the daemon itself does not count
"""

from __future__ import annotations

from benchmarks.library import PER_DIRECTORY, make_directory
from benchmarks.systems.cowfs_mounts import CowfsMount
from benchmarks.trial import SystemTrial
from cowfs.base import clock
from cowfs.bench.workloads.small_files import directory_names


def run(trial: SystemTrial) -> None:
    system = trial.system
    assert isinstance(system, CowfsMount)
    memory: dict[int, int] = {}
    for files in trial.library.mount_counts:
        place = make_directory(trial.place / f"count-{files}")
        session = system.reader(place, trial.library.count(files))
        try:
            start_s = clock.monotonic_s()
            session.remount()
            trial.record(f"mount-{files}", clock.monotonic_s() - start_s)
            directories = directory_names(session.root, max(1, files // PER_DIRECTORY))
            common = {"directories": directories, "count": min(files, PER_DIRECTORY)}
            trial.work("traverse", **common, size=trial.sizes.small_bytes)
            trial.work("stat", **common, size=trial.sizes.small_bytes)
            memory[files] = session.memory_bytes()
        finally:
            session.end()
    small, large = min(memory), max(memory)
    trial.record("memory-clean", max(0, memory[large] - memory[small]) / (large - small))
