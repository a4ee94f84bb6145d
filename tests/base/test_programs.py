"""Programs are started and waited for whatever other threads of this process do meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cowfs.base import programs

pytestmark = pytest.mark.quick

FORKED_MEANWHILE = """
import os, signal, subprocess, threading
from cowfs.base import programs
begun, forked, start = threading.Event(), threading.Event(), subprocess._fork_exec
children = []

def fork():
    begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        signal.pause()
    children.append(child)
    forked.set()

def slow(*arguments):
    begun.set()  # all pipes are there
    forked.wait(0.5)
    return start(*arguments)

subprocess._fork_exec = slow
threading.Thread(target=fork).start()
assert programs.run(["echo", "done"], timeout_s=None).stdout == b"done\\n"
forked.wait()
assert os.waitpid(children[0], os.WNOHANG) == (0, 0), "its end was waited for"
os.kill(children[0], signal.SIGKILL)
"""


def test_a_child_that_another_thread_forks_is_not_waited_for() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED_MEANWHILE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run(["sleep", "3600"], timeout_s=0.1)
