"""SIGTERM while a task runs: it ends the body, not the process, so that the volumes can be left.

    while volumes are mounted, and in the body    the call is interrupted: a blocking one by SystemExit, an async one by
                                                  cancellation
    while the result is published                 publishing goes on
    at the end                                    the process ends by SystemExit(143), as a shell counts it

It works in the main thread, where Python runs signal handlers, and if nothing else handles SIGTERM.
Otherwise the process dies, and the daemons of its mounts leave them (`mounts.process_binding`).
`signals` is for `cowfs exec`: it takes all signals of the process, which a function's caller may
need itself. A child that the body forks dies as without a task.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import NoReturn, Self

import anyio

EXIT_CODE = 128 + signal.SIGTERM


class Stop:
    """A context around one call. interrupt: ends the body; called by the signal handler."""

    def __init__(self, interrupt: Callable[[], object]) -> None:
        self._interrupt = interrupt
        self._may_interrupt = False
        self._is_installed = False
        self._pid = os.getpid()
        self.was_received = False

    def __enter__(self) -> Self:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._receive)
            self._is_installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_installed:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """The part of the call that the signal interrupts."""
        self._may_interrupt = True
        try:
            if self.was_received:
                self._interrupt()
            yield
        finally:
            self._may_interrupt = False

    def require_none(self) -> None:
        """SystemExit: the process was to end meanwhile."""
        if self.was_received:
            raise SystemExit(EXIT_CODE)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        is_first, self.was_received = not self.was_received, True
        if is_first and self._may_interrupt:
            self._interrupt()


def is_or_has(error: BaseException, kinds: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    """Also for a group with such an error in it, as a cancelled nursery of trio raises."""
    return isinstance(error, kinds) or (isinstance(error, BaseExceptionGroup) and error.subgroup(kinds) is not None)


def exit_now() -> NoReturn:
    raise SystemExit(EXIT_CODE)


def make_canceller(scope: anyio.CancelScope) -> Callable[[], object]:
    """Cancels the scope from a signal handler, which may run between any two steps of the loop."""
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        loop = asyncio.get_running_loop()
        return lambda: loop.call_soon_threadsafe(scope.cancel)
    import trio

    token = trio.lowlevel.current_trio_token()
    return lambda: token.run_sync_soon(scope.cancel)
