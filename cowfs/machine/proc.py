"""/proc: what runs here, and what is mounted, is read from it, and it has to be ours.

It shows the processes of the pid namespace that it was mounted for. Elsewhere (`unshare --pid`
without `--mount-proc`) a pid names another process there than here, or none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cowfs.errors import InvalidStateError

HINT = (
    "Mount it, for the pid namespace that cowfs runs in: `mount -t proc proc /proc`, `unshare --pid --fork --mount-proc`, "
    "`bwrap --proc /proc`."
)


def is_own() -> bool:
    """Whether it is there and of our pid namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def require_own() -> None:
    """InvalidStateError where `is_own` is False."""
    with needed():
        shown = os.readlink("/proc/self")
    if shown != str(os.getpid()):
        raise InvalidStateError(
            f"/proc is that of another pid namespace: process {os.getpid()} is {shown} there", hint=HINT
        )


@contextmanager
def needed() -> Iterator[None]:
    """InvalidStateError where a file of it that the block opens is not there, or not for us."""
    try:
        yield
    except OSError as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise InvalidStateError(f"cowfs needs /proc, and {error.filename} {why}", hint=HINT) from None
