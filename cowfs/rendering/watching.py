"""A view that follows what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from cowfs.base import clock

T = TypeVar("T")


def watch(look: Callable[[], T], *, every_s: float) -> Iterator[T]:
    """Yields what `look` returns, at once and again whenever it has changed; it is called every
    every_s seconds. Never ends by itself; errors of `look` end it."""
    shown = look()
    yield shown
    while True:
        clock.sleep_s(every_s)
        if (found := look()) != shown:
            shown = found
            yield shown
