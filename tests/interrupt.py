"""Ctrl-C at a chosen moment: an exception of a signal's handler comes between any two lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any


class Interrupt:
    """Ends what runs in its block by KeyboardInterrupt before the `number`-th line of these
    modules, and goes on behind the block. keep: gets that exception. Of the main thread alone, as
    signals are."""

    def __init__(
        self, number: int, modules: Collection[str], keep: Callable[[BaseException], object] = lambda _: None
    ) -> None:
        self.number = number
        self.is_over = False
        self._left = number
        self._modules = modules
        self._keep = keep

    def __enter__(self) -> None:
        sys.settrace(self._called)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        sys.settrace(None)
        if error is not None:
            self._keep(error)
        return kind is KeyboardInterrupt

    def _called(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return self._line if frame.f_globals.get("__name__") in self._modules else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "line" and not self.is_over:
            self._left -= 1
            if self._left == 0:
                self.is_over = True
                raise KeyboardInterrupt
        return self._line


def interrupts(
    modules: Collection[str],
    keep: Callable[[BaseException], object] = lambda _: None,
    *,
    dense: int = 0,
    sparse: int,
) -> Iterator[Interrupt]:
    """For a call that is made again and again, until it comes to its end: before each of its first
    `dense` lines, and before one of `sparse` behind them, so that the test is short."""
    number = 1
    while True:
        interrupt = Interrupt(number, modules, keep)
        yield interrupt
        if not interrupt.is_over:
            return
        number += 1 if number < dense else sparse
