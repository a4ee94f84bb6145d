"""Checks that /proc belongs to our pid namespace: cowfs reads processes and mounts from it.

/proc shows the processes of the pid namespace that it was mounted for. If that is another one
(`unshare --pid` without `--mount-proc`), a pid names another process there, or none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cowfs.base.errors import InvalidStateError

HINT = (
    "Mount it, for the pid namespace that cowfs runs in: `mount -t proc proc /proc`, `unshare --pid --fork --mount-proc`, "
    "`bwrap --proc /proc`."
)


def is_own() -> bool:
    """Whether /proc is mounted and of our pid namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def require_own() -> None:
    """InvalidStateError where `is_own` is False."""
    with require_readable():
        shown = os.readlink("/proc/self")
    if shown != str(os.getpid()):
        raise InvalidStateError(
            f"/proc is that of another pid namespace: process {os.getpid()} is {shown} there", hint=HINT
        )


@contextmanager
def require_readable() -> Iterator[None]:
    """InvalidStateError: a file in /proc that the block opens is missing or not readable."""
    try:
        yield
    except OSError as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise InvalidStateError(f"cowfs needs /proc, and {error.filename} {why}", hint=HINT) from None
