"""What the three shells ask, and what they are answered; bash itself with the script that it is
given."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.blocking import Volume
from tests.cli.conftest import Run

PYTHONPATH = os.pathsep.join(map(os.path.abspath, sys.path))


@pytest.fixture(autouse=True)
def volumes(home: Path) -> None:
    for name in ("data", "data-eu", "other"):
        Volume.new(name).resolve()


def asked(shell: str, line: str, wanted: str = "plain") -> list[str]:
    """The values of one kind that `cowfs` offers where the line ends."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    position = words[-1] if shell == "fish" else str(len(words) - 1)
    environment = {
        **os.environ,
        "PYTHONPATH": PYTHONPATH,
        "_COWFS_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": position,
    }
    done = subprocess.run(
        [sys.executable, "-m", "cowfs.cli"], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    if shell == "zsh":
        return [value for kind, value in zip(lines[::3], lines[1::3], strict=False) if kind == wanted]
    return [value.partition("\t")[0] for kind, _, value in (each.partition(",") for each in lines) if kind == wanted]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_offered_commands_and_volumes(shell: str) -> None:
    assert asked(shell, "cowfs mou") == ["mount"]
    assert asked(shell, "cowfs log dat") == ["data", "data-eu"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("cowfs log ", ["data", "data-eu", "other"]),
        ("cowfs cp oth", ["other:"]),
        ("cowfs cat oth", ["other:"]),
        ("cowfs commit d", ["data", "data-eu"]),
        ("cowfs merge data-eu --into oth", ["other"]),
        ("cowfs mount --transport ", ["auto", "device", "uring"]),
        ("cowfs log --store ELSE ", ["there"]),
        ("cowfs log --store memory://x ", []),
        ("cowfs log --store s3://b;endpoint=http%3A%2F%2F127.0.0.1%3A1;region=x ", []),
        ("cowfs bogus x", []),
    ],
)
def test_what_is_offered(home: Path, line: str, offered: list[str]) -> None:
    Volume.new("there", store=home / "else").resolve()
    assert asked("bash", line.replace("ELSE", str(home / "else"))) == offered


@pytest.mark.parametrize(
    "line",
    [
        "cowfs upload d",
        "cowfs import d",
        "cowfs export data d",
        "cowfs push data d",
        "cowfs pull data d",
        "cowfs repair --from d",
        "cowfs download data d",
        "cowfs ls --store d",
        "cowfs commit some/d",
    ],
)
def test_directories_are_left_to_the_shell(line: str) -> None:
    assert asked("bash", line, "dir") == ["some/d" if "some" in line else "d"]


def test_the_script_works_in_bash(run: Run, home: Path) -> None:
    (home / "bin").mkdir()
    program = home / "bin" / "cowfs"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cowfs.cli "$@"\n')
    program.chmod(0o755)
    (home / "script").write_text(run("completion", "bash").out)
    code = (
        "set -eu; source ./script; complete -p cowfs >&2; COMP_WORDS=(cowfs log dat); COMP_CWORD=2; "
        '_cowfs_completion cowfs; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", code], cwd=home, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.splitlines(), done.returncode) == (["data", "data-eu"], 0), done.stderr


def test_shells(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for shell, word in (("bash", "complete -o nosort"), ("zsh", "#compdef cowfs"), ("fish", "complete --no-files")):
        assert word in run("completion", shell).out
        monkeypatch.setenv("SHELL", f"/bin/{shell}")
        assert run("completion").out == run("completion", shell).out
    said = run("completion", "tcsh")
    assert said.code == 2
    assert "bash, zsh, fish" in said.err


def test_an_unknown_name_is_answered_by_those_near_it(run: Run) -> None:
    for command in (
        ["log", "dta"],
        ["mount", "dta", "/nowhere"],
        ["commit", "dta"],
        ["ls", "dta"],
        ["fork", "dta", "x"],
    ):
        said = run(*command)
        assert said.code == 3, command
        assert "Did you mean 'data'" in said.err, command
    assert "Did you mean 'data-eu'? " in run("log", "DATA_EU").err.replace(" or 'data'", "")
    assert "Did you mean" not in run("log", "zzzz").err


def test_arguments_in_the_wrong_order_are_answered_by_the_right_one(run: Run) -> None:
    assert "`data@{1}`" in run("rollback", "data", "@{1}").err
    assert "`cowfs mount data /nowhere`" in run("mount", "/nowhere", "data").err
    assert "Give NAME PATH" in run("mount", "./data", "./nowhere").err
