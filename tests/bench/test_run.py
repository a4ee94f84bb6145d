"""A directory beside the local disk: every row is measured, a wrong result fails, nothing is
left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cowfs import bench, blocking
from cowfs.bench import runner, table
from cowfs.bench.crew import Crew, Outcome, WorkloadFailed
from cowfs.bench.trial import Trial
from cowfs.cli.machine.bench import command
from cowfs.errors import AccessDeniedError, InvalidInputError, NotFoundError

ROOT_ONLY = {"read-disk"}


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A directory and one on the local disk."""
    for name in ("directory", "local"):
        (tmp_path / name).mkdir()
    return tmp_path / "directory", tmp_path / "local"


@pytest.mark.slow
def test_an_ordinary_directory_is_measured(places: tuple[Path, Path]) -> None:
    directory, local = places
    results = bench.run(directory, local=local, quick=True, rounds=1)
    assert results.failures == []
    for name in (runner.DIRECTORY, runner.LOCAL):
        missing = {row.key for row in table.ALL if not results.values(row.key, name)}
        assert missing <= (set() if results.machine["drops_caches"] else ROOT_ONLY)
    page = bench.text(results)
    assert str(directory) in page
    for row in results.to_json()["rows"]:
        assert f"| {row['title']} | {row['unit']} |" in page
    assert [*directory.iterdir(), *local.iterdir()] == []


@pytest.mark.slow
@pytest.mark.mount
def test_a_mounted_volume_is_measured(places: tuple[Path, Path], tmp_path: Path) -> None:
    volume = blocking.Volume.new("bench", store=(tmp_path / "store").as_uri())
    path = volume.mount(places[0], cache_dir=tmp_path / "cache", meta_dir=tmp_path / "meta")
    try:
        results = bench.run(path, local=places[1], quick=True, rounds=1)
        assert results.failures == []
        assert results.values("sqlite", runner.DIRECTORY)
        assert list(path.iterdir()) == []
    finally:
        volume.unmount()


def test_a_wrong_result_fails_the_run_and_not_the_other_directory(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(trial: Trial) -> None:
        trial.record("create", 1.0)
        if trial.name == runner.DIRECTORY:
            raise WorkloadFailed("not what was written")

    monkeypatch.setitem(runner.WORKLOADS, "files", wrong)
    said: list[str] = []
    found = bench.run(places[0], local=places[1], quick=True, rounds=2, groups=["files"], say=said.append)
    assert [failure["system"] for failure in found.failures] == [runner.DIRECTORY]  # once: it is not tried again
    assert len(found.values("create", runner.LOCAL)) == 2
    assert any("FAILED: directory" in line for line in said)
    assert "**Failed: directory, files: not what was written**" in bench.text(found)
    assert [*places[0].iterdir(), *places[1].iterdir()] == []


def test_a_directory_that_takes_no_writes_fails_and_nothing_is_left_in_it(places: tuple[Path, Path]) -> None:
    said: list[str] = []
    found = bench.run("/proc", local=places[1], quick=True, rounds=1, groups=["files"], say=said.append)
    assert [failure["system"] for failure in found.failures] == [runner.DIRECTORY]
    assert not any("left behind" in line for line in said)


def test_what_cannot_be_done_is_refused(
    places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInputError, match="sleep"):
        bench.run(places[0], quick=True, groups=["sleep"])
    with pytest.raises(NotFoundError):
        bench.run(tmp_path / "missing", quick=True)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(AccessDeniedError, match="cannot be measured: Permission denied"):
        bench.run(places[0], quick=True)


def test_the_help_names_the_groups() -> None:
    said = CliRunner().invoke(command, ["--help"]).output
    assert [word for word in re.findall(r"\w+", said.partition("workloads:")[2]) if word in runner.WORKLOADS] == [
        *runner.WORKLOADS
    ]


def test_an_interrupt_ends_the_run_and_nothing_is_left(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(trial: Trial) -> None:
        (trial.root / "file").touch()
        raise KeyboardInterrupt

    monkeypatch.setitem(runner.WORKLOADS, "files", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.run(places[0], local=places[1], quick=True, rounds=1, groups=["files"])
    assert [*places[0].iterdir(), *places[1].iterdir()] == []


def test_an_interrupt_while_a_directory_is_removed_leaves_nothing(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_run, interrupts = Crew.run, [KeyboardInterrupt()]

    def run(crew: Crew, job: str, *arguments: Any, **options: Any) -> Outcome:
        if job == "remove" and interrupts:
            raise interrupts.pop()
        return whole_run(crew, job, *arguments, **options)

    monkeypatch.setattr(Crew, "run", run)
    monkeypatch.setitem(runner.WORKLOADS, "files", lambda trial: None)
    with pytest.raises(KeyboardInterrupt):
        bench.run(places[0], local=places[1], quick=True, rounds=1, groups=["files"])
    assert [*places[0].iterdir(), *places[1].iterdir()] == []


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_ends_the_command_as_any_other(places: tuple[Path, Path], as_json: bool) -> None:
    command = [sys.executable, "-m", "cowfs.cli", "bench", str(places[0]), "--local", str(places[1])]
    command += ["--quick", "--rounds", "99", "--group", "files", *(["--json"] if as_json else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=pipe, stderr=pipe, text=True
    ) as process:
        deadline_s = time.monotonic() + 60
        while not any(places[0].iterdir()) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to workers too
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    if as_json:
        assert json.loads(stdout)["error"]["kind"] == "interrupted"
    else:
        assert (stdout, stderr.splitlines()[-1]) == ("", "cowfs: interrupted")
    assert [*places[0].iterdir(), *places[1].iterdir()] == []


@pytest.mark.slow
def test_the_command_prints_one_document(places: tuple[Path, Path]) -> None:
    command = [sys.executable, "-m", "cowfs.cli", "bench", str(places[0]), "--local", str(places[1])]
    command += ["--quick", "--rounds", "2", "--group", "files", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    (row, *_) = json.loads(done.stdout)["rows"]
    assert (row["key"], len(row["samples"]["directory"])) == ("create", 2)


def test_rows_have_names_of_their_own() -> None:
    assert len({row.key for row in table.ALL}) == len(table.ALL)
