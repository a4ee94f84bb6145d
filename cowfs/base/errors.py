"""Every error cowfs raises, grouped by what the caller can do about it.

Each class has a stable `kind` (in JSON output and across the daemon's socket), the exit code of the
command line and, where the error can surface through a mount, an errno. A message says what
happened to what; `hint` says what to do next, with commands that name the store once `set_store`
was called.

    kind                exit  errno    what the caller does
    internal            1     EIO      report a bug
    invalid_input       2     EINVAL   correct the argument
    not_found           3     ENOENT   check the name
    conflict            4     EEXIST   choose another name, or look at the existing object
    lease_held          5     EBUSY    wait, fork, or take over
    lease_lost          6     ESTALE   fork the work, which a mount keeps; or do it again
    read_only           7     EROFS    fork, mount writable, or choose another place
    unavailable         8     EIO      try again later; nothing is lost
    access_denied       9     EACCES   correct the credentials or permissions
    corrupt             10    EIO      stored bytes differ from the bytes that were written
    unsupported_format  11    EIO      use a newer cowfs
    mount_failed        12    EIO      see the hint
    no_space            13    ENOSPC   free space; nothing acknowledged is lost
    invalid_state       14    EINVAL   the object cannot do this any more
    needs_fuse          15    EIO      mount where there is FUSE, allow a larger copy, or do without a mount
    source_changed      16    EIO      a linked or imported object was replaced: import it again

No message holds a credential: every message passes through `cowfs.base.redaction`. A library
function raises; it never logs and goes on. `to_message` and `from_record` carry errors from our
daemons. Pickle and copy keep every field. Others may subclass these classes, with an
`__init__` that does not call ours, as Ray does; a subclass that states no kind has its parent's.
"""

from __future__ import annotations

import errno as _errno
import os
from typing import Any, ClassVar, Self

from cowfs.base import hints
from cowfs.base.hints import Command
from cowfs.base.redaction import describe_error, redact

BY_KIND: dict[str, type[CowfsError]] = {}
PUBLIC_MODULE = "cowfs.errors"
"""The module under which programs and pickle find the classes."""


class CowfsError(Exception):
    """Base of every error cowfs raises on purpose. `hint` says what to do next (may be empty).
    `store`: the store that the commands in it name; None: not known yet."""

    kind: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1
    errno: ClassVar[int] = _errno.EIO
    __module__ = PUBLIC_MODULE

    def __init_subclass__(cls, *, kind: str | None = None, exit_code: int = 1, errno: int = _errno.EIO) -> None:
        super().__init_subclass__()
        if kind is not None:
            cls.__module__ = PUBLIC_MODULE
            cls.kind, cls.exit_code, cls.errno = kind, exit_code, errno
            BY_KIND[kind] = cls

    def __init__(self, message: str, *, hint: str = "", details: dict[str, Any] | None = None) -> None:
        self.message = redact(message)
        super().__init__(self.message)
        self.store: str | None = None
        self.hint = ""
        self.set_hint(hint)
        self.details: dict[str, Any] = {
            name: redact(value) if isinstance(value, str) else value for name, value in (details or {}).items()
        }

    def __copy__(self) -> Self:
        """Other libraries register functions that copy every exception, and share its fields."""
        made = type(self).__new__(type(self), *self.args)
        made.__dict__.update(self.__dict__)
        return made

    def set_hint(self, hint: str) -> None:
        """Replaces the next step to take; a traceback shows it, too. `open_hint` is the same with
        slots for a store that is not known yet (`cowfs.base.hints`)."""
        if self.hint:  # a new list: a copy of the error shares the old one
            self.__notes__ = [note for note in self.__notes__ if note != f"hint: {self.hint}"]
        self.open_hint = redact(hint if self.store is None else hints.insert_store(hint, self.store))
        self.hint = hints.insert_store(self.open_hint, "")
        if self.hint:
            self.add_note(f"hint: {self.hint}")

    def set_store(self, store: str) -> None:
        """Names the store in the commands of the hint. The first call counts: it comes from the
        code nearest to the failure. store: a name or URL for --store; "" if commands need none."""
        if self.store is None:
            self.store = store
            self.set_hint(self.open_hint)

    @property
    def locator(self) -> str | None:
        """The locator of the version that the error concerns, or of the volume's last version; None
        without one."""
        return self.details.get("locator")


