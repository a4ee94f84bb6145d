"""The listeners to a commit's progress and to waits for the store: the callers of the commit, and
those whose requests wait for it to end.

Listeners are called one at a time: from the thread that commits, from the one that notices that the
store does not answer, or from their own when they join.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from cowfs.control import Listener, StoreWait
from cowfs.version.commit import Progress


class Audience:
    def __init__(self) -> None:
        self._lock = Lock()  # held while listeners are called: never two threads at once for one listener
        self._listeners: list[Listener] = []
        self._last: Progress | None = None
        self._wait = ""

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """For the length of a block, the listener receives the progress of every commit and waits
        for the store, beginning with the current ones."""
        with self._lock:
            self._listeners.append(listener)
            if self._last is not None:
                listener(self._last)
            if self._wait:
                listener(StoreWait(self._wait))
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

    def tell_one(self, listener: Listener, progress: Progress) -> None:
        """Reports to a single listener, and to nobody who joins later."""
        with self._lock:
            listener(progress)

    def wait(self, said: str) -> None:
        """said: as in `StoreWait`."""
        with self._lock:
            self._wait = said
            for listener in self._listeners:
                listener(StoreWait(said))

    def end(self) -> None:
        """Records that no commit is running."""
        with self._lock:
            self._last = None
