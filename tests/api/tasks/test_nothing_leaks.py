"""After a task has ended, in whichever way: nothing is mounted, no daemon runs, no lease is held,
and the work is where the documentation says.

One process runs a task with a volume of each mode. The matrix is that of the ends, for a blocking
and for an async function.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.machine import Machine, wait_until_gone

pytestmark = [pytest.mark.mount, pytest.mark.slow]

PROGRAM = """
import asyncio, logging, sys, time
import cowfs

logging.basicConfig()
end, is_async = sys.argv[1], sys.argv[2] == "async"
LIST = ["base", "base::scratch", "out::rw", "base::fork", "target::shared"]
SCRATCH = cowfs.TaskVolume("base", mode="scratch")

def begin():
    from cowfs.api.tasks.scope import get_running
    for spec, volume in get_running().listed:
        if spec.mode != "ro":
            (volume.path / "new").write_text(spec.mode)
    print("begun", flush=True)
    if end == "raises":
        raise ValueError("midway")
    if end in ("returns", "daemons"):
        sys.stdin.readline()

@cowfs.task(volumes=LIST)
def work():
    begin()
    if end not in ("returns", "daemons"):
        time.sleep(120)

@cowfs.task(volumes=LIST)
async def async_work():
    begin()
    if end not in ("returns", "daemons"):
        await asyncio.sleep(120)

asyncio.run(async_work()) if is_async else work()
"""


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    with Machine() as machine, Machine(machine.store) as elsewhere:
        for name in ("base", "target"):
            machine.create(name)
            path = machine.mount(name)
            (path / "a").write_text("before")
            machine.commit(path)
            machine.unmount(path)
        yield machine, elsewhere


def run(machine: Machine, end: str, kind: str) -> tuple[int, str]:
    """The exit code, and what the program said."""
    with machine.python(PROGRAM, end, kind) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        assert line == "begun\n", process.communicate()[1]
        daemons = [entry["pid"] for entry in machine.mounts()]
        assert len(daemons) == 5
        if end == "daemons":
            for pid in daemons:
                os.kill(pid, signal.SIGKILL)
                wait_until_gone(pid)
        elif end in NUMBERS:
            process.send_signal(NUMBERS[end])
        _, said = process.communicate("\n", timeout=300)
        for pid in daemons:
            wait_until_gone(pid)
        return process.returncode, said


NUMBERS = {"is cancelled": signal.SIGINT, "is stopped": signal.SIGTERM, "is killed": signal.SIGKILL}


def files(machine: Machine, name: str) -> dict[str, str]:
    listed = machine.cowfs("ls", name, "--json", check=False)
    if listed.returncode:
        return {}
    return {
        each["path"].strip("/"): machine.cowfs("cat", f"{name}:{each['path']}").stdout
        for each in machine.json("ls", name)["entries"]
    }


def kept(machine: Machine) -> dict[str, Any]:
    return {each["volume"]: each for each in machine.json("status")["working_copies"]}


@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize("end", ["returns", "raises", "is cancelled", "is stopped", "is killed", "daemons"])
def test_after_a_task(end: str, kind: str, machines: tuple[Machine, Machine]) -> None:
    machine, elsewhere = machines
    code, said = run(machine, end, kind)
    print(code, said)
    machine.cowfs("status")  # removes what daemons that were killed have registered
    assert not machine.mounts()
    assert str(machine.root) not in Path("/proc/self/mountinfo").read_text()
    names = [each["volume"] for each in machine.json("ls")["volumes"]]
    if end in ("returns", "daemons"):  # the work is in the journal, and the task publishes it from there
        assert code == 0
        assert files(machine, "out") == {"new": "rw"}
        assert files(machine, f"base-{function(kind)}") == {"a": "before", "new": "fork"}
        assert files(machine, "target") == {"a": "before", "new": "shared"}
        assert names == ["base", f"base-{function(kind)}", "out", "target"]
        assert not kept(machine)
    else:
        assert code == {"is stopped": 143, "is killed": -signal.SIGKILL}.get(end, code)
        assert code != 0
        assert files(machine, "target") == {"a": "before"}
        for name, mode in (("out", "rw"), (f"base-{function(kind)}", "fork"), (f"target-{function(kind)}", "shared")):
            text = said if end != "is killed" else machine.cowfs("status").stderr
            assert name in kept(machine), said
            assert re.search(rf"cowfs mount {name}\b", text), text
            assert (machine.mount(name) / "new").read_text() == mode
            machine.cowfs("unmount", name)
    path = elsewhere.mount("out")  # no lease is left
    elsewhere.unmount(path)


def function(kind: str) -> str:
    return "work" if kind == "blocking" else "async-work"
