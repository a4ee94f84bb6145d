"""Maps errors of any backend to errors of cowfs. S3's own codes: `s3_errors`.

    ENOENT, ENOTDIR, EISDIR   NotFoundError      EACCES, EPERM        AccessDeniedError    EROFS            ReadOnlyError
    ENOSPC, EDQUOT, EFBIG     NoSpaceError       ENAMETOOLONG, ELOOP  InvalidInputError    everything else  UnavailableError

Everything else (EIO, ESTALE, timeouts) says nothing about the object: trying again is right, and
loses nothing.

Libraries that speak HTTP raise errors of their own, most of them not OSErrors. The libraries are
not installed everywhere, so their errors are recognised by common features: the HTTP status that
they carry, under any name,

    401 403     AccessDeniedError      404 410   NotFoundError     405 501       ReadOnlyError    409 412     ConflictError
    400 411 413 InvalidInputError      416       CorruptError      507           NoSpaceError     any other   UnavailableError

or, without one, the names of their classes: credentials that are missing or refused, connections
that failed. Mistakes in a program (TypeError and the like) are not mapped.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NoSpaceError,
    NotFoundError,
    ReadOnlyError,
    UnavailableError,
)
from cowfs.base.redaction import describe_error
from cowfs.store.reliability.patience import NOT_LISTENING, RETRY_AFTER
from cowfs.store.reliability.retry_after import as_text, retry_after_s

CREDENTIALS_HINT = (
    "Check the credentials where the store's own tools look for them, for example AZURE_STORAGE_ACCOUNT_NAME and "
    "AZURE_STORAGE_ACCOUNT_KEY for az:, GOOGLE_APPLICATION_CREDENTIALS for gs:."
)

ENDED_HINT = (
    "The library for this request needs threads that Python ends with the main thread: let the main thread wait for the "
    "others (join), or do this earlier. Written data is kept."
)

NOT_LISTENING_HINT = (
    "No server listens at this endpoint: is it started, and are host and port of the URL right? Nothing is lost."
)

TOO_LARGE_HINT = (
    "A reverse proxy or another server in front of the store limits the size of requests; it must let 20 MiB pass "
    "(nginx: client_max_body_size). A mount keeps changes that it could not commit: commit it again then."
)

CHOOSE_ANOTHER = "choose another store: --store, store=, COWFS_STORE."

_BY_ERRNO: dict[int, tuple[type[CowfsError], str]] = {
    errno.ENOENT: (NotFoundError, ""),
    errno.ENOTDIR: (NotFoundError, ""),
    errno.EISDIR: (NotFoundError, ""),
    errno.EACCES: (AccessDeniedError, f"Check who owns the store and its permissions, or {CHOOSE_ANOTHER}"),
    errno.EPERM: (AccessDeniedError, f"Check who owns the store and its permissions, or {CHOOSE_ANOTHER}"),
    errno.EROFS: (ReadOnlyError, f"It is on a file system that is mounted read-only. To write, {CHOOSE_ANOTHER}"),
    errno.ENOSPC: (NoSpaceError, "Free space where the store lies; nothing acknowledged is lost."),
    errno.EDQUOT: (NoSpaceError, "The quota is used up; nothing acknowledged is lost."),
    errno.EFBIG: (NoSpaceError, "Raise the limit of file sizes (ulimit -f); nothing acknowledged is lost."),
    errno.ENAMETOOLONG: (InvalidInputError, "Use a shorter name or path."),
    errno.ELOOP: (InvalidInputError, "A symbolic link points to itself."),
}


_BY_STATUS: dict[int, tuple[type[CowfsError], str]] = {
    **dict.fromkeys((401, 403), (AccessDeniedError, CREDENTIALS_HINT)),
    **dict.fromkeys((404, 410), (NotFoundError, "")),
    **dict.fromkeys(
        (405, 501), (ReadOnlyError, "The server does not do this. It can be read; to write, use another store.")
    ),
    **dict.fromkeys((409, 412), (ConflictError, "")),
    **dict.fromkeys((400, 411), (InvalidInputError, "The server does not take this request; use another store.")),
    413: (InvalidInputError, TOO_LARGE_HINT),
    416: (CorruptError, "The object is shorter than what names it says."),
    507: (NoSpaceError, "Free space in the store; nothing acknowledged is lost."),
}

_NO_CREDENTIALS = {"ClientAuthenticationError", "GoogleAuthError", "CredentialUnavailableError", "AuthenticationError"}
_NO_CONNECTION = {
    "ClientConnectionError",
    "ClientPayloadError",
    "ServiceRequestError",
    "ServiceResponseError",
    "TransportError",
}
_MISTAKES = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    AssertionError,
    ImportError,
    RecursionError,
    MemoryError,
)


def has_ended(error: Exception) -> bool:
    """Whether a library works no longer, since the interpreter ends: trying again is of no use."""
    return "interpreter shutdown" in str(error)


def is_not_listening(error: BaseException | None) -> bool:
    """Whether a connection was refused, as the causes of a library's error say."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            return True
        error = error.__cause__ or error.__context__
    return False


