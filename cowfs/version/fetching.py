"""Threads for requests to the store: what somebody waits for goes first, what is fetched ahead takes what is left.

    urgent    somebody waits: before everything ahead, on any of THREADS
    ahead     nobody waits yet: at most AHEAD_THREADS at once, so that a miss always finds a thread that is free or soon will be

An ahead task that somebody comes to wait for is made urgent (`promote`), unless it has begun. Tasks do not raise: they tell their
outcome by a future of their own. What is queued when the threads are told to end does not run any more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

THREADS = 16
AHEAD_THREADS = 12

Task = Callable[[], None]


class Fetchers:
    """Any thread may call. Threads start when they are first needed and end with `close`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards everything below
        self._urgent: OrderedDict[Hashable, Task] = OrderedDict()
        self._ahead: OrderedDict[Hashable, Task] = OrderedDict()
        self._ahead_running = 0
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, key: Hashable, task: Task, *, urgent: bool) -> bool:
        """Queues a task; False, and it will never run, once closed."""
        with self._changed:
            if self._closed:
                return False
            (self._urgent if urgent else self._ahead)[key] = task
            if self._idle < len(self._urgent) + len(self._ahead) and len(self._threads) < THREADS:
                name = f"cowfs-fetch-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
            self._changed.notify()
        return True

    def promote(self, key: Hashable) -> None:
        """Somebody waits for it now. Nothing happens if it is not queued ahead."""
        with self._changed:
            if (task := self._ahead.pop(key, None)) is not None:
                self._urgent[key] = task
                self._changed.notify()

    def close(self) -> None:
        """Drops what is queued and waits for what runs."""
        with self._changed:
            self._closed = True
            self._urgent.clear()
            self._ahead.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._closed or self._has_task())
                self._idle -= 1
                if self._closed:
                    return
                is_urgent = bool(self._urgent)
                _, task = (self._urgent if is_urgent else self._ahead).popitem(last=False)
                self._ahead_running += not is_urgent
            try:
                task()
            finally:
                if not is_urgent:
                    with self._changed:
                        self._ahead_running -= 1
                        self._changed.notify()

    def _has_task(self) -> bool:
        return bool(self._urgent) or (bool(self._ahead) and self._ahead_running < AHEAD_THREADS)
