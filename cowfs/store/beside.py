"""Requests that do not depend on one another, made at the same time: one round trip instead of
several.

Only for requests of which any order is right. The first call runs in the caller's thread, the
others in threads that end with the call. All of them have ended when it returns or raises; of
several errors the first call's is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def beside(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """What both return."""
    with ThreadPoolExecutor(1, thread_name_prefix="cowfs-beside") as pool:
        other = pool.submit(second)
        found = first()
    return found, other.result()


@contextmanager
def meanwhile(action: Callable[[], A]) -> Iterator[Callable[[], A]]:
    """Does something in a thread of its own while the block goes on. Gives what waits for it and
    gives what it returns; it has ended when the block has."""
    with ThreadPoolExecutor(1, thread_name_prefix="cowfs-beside") as pool:
        yield pool.submit(action).result
