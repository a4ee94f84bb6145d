"""Volumes in tasks, actors and training of Ray, with the real package: `make test-integrations`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.frameworks.programs import run
from tests.system.machine import Machine

PLUGINS = [{"class": "cowfs.integrations.ray.MountVolumes"}]
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
START = """
import os, pathlib, signal, sys
import cowfs, ray
from cowfs.blocking import ROVolume, Volume

with Volume.new("base") as base:
    (base / "a").write_text("in")

def start(**options):
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False, **options)

def mounts():
    return [line for line in open("/proc/self/mounts") if sys.argv[1] in line]

def check(version):
    found = {entry.name: version.files.read_text(entry.name) for entry in version.files.ls()}
    assert found == {"a": "in", **{f"shard-{n}": str(2 * n) for n in range(8)}}, found
    assert len(version.parents) == 9, version.parents
"""
MAP = """
from cowfs.integrations.ray import Tasks

mark = pathlib.Path(sys.argv[1])

def roll_out(volume, shard):
    '''Roll-out 5 is killed in its first attempt, after it has written.'''
    assert sorted(path.name for path in volume.path.iterdir()) == ["a"], "not a new fork"
    (volume / f"shard-{shard}").write_text(str(2 * shard))
    if shard == 5 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def fail(volume, shard):
    if shard == 1:
        raise cowfs.errors.InvalidStateError("as it must")

start()
check(cowfs.map(roll_out, "base", range(8), executor=Tasks(), into="killed"))
assert mark.exists()
check(cowfs.map(roll_out, "base", range(8), executor=Tasks(num_cpus=0.5), into="quiet"))
try:
    cowfs.map(fail, "base", range(3), executor=Tasks(), into="failed")
except cowfs.errors.InvalidStateError as error:
    assert "as it must" in str(error)
else:
    raise AssertionError
ray.shutdown()
print("the story was told")
"""
ACTORS = """
mark = pathlib.Path(sys.argv[1])

@ray.remote(num_cpus=0.5, max_restarts=1, max_task_retries=1)
class Rollout:
    @cowfs.task(volumes=["base::fork"], on_error="discard")
    def run(self, number):
        volume = cowfs.current("base")
        (volume / f"shard-{number}").write_text(str(2 * number))
        if number == 5 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return volume

start()
actors = [Rollout.remote() for _ in range(8)]
versions = ray.get([actor.run.remote(number) for number, actor in enumerate(actors)])
assert mark.exists()
assert len({version.name for version in versions}) == 8
report = Volume.open("base").merge(versions)
check(Volume.from_locator(report.locator))
ray.shutdown()
print("the story was told")
"""
PLUGIN = """
place = sys.argv[1] + "/photos"

@ray.remote(num_cpus=1, max_retries=2)
def read(die=False):
    if die:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid(), open(place + "/a").read()

start(runtime_env={"cowfs": [f"base:{place}"]})
assert {text for _, text in ray.get([read.remote() for _ in range(8)])} == {"in"}
assert len(mounts()) == 1, mounts()
try:
    ray.get(read.options(max_retries=1).remote(die=True))
except ray.exceptions.WorkerCrashedError:
    pass
else:
    raise AssertionError
assert ray.get(read.remote())[1] == "in"
assert len(mounts()) == 1, mounts()
try:
    ray.get(read.options(runtime_env={"cowfs": ["missing:/nowhere"]}).remote())
except ray.exceptions.RuntimeEnvSetupError as error:
    assert "missing" in str(error), error
else:
    raise AssertionError
ray.shutdown()
print("the story was told")
"""
TRAIN = """
import tempfile
import ray.train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from cowfs.integrations.training.ray_train import CommitCheckpoints

def train():
    for step in range(3):
        with tempfile.TemporaryDirectory() as place:
            (pathlib.Path(place) / "weights").write_text(f"weights {step}")
            ray.train.report({"step": step, "loss": 1 / (step + 1)}, checkpoint=Checkpoint.from_directory(place))
    ray.train.report({"step": 3, "loss": 0.0})

start()
with Volume.new("run-17") as volume:
    config = RunConfig(name="exp", storage_path=str(volume.path), callbacks=[CommitCheckpoints(volume, labels={"run": 17})])
    DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=config).fit()
    ray.shutdown()
    found = volume.history(labels="step>=0")
    assert [version.labels["step"] for version in found] == ["2", "1", "0"], [version.labels for version in found]
    assert [version.labels["run"] for version in found] == ["17"] * 3
    assert found[0].labels["loss"].startswith("0.33")
    for version in found:
        place = version.mount() / version.labels["checkpoint"]
        assert (place / "weights").read_text() == "weights " + version.labels["step"]
        version.unmount()
print("the story was told")
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine(environment={**QUIET, "RAY_RUNTIME_ENV_PLUGINS": json.dumps(PLUGINS)}) as machine:
        yield machine


@pytest.mark.parametrize("program", [MAP, ACTORS], ids=["map", "actors"])
def test_eight_roll_outs_each_in_a_fork_also_when_a_worker_is_killed(program: str, machine: Machine) -> None:
    run(machine, START + program, machine.root / "mark")


def test_a_node_mounts_once_for_all_its_workers(machine: Machine) -> None:
    run(machine, START + PLUGIN, machine.root / "mnt")


def test_each_reported_checkpoint_is_a_version(machine: Machine) -> None:
    run(machine, START + TRAIN, machine.root / "mnt")
