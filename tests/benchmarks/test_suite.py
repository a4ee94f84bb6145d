"""The suite as a whole: every row is measured, page and plots are of the same run, nothing is
left."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import page, runner
from benchmarks.results import SuiteResults
from benchmarks.rows import PROGRAMS
from benchmarks.systems.contract import Group
from benchmarks.trial import SystemTrial
from cowfs.bench.crew import WorkloadFailed
from cowfs.bench.sizes import QUICK
from cowfs.bench.table import FILES, RANDOM, WRITE
from cowfs.errors import InvalidInputError

pytestmark = [pytest.mark.mount, pytest.mark.slow]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(f"cowfs-test-{os.getpid()}-bench")


@pytest.fixture(scope="module", autouse=True)
def variables() -> Iterator[None]:
    """Set to what would make all variants the same; a run removes them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in runner.OVERRIDES:
            patch.setenv(name, "0")
        yield


@pytest.fixture(scope="module")
def results(scratch: Path) -> SuiteResults:
    systems = ["local", "cowfs", "juicefs-sqlite"]
    return runner.run(scratch, quick=True, rounds=1, systems=systems, paths={"juicefs": "/no/such/juicefs"})


def test_every_cell_is_measured(results: SuiteResults) -> None:
    assert results.failures == []
    missing = {(row.key, "cowfs") for row in results.rows if not results.values(row.key, "cowfs")}
    assert missing <= {("git-clone", "cowfs"), ("git-status", "cowfs"), ("pip-install", "cowfs")}
    for row in [*FILES, *WRITE, *RANDOM, *PROGRAMS]:
        assert (row.key, "cowfs") in missing or results.values(row.key, "local"), row.key
    assert results.values("commit-large", "store")


def test_who_cannot_take_part_is_left_out_with_a_reason(results: SuiteResults) -> None:
    assert "/no/such/juicefs is not installed" in results.left_out["juicefs-sqlite"]
    assert "juicefs-sqlite" not in results.titles


def test_nothing_is_left_behind(results: SuiteResults, scratch: Path) -> None:
    assert list(scratch.iterdir()) == []


def test_json_page_and_plots_are_of_the_same_run(results: SuiteResults, tmp_path: Path) -> None:
    page.write(results.to_json(), tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored == json.loads(json.dumps(results.to_json()))
    assert stored["format"] == 1
    assert {"date", "host", "kernel", "cores", "cowfs", "python"} <= set(stored["machine"])
    assert stored["settings"]["large_bytes"] == QUICK.large_bytes
    text = (tmp_path / "README.md").read_text()
    for row in stored["rows"]:
        assert f"| {row['title']} | {row['unit']} |" in text
        assert all(value >= 0 for values in row["samples"].values() for value in values)
    for target in stored["targets"]:
        assert target["measured"] is None or target["measured"] > 0
    images = list(tmp_path.glob("*.svg"))
    assert [image.stem for image in images] == ["mount-time"]  # nobody to compare with took part
    for image in images:
        assert ET.parse(image).getroot().tag.endswith("svg")
        assert f"({image.name})" in text


def test_a_failing_system_fails_the_run_and_no_other_system(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(trial: SystemTrial) -> None:
        trial.record("create", 1.0)
        if trial.system.name == "cowfs":
            raise WorkloadFailed("not what was written")

    monkeypatch.setitem(runner.WORKLOADS, Group.FILES, wrong)
    said: list[str] = []
    found = runner.run(scratch, quick=True, rounds=2, systems=["local", "cowfs"], groups=["files"], say=said.append)
    assert [failure["system"] for failure in found.failures] == ["cowfs"]  # once: it is not tried again
    assert len(found.samples["create"]["local"]) == 2
    assert any("FAILED: cowfs" in line for line in said)
    assert list(scratch.iterdir()) == []


def test_later_rounds_keep_to_the_minutes(scratch: Path) -> None:
    found = runner.run(scratch, quick=True, rounds=5, minutes=1e-6, systems=["local"], groups=["files"])
    assert len(found.samples["create"]["local"]) == 1


def test_short_of_time_the_slowest_are_left_out_first(scratch: Path) -> None:
    plan = runner._Plan(scratch, None, None, lambda text: None, minutes=2.0)  # type: ignore[arg-type]
    plan._took_s = {("slow", Group.FILES): 45.0, ("quick", Group.FILES): 10.0, ("quick", Group.LARGE): 30.0}
    assert plan._affordable(rounds_left=2) == {("quick", Group.FILES), ("quick", Group.LARGE)}
    assert plan._affordable(rounds_left=1) == set(plan._took_s)


@pytest.mark.parametrize("choice", [{"systems": ["zfs"]}, {"groups": ["sleep"]}])
def test_unknown_names_are_refused(scratch: Path, choice: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidInputError, match=r"zfs|sleep"):
        runner.run(scratch, quick=True, **choice)  # type: ignore[arg-type]
    assert list(scratch.iterdir()) == []
