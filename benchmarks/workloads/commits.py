"""From written to stored: cowfs' commit, JuiceFS' upload of what it staged, and the store's own
speed beside them.

commit-large   commit of one incompressible file, right after its last write   the store's own: parallel puts of the same bytes
upload-large   the same from the first write on; JuiceFS: until nothing is staged any more
commit-small, upload-small    the same with the directories of small files
commit-one     commit after one of those files was changed
"""

from __future__ import annotations

from benchmarks import stores
from benchmarks.systems.cowfs_mounts import WritableSession
from benchmarks.targets import STORE
from benchmarks.trial import SystemTrial
from cowfs.base import clock
from cowfs.bench.workloads.large import paths
from cowfs.bench.workloads.small_files import directory_names


def run(trial: SystemTrial) -> None:
    megabytes = trial.sizes.large_bytes / 1e6
    commits = isinstance(trial.session, WritableSession)
    if commits:  # first, while nothing else has to be written
        content = memoryview(trial.material.large.read_bytes())
        trial.save("commit-large", STORE, stores.put_speed(trial.library.base, content) / 1e6)
    start_s = clock.monotonic_s()
    trial.work("write", **paths(trial.root, trial.material), syncs=False)
    commit_s = _settled(trial)
    trial.record("upload-large", megabytes / (clock.monotonic_s() - start_s))
    if commits:
        trial.record("commit-large", megabytes / commit_s)
    directories = directory_names(trial.root, trial.sizes.directories)
    trial.work("make_directories", directories=directories)
    start_s = clock.monotonic_s()
    trial.work("create", directories=directories, count=trial.sizes.per_directory, size=trial.sizes.small_bytes)
    commit_s = _settled(trial)
    trial.record("upload-small", trial.sizes.files / (clock.monotonic_s() - start_s))
    if commits:
        trial.record("commit-small", trial.sizes.files / commit_s)
        trial.work("benchmarks.jobs:append", path=f"{directories[0]}/f0")
        trial.record("commit-one", _settled(trial))


def _settled(trial: SystemTrial) -> float:
    start_s = clock.monotonic_s()
    trial.session.settle()
    return clock.monotonic_s() - start_s
