"""A directory beside the files of a copy, in which all of them are moved out of the way of who
comes by a path, and back.

    set_aside     FOLDER/x ─▶ FOLDER/.cowfs-aside-…/x
    bring_back    the other way; what came to a path meanwhile stays there

Renames only, so that a crash leaves every file in one of two places. When things come back to a
directory that somebody has made anew, both become one; where there is another file by now, the one
from before is called NAME.cowfs-aside, and `bring_back` tells.

A directory that only looks like one of ours is a user's: whoever calls knows the name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from cowfs import clock

_PREFIX = ".cowfs-aside-"
_ANY = re.compile(rb"\.cowfs-aside-[0-9a-f]{16}")
_BESIDE = b".cowfs-aside"
_NAME_MAX = 255
_AT_FDCWD, _NOREPLACE = -100, 1
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
"""None: a C library that does not know it."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def new_name() -> str:
    return _PREFIX + clock.random_bytes(8).hex()


def is_name(name: str) -> bool:
    return _ANY.fullmatch(os.fsencode(name)) is not None


def those_in(root: bytes, name: bytes) -> list[bytes]:
    """The directory of that name, if it is in the folder; name empty: whatever looks like one, in a
    folder whose record does not say which one is ours, as older ones did not."""
    names = [name] if name else [each for each in os.listdir(root) if _ANY.fullmatch(each)]
    return [each for each in names if _is_directory(os.path.join(root, each))]


