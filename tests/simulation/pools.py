"""In place of threads: an actor does their work itself, one request after the other, each in a
turn of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
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


def in_any_order(chance: random.Random) -> Callable[[Callable[[], Any]], AbstractContextManager[Callable[[], Any]]]:
    """In place of `apart.meanwhile`: work is done at once, or not before it is asked for, or the
    block ends."""

    @contextmanager
    def meanwhile(work: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
        later = _Later(work, ())
        if chance.random() < 0.5:
            later.run()
        try:
            yield later.result
        finally:
            later.run()

    return meanwhile


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
