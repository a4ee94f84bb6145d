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
_NOT_OURS = frozenset({errno.EPERM, errno.EACCES, errno.EROFS, errno.EXDEV})
"""Of what stays where it is, however often it is tried: another user's directory, an immutable
file, a snapshot that is read-only."""
_DEPTH = 64
"""Of directories that cannot be moved to the top; each is open while what is below is deleted."""


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


def set_aside(root: bytes, name: bytes, opened: OpenDirectory) -> dict[bytes, OSError]:
    """Moves everything in the folder into a directory `name` there, which is new. Returns the names
    of what this user cannot move, and why: that stays in its place, all of it if the directory
    cannot be made."""
    before = os.lstat(root)
    open_up(root)
    aside = os.path.join(root, name)
    try:
        os.mkdir(aside, 0o700)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        return dict.fromkeys(os.listdir(root), error)
    os.chmod(aside, stat.S_IMODE(before.st_mode) | 0o700)  # if it is interrupted, that of the folder again
    stuck = {}
    for each in os.listdir(root):
        if each == name:
            continue
        try:  # whoever looks at the folder afterwards sees what was not moved
            move(os.path.join(root, each), os.path.join(aside, each), opened)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            stuck[each] = error
    _set_attributes(aside, before)
    return stuck


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
        with contextlib.suppress(PermissionError):  # another user's, which was not opened either
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


class Remains:
    """What could not be deleted: one path of it, why, and how much there is."""

    def __init__(self) -> None:
        self.path = b""
        self.why = ""
        self.count = 0

    def add(self, path: bytes, error: OSError) -> None:
        if isinstance(error, FileNotFoundError):  # somebody else has removed it
            return
        if not self.count:
            self.path, self.why = path, error.strerror or str(error)
        self.count += 1


def remove_empty(path: bytes, error: OSError, remains: Remains) -> None:
    """What could not be moved (error) goes all the same if it is an empty directory, as what a
    Btrfs snapshot has in the place of a subvolume; there is no harm in that."""
    try:
        os.rmdir(path)
    except OSError as found:
        remains.add(path, found if isinstance(found, FileNotFoundError) else error)


def delete_tree(path: bytes, remains: Remains) -> None:
    """A directory with everything in it, whatever its permissions; what cannot be deleted stays,
    and the rest goes. However deep, and longer than what the system takes for a path: what lies
    deeper is moved to the top, and deleted there."""
    count_before = remains.count
    with contextlib.suppress(OSError):
        os.chmod(path, 0o700)
    try:
        top = os.open(path, _DIRECTORY)
    except OSError as error:
        remains.add(path, error)
        return
    try:
        _Deletion(path, top, remains).delete()
    finally:
        os.close(top)
    _remove_emptied(path, path, remains, count_before)


class _Deletion:
    def __init__(self, path: bytes, top: int, remains: Remains) -> None:
        self._path = path
        self._top = top
        self._remains = remains
        self._waiting: list[bytes] = []
        """Directories at the top."""
        self._fresh = (b"%s.%d" % (clock.random_bytes(8).hex().encode(), number) for number in count())

    def delete(self) -> None:
        self._empty(self._top, self._path, 0)
        while self._waiting:
            name = self._waiting.pop()
            self._delete(name, self._top, os.path.join(self._path, name), 0)

    def _delete(self, name: bytes, above: int, path: bytes, depth: int) -> None:
        """A directory. path: where it lies, to tell."""
        count_before = self._remains.count
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=above)
        except OSError as error:
            self._remains.add(path, error)
            return
        try:
            self._empty(fd, path, depth)
        finally:
            os.close(fd)
        _remove_emptied(name, path, self._remains, count_before, dir_fd=above)

    def _empty(self, fd: int, path: bytes, depth: int) -> None:
        """Deletes what is in the directory. Its directories go to the top, to wait there; those
        that cannot be moved are deleted where they are."""
        try:
            names = [os.fsencode(text) for text in os.listdir(fd)]
        except OSError as error:
            self._remains.add(path, error)
            return
        for name in names:
            at = os.path.join(path, name)
            try:
                if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=fd)
                    continue
            except OSError as error:
                self._remains.add(at, error)
                continue
            with contextlib.suppress(OSError):
                os.chmod(name, 0o700, dir_fd=fd)
            if fd == self._top:
                self._waiting.append(name)
                continue
            moved = next(self._fresh)
            try:
                os.rename(name, moved, src_dir_fd=fd, dst_dir_fd=self._top)
            except OSError as error:
                if depth < _DEPTH:
                    self._delete(name, fd, at, depth + 1)
                else:
                    self._remains.add(at, error)
            else:
                self._waiting.append(moved)


def _remove_emptied(
    name: bytes, path: bytes, remains: Remains, count_before: int, *, dir_fd: int | None = None
) -> None:
    """A directory, unless something is left in it."""
    if remains.count == count_before:
        try:
            os.rmdir(name, dir_fd=dir_fd)
        except OSError as error:
            remains.add(path, error)


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
