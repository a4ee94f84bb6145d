"""Work in a thread of its own, while its caller waits where an exception can break nothing.

Python raises what a signal's handler raises (Ctrl-C) anywhere in the main thread: also inside of
`threading` and `concurrent.futures`, behind the taking of a lock and before the statement that
would give it back. Who waits for that lock then waits for ever. So work that has helpers, that
takes turns with other processes, or that must learn how its last step ended, as a commit must, is
not done where signals arrive. It has its caller's context variables.

Work may do other work apart: whoever gives the first up gives up both. What it logs is logged by
the caller, who may be the handler of a signal that came while `logging` held a lock. Where no
thread can be had, as at the interpreter's end, work is done by its caller.
"""

from __future__ import annotations

import _thread
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

LOOK_S = 0.2
A = TypeVar("A")
T = TypeVar("T")


class GivenUp(BaseException):
    """Ends work that its caller does not wait for any more."""


class _Event(NamedTuple):
    """is_news: for a listener, who hears nothing any more once he has given the work up."""

    call: Callable[[], object]
    is_news: bool


class _Work:
    """above: which this one is part of. caller: the thread that waits for it. events: what the
    caller is to call, and None at the end; not an event, since a queue, written in C, is never left
    half changed."""

    def __init__(self, above: _Work | None) -> None:
        self.above = above
        self.caller = threading.get_ident()
        self.events: SimpleQueue[_Event | None] = SimpleQueue()
        self.stops: list[Callable[[], None]] = []
        self._is_given_up = False

    @property
    def is_given_up(self) -> bool:
        return self._is_given_up or (self.above is not None and self.above.is_given_up)

    def give_up(self) -> None:
        self._is_given_up = True
        for stop in list(self.stops):
            stop()


class _Own(threading.local):
    """work: that this thread does."""

    work: _Work | None = None


_own = _Own()


def run(work: Callable[[], T], stop: Callable[[], None] | None = None) -> T:
    """What work returns or raises. stop, which may be called from any thread, has it end soon; and
    so do `require_wanted` and `stopped_by` within it.

    An exception that comes to the waiting caller stops the work, and is raised when it has ended.
    Within other work it is done there, unless it has a stop of its own.
    """
    if (_own.work is not None and stop is None) or sys.is_finalizing():  # then a new thread would never run
        return work()
    results: list[T] = []
    errors: list[BaseException] = []
    this = _Work(_own.work)
    if stop is not None:
        this.stops.append(stop)
    context = copy_context()
    lock = _thread.allocate_lock()
    is_begun = is_given_up = False

    def body() -> None:
        nonlocal is_begun
        with lock:
            if is_given_up:
                return
            is_begun = True
        _own.work = this
        try:
            results.append(context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            errors.append(error)
        finally:
            this.events.put(None)
            this.events.put(None)  # what the caller takes may be lost by an exception

    try:
        try:
            _thread.start_new_thread(body, ())  # `Thread.start` waits for an event
        except RuntimeError:
            return work()
        _wait(this)
    except BaseException:
        with lock:
            is_given_up = True
        if is_begun:
            this.give_up()
            while (event := this.events.get()) is not None:
                if not event.is_news:
                    event.call()
        raise
    if errors:
        raise errors.pop()  # which is not to hold itself, by its frames
    return results.pop()


def run_heard(work: Callable[[Callable[[A], None]], T], listener: Callable[[A], None] | None) -> T:
    """As `run`, of work that tells a listener. It is called by the caller's thread, whose locks it
    may need; what it raises ends the work, and is raised. None: nobody listens."""
    if listener is None:
        return run(partial(work, lambda _: None))
    if _own.work is not None:
        return work(listener)

    def heard() -> T:
        if (this := _own.work) is None:  # there was no thread for it
            return work(listener)

        def tell(news: A) -> None:
            answers: SimpleQueue[None] = SimpleQueue()

            def call() -> None:
                listener(news)
                answers.put(None)

            this.events.put(_Event(call, is_news=True))
            while True:
                with suppress(Empty):
                    return answers.get(timeout=LOOK_S)
                if this.is_given_up:  # also where a helper of the work tells
                    raise GivenUp

        return work(tell)

    return run(heard)


def is_logged_here(record: logging.LogRecord) -> bool:
    """A filter of loggers: False for a record of work, which its caller is given."""
    work = _own.work
    if work is None:
        return True
    work.events.put(_Event(partial(logging.getLogger(record.name).handle, record), is_news=False))
    return False


def waiting_threads() -> set[int]:
    """This one, and those that wait for what it does."""
    found, work = {threading.get_ident()}, _own.work
    while work is not None:
        found.add(work.caller)
        work = work.above
    return found


def is_work() -> bool:
    """Whether this thread works for one that waits, or has waited, for it."""
    return _own.work is not None


def is_wanted() -> bool:
    """Whether somebody waits for what this thread does."""
    return _own.work is None or not _own.work.is_given_up


def require_wanted() -> None:
    """Raises GivenUp where work that is not waited for any more may end."""
    if not is_wanted():
        raise GivenUp


@contextmanager
def stopped_by(stop: Callable[[], None]) -> Iterator[None]:
    """Within work: who gives it up calls `stop`, too, which has the block end soon."""
    above: list[_Work] = []
    work = _own.work
    while work is not None:
        above.append(work)
        work = work.above
    for each in above:
        each.stops.append(stop)
    try:
        if not is_wanted():
            stop()
        yield
    finally:
        for each in above:
            each.stops.remove(stop)


def _wait(work: _Work) -> None:
    """A signal that arrives just before a thread begins to wait does not wake it."""
    while True:
        try:
            event = work.events.get(timeout=LOOK_S)
        except Empty:
            require_wanted()
            continue
        if event is None:
            return
        event.call()
