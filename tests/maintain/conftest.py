"""A machine of its own, whose store has two volumes: `data` with two versions, and a fork of the
first."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from cowfs.blocking import ROVolume, Volume
from cowfs.cli import main
from tests.api.conftest import place
from tests.cli.conftest import Run, Said

__all__ = ["Run", "contents", "place", "run"]

NOISE = random.Random(1022)
BIG = NOISE.randbytes(3 << 20)
OTHER = NOISE.randbytes(1 << 20)
FIRST = {"dir/big": BIG, "dir/sub/small": b"few bytes", "text": b"line\n" * 5000}


def contents(version: ROVolume) -> dict[str, bytes]:
    return {
        entry.path.lstrip("/"): version.files.read(entry.path)
        for entry in version.files.ls("", recursive=True)
        if entry.type == "file"
    }


def forget(machine: Path) -> None:
    """The machine's caches are gone."""
    from cowfs.api.access import file_session

    file_session._end_all()
    for path in (machine / "c").iterdir():
        if path.name != "state":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line, in this process."""

    def runner(*arguments: str) -> Said:
        capsys.readouterr()
        code = main._run(list(arguments), as_json="--json" in arguments)
        done = capsys.readouterr()
        return Said(code, done.out, done.err)

    return runner


@pytest.fixture
def first(place: Path) -> ROVolume:
    vol = Volume.new("data")
    vol.files.mkdir("dir/sub", parents=True)
    for path, data in FIRST.items():
        vol.files.write(path, data)
    return vol.finalize("first")


@pytest.fixture
def second(first: ROVolume) -> ROVolume:
    vol = Volume.open("data")
    vol.files.write("other", OTHER)
    return vol.finalize("second")
