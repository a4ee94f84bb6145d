"""Directories and files of this machine in place of volumes: `name = "/mnt/shared"`.

Such a path is an instance volume: its contents belong to the machine, and cowfs keeps no version of
them. It is "mounted" by a symbolic link at the declared path, which any user may make; a bind mount
would need root. A link cannot prevent writes, so only entries with read_only = false may name a
path.

A link is made only where there is no file or an empty directory. It is removed only while it still
has the target that it was made with.
"""

from __future__ import annotations

import os
from contextlib import suppress

from cowfs.base.beneath import Root
from cowfs.base.errors import ConflictError, CowfsError, NotFoundError, from_local_disk, unreadable

LINKED = "link"
"""Takes the place of a mount's id in the record of applied mounts (`machine.applied`)."""


def is_one(source: str) -> bool:
    """Whether a declared name is a path of this machine. Neither a volume's name nor a locator
    begins like one."""
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
    """path: without symbolic links in its parent. None is followed there, so that nothing is made
    elsewhere if another user exchanges a directory meanwhile. ConflictError: the path is
    occupied."""
    target = os.fsencode(expanded(source))
    try:
        with Root.open("/") as root:
            root.make_directories(os.path.dirname(path)[1:])
            with root.parent(path[1:]) as (parent, name):
                if _is_linked(parent, name, target):
                    return
                with suppress(OSError):
                    os.rmdir(name, dir_fd=parent)
                os.symlink(target, name, dir_fd=parent)
    except FileExistsError as error:
        raise ConflictError(
            f"there is something at {path}, where {expanded(source)} is declared",
            hint="Remove it, or declare another path.",
        ) from error
    except OSError as error:
        raise from_local_disk(error, f"{path} cannot be made", elsewhere="declare another path.") from error


def unlink(source: str, path: str) -> bool:
    """Returns whether the link existed."""
    parent = os.path.realpath(os.path.dirname(path))
    try:
        with Root.open("/") as root, root.parent(os.path.join(parent, os.path.basename(path))[1:]) as (above, name):
            is_there = _is_linked(above, name, os.fsencode(expanded(source)))
            if is_there:
                os.unlink(name, dir_fd=above)
            return is_there
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise from_local_disk(error, f"{path} cannot be removed", elsewhere="remove it yourself.") from error


def _is_linked(parent: int, name: bytes, target: bytes) -> bool:
    with suppress(OSError):
        return os.readlink(name, dir_fd=parent) == target
    return False
