"""Calls the engine for the FUSE handlers: loads what it lacks, turns errors into errnos.

    engine answers                  inline on the trio thread: memory and local disk only
    NotResident                     rows are loaded in a worker thread; waiting for chunks takes no thread; then the same call
                                    again
    OSError                         FUSEError with its errno
    CowfsError                      FUSEError with the errno of its kind, logged once
    anything else                   logged with its traceback, EIO: an exception that reaches pyfuse3 ends the mount.
                                    A panic of the engine is a BaseException; no other can come out of a call without await

Between two awaits of a handler no other handler runs; an engine call that raised NotResident has
changed nothing. Loads and syncs have separate limiters, so that neither a slow store nor a slow
disk delays the other, and handlers that need neither are never delayed by them. Reads that wait for
data, however many, keep no directory from being loaded. A wait cannot be cancelled from outside, so
each request gets its answer. `give_up` ends all waits, later ones included, with EIO; their calls
continue in their threads, and the results are dropped.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import ParamSpec, TypeVar

import pyfuse3
import trio

from cowfs.base import log
from cowfs.daemon.errnos import Errnos
from cowfs.daemon.request_server import LOAD_THREADS, LoadChunks
from cowfs.native import NotResident
from cowfs.native.chunks import ChunkRef
from cowfs.native.constants import LOADS_MAX
from cowfs.session.residency.loading import endless

P = ParamSpec("P")
T = TypeVar("T")

SYNC_THREADS = 32

_logger = log.get("mount")


class EngineCalls:
    """Used on the trio thread only. `load_rows` and `relieve` block and run in worker threads.

    load_rows     loads what a NotResident names, but for chunks; returns the chunks that the call needs besides
    load_chunks   fetches chunks, and reports when they have arrived
    relieve       frees local disk space (clean staging, cache); returns bytes freed
    """

    def __init__(
        self,
        load_rows: Callable[[NotResident], Sequence[ChunkRef]],
        load_chunks: LoadChunks,
        relieve: Callable[[], int],
    ) -> None:
        self._load_rows = load_rows
        self._load_chunks = load_chunks
        self._relieve = relieve
        self._loads = trio.CapacityLimiter(LOAD_THREADS)
        self._syncs = trio.CapacityLimiter(SYNC_THREADS)
        self._waits: set[trio.CancelScope] = set()
        self._is_given_up = False
        self._errnos = Errnos()

    async def ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The call's result; runs inline, again after each load of missing data."""
        last: NotResident | None = None
        for _ in range(LOADS_MAX):
            try:
                return call(*args, **kwargs)
            except NotResident as missing:
                last = missing  # loaded below, where it may block
            except BaseException as error:  # noqa: BLE001 - becomes an errno; pyfuse3 must not see it
                raise self._fuse_error(error) from None
            await self._load(last)
        assert last is not None
        raise self._fuse_error(endless(last))

    async def ask_for_space(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `ask`, for calls that add bytes: when the disk is full, frees bytes that can be
        fetched again and repeats once."""
        try:
            return await self.ask(call, *args, **kwargs)
        except pyfuse3.FUSEError as error:
            if error.errno != errno.ENOSPC:
                raise
        if await self._wait(self._relieve, self._syncs) == 0:
            raise pyfuse3.FUSEError(errno.ENOSPC)
        return await self.ask(call, *args, **kwargs)

    def tell(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
        """For calls whose errors cannot be reported to a caller; returns whether it succeeded."""
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
        """Ends every wait: the callers get EIO now."""
        self._is_given_up = True
        for scope in self._waits:
            scope.cancel()

    async def _load(self, missing: NotResident) -> None:
        chunks: Sequence[ChunkRef] = missing.chunks
        if missing.what != "chunks":
            chunks = await self._wait(partial(self._load_rows, missing), self._loads)
        if chunks:
            await self._unless_given_up(partial(self._fetch, missing, chunks))

    async def _fetch(self, missing: NotResident, chunks: Sequence[ChunkRef]) -> None:
        """Waits until the chunks have arrived, without taking a thread."""
        token, fetched = trio.lowlevel.current_trio_token(), trio.Event()
        outcome: list[BaseException | None] = []

        def finish(error: BaseException | None) -> None:
            outcome.append(error)
            with contextlib.suppress(trio.RunFinishedError):  # the wait was abandoned, and the mount ended
                token.run_sync_soon(fetched.set)

        self._load_chunks(missing, chunks, finish)
        await fetched.wait()
        if (error := outcome[0]) is not None:
            raise error if isinstance(error, Exception) else _panic_error(error)

    async def _wait(self, call: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
        """The call's result, from a worker thread."""
        return await self._unless_given_up(
            lambda: trio.to_thread.run_sync(_contain_panic, call, abandon_on_cancel=True, limiter=limiter)
        )

    async def _unless_given_up(self, wait: Callable[[], Awaitable[T]]) -> T:
        if self._is_given_up:
            raise pyfuse3.FUSEError(errno.EIO)
        with trio.CancelScope(shield=True) as scope:
            self._waits.add(scope)
            try:
                return await wait()
            except Exception as error:  # noqa: BLE001 - as above
                raise self._fuse_error(error) from None
            finally:
                self._waits.discard(scope)
        raise pyfuse3.FUSEError(errno.EIO)

    def _fuse_error(self, error: BaseException) -> pyfuse3.FUSEError:
        return pyfuse3.FUSEError(self._errnos.of(error))


def _contain_panic(call: Callable[[], T]) -> T:
    """The call's result; a panic of the engine becomes an exception that can be told apart from a
    cancellation."""
    try:
        return call()
    except Exception:
        raise
    except BaseException as error:
        raise _panic_error(error) from error


def _panic_error(panic: BaseException) -> RuntimeError:
    return RuntimeError(f"the engine failed: {panic}")
