"""Work in a thread of its own, while its caller waits where an exception can break nothing.

Python raises what a signal's handler raises (Ctrl-C) anywhere in the main thread: also inside of
`threading` and `concurrent.futures`, behind the taking of a lock and before the statement that
would give it back. Who waits for that lock then waits for ever. So work that has helpers, that
takes turns with other processes, or that must learn how its last step ended, as a commit must, is
not done where signals arrive. It has its caller's context variables.

Work may do other work apart: whoever gives the first up gives up both. What it logs is logged by
the caller, who may be the handler of a signal that came while `logging` held a lock. Where no
thread can be had, as at the interpreter's end, work is done by its caller.

`meanwhile` is for a helper of whoever calls it: what interrupts the caller ends the helper, too.
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
    """Ends work that its caller does not wait for any more."""


class _Event(NamedTuple):
    """is_news: for a listener, who hears nothing any more once he has given the work up."""

    call: Callable[[], object]
    is_news: bool


class _Work:
    """above: which this one is part of. is_helper: it goes on beside what its caller does. caller:
    the thread that waits for it. events: what the caller is to call, and None at the end; not an
    event, since a queue, written in C, is never left half changed."""

    def __init__(self, above: _Work | None, *, is_helper: bool = False) -> None:
        self.above = above
        self.is_helper = is_helper
        self.caller = threading.get_ident()
        self.events: SimpleQueue[_Event | None] = SimpleQueue()
        self.stops: list[Callable[[], None]] = []
        self.is_hurried = False
        self._is_given_up = False

    @property
    def is_given_up(self) -> bool:
        return self._is_given_up or (self.above is not None and self.above.is_given_up)

    @property
    def has_time(self) -> bool:
        return not (self.is_hurried or self._is_given_up) and (self.above is None or self.above.has_time)

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
    """Done in a thread of its own while the block goes on. Gives what waits for it, once, and gives
    what it returns or raises; it has ended when the block has. An interruption of the block gives
    it up, an error does not."""
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
    """What other threads do for whoever makes this."""

    def __init__(self) -> None:
        self._this = _Work(_own.work, is_helper=True)
        self._under_way: list[None] = []
        self._is_over = False

    @property
    def is_under_way(self) -> bool:
        return bool(self._under_way)

    def do(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """By the thread that calls this. GivenUp: it is too late to begin."""
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
        """Nobody waits for it any more."""
        self._is_over = True
        self._this.give_up()

    def hurry(self) -> None:
        """From now on it waits no longer for a store that is silent than if it was given up; all
        else is as before."""
        self._this.is_hurried = True


class _Done(Generic[T]):
    """What a thread does, seen by its caller."""

    def __init__(self, work: Callable[[], T], this: _Work) -> None:
        self._work = work
        self._this = this
        self._context = copy_context()
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self._lock = _thread.allocate_lock()
        self._is_begun = self._is_given_up = self._has_ended = False

    def begin(self) -> None:
        """RuntimeError: no thread can be had."""
        _thread.start_new_thread(self.do, ())  # `Thread.start` waits for an event

    def do_here(self) -> None:
        """Errors come with the result, an interruption at once."""
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
            self._this.events.put(None)  # what the caller takes may be lost by an exception
            del self  # the error's frames, this one among them, are not to hold the error

    def wait(self) -> None:
        """A signal that arrives just before a thread begins to wait does not wake it."""
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
        """Returns when it has ended, as it may have before."""
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
            raise self._errors.pop()  # nor itself, by the frames that it passes
        return self._results.pop()


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
    while work is not None and work.is_helper:  # whose caller is busy
        work = work.above
    if work is None:
        return True
    work.events.put(_Event(partial(logging.getLogger(record.name).handle, record), is_news=False))
    return False


def waiting_threads() -> set[int]:
    """This one, and those that wait for what it does."""
    found, work = {threading.get_ident()}, _own.work
    while work is not None and not work.is_helper:
        found.add(work.caller)
        work = work.above
    return found


def is_work() -> bool:
    """Whether this thread works for one that waits, or has waited, for it."""
    return _own.work is not None


def is_wanted() -> bool:
    """Whether somebody waits for what this thread does."""
    return _own.work is None or not _own.work.is_given_up


def has_time() -> bool:
    """Whether this thread may wait for a store that is silent."""
    return _own.work is None or _own.work.has_time


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


def _begin_anew() -> None:
    """In a forked child, which nobody waits for."""
    _own.work = None


os.register_at_fork(after_in_child=_begin_anew)
