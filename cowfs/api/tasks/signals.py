"""Signals of this process while it runs a program: noted in the order of their arrival, and acted
on where the code asks for them.

Python writes the number of each signal to a pipe, from which `wait` and `take` read them. The
handlers themselves do nothing, except within `raising`. A signal that the caller of this process
ignores (nohup) stays ignored, here and in the program.

Only for a process that exists for the program. `stopping` is for functions: it takes SIGTERM alone,
and only if nothing else handles it, since asyncio has the pipe (`set_wakeup_fd`) and Ctrl-C.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from cowfs.base.errors import InvalidStateError

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (*STOPS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT, signal.SIGALRM)
NOT_STARTED = "the program was not started, because of a signal to stop"


class Stopped(BaseException):
    """A signal that ends what is under way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Signals:
    """A context. Not reentrant: one at a time in a process."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._raising: Collection[int] = ()

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise InvalidStateError(
                "a program can be run in the main thread only", hint="Call it there: signals arrive there."
            )
        self._reader, self._writer = os.pipe()
        for descriptor in (self._reader, self._writer):
            os.set_blocking(descriptor, False)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (*FORWARDED, signal.SIGCHLD):
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)  # the command line blocks SIGTERM while it loads
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._reader)
        os.close(self._writer)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number in self._raising:
            self._raising = ()
            raise Stopped(number)

    @contextmanager
    def raising(self, numbers: Collection[int]) -> Iterator[None]:
        """Within the block the first of these signals raises `Stopped`. So does an earlier one that
        was not taken; other earlier signals are dropped."""
        self._raising = numbers
        try:
            for number in self.take():
                if number in numbers:
                    raise Stopped(number)
            yield
        finally:
            self._raising = ()

    def take(self) -> list[int]:
        """The signals since the last call."""
        try:
            return list(os.read(self._reader, 65536))
        except BlockingIOError:
            return []

    def wait(self, timeout_s: float | None) -> list[int]:
        """Waits until there is a signal, SIGCHLD included, and returns those that have come."""
        select.select([self._reader], [], [], timeout_s)
        return self.take()