BY_KIND[CowfsError.kind] = CowfsError


class InvalidInputError(CowfsError, ValueError, kind="invalid_input", exit_code=2, errno=_errno.EINVAL):
    """An argument, option, URL or name is wrong. Correct it."""


class NotFoundError(CowfsError, LookupError, kind="not_found", exit_code=3, errno=_errno.ENOENT):
    """No such store, volume, version or mount. Check the name."""


class ConflictError(CowfsError, kind="conflict", exit_code=4, errno=_errno.EEXIST):
    """Something else is already there: a taken name, a head that moved, an object that exists."""


class LeaseHeldError(CowfsError, kind="lease_held", exit_code=5, errno=_errno.EBUSY):
    """Another mount is the volume's writer; `details` has who, where, since, epoch."""


class LeaseLostError(CowfsError, kind="lease_lost", exit_code=6, errno=_errno.ESTALE):
    """Another writer took over; nothing was published. A mount's work is kept in its working
    copy."""


class ReadOnlyError(CowfsError, kind="read_only", exit_code=7, errno=_errno.EROFS):
    """The mount, the store or a file system can't be written. Fork the version, mount the volume
    writable, or choose another place."""


class UnavailableError(CowfsError, kind="unavailable", exit_code=8):
    """The store does not answer, or an outcome could not be learnt. Trying again is safe."""


class AccessDeniedError(CowfsError, kind="access_denied", exit_code=9, errno=_errno.EACCES):
    """Credentials or permissions do not allow this. Correct them."""


class CorruptError(CowfsError, kind="corrupt", exit_code=10):
    """Stored bytes fail their hash, length or grammar; the message names the object."""


class PurgedError(CorruptError, kind="purged", exit_code=17, errno=_errno.ENODATA):
    """A person took these bytes from the store with `purge`. Nothing is damaged, and nothing brings
    them back."""


class UnsupportedFormatError(CowfsError, kind="unsupported_format", exit_code=11):
    """Written by a newer cowfs. Use that one; nothing was changed."""


class MountFailedError(CowfsError, kind="mount_failed", exit_code=12):
    """The kernel, libfuse or the daemon refused the mount; the hint says why."""


class NeedsFuseError(MountFailedError, kind="needs_fuse", exit_code=15):
    """This machine cannot mount, and the version is larger than a copy may be. The hint names ways
    out."""


class NoSpaceError(CowfsError, kind="no_space", exit_code=13, errno=_errno.ENOSPC):
    """A disk or a store is full. Nothing acknowledged is lost; free space and try again."""


class InvalidStateError(CowfsError, kind="invalid_state", exit_code=14):
    """The object was finalized, discarded, is not mounted, or cannot be pickled now."""


class SourceChangedError(CowfsError, kind="source_changed", exit_code=16):
    """A linked or imported object differs from its listed state: it was replaced or deleted.
    Import it again; `details` has url, key and whether it is gone."""


FEWER_PROCESSES = "Try again when this machine or control group runs fewer processes and threads (ulimit -u, pids.max)."

PLACES = (
    "choose other places: COWFS_STATE_DIR, COWFS_CACHE_DIR and XDG_RUNTIME_DIR say where cowfs keeps its files on this "
    "machine; `sudo -E` and `su` keep those of the user before."
)


