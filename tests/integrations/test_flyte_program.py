"""A whole program under Flyte, and each of its tasks in a process of its own, as in pods. cowfs is
known to Flyte by its entry point alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from flyte._internal.runtime import io
from flyteidl2.core import literals_pb2
from flyteidl2.task import common_pb2

from cowfs.blocking import Volume
from cowfs.mounts import status

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.integrations.flyte_program"


@pytest.fixture
def entry(place: Path) -> Path:
    """A directory for sys.path with the entry points of pyproject.toml: where cowfs is installed
    from, those of an older one may be known."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    about = place / "entry" / "known_here-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: known-here\nVersion: 1\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points[group].items())
        for group in points
        if group.startswith("flyte.")
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
    return about.parent


def run(entry: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(entry)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def require_nothing_mounted() -> None:
    """The daemons end their mounts once the process is gone, which takes a moment."""
    for _ in range(100):
        if not status().mounts:
            return
        time.sleep(0.1)
    assert status().mounts == []


@pytest.mark.slow
def test_a_program_runs_twice(entry: Path) -> None:
    for _ in range(2):
        run(entry, PROGRAM)
        require_nothing_mounted()


@pytest.mark.slow
def test_each_task_runs_in_a_pod_of_its_own(entry: Path, place: Path) -> None:
    def pod(task: str, **inputs: literals_pb2.Literal) -> literals_pb2.Literal:
        output = place / "pods" / task
        output.mkdir(parents=True)
        named = [common_pb2.NamedLiteral(name=name, value=value) for name, value in inputs.items()]
        (output / "inputs.pb").write_bytes(common_pb2.Inputs(literals=named).SerializeToString())
        run(entry, "tests.integrations.flyte_pod", PROGRAM, task, str(output), str(output / "inputs.pb"))
        require_nothing_mounted()
        (found,) = asyncio.run(io.load_outputs(str(output / "outputs.pb"))).proto_outputs.literals
        literal: literals_pb2.Literal = found.value
        return literal

    first = pod("make")
    assert pod("read", version=first).scalar.primitive.string_value == "hello\n"
    second = pod("extend", version=first)
    trained = pod("train", base=second)
    number = literals_pb2.Literal(scalar=literals_pb2.Scalar(primitive=literals_pb2.Primitive(integer=3)))
    shard = pod("shard", base=trained, number=number)
    address = literals_pb2.Primitive(string_value=shard.scalar.blob.uri)
    consumed = pod("consume", address=literals_pb2.Literal(scalar=literals_pb2.Scalar(primitive=address)))
    assert consumed.scalar.primitive.integer == 4

    made = Volume.version(first.scalar.blob.uri)
    assert first.hash == made.content_id()
    origin = {key: made.produced_by[key] for key in ("system", "run", "action", "output")}
    assert origin == {"system": "flyte", "run": "run-7", "action": "action-make", "output": "o0"}
    assert [each.message for each in Volume.version("run").history()][:3] == ["done", "epoch 20", "epoch 10"]


def test_a_pod_reports_what_could_not_be_published(entry: Path, place: Path) -> None:
    output = place / "pod"
    output.mkdir()
    run(entry, "tests.integrations.flyte_pod", "tests.integrations.flyte_tasks", "lose_volume", str(output))
    require_nothing_mounted()
    found = asyncio.run(io.load_error(str(output / "error.pb")))
    assert "'lost'" in found.message
    assert "hint:" in found.message
