"""In place of thread pools: an actor does their work itself, one request after the other, each in a
turn of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any


class AtOnce:
    """Work is done when it is submitted."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, action: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done = _Later(action, arguments)
        done.run()
        return done

    def shutdown(self, *arguments: Any, **named: Any) -> None:
        pass

    def map(self, action: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        return map(action, items)


def in_any_order(chance: random.Random) -> type[AtOnce]:
    """Work is done when it is submitted, or not before it is asked for, or the pool ends."""

    class InAnyOrder(AtOnce):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            self._waiting: list[_Later] = []

        def __exit__(self, *error: object) -> None:
            for later in self._waiting:
                later.run()

        def submit(self, action: Callable[..., Any], *arguments: Any) -> Future[Any]:
            if chance.random() < 0.5:
                return super().submit(action, *arguments)
            self._waiting.append(_Later(action, arguments))
            return self._waiting[-1]

    return InAnyOrder


class _Later(Future[Any]):
    def __init__(self, action: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self._action, self._arguments = action, arguments

    def run(self) -> None:
        if not self.done():
            try:
                self.set_result(self._action(*self._arguments))
            except Exception as error:
                self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        self.run()
        return super().result(timeout)
