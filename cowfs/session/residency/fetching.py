"""A thread pool for store requests: urgent requests go first, read-ahead uses the rest.

    urgent    a caller is waiting: runs before all read-ahead, on any of THREADS
    ahead     no caller waits yet: at most AHEAD_THREADS at once, so that a thread is always free, or soon will be, for a miss

Running tasks may hold MEMORY_BYTES in requests, and read-ahead three quarters of that, because the
bytes of a request stay in memory until they are decoded. The caller of `submit` states the size. A
task that does not fit waits, as do all tasks behind it; a single task always runs.

`promote` makes a queued ahead task urgent once a caller waits for it. Tasks report their own
outcome; an exception is logged and the thread continues. Tasks still queued at `close` do not run.

The first threads start with the pool, so no task depends on starting a thread later, which can fail
(a control group's pids.max). Without the other threads, tasks only wait longer.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from cowfs.base import log

THREADS = 16
AHEAD_THREADS = 12
FIRST_THREADS = 2
MEMORY_BYTES = 20 << 20  # six requests of any length, whose bytes are taken as they arrive

Task = Callable[[], None]

_logger = log.get("fetching")


class Fetchers:
    """Thread-safe. FIRST_THREADS start at once, up to `threads` as needed; they end with
    `close`."""

    def __init__(
        self, name: str = "cowfs-fetch", threads: int = THREADS, *, at_rest: Callable[[], object] = lambda: None
    ) -> None:
        """at_rest is called when a task has ended and no other is running or queued."""
        self._at_rest = at_rest
        self._name = name
        self._most = threads
        self._changed = threading.Condition()  # guards everything below
        self._urgent: OrderedDict[Hashable, tuple[Task, int]] = OrderedDict()
        self._ahead: OrderedDict[Hashable, tuple[Task, int]] = OrderedDict()
        self._ahead_running = 0
        self._running_bytes = 0
        self._running: dict[Hashable, threading.Thread] = {}
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closed = False
        with self._changed:
            for _ in range(FIRST_THREADS):
                self._add_thread()

    def submit(self, key: Hashable, task: Task, *, urgent: bool, size_bytes: int = 0) -> bool:
        """Queues a task that will hold size_bytes in memory. Returns False after `close`; the task
        then never runs."""
        with self._changed:
            if self._closed:
                return False
            (self._urgent if urgent else self._ahead)[key] = task, size_bytes
            if self._idle < len(self._urgent) + len(self._ahead) and len(self._threads) < self._most:
                with contextlib.suppress(RuntimeError):  # no thread available: the existing ones run it later
                    self._add_thread()
            self._changed.notify()
        return True

    def has(self, key: Hashable) -> bool:
        """Whether a task with this key is queued, or runs on a thread that is alive."""
        with self._changed:
            running = self._running.get(key)
            return key in self._urgent or key in self._ahead or (running is not None and running.is_alive())

    def promote(self, key: Hashable) -> None:
        """Makes a task urgent because a caller now waits for it. Ignored unless it is queued
        ahead."""
        with self._changed:
            if (task := self._ahead.pop(key, None)) is not None:
                self._urgent[key] = task
                self._changed.notify()

    def close(self, *, wait: bool = True) -> None:
        """Drops queued tasks and waits for running ones."""
        with self._changed:
            self._closed = True
            self._urgent.clear()
            self._ahead.clear()
            self._changed.notify_all()
        if wait:
            for thread in self._threads:
                thread.join()

    def _add_thread(self) -> None:
        """Raises RuntimeError if no thread can be started."""
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._closed or self._next_queue() is not None)
                self._idle -= 1
                queue = self._next_queue()
                if self._closed or queue is None:
                    return
                is_ahead = queue is self._ahead
                key, (task, size_bytes) = queue.popitem(last=False)
                self._running[key] = threading.current_thread()
                self._ahead_running += is_ahead
                self._running_bytes += size_bytes
                if self._next_queue() is not None:  # the task that ended may have made room for several
                    self._changed.notify()
            self._run(task)
            with self._changed:
                self._running.pop(key, None)
                self._ahead_running -= is_ahead
                self._running_bytes -= size_bytes
                rests = not self._running and not self._urgent and not self._ahead
            if rests:
                self._run(self._at_rest)

    def _run(self, task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException:  # a panic of the engine is not an Exception
            _logger.exception("a task failed")

    def _next_queue(self) -> OrderedDict[Hashable, tuple[Task, int]] | None:
        """The queue whose first task may start now."""
        if self._urgent:
            return self._urgent if self._fits(self._urgent, MEMORY_BYTES) else None
        if self._ahead and self._ahead_running < AHEAD_THREADS and self._fits(self._ahead, MEMORY_BYTES * 3 // 4):
            return self._ahead
        return None

    def _fits(self, queue: OrderedDict[Hashable, tuple[Task, int]], limit_bytes: int) -> bool:
        _, size_bytes = next(iter(queue.values()))
        return self._running_bytes == 0 or self._running_bytes + size_bytes <= limit_bytes
