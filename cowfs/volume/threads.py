"""From blocking to async: one call in a worker thread, under asyncio or trio.

Cancelling the caller waits for the thread: a mount or commit is never abandoned halfway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    return await anyio.to_thread.run_sync(partial(function, *arguments, **named))