class OpenDirectory:
    """Which directory is open to its owner at this moment, to be moved, though its mode says
    otherwise: for who comes after a crash. The file has "MODE OLD-PATH\\0NEW-PATH" meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, mode: int, path: bytes, to: bytes) -> None:
        """On a full disk files are moved all the same: without this only a crash costs a mode."""
        with contextlib.suppress(OSError):
            self._path.write_bytes(b"%o %s\0%s" % (stat.S_IMODE(mode), path, to))

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def close_again(self) -> None:
        """It gets its mode back, if nobody has given it another one."""
        with contextlib.suppress(FileNotFoundError):
            text, _, paths = self._path.read_bytes().partition(b" ")
            for path in paths.split(b"\0"):
                if text and _is_directory(path) and os.lstat(path).st_mode & 0o7777 == int(text, 8) | 0o700:
                    os.chmod(path, int(text, 8))
        self.clear()


def set_aside(root: bytes, name: bytes, opened: OpenDirectory) -> bytes:
    """Moves everything in the folder into a directory `name` there, which is new."""
    before = os.lstat(root)
    open_up(root)
    aside = os.path.join(root, name)
    os.mkdir(aside, 0o700)
    os.chmod(aside, stat.S_IMODE(before.st_mode) | 0o700)  # if it is interrupted, that of the folder again
    for each in os.listdir(root):
        if each != name:  # whoever looks at the folder afterwards sees what was not moved
            move(os.path.join(root, each), os.path.join(aside, each), opened)
    _set_attributes(aside, before)
    return aside


def bring_back(root: bytes, name: bytes, opened: OpenDirectory, *, sets_attributes: bool) -> list[tuple[bytes, bytes]]:
    """What was set aside. Returns the paths, relative to the folder, at which there was something
    else by now, and where what was set aside lies instead. sets_attributes: mode and time of the
    folder, too, come back."""
    aside = os.path.join(root, name)
    before = os.lstat(aside)
    renamed = _merge(aside, root, opened)
    if sets_attributes:
        _set_attributes(root, before)
    return [(os.path.relpath(path, root), os.path.relpath(beside, root)) for path, beside in renamed]


def _merge(above: bytes, to: bytes, opened: OpenDirectory) -> list[tuple[bytes, bytes]]:
    """Everything in `above` comes to `to`, and `above` goes. Depth is what somebody has made anew
    by path within moments."""
    open_up(above)
    renamed = []
    for name in os.listdir(above):
        old, new = os.path.join(above, name), os.path.join(to, name)
        if move(old, new, opened):
            continue
        if _is_directory(old) and _is_directory(new):
            open_up(new)
            before = os.lstat(old)
            with contextlib.suppress(OSError):  # as it was before somebody made it anew
                shutil.copystat(old, new, follow_symlinks=False)
                os.chown(new, before.st_uid, before.st_gid, follow_symlinks=False)
            open_up(new)
            renamed += _merge(old, new, opened)
            _set_attributes(new, before)
        else:
            while not move(old, beside := _free(new), opened):
                pass
            renamed.append((new, beside))
    with contextlib.suppress(OSError):  # somebody has made something there: the next time brings it
        os.rmdir(above)
    return renamed


def move(path: bytes, to: bytes, opened: OpenDirectory) -> bool:
    """Whether it was moved: not to where something is. A directory has to be writable for that,
    since it names the one above."""
    mode = os.lstat(path).st_mode
    if not stat.S_ISDIR(mode) or not _is_closed(path, mode):
        return _rename(path, to)
    opened.put(mode, path, to)
    is_moved = False
    try:
        open_up(path)
        is_moved = _rename(path, to)
    finally:
        os.chmod(to if is_moved else path, stat.S_IMODE(mode))
    opened.clear()
    return is_moved


def _rename(path: bytes, to: bytes) -> bool:
    if _renameat2 is not None and _renameat2(_AT_FDCWD, path, _AT_FDCWD, to, _NOREPLACE) == 0:
        return True
    number = ctypes.get_errno() if _renameat2 is not None else errno.ENOSYS
    if number == errno.EEXIST:
        return False
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number), path, None, to)
    if os.path.lexists(to):  # a file system that cannot do both at once
        return False
    os.rename(path, to)
    return True


def open_up(path: bytes) -> None:
    """A directory that could not be changed otherwise."""
    mode = os.lstat(path).st_mode
    if _is_closed(path, mode):
        with contextlib.suppress(PermissionError):
            os.chmod(path, stat.S_IMODE(mode) | 0o700)


def _is_closed(path: bytes, mode: int) -> bool:
    """To this user; root needs no permission."""
    return mode & 0o700 != 0o700 and not os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)


def delete_tree(path: bytes) -> None:
    """A directory with everything in it, whatever its permissions. However deep, and longer than
    what the system takes for a path: what lies deeper is moved to the top, and deleted there."""
    os.chmod(path, 0o700)
    top = os.open(path, _DIRECTORY)
    try:
        fresh = (b"%s.%d" % (clock.random_bytes(8).hex().encode(), number) for number in count())
        left: list[bytes] = []
        _empty(top, top, left, fresh)
        while left:
            name = left.pop()
            fd = os.open(name, _DIRECTORY, dir_fd=top)
            try:
                _empty(fd, top, left, fresh)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _empty(fd: int, top: int, left: list[bytes], fresh: Iterator[bytes]) -> None:
    """Deletes what is in the directory; its directories go to the top, and their names to
    `left`."""
    for text in os.listdir(fd):
        name = os.fsencode(text)
        if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=fd)
            continue
        os.chmod(name, 0o700, dir_fd=fd)
        if fd != top:
            moved = next(fresh)
            os.rename(name, moved, src_dir_fd=fd, dst_dir_fd=top)
            name = moved
        left.append(name)


def _free(path: bytes) -> bytes:
    """A name beside, which nothing has."""
    directory, name = os.path.split(path)
    for number in count(1):
        end = _BESIDE if number == 1 else b"%s-%d" % (_BESIDE, number)
        found = os.path.join(directory, name[: _NAME_MAX - len(end)] + end)
        if not os.path.lexists(found):
            return found
    raise AssertionError


def _is_directory(path: bytes) -> bool:
    """No link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _set_attributes(path: bytes, found: os.stat_result) -> None:
    os.chmod(path, stat.S_IMODE(found.st_mode))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
