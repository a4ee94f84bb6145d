"""Mounting inside a container: who may, what is said to those who may not, and what a killed container leaves.

A container is made of what the kernel makes one of: `unshare` gives a program its own processes and
mounts, `setpriv` takes its rights. The guide's image and pod are run by hand (docs/guide/containers.md).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mount.daemons import ROOT, WAIT_S, Place

pytestmark = [
    pytest.mark.mount,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a container"),
]

TASK = """
import os, sys
from pathlib import Path
from cowfs.blocking import Volume
volume = Volume.open("v")
steps = volume.mount(sys.argv[1], fast_lane=sys.argv[2] == "True") / "steps"
print(steps.read_text() if steps.exists() else "nothing", flush=True)
steps.write_text("written by the first")
print("wrote", flush=True)
sys.stdin.read()
volume.unmount()
"""


def start_task(place: Place, path: Path, fast_lane: bool) -> subprocess.Popen[str]:
    """TASK as process 1 of a container of its own; killing `unshare` kills it."""
    contained = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    return subprocess.Popen(
        [*contained, sys.executable, "-c", TASK, path, str(fast_lane)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **place.environment, "COWFS_STORE": place.store_url},
        text=True,
    )


@pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
def test_the_next_container_goes_on_with_the_work_of_a_killed_one(place: Place, fast_lane: bool) -> None:
    """At once: the state directory proves that the writer is dead, whose processes were never to be
    seen."""
    path = place.root / "mnt" / "task"
    first = start_task(place, path, fast_lane)
    assert first.stdin is not None
    assert first.stdout is not None
    with first.stdin, first.stdout:
        assert [first.stdout.readline() for _ in range(2)] == ["nothing\n", "wrote\n"]
        with open(f"/proc/{first.pid}/ns/pid_for_children"):  # held, or the second one may get its number
            first.kill()
            first.wait(WAIT_S)
            second = start_task(place, path, fast_lane)
            said, _ = second.communicate(timeout=WAIT_S)
    assert said.splitlines() == ["written by the first", "wrote"]
    assert second.returncode == 0