FAILING = frozenset(
    {_errno.EIO, _errno.EUCLEAN, _errno.EBADMSG, _errno.EREMOTEIO, _errno.ENOMEDIUM, _errno.ESHUTDOWN}
    | {_errno.ESTALE, _errno.ETIMEDOUT, _errno.EHOSTDOWN}
)
"""Error numbers of a failing disk, or of a file server behind a file system; no permission helps
with these."""

DIED = frozenset({_errno.ENOTCONN, _errno.ECONNABORTED})
"""Error numbers of a FUSE mount without a daemon; the second if the daemon died during the call."""


def from_local_disk(
    error: OSError, what: str, *, elsewhere: str = PLACES, otherwise: str = "Please report this."
) -> CowfsError:
    """The error for a failed call of the operating system on this machine. what: the failed action.
    elsewhere: how to choose another place, as the end of a sentence. otherwise: the hint for an
    unexpected error."""
    return (
        _error_of_refusal(error, what, elsewhere)
        or _error_of_misplacement(error, what, elsewhere)
        or unexpected(what, error, hint=otherwise)
    )


def unusable(error: OSError, what: str, *, elsewhere: str) -> CowfsError:
    """As `from_local_disk`, for a place that the user has chosen, so that no error is unexpected:
    AccessDeniedError if no other kind applies."""
    return _error_of_refusal(error, what, elsewhere) or _error_of_denial(error, what, elsewhere)


def unreadable(error: OSError, what: str, *, hint: str) -> CowfsError:
    """The error for a file that cannot be looked at or read: AccessDeniedError with this hint,
    unless the disk fails."""
    text = f"{what}: {error.strerror or error}"
    return _disk_fails(error, text) or AccessDeniedError(text, hint=hint)


NOT_REGULAR = "it is a device, a pipe or a socket, and no regular file"


def lacking(text: str, elsewhere: str) -> CowfsError:
    """The error for a file system that lacks a required feature."""
    return InvalidInputError(
        text,
        hint="The file system there lacks what this needs: links, permissions or such names (FAT, exFAT and some network "
        f"file systems do). Instead {elsewhere}",
    )


def _error_of_refusal(error: OSError, what: str, elsewhere: str) -> CowfsError | None:
    text = f"{what}: {error.strerror or error}"
    if error.errno == _errno.EDQUOT:
        return NoSpaceError(
            text,
            hint=f"Nothing is lost. It is the volume's quota ({Command('quota', 'NAME')}, Store().quota()), or that of the local disk: "
            "remove files, or raise it, and try again.",
        )
    if error.errno == _errno.ENOSPC:
        usual = f"Remove files, or free space where working copies and caches lie ({Command('status')} shows the place) and in "
        hint = f"{usual}XDG_RUNTIME_DIR, and try again." if elsewhere is PLACES else f"Free space there, or {elsewhere}"
        return NoSpaceError(f"the local disk is full, {_with_path(text, error)}", hint=f"Nothing is lost. {hint}")
    if error.errno == _errno.EFBIG:
        return NoSpaceError(text, hint="Nothing is lost. Raise the limit of file sizes (ulimit -f) and try again.")
    if error.errno == _errno.ENOMEM:
        return UnavailableError(text, hint="Nothing is lost. Raise the limit of memory (ulimit -v) and try again.")
    if error.errno == _errno.EAGAIN:
        return UnavailableError(text, hint=FEWER_PROCESSES)
    if error.errno in DIED:
        dead = "a mount whose daemon has died"
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        return InvalidStateError(
            f"{path} lies in {dead}" if path else f"{text}: cowfs' files on this machine lie in {dead}",
            hint=f"If it is a mount of cowfs, {Command('status')} lists it and how to remove it; mount() of its volume restores "
            "uncommitted work. `umount -l` removes any other mount. If the working copy or the cache of a mount lies there, "
            "unmount it, and mount it again once its files are back; the data written to it is kept there.",
        )
    if error.errno in (_errno.EMFILE, _errno.ENFILE):
        return UnavailableError(text, hint="Nothing is lost. Raise the limit of open files (ulimit -n) and try again.")
    if error.errno in (_errno.EACCES, _errno.EPERM):
        return _error_of_denial(error, what, elsewhere)
    if error.errno == _errno.EROFS:
        return ReadOnlyError(
            _with_path(text, error), hint=f"The file system there is mounted read-only. To write, {elsewhere}"
        )
    if error.errno in (_errno.EOPNOTSUPP, _errno.ENOSYS, _errno.EILSEQ):
        return lacking(_with_path(text, error), elsewhere)
    if error.errno == _errno.ENAMETOOLONG:
        return InvalidInputError(
            _with_path(text, error),
            hint=f"A path on this machine has at most 4,095 bytes, and a name 255. Use shorter ones, or {elsewhere}",
        )
    return _disk_fails(error, text)


