"""Converts errors of system calls on paths to cowfs' errors, for copies and uploads, with their
subject and a hint."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from cowfs.base.errors import NOT_REGULAR, CowfsError, InvalidInputError, NotFoundError, from_local_disk, lacking

NOT_HERE = "It is a path of this machine; a volume's files are named SOURCE:PATH."
NOT_DOWN = (
    "Only directories have anything below them; one never takes the place of a file or link, nor the other way round."
)

TOO_LONG = (
    "A path of this machine has at most 4,095 bytes, and a name 255. Shorten names, or transfer the folders that are "
    "deep down by themselves."
)
ELSEWHERE = "choose another path."
SHOWN_CHARACTERS = 100
"""Characters shown of the beginning and of the end of a path in a message."""


NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Error numbers that mean that a path leads nowhere."""


class NothingThere:
    """A block that ends quietly at such an error."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> bool:
        return isinstance(error, OSError) and error.errno in NOTHING_THERE


@contextmanager
def errors_of_ours(name: str, missing: str, *, within: str = "") -> Iterator[None]:
    """Converts errors of system calls to cowfs' errors. name: the subject, if the error does not
    contain it; missing: the hint if the path does not exist; within: the volume or version whose
    paths the errors contain."""
    try:
        yield
    except OSError as error:
        raise _error(error, name, missing, within) from error


def _error(error: OSError, name: str, missing: str, within: str) -> CowfsError:
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    about = _show(name if path is None else f"{within}:{path}" if within else path)
    text = f"{about}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return NotFoundError(text, hint=missing)
    if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError) or error.errno == errno.ELOOP:
        return InvalidInputError(text, hint=NOT_DOWN)
    if error.errno == errno.ENAMETOOLONG:
        return InvalidInputError(text, hint=TOO_LONG)
    if error.strerror == NOT_REGULAR:
        return InvalidInputError(text, hint="A version has no bytes of it. Programs use it through a mount.")
    if error.errno == errno.EINVAL:
        return lacking(text, ELSEWHERE)
    named = OSError(error.errno, error.strerror, about if error.filename else None)
    return from_local_disk(named, about, elsewhere=ELSEWHERE)


def _show(path: str) -> str:
    if len(path) <= 2 * SHOWN_CHARACTERS:
        return path
    return f"{path[:SHOWN_CHARACTERS]}…{path[-SHOWN_CHARACTERS:]}"
