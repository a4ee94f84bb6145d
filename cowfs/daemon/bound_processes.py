"""Watches the processes that the mount is bound to (`control.binding`).

One thread sleeps in poll(2) on a pidfd of each process, and wakes up when a process ends, also by
kill -9. The start time is compared after the pidfd is opened, so that another process with the same
number is never taken for it. If there are no pidfds, as in some sandboxes, the thread looks every
LOOK_S.

Any thread may call. The thread is started with the first process.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable

from cowfs.base import log
from cowfs.base.errors import InvalidStateError
from cowfs.base.fast_dataclass import dataclass
from cowfs.control.binding import Binding
from cowfs.machine import processes
from cowfs.machine.processes import ProcessIdentity

LOOK_S = 1.0
PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

_logger = log.get("mount")


@dataclass(frozen=True)
class _Bound:
    """fd: its pidfd. None: it cannot have one, or was gone already."""

    binding: Binding
    fd: int | None

    @property
    def is_gone(self) -> bool:
        if self.fd is None:
            return not self.binding.process.is_there
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))


class BoundProcesses:
    """on_gone: called once `start` was, in the thread, for each process that is gone. It returns
    whether the process is dealt with. False, or an exception, which is logged: it is called again
    after a pause."""

    def __init__(self, on_gone: Callable[[Binding], bool]) -> None:
        self._on_gone = on_gone
        self._bound: dict[ProcessIdentity, _Bound] = {}
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_started = self._is_running = self._has_ended = False

    def bind(self, binding: Binding) -> None:
        """Watches the process from now on; on_error None: no longer. InvalidStateError: it is in
        another pid namespace, where its end would not be seen."""
        process = binding.process
        if process.is_foreign:
            raise InvalidStateError(
                f"the mount cannot be bound to process {process.pid}: it runs in {process.where}",
                hint="Mount the volume there.",
            )
        with self._lock:
            if self._has_ended:
                return
            before = self._bound.pop(process, None)
            if binding.on_error is not None:
                fd = before.fd if before is not None else _open(process)
                self._bound[process] = _Bound(binding, fd)
            elif before is not None and before.fd is not None:
                os.close(before.fd)
            if self._bound and self._is_started:
                self._run()
        self._wake_up()

    def start(self) -> None:
        """Call it when the mount is ready."""
        with self._lock:
            self._is_started = True
            if self._bound:
                self._run()

    def end(self) -> None:
        """Nothing is called any more, except a call under way."""
        with self._lock:
            self._has_ended = True
        self._wake_up()

    def _run(self) -> None:
        if not self._is_running:
            threading.Thread(target=self._watch, name="bound", daemon=True).start()
            self._is_running = True

    def _wake_up(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _watch(self) -> None:
        pause_s = PAUSE_S
        while not self._has_ended:
            if not (gone := self._find_gone()):
                pause_s = PAUSE_S
                self._sleep(None)
            elif [each for each in gone if not self._deal_with(each)]:
                self._sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _find_gone(self) -> list[_Bound]:
        with self._lock:
            return [each for each in self._bound.values() if each.is_gone]

    def _deal_with(self, bound: _Bound) -> bool:
        try:
            if not self._on_gone(bound.binding):
                return False
        except Exception:
            _logger.exception("process %d is gone, and the mount could not be ended", bound.binding.process.pid)
            return False
        with self._lock:
            if self._bound.get(bound.binding.process) is bound:
                del self._bound[bound.binding.process]
                if bound.fd is not None:
                    os.close(bound.fd)
        return True

    def _sleep(self, pause_s: float | None) -> None:
        """Until the processes change or the mount ends, and at most for the pause; without one
        until a process ends, too."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if pause_s is None:
            with self._lock:
                watched = list(self._bound.values())
            for each in watched:
                if each.fd is not None:
                    poll.register(each.fd, select.POLLIN)
                else:
                    pause_s = LOOK_S
        poll.poll(None if pause_s is None else 1000 * pause_s)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)


def _open(process: ProcessIdentity) -> int | None:
    """None: there are no pidfds, or the process is gone."""
    try:
        fd = processes.descriptor_of(process.pid)
    except ProcessLookupError:
        return None
    if fd is not None and not process.is_there:
        os.close(fd)
        return None
    return fd
