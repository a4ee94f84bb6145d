"""Work in a thread of its own, while its caller waits where an exception can break nothing.

Python raises what a signal's handler raises (Ctrl-C) anywhere in the main thread: also inside of
`threading` and `concurrent.futures`, behind the taking of a lock and before the statement that
would give it back. Who waits for that lock then waits for ever. So work that has helpers is not
done where signals arrive.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

LOOK_S = 0.2
T = TypeVar("T")


def run(work: Callable[[], T], stop: Callable[[], None]) -> T:
    """What work returns or raises. stop, which may be called from any thread, has it end soon.

    An exception that comes to the waiting caller stops the work, and is raised when it has ended.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    ended: SimpleQueue[None] = SimpleQueue()  # not an event: written in C, it is never left half changed
    lock = _thread.allocate_lock()
    is_begun = is_given_up = False

    def body() -> None:
        nonlocal is_begun
        with lock:
            if is_given_up:
                return
            is_begun = True
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            errors.append(error)
        finally:
            ended.put(None)
            ended.put(None)  # what the caller takes may be lost by an exception

    try:
        _thread.start_new_thread(body, ())  # `Thread.start` waits for an event
        _wait(ended)
    except BaseException:
        with lock:
            is_given_up = True
        if is_begun:
            stop()
            ended.get()
        raise
    if errors:
        raise errors[0]
    return results[0]


def _wait(ended: SimpleQueue[None]) -> None:
    """A signal that arrives just before a thread begins to wait does not wake it."""
    while True:
        with suppress(Empty):
            return ended.get(timeout=LOOK_S)
