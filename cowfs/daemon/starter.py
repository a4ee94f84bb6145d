"""What ties a mount daemon to the process that started it, until it is ready: the pipe for the
answer, and standard error. Afterwards the log is the daemon's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cowfs.base.errors import InvalidStateError
from cowfs.daemon import parting
from cowfs.machine import daemon_log

LOG_LIMIT_BYTES = 1 << 20


def answer(answer_fd: int, message: dict[str, Any]) -> None:
    """Sends the outcome to the starter and closes the pipe. If the starter is gone, the mount is
    not wanted any more."""
    tell(answer_fd, message)
    os.close(answer_fd)


def tell(answer_fd: int, message: dict[str, Any]) -> None:
    """Sends the starter one line in one write: it is shorter than the pipe's buffer."""
    try:
        os.write(answer_fd, json.dumps(message, default=str).encode() + b"\n")
    except OSError as error:
        raise InvalidStateError(f"the process that asked for the mount is gone: {error.strerror}") from error


def log_to(path: Path) -> None:
    """Redirects standard error to the log file."""
    log_fd = daemon_log.open_log(path)
    if os.fstat(log_fd).st_size > LOG_LIMIT_BYTES:
        os.ftruncate(log_fd, 0)
    for target in (1, 2):
        os.dup2(log_fd, target)
    os.close(log_fd)


def leave() -> None:
    """Detaches from the starter's descendants, and from its standard input."""
    parting.leave()
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
