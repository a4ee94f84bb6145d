"""Paths of this machine that a user names as the source or target of a copy.

A symbolic link is followed. A pipe as the source is read to its end. A special file (a device, a
pipe, a socket) is never replaced, since programs depend on its type. This module refuses it if it
is named as the target; `LocalFiles` refuses it inside a tree.

A copy must not read its own output, or it never ends. A source that contains, or lies in, the
directories that cowfs writes to (`Own`) is therefore refused before anything is written.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command

if TYPE_CHECKING:
    from cowfs.transfer.local_files import LocalFiles
    from cowfs.transfer.local_stream import LocalStream
    from cowfs.transfer.whole_files import WholeFiles


@dataclass(frozen=True)
class Own:
    """A directory that a copy writes to. elsewhere: advice for using another directory."""

    path: Path
    what: str
    elsewhere: str


def require_apart(given: bytes, own: Iterable[Own], excluded: Callable[[bytes], bool] | None = None) -> None:
    """InvalidInputError when the source `given` contains one of these directories without excluding
    it, or lies in it."""
    from cowfs.transfer.upload.upload_plan import is_left_out

    real = os.path.realpath(given)
    for each in own:
        there = os.path.realpath(os.fsencode(each.path))
        below = path_below(there, real)
        if is_within(real, there) and below != b"":
            raise InvalidInputError(
                f"{os.fsdecode(given)} lies in {each.what}, {each.path}, which the copy itself writes to",
                hint=f"{each.elsewhere[:1].upper()}{each.elsewhere[1:]}.",
            )
        if below is None or (below and excluded is not None and is_left_out(excluded, below + b"/")):
            continue
        leaving = (
            f"leave it out (--exclude {shlex.quote(f'/{os.fsdecode(below)}/')}), or " if below and excluded else ""
        )
        raise InvalidInputError(
            f"{os.fsdecode(given)} has {each.what} in it, {each.path}, which the copy itself writes to",
            hint=f"Copy the directories beside it one by one, or {leaving}{each.elsewhere}.",
        )


def require_outside(given: bytes, own: Iterable[Own]) -> None:
    """InvalidInputError when the target `given` lies in one of these directories."""
    real = os.path.realpath(given)
    for each in own:
        if is_within(real, os.path.realpath(os.fsencode(each.path))):
            raise InvalidInputError(
                f"{os.fsdecode(given)} lies in {each.what}, {each.path}, which is for cowfs alone",
                hint="Choose another target.",
            )


def is_within(path: bytes, directory: bytes) -> bool:
    """Whether `path` is `directory` or lies below it, as `path_below` says."""
    return path_below(path, directory) is not None


def path_below(path: bytes, directory: bytes) -> bytes | None:
    """The path below `directory`, b"" for itself, also when one of them is a bind mount of the
    other; None: it lies elsewhere."""
    names: list[bytes] = []
    while not _is_same(path, directory):
        above, name = os.path.split(path)
        if above == path:
            return None
        names.append(name)
        path = above
    return b"/".join(reversed(names))


def _is_same(one: bytes, other: bytes) -> bool:
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:  # one of them does not exist yet
        return False


def not_copied(named: str) -> InvalidInputError:
    """An error about a special file that is named as the source."""
    return InvalidInputError(
        f"{named} is a device, a pipe or a socket, and cannot be copied",
        hint="Only files, directories and local pipes can. Of a device, `head -c BYTES DEVICE | cowfs cp /dev/stdin NAME:PATH` "
        "copies a part.",
    )


def source(stack: ExitStack, path: bytes) -> tuple[LocalFiles | LocalStream, bytes, bytes]:
    """(tree, path in it, name) of the source at `path`."""
    from cowfs.machine.folders.stamps import is_special
    from cowfs.transfer.local_files import LocalFiles
    from cowfs.transfer.local_stream import LocalStream

    if path == b"-":
        raise InvalidInputError(
            "'-' is no source of a copy",
            hint="`… | cowfs cp /dev/stdin NAME:PATH` copies what comes through a pipe. ./- is a file of that name.",
        )
    name = os.path.basename(path.rstrip(b"/"))
    mode = os.stat(path).st_mode  # of the path itself: the target of /dev/stdin may have no name
    if stat.S_ISFIFO(mode):
        return stack.enter_context(closing(LocalStream(path))), b"", name
    if is_special(mode):
        raise not_copied(os.fsdecode(path))
    real = os.path.realpath(path)
    if stat.S_ISDIR(mode):
        return stack.enter_context(LocalFiles(real)), b"", name
    directory, last = os.path.split(real)
    return stack.enter_context(LocalFiles(directory)), last, name


def gather_sources(stack: ExitStack, paths: Iterable[bytes]) -> dict[bytes, tuple[LocalFiles, bytes]]:
    """(tree, path in it) of several sources, by their names. InvalidInputError: one has no name,
    two have the same, or one is neither a file nor a directory."""
    from cowfs.machine.folders.stamps import is_special
    from cowfs.transfer.local_files import LocalFiles

    trees: dict[bytes, LocalFiles] = {}
    found: dict[bytes, tuple[LocalFiles, bytes]] = {}
    for path in paths:
        if is_special(os.stat(path).st_mode):
            raise InvalidInputError(
                f"{os.fsdecode(path)} is no file or directory", hint="Copy it alone: of several sources, all must be."
            )
        directory, at = os.path.split(os.path.realpath(path))
        name = os.path.basename(path.rstrip(b"/"))
        name = at if name in (b"", b".", b"..") else name
        require_own_name(name, os.fsdecode(path), found)
        if directory not in trees:
            trees[directory] = stack.enter_context(LocalFiles(directory))
        found[name] = trees[directory], at
    return found


def require_own_name(name: bytes, shown: str, taken: Iterable[bytes]) -> None:
    """Of several sources, each goes into the target under its name."""
    if not name:
        raise InvalidInputError(
            f"{shown} has no name to have in the target", hint="Copy it alone: then its contents go into the target."
        )
    if name in taken:
        raise InvalidInputError(
            f"two of the sources are named {os.fsdecode(name)!r}",
            hint="Copy them one by one, under names of their own.",
        )


def read_pipe(tree: object) -> None:
    """Reads a source pipe to its end."""
    from cowfs.transfer.local_stream import LocalStream

    if isinstance(tree, LocalStream):
        tree.spool()


def target(stack: ExitStack, path: bytes, file: bytes) -> tuple[WholeFiles, bytes]:
    """file: the name of the copied file; b"" for a directory's contents."""
    from cowfs.transfer.local_files import special_file
    from cowfs.transfer.whole_files import WholeFiles

    if path == b"-":
        raise InvalidInputError(
            "'-' is no target of a copy",
            hint=f"{Command('cat', 'SOURCE:PATH')} writes a file to standard output. ./- is a file of that name.",
        )
    if _is_special(path):  # of the path itself: the target of /dev/stdout may have no name
        raise special_file(path)
    if file and path.endswith((b"/", b"/.")):
        os.makedirs(path, exist_ok=True)
    if os.path.isdir(path):
        return stack.enter_context(WholeFiles(path)), file
    real = os.path.realpath(path)
    if os.path.islink(real):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(path))
    directory, name = os.path.split(real)
    os.makedirs(directory, exist_ok=True)
    return stack.enter_context(WholeFiles(directory)), name


def _is_special(path: bytes) -> bool:
    from cowfs.machine.folders.stamps import is_special

    try:
        return is_special(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
