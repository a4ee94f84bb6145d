"""The lock file beside a declaring file: where it is, reading it, and replacing it.

    cowfs.toml         cowfs.lock              manifest.toml     manifest.cowfs.lock
    data.cowfs.yml     data.cowfs.lock         volumes.toml      volumes.cowfs.lock

The file comes with the project, so it may be anybody's: it is opened without waiting and without
following a link, at most LARGEST bytes are read, and `format.lock_file` checks each value. A lock
can only choose among the versions of the volumes that are declared.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from cowfs.base import clock
from cowfs.base.errors import InvalidInputError, unreadable, unusable
from cowfs.format import lock_file
from cowfs.format.lock_file import LockFile
from cowfs.machine.state import sync_directory

LARGEST = 1 << 20


def path_of(file: Path) -> Path:
    stem = file.name.removesuffix(file.suffix)
    is_ours = stem == "cowfs" or stem.endswith(".cowfs")
    return file.with_name(f"{stem if is_ours else f'{stem}.cowfs'}.lock")


def read(path: Path) -> tuple[LockFile, os.stat_result] | None:
    """The lock, and the state of the file that it was read from; None: there is no file.
    InvalidInputError, AccessDeniedError, UnsupportedFormatError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(error, f"{path} cannot be read", hint="Make it a readable file, or remove it.") from error
    try:
        found, data = os.fstat(fd), b""
        if is_file := stat.S_ISREG(found.st_mode):
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(LARGEST + 1)
    finally:
        os.close(fd)
    if not is_file or len(data) > LARGEST:
        raise InvalidInputError(
            f"{path} is not a file of at most {LARGEST} bytes", hint="Restore it from version control, or remove it."
        )
    return lock_file.decode(data, what=str(path)), found


def replace(path: Path, lock: LockFile) -> None:
    """Old or new after a crash. A new file has the permissions that the umask leaves, a replaced
    one keeps its own."""
    beside = path.with_name(f".{path.name}.{clock.random_bytes(8).hex()}")
    try:
        try:
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with os.fdopen(fd, "wb") as file:
                with contextlib.suppress(FileNotFoundError):
                    os.fchmod(fd, stat.S_IMODE(path.lstat().st_mode))
                file.write(lock.encode())
                file.flush()
                os.fsync(fd)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise unusable(error, f"{path} cannot be written", elsewhere="lock a copy of the project.") from error
