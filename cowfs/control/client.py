"""Asks a mount daemon something over its control socket.

One connection a call, so a client may be shared between threads. Errors come back as the class they
were raised as. A daemon that is gone, or goes before it has answered, is an UnavailableError; what
it did until then stands.
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

from cowfs import apart, clock, log
from cowfs.control.messages import A, Operation, R
from cowfs.control.protocol import LineSocket
from cowfs.control.typed import from_json, to_json
from cowfs.errors import InvalidInputError, UnavailableError, UnsupportedFormatError, from_record
from cowfs.version.commit import Progress, ProgressListener

QUIET_S = 5.0
RETRY_S = 0.02
_log = log.get("mount")


class Client:
    """`timeout_s` bounds the wait for a connection, and each for the next line (None: no bound,
    right for commits, which may take an hour). `on_quiet` is called whenever nothing has come for
    QUIET_S."""

    def __init__(
        self, path: str | Path, *, timeout_s: float | None = None, on_quiet: Callable[[], None] | None = None
    ) -> None:
        self._path = os.fspath(path)
        self._timeout_s = timeout_s
        self._on_quiet = on_quiet

    def ask(self, operation: Operation[A, R], arguments: A, on_progress: ProgressListener | None = None) -> R:
        """Sends one request and returns its answer. UnsupportedFormatError: a daemon of another
        cowfs has done it, and answered."""
        answer = self.call(operation.name, on_progress=on_progress, **to_json(arguments))
        try:
            return from_json(operation.answer, answer, f"the answer to {operation.name}")
        except InvalidInputError as error:
            raise UnsupportedFormatError(
                f"the mount daemon at {self._path} runs another version of cowfs: {error.message}",
                hint="What was asked for is done. Unmount with the cowfs that mounted, then mount again.",
            ) from error

    def call(self, op: str, /, *, on_progress: ProgressListener | None = None, **arguments: Any) -> Any:
        """As `ask`, in JSON values; progress lines go to on_progress as they arrive, and what the
        daemon waits for to the log, as if the store was asked from here. What else a newer daemon
        says before its answer is not heard."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self._timeout_s)
            try:
                with apart.stopped_by(partial(_hang_up, connection)):
                    self._connect(connection)
                    apart.require_wanted()  # who gave it up before could hang up nothing
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
                apart.require_wanted()
                raise self._gone(f"does not answer: {error.strerror or error}") from error
        apart.require_wanted()
        raise self._gone("ended before it answered")

    def _connect(self, connection: socket.socket) -> None:
        """Many callers at one moment fill the queue of those that are to be taken: waits for a
        place, which the kernel does only without a bound. TimeoutError: there is none in time."""
        end_s = clock.monotonic_s() + (self._timeout_s or 0)
        while True:
            try:
                connection.connect(self._path)
                return
            except BlockingIOError as error:
                if clock.monotonic_s() >= end_s:
                    raise TimeoutError(os.strerror(errno.ETIMEDOUT)) from error
            apart.require_wanted()
            clock.sleep_s(RETRY_S)

    def _next(self, lines: LineSocket) -> dict[str, Any] | None:
        while self._on_quiet is not None and not lines.wait(QUIET_S):
            self._on_quiet()
        return lines.receive()

    def _gone(self, what: str) -> UnavailableError:
        return UnavailableError(
            f"the mount daemon at {self._path} {what}",
            hint="`cowfs status` shows what is mounted; mounting the volume again resumes its work.",
        )


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # it is not connected yet
        connection.shutdown(socket.SHUT_RDWR)
