"""The FUSE loop: mounts through libfuse, answers on trio until the mount is gone.

pyfuse3 keeps one session per process; so does this module. The loop ends when the kernel unmounts the file system
(umount, fusermount3 -u, ours or anybody's), when `Loop.stop` is called from another thread, or on SIGTERM and SIGINT.
Requests that wait for a store then have GRACE_S to finish; after that they are given up and their callers get an error.

The device is read without blocking. pyfuse3 reads it, holding the GIL, when it polls readable; but a request whose caller
is killed in between is taken back, and a blocking read would then stop every thread of the daemon until somebody asks for
something again. Without blocking, that race ends pyfuse3's loop with EAGAIN, and it is started anew: waits of other
requests are shielded (`calls`), so that none is lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyfuse3
import trio

from cowfs import log
from cowfs.daemon.calls import EngineCalls
from cowfs.daemon.operations import MountOperations
from cowfs.errors import MountFailedError
from cowfs.machine import mounting
from cowfs.machine.mounting import FUSE_DEVICE_NUMBER

IDLE_TASKS = 8
LARGEST_TASKS = 1024
"""Requests in flight: enough that reads waiting for a slow store do not keep a stat of resident files from being answered."""
GRACE_S = 10.0
HANDSHAKE_S = 30.0

_logger = log.get("mount")


def connect(operations: MountOperations, path: str, options: set[str]) -> None:
    """Mounts on `path`, or takes over the descriptor that "/dev/fd/N" names. MountFailedError with libfuse's own words."""
    _init(operations, path, options)
    for fd in _fuse_descriptors():
        os.set_blocking(fd, False)


def connect_behind(operations: MountOperations, relay_fd: int) -> None:
    """Answers what the fast lane forwards; takes over the descriptor."""
    os.set_blocking(relay_fd, False)
    _init(operations, f"/dev/fd/{relay_fd}", {"default_permissions"})


def _init(operations: MountOperations, path: str, options: set[str]) -> None:
    with _stderr_captured() as said:
        try:
            pyfuse3.init(operations, path, options)
        except RuntimeError as error:
            reason = said() or str(error)
            raise mounting.refused(path, reason) from error


def disconnect() -> None:
    """Lets go of the session's descriptor; the kernel then fails whatever still uses the mount."""
    pyfuse3.close(unmount=False)


def invalidate_inode(ino: int) -> None:
    """The kernel writes back and drops every page of the inode. Not from the loop's thread: it answers the writes."""
    pyfuse3.invalidate_inode(ino)


def broken(error: OSError) -> MountFailedError:
    return MountFailedError(
        f"the connection to the kernel broke: {error}", hint="Mount the volume again; its work is kept."
    )


class Loop:
    """Runs the session that `connect` made."""

    def __init__(
        self,
        operations: MountOperations,
        calls: EngineCalls,
        *,
        on_ready: Callable[[], None],
        on_signal: Callable[[], None],
    ) -> None:
        """on_ready runs on the loop's thread when the kernel has finished its handshake; what it raises ends the loop.
        on_signal runs on a worker thread at SIGTERM or SIGINT, and takes the mount down."""
        self._operations = operations
        self._calls = calls
        self._on_ready = on_ready
        self._on_signal = on_signal
        self._is_stop_wanted = False
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def run(self) -> None:
        """Serves until the mount is gone."""
        try:
            trio.run(self._serve)
        except BaseExceptionGroup as group:
            first = _first(group)
            if isinstance(first, OSError):
                raise broken(first) from group
            raise first from group

    def stop(self) -> None:
        """Ends the loop from another thread; safe to call at any time, and more than once."""
        self._is_stop_wanted = True
        if self._token is None or self._stop is None:
            return  # `_serve` will look
        try:
            self._token.run_sync_soon(self._stop.set)
        except trio.RunFinishedError:
            return

    async def _serve(self) -> None:
        self._stop = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        if self._is_stop_wanted:
            self._stop.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_signals)
            nursery.start_soon(self._announce)
            nursery.start_soon(self._end_when_stopped)
            while await self._serve_until_race():
                _logger.info("a request was taken back while it was read; going on")
            nursery.cancel_scope.cancel()

    async def _serve_until_race(self) -> bool:
        """False: the mount is gone. True: the device had nothing to read, go on."""
        try:
            await pyfuse3.main(min_tasks=IDLE_TASKS, max_tasks=LARGEST_TASKS)
        except BaseExceptionGroup as group:
            _, others = group.split(BlockingIOError)
            if others is not None:
                raise
            return True
        return False

    async def _announce(self) -> None:
        with trio.move_on_after(HANDSHAKE_S) as waiting:
            await self._operations.opened.wait()
        if waiting.cancelled_caught:
            raise MountFailedError(
                f"the kernel said nothing for {HANDSHAKE_S:.0f} s", hint="Is the descriptor handed in really mounted?"
            )
        self._on_ready()

    async def _end_when_stopped(self) -> None:
        assert self._stop is not None
        await self._stop.wait()
        pyfuse3.terminate()
        await trio.sleep(GRACE_S)
        _logger.warning("requests that were still waiting after %.0f s were given up", GRACE_S)
        self._calls.give_up()

    async def _answer_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            async for number in received:
                _logger.warning("%s: unmounting", signal.Signals(number).name)
                try:
                    await trio.to_thread.run_sync(self._on_signal, abandon_on_cancel=True)
                except Exception:
                    # It must not end the loop: whoever waits for an answer would get none. The next signal tries again.
                    _logger.exception("the mount could not be taken down")


def _fuse_descriptors() -> list[int]:
    """Our open descriptors of /dev/fuse: pyfuse3 does not tell which one it has."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
            status = os.fstat(int(name))
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == FUSE_DEVICE_NUMBER:
                found.append(int(name))
    return found


@contextmanager
def _stderr_captured() -> Iterator[Callable[[], str]]:
    """libfuse and fusermount3 say on stderr why a mount failed: caught, so that the error can carry it."""
    saved = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield lambda: _words(caught.fileno())
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the loop; the others of the group only followed from it."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _words(descriptor: int) -> str:
    lines = os.pread(descriptor, 4096, 0).decode(errors="replace").strip().splitlines()
    return "; ".join(line.strip() for line in lines)
