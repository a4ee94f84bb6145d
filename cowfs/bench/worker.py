"""A process that works on a file system under test: `python -m cowfs.bench.worker`, one JSON line a
message.

    to the worker    {"job": NAME, "arguments": {…}}     from it   {"ready": true} or {"error": TEXT, "wrong": bool}
                     {"go": true}                                  {"start_s", "end_s", "result"} or {"error": …}

NAME is a function of `jobs`, or MODULE:FUNCTION. Times are of the machine's monotonic clock, so
that those of several workers can be compared. It is a separate process, because a file system that
hangs must not hang the process that can end it; there are several, because threads would measure
Python's lock.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from cowfs.base import clock
from cowfs.bench import jobs


def main() -> None:
    gc.disable()
    for line in sys.stdin:
        message = json.loads(line)
        try:
            _work(message["job"], message["arguments"])
        except (OSError, jobs.Wrong, ValueError) as error:
            _say({"error": f"{type(error).__name__}: {error}"})
        gc.collect()


def _work(name: str, arguments: dict[str, Any]) -> None:
    module, _, name = name.rpartition(":")
    job = getattr(import_module(module) if module else jobs, name)(**arguments)
    next(job)
    _say({"ready": True})
    sys.stdin.readline()
    start_s = clock.monotonic_s()
    next(job)
    end_s = clock.monotonic_s()
    try:
        next(job)
    except StopIteration as end:
        _say({"start_s": start_s, "end_s": end_s, "result": end.value})


def _say(message: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):  # the parent has ended
        os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
