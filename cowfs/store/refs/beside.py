"""Requests that do not depend on one another, made at the same time: one round trip instead of
two."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cowfs.base import interruptible

A = TypeVar("A")
B = TypeVar("B")


def beside(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Runs both calls at once and returns both results. Only for requests whose order is
    irrelevant.

    The first call runs in the caller's thread, the other meanwhile. Both have ended when it returns
    or raises; of two errors the first call's is raised.
    """
    with interruptible.meanwhile(second) as other:
        found = first()
        return found, other()
