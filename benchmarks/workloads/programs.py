"""Real programs, run unchanged.

untar        `tar -x` of the standard library, without fsync; then every name, mode and byte is compared
git          `git clone` of a repository of the same files; `git status` after the kernel's caches were dropped: no changes
pip          `pip install` of the pip that comes with Python, without network and without compiling; its RECORD is verified
sqlite       as in `cowfs.bench`
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.material import GIT
from benchmarks.trial import SystemTrial
from cowfs.base import clock, programs
from cowfs.bench.crew import TIMEOUT_S, WorkloadFailed
from cowfs.bench.workloads import sqlite


def run(trial: SystemTrial) -> None:
    _untar(trial)
    _git(trial)
    _pip(trial)
    sqlite.run(trial)


def _untar(trial: SystemTrial) -> None:
    _, files = trial.material.archive_digest
    seconds = _time(["tar", "-x", "-f", str(trial.material.archive), "-C", str(trial.root)])
    trial.record("untar", files / seconds)
    (found,) = trial.work("benchmarks.jobs:digest", path=str(trial.root / "stdlib")).results
    if found != trial.material.archive_digest:
        raise WorkloadFailed(f"the unpacked tree is {found}, not {trial.material.archive_digest}")


def _git(trial: SystemTrial) -> None:
    if trial.material.repository is None:
        return
    clone = trial.root / "clone"
    git = ["git", "-c", "gc.auto=0"]
    source = f"file://{trial.material.repository}"
    trial.record("git-clone", _time([*git, "clone", "--quiet", source, str(clone)], GIT))
    trial.forget()
    start_s = clock.monotonic_s()
    said = _run([*git, "-C", str(clone), "status", "--porcelain"], GIT)
    trial.record("git-status", clock.monotonic_s() - start_s)
    if said:
        raise WorkloadFailed(f"git status sees changes in a fresh clone: {said[:200]}")


def _pip(trial: SystemTrial) -> None:
    wheel = trial.material.wheel
    if wheel is None:
        return
    target = trial.root / "installed"
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check", "--no-cache-dir"]
    command = [sys.executable, "-P", str(wheel / "pip"), "install", *options, "--target", str(target), str(wheel)]
    trial.record("pip-install", _time(command, {"PIP_CONFIG_FILE": os.devnull, "PIP_ROOT_USER_ACTION": "ignore"}))
    trial.work("benchmarks.jobs:verify_record", path=str(target))


def _time(command: list[str], more: dict[str, str] | None = None) -> float:
    start_s = clock.monotonic_s()
    _run(command, more)
    return clock.monotonic_s() - start_s


def _run(command: list[str], more: dict[str, str] | None = None) -> str:
    """Returns the program's output. Its working directory is outside the file system under test."""
    try:
        done = programs.run(command, cwd="/", env={**programs.environment(), **(more or {})}, timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise WorkloadFailed(f"{Path(command[0]).name} did not end in time") from error
    if done.returncode:
        raise WorkloadFailed(f"{Path(command[0]).name} failed: {done.stderr.decode().strip()[-300:]}")
    return done.stdout.decode().strip()
