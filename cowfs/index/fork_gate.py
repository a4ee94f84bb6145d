"""Forks wait until no thread of this process is in SQLite.

SQLite has locks of the whole process. In a child that was forked while another thread had one of
them nobody would ever give it back, and the child's first connection would hang. So whoever calls
SQLite does it within `GATE`, and `os.fork` waits for the microseconds that this takes. A read that
SQLite asks for may wait for a store: it goes on outside of the gate (`outside`).

Forks by C code, without Python's hooks, are not waited for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_S = 5.0
"""Then the fork goes on all the same."""


class _Depth(threading.local):
    here = 0


class ForkGate:
    """A thread may enter it again within."""

    def __init__(self) -> None:
        self._depth = _Depth()
        self._changed = threading.Condition(threading.Lock())  # guards what follows
        self._inside = 0
        self._forking = 0  # threads that are about to

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
        """Of a thread that is within: until the end of the block it is not."""
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
        """In a child, where no other thread is."""
        self._changed = threading.Condition(threading.Lock())
        self._inside, self._forking = (1 if self._depth.here else 0), 0


GATE = ForkGate()

os.register_at_fork(before=GATE.close, after_in_parent=GATE.open, after_in_child=GATE.forget)
