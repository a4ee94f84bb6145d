"""Thread pools that remain usable while the program ends.

Python ends the threads of `concurrent.futures` when the main thread has ended: before it waits for
the program's other threads, and before `atexit`. Work in those threads still needs helpers. At that
point the module that starts the pools cannot even be imported, and store libraries import it late.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, ParamSpec, TypeVar
from weakref import finalize

from cowfs.base import clock
from cowfs.base.errors import UnavailableError
from cowfs.base.interruptible import Helping

with suppress(RuntimeError):
    import concurrent.futures.thread  # noqa: F401

LOOK_S = 0.005

P = ParamSpec("P")
T = TypeVar("T")
Task = tuple[Future[Any], Callable[[], Any]]


class Threads(Executor):
    """As a `ThreadPoolExecutor`, usable at any time. The interpreter's shutdown does not wait for
    its threads. If no more threads can be started, work is queued for the existing ones. If there
    is no thread at all, the submitting thread does the work: errors are part of the result, an
    interruption is raised at once."""

    def __init__(self, threads: int, *, name: str) -> None:
        self._most = threads
        self._name = name
        self._lock = threading.Lock()  # guards the fields below
        self._threads: list[threading.Thread] = []
        self._is_over = False
        self._idle = threading.Semaphore(0)
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        finalize(self, self._tasks.put, None).atexit = False  # for a pool that is never shut down

    def start(self) -> None:
        """Starts all threads, for work that waits for other work. UnavailableError: that many
        cannot be started."""
        with self._lock:
            while len(self._threads) < self._most:
                if not self._add_thread():
                    raise UnavailableError(
                        f"{self._most} threads are needed at once, and only {len(self._threads)} could be started",
                        hint="Raise the limit of processes, or do this before the program ends.",
                    )

    def submit(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        task = future, partial(call, *arguments, **named)
        with self._lock:
            if self._is_over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if not self._idle.acquire(blocking=False) and self._add_thread(task):
                return future
            if self._threads and not sys.is_finalizing():  # at shutdown they run nothing more
                self._tasks.put(task)
                return future
        _do(*task)
        if (error := future.exception()) is not None and not isinstance(error, Exception):
            raise error
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._is_over = True
            if cancel_futures:
                with suppress(Empty):
                    while True:
                        if (task := self._tasks.get_nowait()) is not None:
                            task[0].cancel()
            self._tasks.put(None)
        if wait and not sys.is_finalizing():
            for thread in self._threads:
                thread.join()

    def _add_thread(self, task: Task | None = None) -> bool:
        """Starts one more thread, which begins with the task. Returns whether it could. The lock is
        held."""
        if len(self._threads) >= self._most or sys.is_finalizing():  # it would never run
            return False
        name = f"{self._name}_{len(self._threads)}"
        first = [task] if task is not None else []  # not queued: the thread could count as idle before
        thread = threading.Thread(target=_work, args=(self._tasks, self._idle, first), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._threads.append(thread)
        return True


def _work(tasks: SimpleQueue[Task | None], idle: threading.Semaphore, first: list[Task]) -> None:
    if first:
        _do(*first.pop())
    while True:
        try:
            task = tasks.get_nowait()
        except Empty:
            idle.release()
            task = tasks.get()
        if task is None:
            tasks.put(None)  # for the other threads
            return
        _do(*task)
        del task


def _do(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised in the thread that asks for the result
        future.set_exception(error)
        del future  # the frames of the error, including this one, must not keep the error alive
    else:
        future.set_result(result)


class Helpers(Threads):
    """The threads of one block: all their work has ended when the block has. An interruption of the
    block, such as Ctrl-C, gives the work up: tasks that have not begun are dropped, and a silent
    store is not waited for. An error in the block does not give it up."""

    def __init__(self, threads: int, *, name: str) -> None:
        super().__init__(threads, name=name)
        self._helping = Helping()

    def submit(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        return super().submit(self._helping.do, call, *arguments, **named)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                self.shutdown()
        except BaseException:
            self._drop()
            raise
        if kind is not None and not issubclass(kind, Exception):
            self._drop()

    def _drop(self) -> None:
        """`Thread.join`, once interrupted, takes its thread for ended (Python 3.11)."""
        self._helping.give_up()
        self.shutdown(wait=False, cancel_futures=True)
        while self._helping.is_under_way:
            clock.sleep_s(LOOK_S)
