"""Callers killed in the middle of their requests: the daemon answers everybody else, at once and
afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mount.daemons import Mount

pytestmark = [pytest.mark.mount, pytest.mark.slow]

BUSY = """
import os, sys
n = 0
while True:
    n += 1
    os.path.exists(f"{sys.argv[1]}/absent-{os.getpid()}-{n}")
    with open(f"{sys.argv[1]}/{os.getpid()}", "ab") as file:
        file.write(b"x" * 5000)
"""


def test_a_request_taken_back_by_a_kill_stops_nobody(mount: Mount) -> None:
    """A blocking read of the device would stop every thread of the daemon when the request it was
    woken for is gone."""
    for _ in range(60):
        callers = [subprocess.Popen([sys.executable, "-S", "-c", BUSY, mount.path]) for _ in range(4)]
        for caller in callers:
            while not (mount.path / str(caller.pid)).exists():
                assert caller.poll() is None
        for caller in callers:
            caller.kill()
            caller.wait()
        assert mount.call("ping")  # nobody asks the file system anything now
    assert len(os.listdir(mount.path)) == 240
    mount.unmount()
