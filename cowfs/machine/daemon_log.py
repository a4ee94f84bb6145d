"""Opens the log of a mount's daemon, for the daemon and for the process that starts it.

The log of a writable mount lies in the working copy, which the holder of its lock may delete at any
moment: for example a process that tidies up after the previous mount. So the directory is made
again until the file exists, and the daemon opens the log once more when it has the lock.
"""

from __future__ import annotations

import os
from pathlib import Path

from cowfs.base import private_directories
from cowfs.base.errors import unusable

ATTEMPTS = 100
"""How often to try: a dangling link looks like a directory that is deleted each time."""


def open_log(path: Path) -> int:
    """A descriptor that appends to the log; makes the file and its directory. AccessDeniedError,
    ReadOnlyError, NoSpaceError: they cannot be made."""
    for left in reversed(range(ATTEMPTS)):
        try:
            private_directories.make_unchecked(path.parent)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if isinstance(error, (FileExistsError, FileNotFoundError)) and left:
                continue
            elsewhere = "choose another place with COWFS_STATE_DIR."
            raise unusable(error, f"{path} cannot be written", elsewhere=elsewhere) from error
    raise AssertionError("the last attempt returns or raises")
