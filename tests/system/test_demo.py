"""The demo, smaller: every version reads back from other processes, and a small change adds
little."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.system.machine import ROOT, Machine

pytestmark = [pytest.mark.mount, pytest.mark.slow]


def run_demo(machine: Machine, *options: str) -> str:
    environment = {**machine.environment, "TMPDIR": str(machine.root / "local")}
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "demo.py", "--large-mb", "96", "--medium-mb", "24", *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    assert len(set(re.findall(r"cowfs\+\S+@[0-9a-f]{64}", done.stdout))) == 3
    return done.stdout


def test_demo_on_a_directory(machine: Machine) -> None:
    """Fails by itself when one changed byte adds 2 MB or one prepended byte 4 MB."""
    run_demo(machine)


@pytest.mark.s3
def test_demo_on_s3_with_the_server_killed_in_between(machine: Machine) -> None:
    assert "kill -9 SeaweedFS" in run_demo(machine, "--store", "s3")
