"""Why the native code answered EIO, in the log: programs learn a number, people need the reason.

The native code keeps a short list (`native/base/src/faults.rs`). Each reason is logged once, so
that a program that tries again and again does not fill the disk.
"""

from __future__ import annotations

from cowfs.base import log
from cowfs.native import take_faults

LOGGED_LIMIT = 1000

_logger = log.get("mount")


class Faults:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self) -> None:
        for reason, count in take_faults():
            if reason not in self._logged and len(self._logged) < LOGGED_LIMIT:
                self._logged.add(reason)
                _logger.error("EIO%s: %s", f", {count} times" if count > 1 else "", reason)
