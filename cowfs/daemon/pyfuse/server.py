"""The pyfuse3 server of one mount: trio on a separate thread, until the mount is gone.

pyfuse3 keeps one session per process; so does this module. libfuse gets the descriptor
("/dev/fd/N"), so it mounts nothing, and makes the handshake itself: it cannot use a descriptor
whose INIT was answered.

The device is read without blocking. pyfuse3 reads it, holding the GIL, when it polls readable. But
a request whose caller is killed in between is taken back, and a blocking read would then stop every
thread of the daemon until the next request. Without blocking, that race ends pyfuse3's loop with
EAGAIN, and it is restarted: waits of other requests are shielded (`calls`), so that none is lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Sequence

import pyfuse3
import trio

from cowfs.base import log
from cowfs.base.errors import MountFailedError
from cowfs.control.messages import Waiting
from cowfs.daemon.pyfuse.calls import EngineCalls
from cowfs.daemon.pyfuse.operations import MountOperations
from cowfs.daemon.request_server import CacheTimes, LoadChunks, broken, silent
from cowfs.native import Engine, NotResident, Owners
from cowfs.native.chunks import ChunkRef

IDLE_TASKS = 8
LARGEST_TASKS = 1024
"""Requests in flight: enough that reads waiting for a slow store do not delay a stat of resident
files."""
NOTICE_GRACE_S = 5.0

_logger = log.get("mount")


class PyFuse:
    """Implements `KernelServer`; `EngineCalls` takes the functions."""

    transport = "device"

    def __init__(
        self,
        engine: Engine,
        device_fd: int,
        times: CacheTimes,
        *,
        load_rows: Callable[[NotResident], Sequence[ChunkRef]],
        load_chunks: LoadChunks,
        relieve: Callable[[], int],
        owners: Owners,
    ) -> None:
        self._calls = EngineCalls(load_rows, load_chunks, relieve)
        self._operations = MountOperations(engine, self._calls, times, owners)
        os.set_blocking(device_fd, False)
        try:
            pyfuse3.init(self._operations, f"/dev/fd/{device_fd}", {"default_permissions"})
        except RuntimeError as error:
            raise MountFailedError(
                f"pyfuse3 cannot serve the mount: {error}", hint="The daemon's log has libfuse's message."
            ) from error
        self._is_open = True
        self._notices = threading.Lock()  # libfuse's session is not freed during a notice
        self._ready = threading.Event()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._stop = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="pyfuse3", daemon=True)
        self._thread.start()

    def wait_until_ready(self, timeout_s: float) -> bool:
        if not self._ready.wait(timeout_s):
            raise silent(timeout_s)
        return not self._over.is_set()

    def wait(self) -> None:
        self._over.wait()
        if isinstance(self._failure, OSError):
            raise broken(self._failure) from self._failure
        if self._failure is not None:
            raise self._failure

    def has_ended(self, within_s: float) -> bool:
        return self._over.wait(within_s)

    def stop(self) -> None:
        self._over.set()  # before reading the token: a loop that is just starting checks it afterwards
        self._ready.set()
        self._run_on_trio(self._stop.set)

    def close(self, grace_s: float) -> None:
        self.stop()
        if (thread := self._thread) is not None:
            thread.join(grace_s)
            if thread.is_alive():
                _logger.warning("requests that were still waiting after %.0f s are abandoned", grace_s)
                self._run_on_trio(self._calls.give_up)
                thread.join()
        # A notice that never returns, because its writes are not answered, ends with this process.
        if self._notices.acquire(timeout=NOTICE_GRACE_S):
            try:
                if self._is_open:
                    self._is_open = False
                    pyfuse3.close(unmount=False)
            finally:
                self._notices.release()

    def invalidate_inode(self, ino: int) -> None:
        self._notify(lambda: pyfuse3.invalidate_inode(self._operations.numbers.show(ino)))

    def invalidate_entry(self, parent: int, name: bytes) -> None:
        self._notify(lambda: pyfuse3.invalidate_entry(self._operations.numbers.show(parent), name))

    def _notify(self, notice: Callable[[], None]) -> None:
        with self._notices:
            if not self._is_open:
                raise OSError(errno.ENODEV, "the mount is gone")
            notice()

    def waiting(self) -> Waiting | None:
        return None

    def look_after(self) -> None:
        """Does nothing: a request whose task ended has been answered."""

    def _run_on_trio(self, call: Callable[[], object]) -> None:
        if (token := self._token) is not None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(call)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseExceptionGroup as group:
            self._failure = _first(group)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._failure = error
        finally:
            self._over.set()
            self._ready.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._over.is_set():
            self._stop.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._announce)
            nursery.start_soon(self._end_when_stopped)
            while await self._serve_until_race():
                _logger.info("a request was taken back while it was read; continuing")
            nursery.cancel_scope.cancel()

    async def _serve_until_race(self) -> bool:
        """False: the mount is gone. True: the device had nothing to read; continue."""
        try:
            await pyfuse3.main(min_tasks=IDLE_TASKS, max_tasks=LARGEST_TASKS)
        except BaseExceptionGroup as group:
            _, others = group.split(BlockingIOError)
            if others is not None:
                raise
            return True
        return False

    async def _announce(self) -> None:
        """Runs after the task that sends libfuse's reply to INIT, which sets `opened` before it
        replies."""
        await self._operations.opened.wait()
        self._ready.set()

    async def _end_when_stopped(self) -> None:
        await self._stop.wait()
        pyfuse3.terminate()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the loop; the others of the group only followed from it."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
