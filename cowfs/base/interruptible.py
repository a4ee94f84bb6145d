"""Runs work in a thread of its own, so that Ctrl-C interrupts only the waiting caller.

Python raises the exceptions of signal handlers (Ctrl-C) anywhere in the main thread, also inside
`threading` and `concurrent.futures`, between acquiring a lock and entering the block that releases
it. The lock is then never released. So work runs in another thread if it uses helpers, takes turns
with other processes, or must learn how its last step ended, as a commit must. It gets the context
variables of its caller.

Work can run nested work; giving up the outer work gives up the nested work, too. The caller's
thread emits the log records of the work, since the caller may be a signal handler that has
interrupted `logging` while it held a lock. If no thread can be started, as at the interpreter's
shutdown, the caller does the work itself.

`meanwhile` runs a helper of the calling code: an interruption of the caller ends the helper, too.
"""

from __future__ import annotations

import _thread
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, ParamSpec, TypeVar

LOOK_S = 0.2
A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class GivenUp(BaseException):
    """Ends work after its caller has stopped waiting for it."""


class _Event(NamedTuple):
    """is_news: for a listener, which gets no events after the work is given up."""

    call: Callable[[], object]
    is_news: bool


class _Work:
    """above: the enclosing work. is_helper: it runs beside its caller. caller: the thread that
    waits for it. events: the calls to make in the caller's thread, and None at the end. A queue and
    not a `threading.Event`, since the queue is written in C and never left half changed."""

    def __init__(self, above: _Work | None, *, is_helper: bool = False) -> None:
        self.above = above
        self.is_helper = is_helper
        self.caller = threading.get_ident()
        self.events: SimpleQueue[_Event | None] = SimpleQueue()
        self.stops: list[Callable[[], None]] = []
        self.is_hurried = False
        self.is_brief = False
        self.is_cancelled = False
        self._is_given_up = False

    @property
    def is_given_up(self) -> bool:
        return self._is_given_up or (self.above is not None and self.above.is_given_up)

    @property
    def has_time(self) -> bool:
        return not (self.is_hurried or self._is_given_up) and (self.above is None or self.above.has_time)

    @property
    def is_patient(self) -> bool:
        return not (self.is_brief or self.is_hurried or self._is_given_up) and (
            self.above is None or self.above.is_patient
        )

    def give_up(self) -> None:
        self._is_given_up = True
        for stop in list(self.stops):
            stop()


class _Own(threading.local):
    """work: the work that this thread is doing."""

    work: _Work | None = None


_own = _Own()


def run(work: Callable[[], T], stop: Callable[[], None] | None = None) -> T:
    """Returns or raises the outcome of `work`. stop: makes it end soon, and may be called from any
    thread; `require_wanted` and `register_stop` within the work do the same.

    An exception in the waiting caller stops the work, and is raised once the work has ended. Nested
    work runs in the same thread, unless it has a `stop` of its own.
    """
    if (_own.work is not None and stop is None) or sys.is_finalizing():  # then a new thread would never run
        return work()
    this = _Work(_own.work)
    if stop is not None:
        this.stops.append(stop)
    done = _Done(work, this)
    try:
        try:
            done.begin()
        except RuntimeError:
            return work()
        done.wait()
    except BaseException:
        done.give_up()
        raise
    return done.result()


