"""Paths of this machine that are named as source or target of a copy.

A symbolic link that is named is followed. A special file (a device, a pipe, a socket) is never
replaced, since programs depend on what it is: as a target it is refused, here when it is named, and
by `LocalFiles` when it is met inside a tree.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cowfs.errors import InvalidInputError

if TYPE_CHECKING:
    from cowfs.session.copying import SourceTree, TargetTree


def source(stack: ExitStack, path: bytes) -> tuple[SourceTree, bytes, bytes]:
    """(tree, path in it, name) of what is at `path`."""
    from cowfs.session.local_files import LocalFiles

    name = os.path.basename(path.rstrip(b"/"))
    real = os.path.realpath(path)
    if os.path.isdir(real):
        return stack.enter_context(LocalFiles(real)), b"", name
    os.lstat(real)
    directory, last = os.path.split(real)
    return stack.enter_context(LocalFiles(directory)), last, name


def target(stack: ExitStack, path: bytes, file: bytes) -> tuple[TargetTree, bytes]:
    """file: the name of the one that is copied; b"" for a directory's contents."""
    from cowfs.session.local_files import LocalFiles, special_file

    if path == b"-":
        raise InvalidInputError(
            "'-' is no target of a copy",
            hint="`cowfs cat SOURCE:PATH` writes a file to standard output. ./- is a file of that name.",
        )
    if _is_special(path):  # asked of the path as it is: what /dev/stdout leads to may have no name
        raise special_file(path)
    if file and path.endswith(b"/"):
        os.makedirs(path, exist_ok=True)
    if os.path.isdir(path):
        return stack.enter_context(LocalFiles(path)), file
    real = os.path.realpath(path)
    if os.path.islink(real):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(path))
    directory, name = os.path.split(real)
    os.makedirs(directory, exist_ok=True)
    return stack.enter_context(LocalFiles(directory)), name


def _is_special(path: bytes) -> bool:
    from cowfs.session.local_files import is_special

    try:
        return is_special(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
