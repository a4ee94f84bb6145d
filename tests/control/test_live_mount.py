"""What is done with a mount that its daemon serves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cowfs.control import live_mount
from cowfs.machine.processes import ProcessIdentity, boot_id, machine_id, start_time
from cowfs.machine.registry import MountEntry

LEFT_BY_ITS_FIRST_THREAD = """
import ctypes, os, platform, threading, time
from cowfs.machine.processes import start_time
threading.Thread(target=lambda: (time.sleep(1), os._exit(0))).start()
print(start_time(os.getpid()), flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit
"""


class Agreeing:
    """A daemon that says yes to everything."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def ask(self, *_: Any) -> None:
        pass


def test_the_end_of_a_mount_is_that_of_its_last_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes the files; whoever unmounts their disk before is told that it is busy."""
    process = subprocess.Popen([sys.executable, "-c", LEFT_BY_ITS_FIRST_THREAD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as said:
        identity = ProcessIdentity(machine_id(), boot_id(), process.pid, int(said.readline()))
    status = Path(f"/proc/{process.pid}/status")
    while "State:\tZ" not in status.read_text():
        pass
    assert not identity.is_alive
    assert identity.is_there
    entry = MountEntry("", identity, "/mnt", "", "", "", "v", None, False, None, 0)
    monkeypatch.setattr(live_mount, "Client", Agreeing)
    live_mount.discard(entry)
    assert "Threads:\t1\n" in status.read_text()
    process.wait()
    assert not identity.is_there


def test_exactly_the_process_that_is_meant_is_killed() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = ProcessIdentity(machine_id(), boot_id(), process.pid, start_time(process.pid) or 0)
        try:
            os.kill(process.pid, signal.SIGSTOP)
            while not identity.is_stopped:
                pass
            assert replace(identity, started=identity.started + 2).kill(), "it has ended long since"
            assert not replace(identity, host="another machine's").kill()
            assert process.poll() is None
            assert identity.kill()
            assert process.wait(60) == -signal.SIGKILL
        finally:
            process.kill()
    assert identity.kill(), "there is none any more"
