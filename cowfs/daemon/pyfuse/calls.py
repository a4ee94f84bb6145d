"""Calls the engine for the FUSE handlers: loads what it lacks, turns errors into errnos.

    engine answers                  inline on the trio thread: memory and local disk only
    NotResident                     in a worker thread: Residency.load, then the same call again (`session.loading`)
    OSError                         FUSEError with its errno
    CowfsError                      FUSEError with the errno of its kind, logged once
    anything else                   logged with its traceback, EIO: an exception that reaches pyfuse3 ends the mount.
                                    A panic of the engine is a BaseException; no other can come out of a call without await

Between two awaits of a handler no other handler runs; an engine call that raised NotResident has changed nothing.
Loads and syncs have limiters of their own, so that neither a slow store nor a slow disk keeps the other waiting, and
handlers that need neither are never behind them. A wait cannot be cancelled from outside, so that each request gets its
answer; `give_up` ends all waits with EIO, those to come too, and what they waited for goes on in its thread, unheard.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import pyfuse3
import trio

from cowfs import log
from cowfs.daemon.errnos import Errnos
from cowfs.daemon.server import LOAD_THREADS
from cowfs.native import NotResident
from cowfs.session.loading import answered

P = ParamSpec("P")
T = TypeVar("T")

SYNC_THREADS = 32

_logger = log.get("mount")


class EngineCalls:
    """Used on the trio thread only. `load` and `relieve` block and run in worker threads.

    load      makes resident what a NotResident names
    relieve   frees local disk space (clean staging, cache); returns bytes freed
    """

    def __init__(self, load: Callable[[NotResident], None], relieve: Callable[[], int]) -> None:
        self._load = load
        self._relieve = relieve
        self._loads = trio.CapacityLimiter(LOAD_THREADS)
        self._syncs = trio.CapacityLimiter(SYNC_THREADS)
        self._waits: set[trio.CancelScope] = set()
        self._is_given_up = False
        self._errnos = Errnos()

    async def ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The call's result; runs inline unless something must be loaded first."""
        try:
            return call(*args, **kwargs)
        except NotResident:
            pass  # below, where it may block
        except BaseException as error:  # noqa: BLE001 - becomes an errno; pyfuse3 must not see it
            raise self._fuse_error(error) from None
        return await self._wait(partial(answered, partial(call, *args, **kwargs), self._load), self._loads)

    async def ask_for_space(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `ask`, for calls that add bytes: when the disk is full, frees what can be fetched again and repeats once."""
        try:
            return await self.ask(call, *args, **kwargs)
        except pyfuse3.FUSEError as error:
            if error.errno != errno.ENOSPC:
                raise
        if await self._wait(self._relieve, self._syncs) == 0:
            raise pyfuse3.FUSEError(errno.ENOSPC)
        return await self.ask(call, *args, **kwargs)

    def tell(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
        """For calls whose failure nobody can be told of; says whether it went well."""
        try:
            call(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - as above
            self._fuse_error(error)
            return False
        return True

    async def sync(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Runs a call that waits for the disk in a worker thread."""
        await self._wait(partial(call, *args, **kwargs), self._syncs)

    def give_up(self) -> None:
        """Ends every wait: their callers get EIO now."""
        self._is_given_up = True
        for scope in self._waits:
            scope.cancel()

    async def _wait(self, call: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
        """The call's result, from a worker thread."""
        if self._is_given_up:
            raise pyfuse3.FUSEError(errno.EIO)
        with trio.CancelScope(shield=True) as scope:
            self._waits.add(scope)
            try:
                return await trio.to_thread.run_sync(_contained, call, abandon_on_cancel=True, limiter=limiter)
            except Exception as error:  # noqa: BLE001 - as above
                raise self._fuse_error(error) from None
            finally:
                self._waits.discard(scope)
        raise pyfuse3.FUSEError(errno.EIO)

    def _fuse_error(self, error: BaseException) -> pyfuse3.FUSEError:
        return pyfuse3.FUSEError(self._errnos.of(error))


def _contained(call: Callable[[], T]) -> T:
    """The call's result; a panic of the engine becomes an exception that can be told apart from a cancellation."""
    try:
        return call()
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"the engine failed: {error}") from error