class NoAnswer(Exception):
    """The response is no answer to the request; its text may be shown."""


def from_os_error(error: OSError, where: str) -> CowfsError:
    """The error of our tree for `error`; `where` names store and object."""
    number = error.errno or _errno_of(error)
    cls, hint = _BY_ERRNO.get(number, (UnavailableError, "Try again; nothing is lost."))
    if cls is NotFoundError:
        return NotFoundError(f"{where} does not exist")
    reason = os.strerror(error.errno) if error.errno else (str(error) or type(error).__name__)
    if cls is AccessDeniedError and isinstance(error.filename, str | bytes):
        reason += f" ({os.fsdecode(error.filename)})"
    return cls(f"{where}: {reason}", hint=hint)


def from_foreign_error(error: Exception, where: str) -> CowfsError | None:
    """As from_os_error, for an error of any library; None: it is a mistake in a program. Texts of a
    server are shown only redacted."""
    if isinstance(error, NoAnswer):
        return UnavailableError(f"{where} does not answer: {error}", hint="Try again; nothing is lost.")
    status = _status_of(error)
    if status is not None:
        return _from_status(status, error, where)
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _NO_CREDENTIALS or (isinstance(error, ValueError) and "credential" in str(error).lower()):
        return AccessDeniedError(f"{where}: {describe_error(error)}", hint=CREDENTIALS_HINT)
    if is_not_listening(error):
        return UnavailableError(
            f"{where} does not answer: Connection refused", hint=NOT_LISTENING_HINT, details={NOT_LISTENING: True}
        )
    if names & _NO_CONNECTION or isinstance(error, TimeoutError):
        return UnavailableError(f"{where} does not answer: {describe_error(error)}", hint="Try again; nothing is lost.")
    if (status := _gcsfs_status(error)) is not None:
        return _from_status(status, error, where)
    if isinstance(error, OSError):
        return from_os_error(error, where)
    if isinstance(error, NotImplementedError):
        return ReadOnlyError(
            f"{where}: this kind of store cannot do that", hint="It can be read. To write, use another."
        )
    if isinstance(error, _MISTAKES):
        return None
    if isinstance(error, RuntimeError) and has_ended(error):
        return InvalidStateError(f"{where}: {error}", hint=ENDED_HINT)
    return UnavailableError(f"{where}: {describe_error(error)}", hint="Try again; nothing is lost.")


def refused_anonymously(error: CowfsError, untrusted_server: str | None, *, hint: str = "") -> AccessDeniedError:
    """`error` of a request without credentials, with the reason why there were none."""
    if untrusted_server is None:
        return AccessDeniedError(
            f"{error.message} (asked without credentials: none were found)",
            hint=hint,
            details=error.details,
        )
    return AccessDeniedError(
        f"{error.message} (asked without credentials: {untrusted_server} is named by a locator, or by a file that was found, alone)",
        hint=f"If this server is yours, name it: COWFS_TRUSTED_ENDPOINTS={untrusted_server}, or in config.toml "
        f'trusted_endpoints = ["{untrusted_server}"]. Your key id and session token are then sent to it.',
        details={**error.details, "untrusted_server": untrusted_server},
    )


def _from_status(status: int, error: Exception, where: str) -> CowfsError:
    cls, hint = _BY_STATUS.get(status, (UnavailableError, "Try again; nothing is lost."))
    details: dict[str, Any] = {"status": status}
    if isinstance(code := getattr(error, "error_code", None), str):  # azure's; it is an enumeration of texts
        details["code"] = str.__str__(code)
    if (wait_s := retry_after_s(_headers_of(error))) > 0:
        details[RETRY_AFTER] = wait_s
    if cls is NotFoundError:
        return NotFoundError(f"{where} does not exist", details=details)
    return cls(f"{where}: HTTP status {status} ({describe_error(error)}){as_text(wait_s)}", hint=hint, details=details)


def _status_of(error: BaseException) -> int | None:
    """aiohttp: status; azure: status_code; gcsfs and google: code; requests:
    response.status_code."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status", "status_code", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, str) and value.isdecimal():
                value = int(value)
            if isinstance(value, int) and 300 <= value <= 599:
                return int(value)
    return None


def _gcsfs_status(error: Exception) -> int | None:
    """gcsfs tells these two by the beginning of its text alone."""
    text = str(error)
    if isinstance(error, OSError) and error.errno is None and text.startswith("Forbidden: "):
        return 403
    return 400 if isinstance(error, ValueError) and text.startswith("Bad Request: ") else None


def _headers_of(error: BaseException) -> dict[str, str]:
    for holder in (error, getattr(error, "response", None)):
        found = getattr(holder, "headers", None)
        if isinstance(found, Mapping):
            return {str(name).lower(): str(value) for name, value in found.items()}
    return {}


def _errno_of(error: OSError) -> int:
    """fsspec's file systems raise these without a number."""
    return {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES, IsADirectoryError: errno.EISDIR}.get(
        type(error), 0
    )
