"""Children of a process that has volumes open use volumes of their own: no thread that is not there
is in their way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")

CHILD = """
def in_child(work):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(40, exit=True)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]
"""

IDLE = """
import faulthandler, os, sys, time, traceback
from cowfs.blocking import Volume
for number in range(20):
    volume = Volume.new(f"v{number}")
    volume.files.write("/a", b"x" * 1000)
    volume.finalize()
held = [Volume.version(f"v{number}") for number in range(4)]
assert all(len(version.files.read("/a")) == 1000 for version in held)
time.sleep(0.5)  # their threads wait

def read():
    own = [Volume.version(f"v{number}") for number in range(20)]
    assert all(len(version.files.read("/a")) == 1000 for version in own)

def write():
    for number in range(4, 8):
        volume = Volume.open(f"v{number}")
        volume.files.write("/b", b"y")
        volume.finalize()
"""


@pytest.mark.parametrize("what", ["read", "write"])
def test_children_of_an_idle_process(place: Path, what: str) -> None:
    ran(IDLE + CHILD + f"assert [in_child({what}) for _ in range(3)] == [0, 0, 0]")


def ran(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
