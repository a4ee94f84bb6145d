"""Starts other programs.

`subprocess` makes pipes, starts a process, and reads until every copy of a pipe's other end is
closed. A child that another thread forks in between has a copy, and closes it only at its own end:
a reader would hang as long as the worker of a data loader lives. So forks wait until a program has
been started (`fork_gate`), and no other module of cowfs starts one, which the linter checks.

Other programs do not need the secret that opens an encrypted store: without an explicit environment
they get ours without it. Any process that may read /proc/<pid>/environ could read it while they
run.

Imports only the modules that start a process: see `api.mounts.prepared`.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from cowfs.base.fork_gate import GATE

Program = subprocess.Popen[bytes]  # noqa: TID251


_SECRETS = ("COWFS_ENCRYPTION_PASSPHRASE", "COWFS_ENCRYPTION_KEY_FILE", "COWFS_ENCRYPTION_KEY_COMMAND")
_OF_DECLARED = ("COWFS_STORES__", "__ENCRYPTION_KEY")
_withheld: set[str] = set()
_started: WeakValueDictionary[int, Program] = WeakValueDictionary()
_starting = threading.Lock()  # while a program is in no table yet; taken within the gate, so that no child inherits it


def withhold(variable: str) -> None:
    """Keeps a variable that opens an encrypted store from programs that are started from now on."""
    _withheld.add(variable)


def environment() -> dict[str, str]:
    """The environment of this process without the variables that open encrypted stores."""
    begin, end = _OF_DECLARED
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _SECRETS and name not in _withheld and not (name.startswith(begin) and name.endswith(end))
    }


def start(words: Sequence[str], **options: Any) -> Program:
    """options: as of `subprocess.Popen`. env: `environment` by default. A process that continues
    the work of this one gets our whole environment."""
    options = {"env": environment(), **options}
    with GATE, _starting:
        program = subprocess.Popen(words, **options)  # noqa: TID251
        _started[program.pid] = program
        return program


def reap_orphans() -> bool:
    """Reaps children that have ended and were not started here. Returns False if one that was
    started here has ended, too: others behind it are found once its own code has reaped it."""
    with GATE, _starting, suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            own = _started.get(ended.si_pid)
            if own is not None and own.returncode is None:
                return False
            os.waitpid(ended.si_pid, 0)
    return True


def run(words: Sequence[str], *, timeout_s: float | None, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Waits until the program has ended and its output is closed. subprocess.TimeoutExpired: it was
    killed. options: as of `subprocess.Popen`."""
    with start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as program:
        try:
            printed, complaints = program.communicate(timeout=timeout_s)
        except BaseException:
            program.kill()
            raise
    return subprocess.CompletedProcess(words, program.returncode, printed, complaints)
