"""The log of a mount's daemon, as its starter and the daemon open it.

That of a writable mount lies in the working copy, which whoever has its lock may delete at any
moment: a process that tidies up after the mount before, say. So its directory is made again until
the file is there, and the daemon opens it once more when it has the lock.
"""

from __future__ import annotations

import os
from pathlib import Path

from cowfs.errors import unusable

ATTEMPTS = 100
"""A link that leads nowhere looks like a directory that is deleted each time."""


def opened(path: Path) -> int:
    """A descriptor that appends to it; makes file and directory. AccessDeniedError, ReadOnlyError,
    NoSpaceError: it cannot be made."""
    for left in reversed(range(ATTEMPTS)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if isinstance(error, (FileExistsError, FileNotFoundError)) and left:
                continue
            elsewhere = "choose another place with COWFS_STATE_DIR."
            raise unusable(error, f"{path} cannot be written", elsewhere=elsewhere) from error
    raise AssertionError("the last attempt returns or raises")
