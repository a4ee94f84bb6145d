"""Private directories of this user: records of mounts and working copies, journals, cached chunks.
cowfs trusts the content of these directories.

The directory that a setting names may be writable by others: a volume of a container has mode 0777.
The directories that cowfs makes inside it are not. Each is a real directory (no link), belongs to
this user or root, and is writable by its owner alone; cowfs makes it with mode 0700. So no other
user can place a file, a link or a pipe there, and code that opens files in it by name, including
the native code, follows no foreign link.

Limits: the owner of the named directory, and anyone who may write to it if it has no sticky bit,
can rename a directory in it after the check. For that reason a path is refused if it leads through
a directory that another user made in a world-writable directory such as `/tmp`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cowfs.base.errors import AccessDeniedError

CACHE_PLACES = ("blocks", "segments", "whole")
"""The parts of a cache directory: index/cache, native/cache."""
_ELSEWHERE = (
    "name another directory (COWFS_STATE_DIR, COWFS_CACHE_DIR; mounts: --meta-dir, --cache-dir). Remove nothing that "
    "may hold uncommitted work."
)


def require(directory: Path) -> Path:
    """Returns the directory if it is private, absent or unreachable; in the last case the next call
    that opens a file there reports the error. AccessDeniedError: other users can, or could, change
    its content."""
    try:
        found = directory.lstat()
    except OSError:
        return directory
    if not stat.S_ISDIR(found.st_mode):
        raise AccessDeniedError(
            f"{directory} is not a directory, but a link or a file of user {found.st_uid}",
            hint=f"Remove it, or {_ELSEWHERE}",
        )
    _require_owner(directory, found.st_uid)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise AccessDeniedError(
            f"others than user {found.st_uid} can write to {directory}: it has mode {stat.S_IMODE(found.st_mode):04o}",
            hint=f"If you trust what is in it: chmod -R go-w {directory}. Else remove it, or {_ELSEWHERE}",
        )
    _require_above(directory)
    return directory


def make(directory: Path) -> None:
    """Makes the directory and its missing parents with mode 0700, unless it exists. OSError: it
    cannot be made. AccessDeniedError as for `require`."""
    make_unchecked(require(directory))
    require(directory)  # made here, or by another process at the same moment


def make_unchecked(directory: Path) -> None:
    """As `make`, for a directory whose parent is checked, or one that others may write to."""
    try:
        directory.mkdir(mode=0o700)
    except FileNotFoundError:
        if directory.parent == directory:
            raise
        make_unchecked(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError:  # as in pathlib: a read-only file system may report this error first
        if not directory.is_dir():
            raise


def require_cache(cache_dir: Path) -> Path:
    """Returns the cache directory if each of its parts is private or absent."""
    for place in CACHE_PLACES:
        require(cache_dir / place)
    return cache_dir


def make_cache(cache_dir: Path) -> None:
    """Makes the parts of the cache directory. OSError, AccessDeniedError as for `make`."""
    make_unchecked(cache_dir)
    for place in CACHE_PLACES:
        make(cache_dir / place)


def _require_owner(directory: Path, owner: int) -> None:
    if owner not in (os.geteuid(), 0):
        raise AccessDeniedError(
            f"{directory} is of user {owner}, and this is user {os.geteuid()}",
            hint=f"Work as that user, or {_ELSEWHERE}",
        )


def _require_above(directory: Path) -> None:
    """Refuses entries that other users made in a world-writable directory such as /tmp: they can
    rename an entry and put another in its place. This applies to the targets of links, too."""
    for path in (*directory.parents, *directory.resolve().parents):
        try:
            is_of_all = path.parent.stat().st_mode & stat.S_IWOTH
            owner = path.lstat().st_uid
        except OSError:
            continue  # unreadable for other users, too
        if is_of_all:
            _require_owner(path, owner)
