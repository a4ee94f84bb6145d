"""Processes that write to one volume at the same time: each on a fork, merged at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.blocking import Store, Volume
from tests.effort import share

pytestmark = [pytest.mark.mount, pytest.mark.slow]

PROGRAM = """
import sys
import cowfs

@cowfs.task(volumes=[cowfs.TaskVolume("results", mode="shared", strategy={"log": "union"})])
def work(number, count):
    for each in range(count):
        volume = cowfs.current("results")
        (volume / f"{number}-{each}").write_text(number)
        with (volume.path / "log").open("a") as log:
            log.write(f"{number} {each}\\n")

for _ in range(2):
    work(sys.argv[1], 3)
"""


def test_eight_processes_lose_no_file_and_no_line(place: Path) -> None:
    processes = share(20)  # eight, in a share of the cases
    running = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(number)]) for number in range(processes)]
    assert [each.wait(300) for each in running] == [0] * processes
    files = Volume.version("results").files
    every = {f"{number}-{each}" for number in range(processes) for each in range(3)}
    assert {entry.name for entry in files.ls()} == every | {"log"}
    lines = bytes(files.read("log")).decode().splitlines()
    assert sorted(lines) == sorted(2 * [each.replace("-", " ") for each in every])
    assert [each.name for each in Store().volumes()] == ["results"], "the forks are deleted"
