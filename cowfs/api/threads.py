"""From blocking to async: one call in a worker thread, under asyncio or trio.

Cancelling the caller waits for the thread: a mount or commit is never abandoned halfway. That holds
for asyncio's own `Task.cancel` too (`asyncio.timeout`, Ctrl-C), which knows nothing of anyio's
shields: it is let through when the call is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice
from typing import ParamSpec, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    call = partial(function, *arguments, **named)
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return await anyio.to_thread.run_sync(call)
    await anyio.lowlevel.checkpoint()
    running = asyncio.ensure_future(anyio.to_thread.run_sync(call))
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        running.exception()  # seen: the cancellation is what the caller hears of
        raise cancelled
    return running.result()


AT_ONCE = 256
"""What one visit of a worker thread brings of an iterator."""


async def iterated(make: Callable[[], Iterator[T]], at_once: int = AT_ONCE) -> AsyncIterator[T]:
    """The items of a blocking iterator, which a worker thread makes and advances."""
    iterator = await in_thread(make)
    while found := await in_thread(lambda: list(islice(iterator, at_once))):
        for each in found:
            yield each
