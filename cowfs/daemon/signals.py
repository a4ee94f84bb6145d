"""Handles SIGTERM and SIGINT of a mount daemon on a separate thread.

The interpreter writes each signal's number to a pipe, whichever thread the kernel interrupts, and
`signals` reads them. So no thread that may be waiting in native code has to wake up for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

from cowfs.base import log

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_logger = log.get("mount")


class Signals:
    """From construction to `ignore`, calls `on_signal` for each signal, one after the other. Its
    errors are logged: the next signal tries again. Use it on the main thread."""

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._on_signal = on_signal
        self._reads, self._writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writes, False)
        threading.Thread(target=self._answer, name="signals", daemon=True).start()
        signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)

    def ignore(self) -> None:
        """Ignores signals from now on: the mount is already ending, and takes little time."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        os.close(self._writes)

    def _answer(self) -> None:
        with contextlib.closing(os.fdopen(self._reads, "rb", buffering=0)) as arriving:
            while byte := arriving.read(1):
                if byte[0] not in SIGNALS:
                    continue  # other signals have handlers of their own
                _logger.warning("%s: unmounting", signal.Signals(byte[0]).name)
                try:
                    self._on_signal()
                except Exception:
                    _logger.exception("the mount could not be taken down")
