"""Whoever waits for a process, or ends one, needs no descriptor of it: sandboxes forbid them, and
old kernels have none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from cowfs.machine import processes
from cowfs.machine.processes import ProcessIdentity

WATCHDOG_S = 60

# The first thread ends, which makes it a zombie; another one goes on until something is written.
LAST_THREAD = """
import ctypes, os, sys, threading
def last():
    print("ready", flush=True)
    sys.stdin.readline()
    os._exit(0)
threading.Thread(target=last).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def program(process_descriptors: None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", LAST_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        yield program
        program.kill()


def identity(program: subprocess.Popen[str]) -> ProcessIdentity:
    started = processes._stat(program.pid)
    assert started is not None
    return ProcessIdentity(processes.machine_id(), processes.boot_id(), program.pid, started[1])


def test_a_process_is_gone_with_its_last_thread(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    assert not processes.wait_gone(program.pid, 0.1)
    program.stdin.write("\n")
    program.stdin.flush()
    assert processes.wait_gone(program.pid, WATCHDOG_S), "though nobody has reaped it"
    program.wait()
    assert processes.wait_gone(program.pid, 0)


@pytest.mark.usefixtures("process_descriptors")
def test_exactly_the_process_that_is_meant_is_ended() -> None:
    with subprocess.Popen(["sleep", "600"], text=True) as program:
        whole = identity(program)
        other = ProcessIdentity(whole.host, whole.boot_id, whole.pid, whole.started - 1)
        assert other.kill(), "it has ended before"
        assert program.poll() is None
        assert whole.kill()
        assert processes.wait_gone(program.pid, WATCHDOG_S)
    assert whole.kill()
