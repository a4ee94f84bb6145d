"""Entries of a directory store that cowfs did not make: links, pipes, sockets, devices, and a
directory or a file in the place of the other.

A strange entry at a key of cowfs, or above one, is an error that names it. It never counts as
absent: a collection that misses a head or a prefix deletes the objects that they need. At a key
that cowfs does not use, a list leaves it out.
"""

from __future__ import annotations

import errno
import stat

from cowfs.base.beneath import Root, kind
from cowfs.base.errors import CorruptError
from cowfs.format import keys, object_kinds

_NUMBERS = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENXIO}
_LINK_HINT = (
    "Links inside of a store are not followed. Move its target there; the root of the store itself may be a link."
)
_OTHER_HINT = "cowfs did not make it there. Move it out of the store, or restore that part of the store from a backup."


def explain(error: OSError, root: Root, *paths: str, url: str) -> CorruptError | None:
    """The strange entry at one of the paths, or above it, if it may be the cause of `error`. None:
    there is none, or cowfs does not use its key."""
    if error.errno not in _NUMBERS:
        return None
    for path in paths:
        for entry in (*_ancestors(path), path):
            try:
                mode = root.stat(entry).st_mode
            except OSError:
                break
            if is_strange(entry, mode) or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                return strange(entry, mode, url)
    if error.errno == errno.ELOOP:  # gone by now
        return CorruptError(f"{url}: on the way to {paths[0]} there was a symbolic link", hint=_LINK_HINT)
    return None


def _ancestors(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def is_strange(key: str, mode: int) -> bool:
    """Whether an entry that a list finds stands in the way of an object or directory of cowfs."""
    if stat.S_ISDIR(mode):
        return object_kinds.is_object(key)
    if stat.S_ISREG(mode):
        return object_kinds.is_directory(key)
    return keys.is_ours(key)


def strange(key: str, mode: int, url: str) -> CorruptError:
    """The error for a strange entry. mode: its st_mode."""
    hint = _LINK_HINT if stat.S_ISLNK(mode) else _OTHER_HINT
    return CorruptError(f"{url}: {key} is {kind(mode)}, not a part of the store", hint=hint, details={"key": key})
