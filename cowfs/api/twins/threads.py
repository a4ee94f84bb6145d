"""From blocking to async: one call in a worker thread, under asyncio or trio.

A call that has begun is never abandoned. If the caller is cancelled, it waits for the thread, and
the cancellation is raised when the call is over. That holds for the cancel scopes of anyio and
trio. It also holds for asyncio's own `Task.cancel`, which ignores scopes and may reach every task
that asyncio lists: `asyncio.timeout`, Ctrl-C, the end of `asyncio.run`, once or many times. Under
asyncio, the first such cancellation ends a mount's wait for another writer. A second one (a second
Ctrl-C) stops waiting for a store that does not answer the call; the call ends within seconds, if
necessary with an error. This does not apply to transfers that other threads or processes make for
it (packs of an upload, a mount's daemon).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from itertools import islice
from typing import ParamSpec, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from cowfs.base.interruptible import Helping

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Runs the call in a thread. A caller that is cancelled already starts nothing."""
    await anyio.lowlevel.checkpoint()
    return await in_any_case(function, *arguments, **named)


async def in_any_case(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Runs the call even for a cancelled caller: for cleanup at the end of a block."""
    call = partial(function, *arguments, **named)
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        return await _run_asyncio(call)
    return await _run_trio(call)


async def _run_asyncio(call: Callable[[], T]) -> T:
    """The task that waits for the thread is in no list, so other code cannot cancel it."""
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
                helping.cancel()
                cancelled = error
    if cancelled is not None:
        raise cancelled from (None if running.cancelled() else running.exception())
    return running.result()


async def _run_trio(call: Callable[[], T]) -> T:
    """A shield is enough here, except for a Ctrl-C that arrives while the thread runs: trio raises
    it at the next checkpoint, and `run_sync` begins with one."""
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
"""The number of items that one call of a worker thread fetches from an iterator."""


async def iterated(make: Callable[[], Iterable[T]], at_once: int = AT_ONCE) -> AsyncIterator[T]:
    """The items of a blocking iterator or list; a worker thread creates and advances it."""
    iterator = await in_thread(lambda: iter(make()))
    while found := await in_thread(lambda: list(islice(iterator, at_once))):
        for each in found:
            yield each
