"""One of several processes that race for something in a store: a program of its own, driven line by
line.

    python -m tests.store.racer URL NUMBER

reads `create <when> <key>`, `acquire <when> <volume>` or `release`, waits until <when> (monotonic
nanoseconds), tries, and answers `won` or `lost` or `error <kind> <message>`. A lease that was won
is held until `release` or the end.
"""

from __future__ import annotations

import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from cowfs.errors import ConflictError, CowfsError, LeaseHeldError
from cowfs.store import ObjectStore, open_store
from cowfs.store.refs import leases
from cowfs.store.refs.holder import current_holder

COUNT = 8


def main(url: str, number: int) -> None:
    store = open_store(url, create=True)
    store.list("warm/", limit=1)
    print("ready", flush=True)
    held: leases.Lease | None = None
    for line in sys.stdin:
        command, *arguments = line.split()
        try:
            if command == "release":
                if held:
                    held.release()
                answer = "released"
            else:
                when, name = arguments
                _wait_until(int(when))
                held = _try(store, command, name, number)
                answer = "won"
        except (ConflictError, LeaseHeldError):
            answer = "lost"
        except CowfsError as error:
            answer = f"error {error.kind} {error}"
        print(answer, flush=True)
    store.close()


def _try(store: ObjectStore, command: str, name: str, number: int) -> leases.Lease | None:
    if command == "acquire":
        return leases.acquire(store, name, current_holder(f"/mnt/{number}"))
    store.put_if_absent(name, b"writer %d" % number)
    return None


def _wait_until(when_ns: int) -> None:
    time.sleep(max(when_ns - time.monotonic_ns() - 1_000_000, 0) / 1e9)
    while time.monotonic_ns() < when_ns:
        pass


class Racers:
    """COUNT racing processes; `race` gives each one's answer."""

    def __init__(self, url: str) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.store.racer", url, str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for number in range(COUNT)
        ]

    def __enter__(self) -> Self:
        assert self._answers() == ["ready"] * COUNT
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process in self._processes:
            process.communicate(timeout=60)

    def race(self, command: str, name: str) -> list[str]:
        when_ns = time.monotonic_ns() + 20_000_000
        return self._ask(f"{command} {when_ns} {name}")

    def release(self) -> None:
        assert self._ask("release") == ["released"] * COUNT

    def _ask(self, line: str) -> list[str]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
        return self._answers()

    def _answers(self) -> list[str]:
        return [process.stdout.readline().strip() for process in self._processes if process.stdout is not None]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
