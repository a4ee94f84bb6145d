"""A pool of threads for one block of its maker's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, TypeVar

from cowfs import clock
from cowfs.apart import Helping

LOOK_S = 0.005

P = ParamSpec("P")
T = TypeVar("T")


class Helpers(ThreadPoolExecutor):
    """All that they do has ended when the block has. What interrupts the block, as Ctrl-C does,
    gives it up: what has not begun is dropped, and a store that is silent is not waited for. An
    error does not."""

    def __init__(self, threads: int, *, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)
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
