"""One event loop on a thread of its own, for callers that block (`cowfs.blocking`).

Started at the first call and kept for the life of the process; a forked child starts its own. Its thread is a daemon, and
so are the worker threads it makes: none of them keeps the process from ending, and nothing depends on their end, since
work that matters is in working copies and mount daemons.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from threading import Lock, Thread
from typing import ParamSpec, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

P = ParamSpec("P")
T = TypeVar("T")

_lock = Lock()
_running: dict[int, BlockingPortal] = {}


def run(function: Callable[P, Awaitable[T]], *arguments: P.args, **named: P.kwargs) -> T:
    """Runs an async function in the loop and waits for what it returns or raises."""
    return _portal().call(partial(function, *arguments, **named))


def _portal() -> BlockingPortal:
    with _lock:
        if os.getpid() not in _running:
            _running[os.getpid()] = _start()
        return _running[os.getpid()]


def _start() -> BlockingPortal:
    started: Future[BlockingPortal] = Future()

    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    Thread(target=anyio.run, args=(serve,), name="cowfs-blocking", daemon=True).start()
    return started.result()


def _after_fork() -> None:
    """The child has neither the thread nor, perhaps, a free lock."""
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_after_fork)
