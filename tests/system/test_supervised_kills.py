"""The daemon of a supervised mount is killed at random moments while real programs work on it: none
of them sees an error, and every acknowledged byte is there.

    COWFS_KILLS           how many
    COWFS_KILLS_SEED      repeats the draws of an earlier run, though not its interleaving
    COWFS_KILLS_PROGRAMS  some of `programs_under_kills.PROGRAMS`, separated by commas
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import supervisors
from tests.effort import share
from tests.system.machine import Machine, is_running
from tests.system.programs_under_kills import PATIENCE_S, PROGRAMS, Running, check
from tests.system.trees import differences, read_tree

pytestmark = [pytest.mark.mount, pytest.mark.slow]

KILLS = int(os.environ.get("COWFS_KILLS", share(50)))
SEED = int(os.environ.get("COWFS_KILLS_SEED", random.SystemRandom().randrange(1 << 32)))
CHOSEN = [name for name in os.environ.get("COWFS_KILLS_PROGRAMS", "").split(",") if name] or list(PROGRAMS)
MOST_FAILED_STARTS = 2
"""In a row. After one more the supervisor gives the mount up."""


class Killer:
    """Kills the daemons of a mount. The supervisor is the parent of all but the first."""

    def __init__(self, machine: Machine, path: Path, draw: random.Random) -> None:
        supervisor = supervisors.pid_of(machine.root / "run")
        assert supervisor is not None
        self._supervisor = supervisor
        self._draw = draw
        self._last = machine.daemon_pid(path)
        self._failed_starts = 0
        self.kills = Counter[str]()
        self._kill(self._last, "first")

    def kill(self) -> None:
        """Kills the next daemon, mostly some time after it is ready, sometimes while it starts."""
        pid = self._await(self._next, "no daemon is started")
        moment = self._draw.choice(("starting", "at once", "soon", "later", "later"))
        if moment == "starting" and self._failed_starts < MOST_FAILED_STARTS:
            time.sleep(self._draw.random() * 1.5)
        else:
            self._await(lambda: is_ready(pid), f"daemon {pid} does not become ready")
            time.sleep({"at once": 0, "soon": 0.1}.get(moment, 2) * self._draw.random())
        if is_ready(pid):
            self._failed_starts = 0
            self._kill(pid, moment)
        else:
            self._failed_starts += 1
            self._kill(pid, "starting")

    def await_ready(self) -> None:
        self._await(lambda: (pid := self._next()) is not None and is_ready(pid), "no daemon becomes ready")

    def _kill(self, pid: int, moment: str) -> None:
        os.kill(pid, signal.SIGKILL)
        self._last = pid
        self.kills[moment] += 1

    def _next(self) -> int | None:
        children = Path(f"/proc/{self._supervisor}/task/{self._supervisor}/children").read_text().split()
        return next((pid for pid in map(int, children) if pid != self._last and is_running(pid)), None)

    def _await(self, found: Any, what: str) -> Any:
        end = time.monotonic() + PATIENCE_S
        while not (value := found()):
            assert time.monotonic() < end, what
            time.sleep(0.005)
        return value


def is_ready(pid: int) -> bool:
    """Whether a daemon that goes on has said so: it has left its standard input, and its copy of
    the supervisor's socket that is for the answer. Before exec, the process looks like its
    parent."""
    try:
        if b"go-on" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        links = [os.readlink(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd")]
        sockets = [link for link in links if link.startswith("socket:")]
        return os.readlink(f"/proc/{pid}/fd/0") == os.devnull and len(sockets) == len(set(sockets))
    except (FileNotFoundError, ProcessLookupError):
        return False


class Pauses(threading.Thread):
    """Measures how long a small write takes that is issued right after a kill."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._file = path.open("wb", buffering=0)
        self._wanted = threading.Event()
        self._is_over = False
        self.found_s: list[float] = []
        self.error: OSError | None = None

    def run(self) -> None:
        with self._file:
            while self._wanted.wait() and not self._is_over:
                self._wanted.clear()
                start = time.monotonic()
                try:
                    os.pwrite(self._file.fileno(), b"written", 0)
                except OSError as error:
                    self.error = error
                    return
                self.found_s.append(time.monotonic() - start)

    def measure(self) -> None:
        self._wanted.set()

    def end(self) -> None:
        self._is_over = True
        self._wanted.set()
        self.join(PATIENCE_S)
        assert self.error is None, self.error
        assert not self.is_alive(), "a write gets no answer"

    def __str__(self) -> str:
        found = sorted(self.found_s) or [0.0]
        parts = {f"{percent} %": found[len(found) * percent // 100] for percent in (10, 50, 90, 99)}
        return ", ".join(f"{name}: {value:.2f} s" for name, value in (parts | {"longest": found[-1]}).items())


def kill_often(machine: Machine, mounted: Path, running: Running) -> None:
    """Ends early if a program does."""
    draw = random.Random(SEED)
    pauses = Pauses(mounted / "pauses")
    pauses.start()
    time.sleep(draw.random() * 3)
    killer = Killer(machine, mounted, draw)
    while killer.kills.total() < KILLS and running.are_all_alive:
        pauses.measure()
        killer.kill()
    print(f"kills: {dict(killer.kills)}")
    print(f"pauses: {pauses}")
    running.require_alive()
    pauses.end()


def test_programs_notice_no_kill(machine: Machine, elsewhere: Machine) -> None:
    print(f"COWFS_KILLS={KILLS} COWFS_KILLS_SEED={SEED}")
    machine.create("v")
    mounted = machine.mount("v", "--supervise")
    with Running(machine, mounted, CHOSEN, SEED) as running:
        kill_often(machine, mounted, running)
        acknowledged = running.end()
    before = read_tree(mounted)
    locator = machine.commit(mounted, "last")
    machine.unmount(mounted)
    messages = [each["message"] for each in machine.json("log", "v")["versions"]]
    commits = sum(acknowledged.get("commits", []))
    assert messages == ["last", *(f"commit {number}" for number in reversed(range(commits)))]
    committed = elsewhere.mount(locator, at="back")
    assert differences(before, read_tree(committed)) == []
    check(committed, acknowledged)
