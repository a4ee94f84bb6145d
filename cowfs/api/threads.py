"""From blocking to async: one call in a worker thread, under asyncio or trio.

A call that has begun is never abandoned: whoever cancels the caller waits for the thread, and the
cancellation is let through when the call is over. That holds for anyio's and trio's scopes, and for
asyncio's own `Task.cancel`, which knows nothing of scopes and may reach every task that asyncio
lists: `asyncio.timeout`, Ctrl-C, the end of `asyncio.run`, once or many times. Under asyncio, who
cancels a second time (a second Ctrl-C) has the call wait no longer for a store that does not answer
it: it ends within seconds, by an error if it has to. Not so what other threads put or fetch for it
(packs of an upload, a mount's daemon).
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

from cowfs.apart import Helping

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """A caller that is cancelled already begins nothing."""
    await anyio.lowlevel.checkpoint()
    return await in_any_case(function, *arguments, **named)


async def in_any_case(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Also for a caller that is cancelled already: what has to be done at the end of a block."""
    call = partial(function, *arguments, **named)
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        return await _under_asyncio(call)
    return await _under_trio(call)


async def _under_asyncio(call: Callable[[], T]) -> T:
    """The task that waits for the thread is in no list, so nobody else can cancel it."""
    helping = Helping()
    running = asyncio.Task(anyio.to_thread.run_sync(helping.do, call))
    asyncio.tasks._unregister_task(running)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError as error:
                if cancelled is not None:
                    helping.hurry()
                cancelled = error
    if cancelled is not None:
        raise cancelled from (None if running.cancelled() else running.exception())
    return running.result()


async def _under_trio(call: Callable[[], T]) -> T:
    """A shield is enough there, but for a Ctrl-C that came while a thread was waited for: trio
    raises it at the next checkpoint, and `run_sync` begins with one."""
    interrupted: KeyboardInterrupt | None = None
    with anyio.CancelScope(shield=True):
        try:
            await anyio.lowlevel.checkpoint()
        except KeyboardInterrupt as error:
            interrupted = error
        try:
            result = await anyio.to_thread.run_sync(call)
        finally:
            if interrupted is not None:
                raise interrupted
    return result


AT_ONCE = 256
"""What one visit of a worker thread brings of an iterator."""


async def iterated(make: Callable[[], Iterator[T]], at_once: int = AT_ONCE) -> AsyncIterator[T]:
    """The items of a blocking iterator, which a worker thread makes and advances."""
    iterator = await in_thread(make)
    while found := await in_thread(lambda: list(islice(iterator, at_once))):
        for each in found:
            yield each
