"""The writer of `torch.distributed.checkpoint`: in one process, and in two with gloo, which share a
mount."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FsspecReader

import cowfs
from cowfs.blocking import ROVolume, RWVolume, Volume
from cowfs.errors import InvalidInputError
from cowfs.integrations.training.distributed import CommitWriter

pytestmark = pytest.mark.filterwarnings("ignore::")

RANK = """
import os, sys
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
import cowfs
from cowfs.blocking import Volume
from cowfs.integrations.training.distributed import CommitWriter

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
run = Volume.open("run")
run.mount()
with cowfs.checkpoints(run) as saver:
    for step in (1, 2):
        state = {"weight": distribute_tensor(torch.arange(1000.0) * step, mesh, [Shard(0)]), "step": step}
        dcp.save(state, storage_writer=CommitWriter(saver, run / "state", step=step, loss=1 / step))
    found = {"weight": distribute_tensor(torch.zeros(1000), mesh, [Shard(0)]), "step": 0}
    dcp.load(found, storage_reader=dcp.FileSystemReader(run / "state"))
    assert torch.equal(found["weight"].full_tensor(), torch.arange(1000.0) * 2)
    assert (saver.last is None) == (dist.get_rank() != 0), "rank 0 commits"
dist.destroy_process_group()
"""


def load(version: ROVolume) -> dict[str, Any]:
    state: dict[str, Any] = {"weight": torch.zeros(1000), "step": 0}
    dcp.load(state, storage_reader=FsspecReader(f"{version.locator}/state"))
    return state


def test_a_checkpoint_is_a_version_and_reads_from_its_locator(run: RWVolume) -> None:
    weight = torch.arange(1000.0)
    with cowfs.checkpoints(run) as saver:
        for step in (1, 2):
            state = {"weight": weight * step, "step": step}
            dcp.save(state, storage_writer=CommitWriter(saver, run / "state", step=step, loss=1 / step))
    found = {"weight": torch.zeros(1000), "step": 0}
    dcp.load(found, storage_reader=FileSystemReader(run / "state"))
    assert found["step"] == 2
    history = run.history()
    assert [(each.labels["step"], each.labels["loss"]) for each in history] == [("2", "0.5"), ("1", "1.0")]
    for version in history:
        state = load(version)
        assert state["step"] == int(version.labels["step"])
        assert torch.equal(state["weight"], weight * state["step"])


def test_two_ranks_write_one_version(run: RWVolume, tmp_path: Path) -> None:
    program = tmp_path / "rank.py"
    program.write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    history = run.history()
    assert [each.labels["step"] for each in history] == ["2", "1"]
    for version in history:
        step = int(version.labels["step"])
        assert torch.equal(load(version)["weight"], torch.arange(1000.0) * step)
        names = sorted(each.name for each in version.files.ls("state"))
        assert names == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    assert Volume.open("run").status() is not None, "the mount is that of the test"


def test_a_path_outside_the_mount_is_refused(run: RWVolume, tmp_path: Path) -> None:
    saver = cowfs.checkpoints(run)
    with pytest.raises(InvalidInputError, match="not below the mount"):
        CommitWriter(saver, tmp_path, step=1)
    with pytest.raises(InvalidInputError, match="not below the mount"):
        dcp.save({"a": 1}, checkpoint_id=tmp_path, storage_writer=CommitWriter(saver, run / "state", step=1))
