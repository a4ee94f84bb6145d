"""Runs commands of cowfs in forked processes, each under a limit of time and of memory.

    python -m tests.hostile.runner     a line of JSON a case on standard input, one for its outcome

A case: {"arguments": […], "environment": {…}, "timeout_s": …, "memory_bytes": …, "write_below":
[…] or null (Landlock), "neighbour": {…} or null (`neighbour.move_in`)}. The outcome: {"code": exit
code or null for one that was stopped, "said": standard output and error}. Nothing but imports has
happened in the process that forks.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0
MEMORY_BYTES = 3 << 30


@dataclass(frozen=True)
class Outcome:
    """code: of the command; None: it was stopped when its time was over."""

    code: int | None
    said: str

    def faults(self) -> list[str]:
        """What no command may do, whatever it meets."""
        found = [word for word in ("Traceback", "MemoryError", "report this", "internal error") if word in self.said]
        if self.code is None:
            found.append("hangs")
        elif self.code < 0 or self.code > 100:
            found.append(f"killed ({self.code})")
        return found


class Runner:
    """One process that forks a child for each command."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.runner"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self,
        *arguments: str,
        environment: dict[str, str],
        write_below: list[Path] | None = None,
        neighbour: dict[str, Any] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Outcome:
        case = {
            "arguments": arguments,
            "environment": environment,
            "timeout_s": timeout_s,
            "memory_bytes": MEMORY_BYTES,
            "write_below": None if write_below is None else [str(path) for path in write_below],
            "neighbour": neighbour,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _serve() -> None:
    import cowfs

    for module in pkgutil.walk_packages(cowfs.__path__, "cowfs."):  # once, for all children
        if not module.name.endswith("__main__"):
            with suppress(ModuleNotFoundError):  # of an integration whose library is not installed
                importlib.import_module(module.name)
    for line in sys.stdin:
        case = json.loads(line)
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                _run(case, said.fileno())
            code = _wait(child, case["timeout_s"])
            said.seek(0)
            text = said.read(1 << 20).decode(errors="replace")
        print(json.dumps({"code": code, "said": text}), flush=True)


def _wait(child: int, timeout_s: float) -> int | None:
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _run(case: dict[str, Any], output: int) -> None:
    """Never returns."""
    code = 101
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(case["environment"])
        tempfile.tempdir = None  # what the environment says now
        resource.setrlimit(resource.RLIMIT_AS, (case["memory_bytes"],) * 2)
        if case["write_below"] is not None:
            from tests.hostile import landlock

            landlock.write_only_below(map(Path, case["write_below"]))
        if (neighbour := case["neighbour"]) is not None:
            from tests.hostile.neighbour import move_in

            move_in(Path(neighbour.pop("tree")), away=Path(neighbour.pop("away")), **neighbour)
        from cowfs.cli import main

        code = main._run(case["arguments"], as_json="--json" in case["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve()
