"""Reads and writes profiles as local files (`format.profile`). Raises cowfs errors that name the
file."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cowfs.base.errors import InvalidInputError, NotFoundError, from_local_disk
from cowfs.base.hints import Command
from cowfs.format import profile
from cowfs.format.profile import ReadRange

MAX_FILE_BYTES = profile.MAX_BYTES + (profile.MAX_BYTES >> 7)
"""More than the frame of an incompressible profile takes: the start of a longer file is not a
profile."""


def load(path: Path) -> list[ReadRange]:
    with _errors_of_ours(
        f"the profile {path}", f"Record one: {Command('mount', 'SOURCE', 'PATH', '--record', 'FILE')}."
    ):
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES)
    return profile.decode(data, what=str(path))


def store(path: Path, ranges: Iterable[ReadRange]) -> None:
    """Replaces the file, durably: old or new after a crash."""
    data = profile.encode(ranges)
    with _errors_of_ours(f"the profile {path}", _DIRECTORY):
        beside = _write_new(path, data)
        try:
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise


def require_writable(path: Path) -> None:
    """Checks that a profile can be written. Call before the job that it records."""
    with _errors_of_ours(f"the profile {path}", _DIRECTORY):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        os.unlink(_write_new(path, b""))


_DIRECTORY = "Give a file in an existing directory."


def _write_new(path: Path, data: bytes) -> str:
    """Writes a new file with a unique name: several mounts may write one profile."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
    except BaseException:
        os.unlink(name)
        raise
    return name


@contextmanager
def _errors_of_ours(what: str, missing: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{what}: {error.strerror}", hint=missing) from error
    except (IsADirectoryError, NotADirectoryError) as error:
        raise InvalidInputError(f"{what}: {error.strerror}", hint=_DIRECTORY) from error
    except OSError as error:
        raise from_local_disk(error, what, elsewhere="choose another file.") from error
