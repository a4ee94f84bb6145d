"""The workflow and the hook of docs/guide/ci.md: their commands are run in a project that has what
the page says. GitHub's own part, `uses` and the installation, is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cowfs.blocking import Declared, Store
from cowfs.machine import registry
from tests.api.conftest import place

__all__ = ["place"]

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "ci.md"
WORKFLOW, HOOKS = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL))

Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(place: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs a step as a runner does, in a project with a locked volume."""
    project = place / "project"
    (project / "tree").mkdir(parents=True)
    monkeypatch.chdir(project)
    (project / "tree" / "file").write_text("locked")
    Store("./store").upload("tree", "data")
    (project / "cowfs.toml").write_text('volumes = ["main/data"]\n[stores]\nmain = {url = "./store"}\n')
    Declared.load("cowfs.toml").lock()
    (project / "run-tests").write_text("cat volumes/main/data/file\n")
    (project / "make-results").write_text('mkdir -p "$1" && echo 0.93 > "$1/accuracy"\n')
    said = {"STORE": "./results-store", "GITHUB_SHA": "5f" * 20, "GITHUB_RUN_ID": "17"}
    summary = project / "summary"
    environ = {**os.environ, **said, "GITHUB_STEP_SUMMARY": str(summary)}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def steps(job: str) -> dict[str, str]:
    found: list[dict[str, Any]] = WORKFLOW["jobs"][job]["steps"]
    return {each["name"]: each["run"] for each in found if "run" in each and each["name"] != "install"}


@pytest.mark.mount
def test_the_check_passes_with_a_lock_that_fits_and_fails_without(shell: Shell) -> None:
    Path("tree", "file").write_text("later")
    Store("./store").upload("tree", "data")
    said = []
    for name, script in steps("check").items():
        done = shell(script)
        assert done.returncode == 0, (name, done.stderr)
        said.append(done.stdout)
    assert said[-1].endswith("locked")
    assert registry.list_mounts() == []
    Path("run-tests").write_text("exit 3\n")
    assert shell(steps("check")["test on the locked versions"]).returncode == 3
    assert registry.list_mounts() == []
    (hook,) = (each for repository in HOOKS["repos"] for each in repository["hooks"])
    assert shell(hook["entry"]).returncode == 0
    assert all(re.search(hook["files"], each) for each in ("cowfs.toml", "cowfs.lock"))
    with Path("cowfs.toml").open("a") as file:
        file.write("[stores.other]\nurl = './other'\n")
    assert shell(hook["entry"]).returncode == 0
    Path("cowfs.toml").write_text('volumes = ["main/data@v1"]\n[stores]\nmain = {url = "./store"}\n')
    for script in (hook["entry"], steps("check")["the lock fits"]):
        assert shell(script).returncode == 1


def test_a_second_publication_of_the_same_results_has_the_same_contents(shell: Shell) -> None:
    locators = []
    for _ in range(2):
        for name, script in steps("publish").items():
            done = shell(script)
            assert done.returncode == 0, (name, done.stderr)
        locators.append(Path("locator").read_text())
    first, version = (Store("./results-store").version(each.strip()) for each in locators)
    assert first.content_id() == version.content_id()
    assert version == Store("./results-store").version("results")
    assert version.labels == {"git.commit": "5f" * 20, "github.run": "17"}
    assert version.files.read("accuracy") == b"0.93\n"
    assert all(each.strip() in Path("summary").read_text() for each in locators)


def test_secrets_go_into_the_environment_only() -> None:
    scripts = [script for job in WORKFLOW["jobs"] for script in steps(job).values()]
    assert scripts
    assert not [each for each in scripts if "${{" in each], "a value of GitHub in a script would be run as shell text"
