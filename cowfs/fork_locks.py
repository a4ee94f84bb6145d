"""Locks of the process, for programs that fork while their threads are at work.

A lock that another thread has at the moment of a fork is never given back in the child.

    tables of modules   are whole between two steps of theirs: a child begins with new locks (`ForkLock`)
    imports             leave the child a module that is half made and locked: forks wait for their end

cowfs imports most of itself when it is first needed, for up to a second. Imports of other packages
are not waited for: one of a program's own may last as long as the program. The table of such locks
is private to CPython; where it is missing, no fork waits. Nor do forks by C code, without Python's
hooks.
"""

from __future__ import annotations

import logging  # noqa: F401  # Hooks run backwards: imports may need the lock that its hook takes
import os
import threading
from importlib import _bootstrap
from typing import Any
from weakref import WeakSet

from cowfs import clock

PACKAGES = ("botocore", "cowfs", "fsspec", "obstore")
"""cowfs, and what its functions import when they first need it."""
LONGEST_S = 5.0
"""Then the fork goes on all the same."""
PAUSE_S = 0.001


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
_module_locks: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})  # weak references, by a module's name


def _before_fork() -> None:
    ends_s = clock.monotonic_s() + LONGEST_S
    while _others_import() and clock.monotonic_s() < ends_s:
        clock.sleep_s(PAUSE_S)


def _others_import() -> bool:
    locks = [lock() for name, lock in list(_module_locks.items()) if name.partition(".")[0] in PACKAGES]
    return any(lock is not None and lock.owner != threading.get_ident() for lock in locks)


def _after_fork() -> None:
    for lock in list(_all):
        lock.renew()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