def _error_of_misplacement(error: OSError, what: str, elsewhere: str) -> CowfsError | None:
    if error.errno not in (_errno.ENOTDIR, _errno.ELOOP):
        return None
    return InvalidInputError(
        _with_path(f"{what}: {error.strerror or error}", error),
        hint=f"A file is in the place of a directory. Move it away, or {elsewhere}",
    )


def _disk_fails(error: OSError, text: str) -> CowfsError | None:
    if error.errno not in FAILING:
        return None
    return UnavailableError(
        _with_path(text, error),
        hint="The disk, its file system, or the server of a network file system fails; the kernel's log (`dmesg`) has details; for "
        "a mount of cowfs, so has its daemon.log. Try again when it works.",
    )


def _error_of_denial(error: OSError, what: str, elsewhere: str) -> CowfsError:
    is_call = error.errno == _errno.EPERM  # another user's file, or unsupported by this file system
    lacks = "; if they are right, the file system there lacks links or permissions (FAT, exFAT)" if is_call else ""
    return AccessDeniedError(
        _with_path(f"{what}: {error.strerror or error}", error),
        hint=f"Correct the owner or the permissions there{lacks}. Or {elsewhere}",
    )


def _with_path(text: str, error: OSError) -> str:
    """The text with the path that the call was about, unless it names the path already."""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    return text if path in text else f"{text} ({path})"


def unexpected(what: str, error: BaseException, *, hint: str) -> CowfsError:
    """A readable error for another library's exception: its class and message only, never its other
    attributes."""
    text = f"{what}: {describe_error(error)}"
    return UnavailableError(text, hint=FEWER_PROCESSES) if _lacks_threads(error) else CowfsError(text, hint=hint)


def _lacks_threads(error: BaseException) -> bool:
    """Whether the error says, as Python's or a panic of the native code, that no thread started."""
    beginning = {"RuntimeError": "can't start new thread", "PanicException": "failed to spawn thread"}
    return str(error).startswith(beginning.get(type(error).__name__, "\0"))


def report_done(error: CowfsError, done: str, *, hint: str) -> CowfsError:
    """An error of the same kind for a call that has completed the request, as `done` says, and then
    met `error`. hint: the step to take after that of the error's own hint."""
    return type(error)(f"{done}: {error.message}", hint=f"{error.open_hint} {hint}".lstrip(), details=error.details)


def to_record(error: CowfsError) -> dict[str, Any]:
    """The error as a JSON object: kind, message, hint, details."""
    return {"kind": error.kind, "message": error.message, "hint": error.hint, "details": error.details}


def to_message(error: CowfsError) -> dict[str, Any]:
    """As `to_record`, for another process of ours, which may know how its user names the store."""
    return {**to_record(error), "hint": error.open_hint}


def from_record(record: dict[str, Any]) -> CowfsError:
    """The error a record describes; an unknown kind (a newer daemon's) becomes a plain
    CowfsError."""
    cls = BY_KIND.get(record.get("kind", ""), CowfsError)
    return cls(record.get("message", "unknown error"), hint=record.get("hint", ""), details=record.get("details"))
