"""Sends requests to a mount daemon over its control socket.

One connection a call, so threads may share a client. Errors are raised as the class that the daemon
raised. If the daemon is gone, or ends before it answers, the call raises UnavailableError; anything
it did until then is kept.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from cowfs.base import clock, interruptible, log
from cowfs.base.errors import InvalidInputError, UnavailableError, UnsupportedFormatError, from_record
from cowfs.base.hints import Command
from cowfs.control.messages import A, Operation, R
from cowfs.control.protocol import LineSocket
from cowfs.control.typed import from_json, to_json
from cowfs.version.commit import Progress, ProgressListener

QUIET_S = 5.0
RETRY_S = 0.02
_log = log.get("mount")


class Client:
    """`timeout_s` bounds the wait for a connection, and for each next line (None: no bound, right
    for commits, which may take an hour). `on_quiet` is called whenever nothing has arrived for
    QUIET_S."""

    def __init__(
        self, path: str | Path, *, timeout_s: float | None = None, on_quiet: Callable[[], None] | None = None
    ) -> None:
        self._path = os.fspath(path)
        self._timeout_s = timeout_s
        self._on_quiet = on_quiet

    def ask(self, operation: Operation[A, R], arguments: A, on_progress: ProgressListener | None = None) -> R:
        """Sends one request and returns its answer. UnsupportedFormatError: a daemon of another
        version of cowfs has carried it out, but its answer is not understood."""
        answer = self.call(operation.name, on_progress=on_progress, **to_json(arguments))
        try:
            return from_json(operation.answer, answer, f"the answer to {operation.name}")
        except InvalidInputError as error:
            raise UnsupportedFormatError(
                f"the mount daemon at {self._path} runs another version of cowfs: {error.message}",
                hint="The request was carried out. Unmount with the cowfs that mounted, then mount again.",
            ) from error

    def call(self, op: str, /, *, on_progress: ProgressListener | None = None, **arguments: Any) -> Any:
        """As `ask`, in JSON values. Progress lines go to on_progress as they arrive; waits for the
        store are logged, as if this process waited. Other lines of a newer daemon are ignored."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self._timeout_s)
            try:
                with interruptible.register_stop(partial(_hang_up, connection)):
                    self._connect(connection)
                    interruptible.require_wanted()  # an earlier interruption had no connection to hang up
                    lines = LineSocket(connection)
                    lines.send({**arguments, "op": op})
                    while (reply := self._next(lines)) is not None:
                        if "progress" in reply:
                            if on_progress is not None:
                                on_progress(from_json(Progress, reply["progress"]))
                        elif "waiting" in reply:
                            _log.warning("%s", reply["waiting"] or "the store answers again")
                        elif "error" in reply:
                            raise from_record(reply["error"])
                        elif "result" in reply:
                            return reply["result"]
            except OSError as error:
                interruptible.require_wanted()
                raise self._unavailable(f"does not answer: {error.strerror or error}") from error
        interruptible.require_wanted()
        raise self._unavailable("ended before it answered")

    def _connect(self, connection: socket.socket) -> None:
        """Many simultaneous callers fill the accept queue. Waits for a place in it, which the
        kernel does only without a timeout. TimeoutError: the queue stayed full."""
        end_s = clock.monotonic_s() + (self._timeout_s or 0)
        while True:
            try:
                connection.connect(self._path)
                return
            except BlockingIOError as error:
                if clock.monotonic_s() >= end_s:
                    raise TimeoutError(os.strerror(errno.ETIMEDOUT)) from error
            interruptible.require_wanted()
            clock.sleep_s(RETRY_S)

    def _next(self, lines: LineSocket) -> dict[str, Any] | None:
        while self._on_quiet is not None and not lines.wait(QUIET_S):
            self._on_quiet()
        return lines.receive()

    def _unavailable(self, what: str) -> UnavailableError:
        return UnavailableError(
            f"the mount daemon at {self._path} {what}",
            hint=f"{Command('status')} shows what is mounted; mounting the volume again resumes its work.",
        )


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # it is not connected yet
        connection.shutdown(socket.SHUT_RDWR)