@contextmanager
def meanwhile(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Runs `work` in a thread of its own during the block. Yields a function that waits for the
    work, can be called once, and returns or raises its outcome. The work has ended when the block
    has. An interruption of the block gives the work up; an error in the block does not."""
    done = _Done(work, _Work(_own.work, is_helper=True))
    try:
        try:
            if sys.is_finalizing():
                done.do_here()
            else:
                done.begin()
        except RuntimeError:
            done.do_here()
        try:
            yield done.result
        except Exception:
            done.wait()
            raise
        done.wait()
    except BaseException:
        done.give_up()
        raise


class Helping:
    """Work that other threads do for the thread that creates this object."""

    def __init__(self) -> None:
        self._this = _Work(_own.work, is_helper=True)
        self._under_way: list[None] = []
        self._is_over = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._under_way)

    def do(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Runs `call` in the calling thread. GivenUp: the work was given up before it began."""
        before, _own.work = _own.work, self._this
        self._under_way.append(None)
        try:
            if self._is_over:
                raise GivenUp
            return call(*arguments, **named)
        finally:
            self._under_way.pop()
            _own.work = before

    def give_up(self) -> None:
        """Marks the work as no longer needed."""
        self._is_over = True
        self._this.give_up()

    def cancel(self) -> None:
        """The caller is cancelled, but waits for the work: see `is_cancelled`."""
        self._this.is_cancelled = True

    def hurry(self) -> None:
        """From now on the work waits for a silent store no longer than work that is given up does.
        Everything else is unchanged."""
        self._this.is_hurried = True


class _Done(Generic[T]):
    """The caller's view of work that another thread does."""

    def __init__(self, work: Callable[[], T], this: _Work) -> None:
        self._work = work
        self._this = this
        self._context = copy_context()
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self._lock = _thread.allocate_lock()
        self._is_begun = self._is_given_up = self._has_ended = False

    def begin(self) -> None:
        """RuntimeError: no thread can be started."""
        _thread.start_new_thread(self.do, ())  # `Thread.start` waits for an event

    def do_here(self) -> None:
        """Errors are part of the result; an interruption is raised at once."""
        self.do()
        if self._errors and not isinstance(self._errors[0], Exception):
            raise self._errors.pop()

    def do(self) -> None:
        before = _own.work
        try:
            with self._lock:
                if self._is_given_up:
                    return
                self._is_begun = True
            _own.work = self._this
            self._results.append(self._context.run(self._work))
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            self._errors.append(error)
        finally:
            _own.work = before
            self._this.events.put(None)
            self._this.events.put(None)  # an exception may discard an item that the caller has taken
            del self  # the frames of the error, including this one, must not keep the error alive

    def wait(self) -> None:
        """Wakes up regularly: a signal just before a thread begins to wait does not wake it."""
        while not self._has_ended:
            try:
                event = self._this.events.get(timeout=LOOK_S)
            except Empty:
                require_wanted()
                continue
            if event is None:
                self._has_ended = True
            else:
                event.call()

    def give_up(self) -> None:
        """Returns when the work has ended, which it may have before the call."""
        with self._lock:
            self._is_given_up = True
        if self._is_begun and not self._has_ended:
            self._this.give_up()
            while (event := self._this.events.get()) is not None:
                if not event.is_news:
                    event.call()

    def result(self) -> T:
        self.wait()
        if self._errors:
            raise self._errors.pop()  # popped, so that its traceback does not keep it alive
        return self._results.pop()


def run_with_listener(work: Callable[[Callable[[A], None]], T], listener: Callable[[A], None] | None) -> T:
    """As `run`, for work that reports to a listener. The caller's thread calls the listener, since
    the listener may need that thread's locks. An exception in the listener ends the work, and is
    raised here. None: no listener."""
    if listener is None:
        return run(partial(work, lambda _: None))
    if _own.work is not None:
        return work(listener)

    def report_news() -> T:
        if (this := _own.work) is None:  # no thread could be started
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
                if this.is_given_up:  # also if a helper of the work reports
                    raise GivenUp

        return work(tell)

    return run(report_news)


def is_logged_here(record: logging.LogRecord) -> bool:
    """A filter of loggers: False for a record of work, which goes to the caller's thread."""
    work = _own.work
    while work is not None and work.is_helper:  # its caller is busy
        work = work.above
    if work is None:
        return True
    work.events.put(_Event(partial(logging.getLogger(record.name).handle, record), is_news=False))
    return False


def waiting_threads() -> set[int]:
    """The ids of this thread and of the threads that wait for its work."""
    found, work = {threading.get_ident()}, _own.work
    while work is not None and not work.is_helper:
        found.add(work.caller)
        work = work.above
    return found


def is_work() -> bool:
    """Whether this thread does work for a thread that waits, or has waited, for it."""
    return _own.work is not None


def is_wanted() -> bool:
    """Whether a caller still waits for the work of this thread."""
    return _own.work is None or not _own.work.is_given_up


def is_cancelled() -> bool:
    """Whether the caller is cancelled and waits only for the end of this work: work that has done
    nothing yet, and waits for others, should end."""
    work = _own.work
    while work is not None and not work.is_cancelled:
        work = work.above
    return work is not None


def has_time() -> bool:
    """Whether this thread may wait for an answer of the store."""
    return _own.work is None or _own.work.has_time


def is_patient() -> bool:
    """Whether this thread may ask a store that does not answer again for long."""
    return _own.work is None or _own.work.is_patient


@contextmanager
def brief() -> Iterator[None]:
    """The block, and helpers that it starts, soon give up on a store that does not answer. A slow
    answer is waited for."""
    above = _own.work
    _own.work = _Work(above, is_helper=True)
    _own.work.is_brief = True
    try:
        yield
    finally:
        _own.work = above


def require_wanted() -> None:
    """Raises GivenUp if the caller no longer waits for this work. Call it where work may end."""
    if not is_wanted():
        raise GivenUp


@contextmanager
def register_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Within work: calls `stop` when the work is given up, to make the block end soon."""
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


def _begin_anew() -> None:
    """In a forked child, no thread waits for this work."""
    _own.work = None


os.register_at_fork(after_in_child=_begin_anew)
