"""Resolves the symbolic links of a path in a volume. A link out of the volume leads nowhere: its
target belongs to whichever machine reads it."""

from __future__ import annotations

import errno
import os
import stat
from typing import Protocol

from cowfs.transfer.copying import Attributes

LINKS_MAX = 40  # as in the kernel


class Links(Protocol):
    def stat(self, path: bytes) -> Attributes: ...
    def readlink(self, path: bytes) -> bytes: ...


def follow(tree: Links, path: bytes, *, last: bool = True, may_be_missing: bool = False) -> bytes:
    """Returns the path without links, "." and "..". last: whether a link at the end is followed as
    well; may_be_missing: the last name need not exist. FileNotFoundError: also for a link out of
    the volume."""
    waiting, found = [*reversed(path.split(b"/"))], list[bytes]()
    links = 0
    while waiting:
        name = waiting.pop()
        if name == b".." and found:
            found.pop()
        elif name == b"..":
            raise FileNotFoundError(errno.ENOENT, "it leads out of the volume", os.fsdecode(path))
        elif name not in (b"", b"."):
            here = b"/".join([*found, name])
            is_last = not any(part not in (b"", b".") for part in waiting)
            target = None if is_last and not last else _target(tree, here, may_be_missing=is_last and may_be_missing)
            if target is None:
                found.append(name)
                continue
            if (links := links + 1) > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(path))
            if target.startswith(b"/"):
                raise FileNotFoundError(
                    errno.ENOENT, f"it leads out of the volume, to {os.fsdecode(target)}", os.fsdecode(path)
                )
            waiting += reversed(target.split(b"/"))
    return b"/".join(found)


def directory_at(tree: Links, path: bytes) -> bytes | None:
    """The directory at the path, after following links; None: there is no directory."""
    try:
        at = follow(tree, path)
        return at if stat.S_ISDIR(tree.stat(at).mode) else None
    except OSError:
        return None


def _target(tree: Links, path: bytes, *, may_be_missing: bool) -> bytes | None:
    """The target of a link; None: it is not a link."""
    try:
        is_link = stat.S_ISLNK(tree.stat(path).mode)
    except FileNotFoundError:
        if not may_be_missing:
            raise
        return None
    return tree.readlink(path) if is_link else None
