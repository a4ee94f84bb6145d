"""Locks of the process, for programs that fork while their threads are at work.

A lock that another thread holds at the moment of a fork is never released in the child.

    tables of modules   are consistent between two steps: a child begins with new locks (`ForkLock`)
    imports             leave a half-initialised, locked module in the child: forks wait for their end

cowfs imports most of itself when it is first needed, which takes up to a second. Forks do not wait
for imports of other packages: such an import may last as long as the program. The table of module
locks is private to CPython; without it, no fork waits. Forks by C code, which run no Python hooks,
do not wait either.
"""

from __future__ import annotations

import logging  # noqa: F401  # Hooks run backwards: imports may need the lock that its hook takes
import os
import threading
from importlib import _bootstrap
from typing import Any
from weakref import WeakSet

from cowfs.base import clock

PACKAGES = ("botocore", "cowfs", "fsspec", "obstore")
"""cowfs, and the packages that its functions import on first use."""
LONGEST_S = 5.0
"""After that time the fork proceeds anyway."""
PAUSE_S = 0.001


class ForkLock:
    """A reentrant lock that is free in a forked child."""

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


def _wait_for_imports() -> None:
    ends_s = clock.monotonic_s() + LONGEST_S
    while _others_import() and clock.monotonic_s() < ends_s:
        clock.sleep_s(PAUSE_S)


def _others_import() -> bool:
    locks = [lock() for name, lock in list(_module_locks.items()) if name.partition(".")[0] in PACKAGES]
    return any(lock is not None and lock.owner != threading.get_ident() for lock in locks)


def _renew_locks() -> None:
    for lock in list(_all):
        lock.renew()


os.register_at_fork(before=_wait_for_imports, after_in_child=_renew_locks)
