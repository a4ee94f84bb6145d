"""Maps an error to the errno that a program gets, and logs it.

    OSError                   its errno
    CowfsError                the errno of its kind, logged once
    anything else             EIO, logged with its traceback: a panic of the engine is a BaseException

Not here: handling of errors that can be fixed (loading, freeing space).
"""

from __future__ import annotations

import errno

from cowfs.base import log
from cowfs.base.errors import CowfsError

LOGGED_ONCE_LIMIT = 1000

_logger = log.get("mount")


class Errnos:
    """Used from any thread; two threads may log the same error twice."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def of(self, error: BaseException) -> int:
        if isinstance(error, CowfsError):
            self._log_once(error)
            return error.errno
        if isinstance(error, OSError) and error.errno:
            return error.errno
        _logger.error("a file system call failed", exc_info=error)
        return errno.EIO

    def _log_once(self, error: CowfsError) -> None:
        text = f"{error.kind}: {error.message}"
        if text not in self._logged and len(self._logged) < LOGGED_ONCE_LIMIT:
            self._logged.add(text)
            _logger.error("%s", text)
