"""Changes of one file, one after the other: what the kernel's lock of an inode does behind a mount.

An append looks where the end is and writes there; nobody may write, cut or empty the file between
the two. Threads that change different files do not wait for each other. A thread that has its turn
may take it again.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Turns:
    def __init__(self) -> None:
        # Guards _held; never held while somebody waits for a turn. A file that nobody has closed is
        # flushed by the garbage collector, which may run here, too.
        self._lock = threading.RLock()
        self._held: dict[Hashable, tuple[threading.RLock, int]] = {}  # with how many have it or wait for it

    @contextmanager
    def of(self, key: Hashable) -> Iterator[None]:
        with self._lock:
            turn, count = self._held.get(key, (threading.RLock(), 0))
            self._held[key] = turn, count + 1
        try:
            with turn:
                yield
        finally:
            with self._lock:
                turn, count = self._held[key]
                if count > 1:
                    self._held[key] = turn, count - 1
                else:
                    del self._held[key]
