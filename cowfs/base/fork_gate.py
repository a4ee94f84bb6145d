"""Forks wait until no thread of this process is in SQLite or starts a program.

SQLite has process-wide locks. If a process forks while another thread holds one, the child can
never release it, and the child's first connection hangs. So every call of SQLite is made within
`GATE`, and `os.fork` waits until those calls are over: microseconds, or milliseconds where a
program is started. A read of a page may wait for a store; it runs outside of the gate (`outside`).

A program is started within the gate because of its pipes (`programs`).

The gate does not delay forks by C code, which runs no Python hooks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_S = 5.0
"""After that time the fork proceeds anyway."""


class _Depth(threading.local):
    here = 0


class ForkGate:
    """Reentrant: a thread may enter it again."""

    def __init__(self) -> None:
        self._depth = _Depth()
        self._changed = threading.Condition(threading.Lock())  # guards the fields below
        self._inside = 0
        self._forking = 0  # threads that are about to fork

    def __enter__(self) -> None:
        if self._depth.here == 0:
            self._enter()
        self._depth.here += 1

    def __exit__(self, *_: object) -> None:
        self._depth.here -= 1
        if self._depth.here == 0:
            self._leave()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Leaves the gate for the length of the block, for a thread that is within."""
        depth, self._depth.here = self._depth.here, 0
        self._leave()
        try:
            yield
        finally:
            self._enter()
            self._depth.here = depth

    def _enter(self) -> None:
        with self._changed:
            while self._forking:
                self._changed.wait()
            self._inside += 1

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            if self._forking:
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._forking += 1
            mine = 1 if self._depth.here else 0
            self._changed.wait_for(lambda: self._inside == mine, LONGEST_S)

    def open(self) -> None:
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()

    def forget(self) -> None:
        """Resets the gate in a child, where no other thread exists."""
        self._changed = threading.Condition(threading.Lock())
        self._inside, self._forking = (1 if self._depth.here else 0), 0


GATE = ForkGate()

os.register_at_fork(before=GATE.close, after_in_parent=GATE.open, after_in_child=GATE.forget)
