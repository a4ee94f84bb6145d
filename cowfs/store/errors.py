"""Operating system errors of any backend as errors of our tree. S3's own codes: `s3`.

    ENOENT, ENOTDIR, EISDIR   NotFoundError      EACCES, EPERM        AccessDeniedError    EROFS            ReadOnlyError
    ENOSPC, EDQUOT            NoSpaceError       ENAMETOOLONG, ELOOP  InvalidInputError    everything else  UnavailableError

Everything else (EIO, ESTALE, timeouts) says nothing about the object: trying again is right, and loses nothing.
"""

from __future__ import annotations

import errno
import os

from cowfs.errors import (
    AccessDeniedError,
    CowfsError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
    ReadOnlyError,
    UnavailableError,
)

_BY_ERRNO: dict[int, tuple[type[CowfsError], str]] = {
    errno.ENOENT: (NotFoundError, ""),
    errno.ENOTDIR: (NotFoundError, ""),
    errno.EISDIR: (NotFoundError, ""),
    errno.EACCES: (AccessDeniedError, "Check who owns the store and its permissions."),
    errno.EPERM: (AccessDeniedError, "Check who owns the store and its permissions."),
    errno.EROFS: (ReadOnlyError, "The store's file system is mounted read-only."),
    errno.ENOSPC: (NoSpaceError, "Free space where the store lies; nothing acknowledged is lost."),
    errno.EDQUOT: (NoSpaceError, "The quota is used up; nothing acknowledged is lost."),
    errno.ENAMETOOLONG: (InvalidInputError, "Use a shorter name or path."),
    errno.ELOOP: (InvalidInputError, "A symbolic link points to itself."),
}


def from_os_error(error: OSError, where: str) -> CowfsError:
    """The error of our tree for `error`; `where` names store and object."""
    number = error.errno or _errno_of(error)
    cls, hint = _BY_ERRNO.get(number, (UnavailableError, "Try again; nothing is lost."))
    if cls is NotFoundError:
        return NotFoundError(f"{where} does not exist")
    reason = os.strerror(error.errno) if error.errno else (str(error) or type(error).__name__)
    return cls(f"{where}: {reason}", hint=hint)


def _errno_of(error: OSError) -> int:
    """fsspec's file systems raise these without a number."""
    return {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES, IsADirectoryError: errno.EISDIR}.get(
        type(error), 0
    )
