"""Who hears how far a commit is: whoever asked for it, and whoever waits for it to end before the
next one.

Listeners are called one at a time, from the thread that commits, or from their own when they join.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from cowfs.version.commit import Progress, ProgressListener


class Audience:
    def __init__(self) -> None:
        self._lock = Lock()  # held while listeners are told: two threads never tell the same one
        self._listeners: list[ProgressListener] = []
        self._last: Progress | None = None

    @contextmanager
    def joined(self, listener: ProgressListener) -> Iterator[None]:
        """For the length of a block the listener hears of every commit, first of all how far the
        one under way is."""
        with self._lock:
            self._listeners.append(listener)
            if self._last is not None:
                listener(self._last)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def tell(self, progress: Progress) -> None:
        with self._lock:
            self._last = progress
            for listener in self._listeners:
                listener(progress)

    def end(self) -> None:
        """No commit is under way any more."""
        with self._lock:
            self._last = None
