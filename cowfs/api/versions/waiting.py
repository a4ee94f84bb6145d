"""Decides how long, and for which other writers of the same volume, a writer without a mount
waits."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Hashable

from cowfs.api.access import file_session
from cowfs.base import clock, log
from cowfs.base.errors import LeaseHeldError
from cowfs.machine.reservation import PATIENCE_S

WAIT_S = 150.0
"""The wait for other commits without a mount: each ends by itself, or its lease expires after 120
s."""
SHORTEST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5

_log = log.get("volume")


class Notice:
    """Reports once that another writer is waited for, if the wait is long."""

    def __init__(self) -> None:
        self._from_s = clock.monotonic_s() + PATIENCE_S

    def give(self, error: LeaseHeldError) -> None:
        if clock.monotonic_s() >= self._from_s:
            self._from_s = math.inf
            _log.warning("%s; waiting until that ends, at most %.0f s", error.message, WAIT_S)


def ends_soon(error: LeaseHeldError, key: Hashable) -> bool:
    """True unless the writer is a mount, or a session that this process itself has open by `files`
    under that key."""
    is_mount = str(error.details.get("where", "/")).startswith("/")
    host = error.details.get("host", socket.gethostname())  # an error about a lock does not contain the host
    is_ours = error.details.get("pid") == os.getpid() and host == socket.gethostname()
    return not is_mount and not (is_ours and file_session.find(key) is not None)
