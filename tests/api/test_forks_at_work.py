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

AT_WORK = """
import faulthandler, os, sys, threading, traceback
from cowfs.blocking import Volume
from cowfs.writer import owners
for name in ("one", "other"):
    volume = Volume.new(name)
    volume.files.write("/a", b"x")
    volume.finalize()
there, real = threading.Event(), owners.of_session

def wait(*arguments):
    there.set()
    threading.Event().wait()

owners.of_session = wait
threading.Thread(target=lambda: Volume.version("one").files.read("/a"), daemon=True).start()
there.wait()
owners.of_session = real

def read():
    assert Volume.version("other").files.read("/a") == b"x"
"""

IMPORTING = """
import faulthandler, os, sys, threading, traceback
import cowfs.base.fork_locks
cowfs.__path__.append(sys.argv[1])
cowfs.begun, cowfs.goes_on = threading.Event(), threading.Event()

def load():
    import cowfs.slow

threading.Thread(target=load).start()
cowfs.begun.wait()
threading.Timer(0.5, cowfs.goes_on.set).start()
"""


@pytest.mark.parametrize("what", ["read", "write"])
def test_children_of_an_idle_process(place: Path, what: str) -> None:
    ran(IDLE + CHILD + f"assert [in_child({what}) for _ in range(3)] == [0, 0, 0]")


def test_a_child_of_a_process_whose_thread_makes_a_session(place: Path) -> None:
    ran(AT_WORK + CHILD + "os._exit(in_child(read) != 0)")  # its thread never ends


def test_a_fork_waits_for_an_import_of_another_thread(place: Path) -> None:
    (place / "slow.py").write_text("import cowfs\ncowfs.begun.set()\ncowfs.goes_on.wait()\n")
    ran(IMPORTING + CHILD + "assert in_child(load) == 0", str(place))


def ran(program: str, *arguments: str) -> None:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
