"""The workers of a run: started once, released together, abandoned when they do not answer.

`run` gives each worker its share, and returns the time from the first worker's start to the end of
the slowest, and their results. A worker that does not answer in time is killed without waiting for
it (it may hang in the file system until that is gone) and the next run gets a new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from dataclasses import field
from pathlib import Path
from typing import Any, Self

import cowfs
from cowfs.base import clock, programs
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.programs import Program

TIMEOUT_S = 300.0
"""A guess: the slowest row of the slowest system seen takes 30 s; a worker that takes longer
hangs."""


class WorkloadFailed(Exception):
    """An error, no answer in time, or a wrong result. The run continues, and fails at its end."""


@dataclass(frozen=True)
class Outcome:
    seconds: float
    results: list[Any]


class Crew:
    def __init__(self) -> None:
        self._workers: list[_Worker] = []

    def run(self, job: str, shares: list[dict[str, Any]], *, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Runs one worker per share. WorkloadFailed: an error, a wrong result, or no answer in
        time."""
        while len(self._workers) < len(shares):
            self._workers.append(_Worker())
        team = self._workers[: len(shares)]
        deadline_s = clock.monotonic_s() + timeout_s
        try:
            for worker, share in zip(team, shares, strict=True):
                worker.send({"job": job, "arguments": share})
            for worker in team:
                worker.receive(deadline_s)
            for worker in team:
                worker.send({"go": True})
            answers = [worker.receive(deadline_s) for worker in team]
        except BaseException:
            self.close()  # workers that wait for others, or still work, cannot be reused
            raise
        seconds = max(answer["end_s"] for answer in answers) - min(answer["start_s"] for answer in answers)
        return Outcome(seconds, [answer["result"] for answer in answers])

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _environment() -> dict[str, str]:
    home = str(Path(cowfs.__file__).resolve().parents[1])
    known = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(os.path.abspath, known), home])}


def _spawn() -> Program:
    command = [sys.executable, "-P", "-m", "cowfs.bench.worker"]
    return programs.start(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        env=_environment(),
        bufsize=0,
        start_new_session=True,  # Ctrl-C must only reach the process that removes the workers' files
    )


@dataclass
class _Worker:
    process: Program = field(default_factory=_spawn)
    unread: bytes = b""

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
        except BrokenPipeError as error:
            raise WorkloadFailed("a worker process ended") from error

    def receive(self, deadline_s: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        while b"\n" not in self.unread:
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= 0 or not select.select([self.process.stdout], [], [], left_s)[0]:
                raise WorkloadFailed("no answer in time: the file system hangs, or is far slower than any seen")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise WorkloadFailed("a worker process ended")
            self.unread += data
        line, _, self.unread = self.unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkloadFailed(answer["error"])
        return answer

    def kill(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
