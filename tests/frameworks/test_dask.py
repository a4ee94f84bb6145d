"""Volumes on the workers of Dask, with the real package: `make test-integrations`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frameworks.programs import run
from tests.system.machine import Machine

START = """
import os, signal, sys
import cowfs
from cowfs.blocking import Volume
from distributed import Client, LocalCluster, get_worker

def cluster(workers=4):
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)

def double(volume, shard):
    assert sorted(path.name for path in volume.path.iterdir()) == ["a"], "not a new fork"
    (volume / f"shard-{shard}").write_text(str(2 * shard))

def die_once(volume, shard):
    '''Shard 5 is killed in its first attempt, after it has written.'''
    double(volume, shard)
    mark = os.environ["MARK"]
    if shard == 5 and not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

def fail(volume, shard):
    double(volume, shard)
    if shard == 1:
        raise ValueError("shard one fails")

def check(version):
    found = {entry.name: version.files.read_text(entry.name) for entry in version.files.ls()}
    assert found == {"a": "in", **{f"shard-{n}": str(2 * n) for n in range(8)}}, found
    assert len(version.parents) == 9, version.parents
"""
MAP = """
if __name__ == "__main__":
    os.environ["MARK"] = sys.argv[1]
    with Volume.new("base") as base:
        (base / "a").write_text("in")
    with cluster() as local, Client(local) as client:
        check(cowfs.map(double, "base", range(8), executor=client, into="quiet"))
        check(cowfs.map(die_once, "base", range(8), executor=client, into="killed"))
        assert os.path.exists(os.environ["MARK"])
        try:
            cowfs.map(fail, "base", range(3), executor=client, into="failed")
        except ValueError as error:
            assert "base-fail-" in str(error.__notes__), error.__notes__
        else:
            raise AssertionError
    print("the story was told")
"""
PLUGIN = """
from cowfs.integrations.dask import MountVolumes
import time

def read(path):
    return os.getpid(), open(path).read()

def mounts():
    return [line for line in open("/proc/self/mounts") if sys.argv[1] in line]

if __name__ == "__main__":
    place = sys.argv[1] + "/photos"
    with Volume.new("base") as base:
        (base / "a").write_text("in")
    with cluster(2) as local, Client(local) as client:
        client.register_plugin(MountVolumes(f"base:{place}"))
        before = client.run(read, place + "/a")
        assert {text for _, text in before.values()} == {"in"} and len(before) == 2
        assert len(mounts()) == 1, mounts()
        pid = next(iter(before.values()))[0]
        os.kill(pid, signal.SIGKILL)
        while pid in (now := [number for number, _ in client.run(read, place + "/a", on_error="ignore").values()]) or len(now) < 2:
            time.sleep(0.2)
        assert len(mounts()) == 1, mounts()
    assert not mounts(), mounts()
    print("the story was told")
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine() as machine:
        yield machine


def test_eight_shards_each_in_a_fork_also_when_a_worker_is_killed(machine: Machine) -> None:
    run(machine, START + MAP, machine.root / "mark")
    names = [each["volume"] for each in machine.json("ls")["volumes"]]
    assert {name for name in names if not name.startswith("base-fail-")} == {"base", "quiet", "killed"}
    assert len(names) == 5, "of the map that failed, the forks of the two other shards"


def test_the_workers_of_a_node_share_a_mount_which_outlives_none_of_them(machine: Machine) -> None:
    run(machine, START + PLUGIN, machine.root / "mnt")
