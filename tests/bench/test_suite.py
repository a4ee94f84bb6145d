"""The suite runs as a whole: every cell it promises, checked results, JSON and page of the same run, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import runner
from benchmarks.systems.contract import Group
from benchmarks.trial import Trial
from cowfs import bench
from cowfs.bench.errors import WorkloadFailed
from cowfs.bench.results import Results
from cowfs.bench.rows import all_rows
from cowfs.bench.sizes import QUICK
from cowfs.errors import InvalidInputError

pytestmark = [pytest.mark.mount, pytest.mark.slow]

NOT_LOCAL = {"read-store", "memory-changed"}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(f"cowfs-test-{os.getpid()}-bench")


@pytest.fixture(scope="module")
def results(scratch: Path) -> Results:
    os.environ["COWFS_FAST_LANE"] = "0"  # a variable that would turn every variant into another one
    try:
        return bench.run(
            scratch, quick=True, rounds=1, systems=["local", "cowfs", "juicefs-sqlite"], juicefs="/no/such/juicefs"
        )
    finally:
        assert os.environ.pop("COWFS_FAST_LANE") == "0"


def test_every_cell_is_measured(results: Results) -> None:
    assert results.failures == []
    missing = {(row.key, "cowfs") for row in results.rows if results.cell(row.key, "cowfs") is None}
    assert missing <= {("git-clone", "cowfs"), ("git-status", "cowfs"), ("pip-install", "cowfs")}
    local = {Group.FILES, Group.FILES_4, Group.LARGE, Group.PROGRAMS}
    for row in results.rows:
        if row.group in local and row.key not in NOT_LOCAL and (row.key, "cowfs") not in missing:
            assert results.cell(row.key, "local") is not None or not results.machine["drops_caches"], row.key
    assert results.cell("commit-large", "store") is not None


def test_who_cannot_take_part_is_left_out_with_a_reason(results: Results) -> None:
    assert "/no/such/juicefs is not installed" in results.left_out["juicefs-sqlite"]
    assert "juicefs-sqlite" not in results.titles


def test_nothing_is_left_behind(results: Results, scratch: Path) -> None:
    assert list(scratch.iterdir()) == []


def test_json_page_and_plots_are_of_the_same_run(results: Results, tmp_path: Path) -> None:
    bench.write(results, tmp_path, command="a test")
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored == json.loads(json.dumps(results.to_json()))
    assert stored["format"] == 1
    assert {"date", "host", "kernel", "cores", "cowfs", "python"} <= set(stored["machine"])
    assert stored["settings"]["large_bytes"] == QUICK.large_bytes
    page = (tmp_path / "README.md").read_text()
    for row in stored["rows"]:
        assert f"| {row['title']} | {row['unit']} |" in page
        assert all(value >= 0 for values in row["samples"].values() for value in values)
    for target in stored["targets"]:
        assert target["measured"] is None or target["measured"] > 0
    images = list(tmp_path.glob("*.svg"))
    assert images
    for image in images:
        assert ET.parse(image).getroot().tag.endswith("svg")
        assert f"({image.name})" in page


def test_a_failing_system_fails_the_run_and_no_other_system(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(trial: Trial) -> None:
        trial.record("create", 1.0)
        if trial.system.name == "cowfs":
            raise WorkloadFailed("not what was written")

    monkeypatch.setitem(runner.WORKLOADS, Group.FILES, wrong)
    said: list[str] = []
    found = bench.run(scratch, quick=True, rounds=2, systems=["local", "cowfs"], groups=["files"], say=said.append)
    assert [failure["system"] for failure in found.failures] == ["cowfs"]  # once: it is not tried again
    assert len(found.samples["create"]["local"]) == 2
    assert any("FAILED: cowfs" in line for line in said)
    assert list(scratch.iterdir()) == []


def test_later_rounds_keep_to_the_minutes(scratch: Path) -> None:
    found = bench.run(scratch, quick=True, rounds=5, minutes=1e-6, systems=["local"], groups=["files"])
    assert len(found.samples["create"]["local"]) == 1


def test_short_of_time_the_slowest_are_left_out_first(scratch: Path) -> None:
    plan = runner._Plan(scratch, None, None, lambda text: None, minutes=2.0)  # type: ignore[arg-type]
    plan._took_s = {("slow", Group.FILES): 45.0, ("quick", Group.FILES): 10.0, ("quick", Group.LARGE): 30.0}
    assert plan._affordable(rounds_left=2) == {("quick", Group.FILES), ("quick", Group.LARGE)}
    assert plan._affordable(rounds_left=1) == set(plan._took_s)


@pytest.mark.parametrize("choice", [{"systems": ["zfs"]}, {"groups": ["sleep"]}])
def test_unknown_names_are_refused(scratch: Path, choice: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidInputError, match=r"zfs|sleep"):
        bench.run(scratch, quick=True, **choice)  # type: ignore[arg-type]
    assert list(scratch.iterdir()) == []


def test_the_command_prints_one_document(scratch: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cowfs.cli", "bench", str(scratch), "--quick", "--only", "local", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command += ["--rounds", "2", "--group", "files", "--output", str(tmp_path / "page")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    (row, *_) = json.loads(done.stdout)["rows"]
    assert (row["key"], len(row["samples"]["local"])) == ("create", 2)
    assert (tmp_path / "page" / "README.md").exists()


def test_rows_have_names_of_their_own() -> None:
    keys = [row.key for row in all_rows(QUICK.mount_counts)]
    assert len(set(keys)) == len(keys)
