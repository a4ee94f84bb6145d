"""Runs a program with a task system on a machine, and looks at what it has left there. STORY: what
the tasks of every system do."""

from __future__ import annotations

import time
from pathlib import Path

from tests.system.machine import Machine

PATIENCE_S = 60
STORY = """
import cowfs
from cowfs.blocking import ROVolume

def write_a():
    (cowfs.current("data") / "a").write_text("made")
    return cowfs.current("data")

def read_a(version):
    assert type(version) is ROVolume, version
    return (version.mount() / "a").read_text()

def succeed_later():
    volume = cowfs.current("flaky")
    found = sorted(path.name for path in volume.path.iterdir())
    (volume / f"attempt-{len(found)}").write_text("x")
    if not found:
        raise ValueError("the first attempt fails")
    return volume

def check_story(text, version):
    assert text == "made", text
    assert sorted(entry.name for entry in version.files.ls()) == ["attempt-0", "attempt-1"]
"""


def run(machine: Machine, text: str, *arguments: Path, said: str = "the story was told") -> None:
    """The program's last words are `said`, and nothing stays mounted."""
    program = machine.root / "local" / "program.py"
    program.write_text(text)
    with machine.python(
        "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')", program, *arguments
    ) as process:
        out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert said in out
    require_unmounted(machine)


def require_unmounted(machine: Machine) -> None:
    """The daemons of killed processes have a moment to notice."""
    end_s = time.monotonic() + PATIENCE_S
    while machine.mounts() and time.monotonic() < end_s:
        time.sleep(0.2)
        machine.cowfs("status")
    assert not machine.mounts()
