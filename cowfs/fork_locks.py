"""Locks of modules, for processes that fork while their threads are at work.

A lock that another thread has at the moment of a fork is never given back in the child. What these
guard are tables, which are whole between two steps; so a child begins with new ones.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class ForkLock:
    """A lock that is free in a child. A thread may take it again within."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        self._lock = threading.RLock()


_all: WeakSet[ForkLock] = WeakSet()


def _after_fork() -> None:
    for lock in list(_all):
        lock.renew()


os.register_at_fork(after_in_child=_after_fork)
