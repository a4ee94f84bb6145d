"""Directories and files of this machine where volumes are declared: `name = "/mnt/shared"`.

Such a path is an instance volume: what is there belongs to the machine, and cowfs keeps no version
of it. It is "mounted" by a symbolic link at the declared path, which any user may make; a bind
mount takes root. A link keeps nobody from writing, so it is only for entries with read_only =
false.

A link is made where nothing is, or an empty directory, and removed only while it leads where it was
made to lead.
"""

from __future__ import annotations

import os
from contextlib import suppress

from cowfs.errors import ConflictError, CowfsError, NotFoundError, from_local_disk, unreadable

LINKED = "link"
"""Stands for the id of a mount in the record of what was made (`machine.applied`)."""


def is_one(source: str) -> bool:
    """Whether a declared name is a path of this machine. Neither a volume's name nor a locator
    begins so."""
    return source.startswith(("/", "~/"))


def expanded(source: str) -> str:
    return os.path.normpath(os.path.expanduser(source))


def trouble(source: str) -> CowfsError | None:
    """Why it cannot be used."""
    path = expanded(source)
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return NotFoundError(
            f"there is no {path} on this machine", hint="Make or mount it, or declare it with optional = true."
        )
    except OSError as error:
        return unreadable(error, f"{path} cannot be used", hint="Make it accessible.")
    return None


def is_linked(source: str, path: str) -> bool:
    with suppress(OSError):
        return os.readlink(path) == expanded(source)
    return False


def link(source: str, path: str) -> None:
    """ConflictError: there is something at the path."""
    if is_linked(source, path):
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with suppress(OSError):
            os.rmdir(path)
        os.symlink(expanded(source), path)
    except FileExistsError as error:
        raise ConflictError(
            f"there is something at {path}, where {expanded(source)} is declared",
            hint="Remove it, or declare another path.",
        ) from error
    except OSError as error:
        raise from_local_disk(error, f"{path} cannot be made", elsewhere="declare another path.") from error


def unlink(source: str, path: str) -> bool:
    """Whether it was there."""
    if not is_linked(source, path):
        return False
    try:
        os.unlink(path)
    except OSError as error:
        raise from_local_disk(error, f"{path} cannot be removed", elsewhere="remove it yourself.") from error
    return True
