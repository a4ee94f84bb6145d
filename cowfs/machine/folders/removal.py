"""Removes the files that cowfs has put into the folder of a copy, and no others.

A file is removed if it matches its stamp. It is first renamed to a name that no program uses, in
the same directory, and checked once more: a file that replaced it or was written to at that moment
gets its name back.

    FOLDER/x ─▶ FOLDER/.cowfs-leaving-<16 hex> ─▶ removed

Directories are removed when they are empty. Everything else stays. Paths are opened beneath the
folder's descriptor, so a user who may write to the folder cannot lead a removal out of it. Depth
does not matter. For one thread.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from blake3 import blake3

from cowfs.base import beneath, failpoints
from cowfs.base.beneath import Root
from cowfs.base.fast_dataclass import dataclass
from cowfs.machine.folders import stamps
from cowfs.machine.folders.stamps import FileStamp, Stamps

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAVING = b".cowfs-leaving-"


@dataclass(frozen=True)
class Left:
    """The files that stay in a folder. path: one of them. why: the error of a removal, perhaps of
    another file; "": they do not match their stamps, or have none."""

    count: int
    path: bytes
    why: str


def remove_known(root: Root, known: Stamps, *, is_resumed: bool = False) -> Left | None:
    """Removes each file that matches its stamp, and each directory with a stamp that is empty then.
    is_resumed: an earlier removal was killed here, which may have changed times of hard links.
    None: no file is left."""
    removal = _Removal(root, known, is_resumed=is_resumed)
    names = defaultdict[bytes, list[bytes]](list)
    for path in known:
        above, _, name = path.rpartition(b"/")
        names[above].append(name)
    for above in sorted(names, reverse=True):  # the content of a directory before the directory
        removal.remove_in(above, names[above])
    try:
        left = [path for path, found in stamps.walk(root) if not stat.S_ISDIR(found.mode)]
        left = left or [os.fsencode(name) for name in os.listdir(root.fileno())]
    except OSError as error:
        return Left(1, os.fsencode(error.filename or b""), error.strerror or "")
    return Left(len(left), left[0], removal.why) if left else None


def remove_all(root: Root) -> None:
    """Empties a private directory, which holds only our own entries. OSError: that fails."""
    found = list[tuple[bytes, FileStamp]]()
    waiting = [b""]
    while waiting:
        above = waiting.pop()
        open_to_owner(root, above)
        with root.directory(above) as fd:
            for name in map(os.fsencode, os.listdir(fd)):
                path = above + b"/" + name if above else name
                each = stamps.of_stat(os.stat(name, dir_fd=fd, follow_symlinks=False))
                found.append((path, each))
                if stat.S_ISDIR(each.mode):
                    waiting.append(path)
    for path, each in reversed(found):
        (root.remove_directory if stat.S_ISDIR(each.mode) else root.unlink)(path)


def open_to_owner(root: Root, path: bytes) -> None:
    """Lets the owner, this user, move and remove the entries of a directory."""
    fd = root.open_fd(path, os.O_PATH | os.O_DIRECTORY)
    try:
        found = os.fstat(fd)
        if found.st_mode & 0o700 != 0o700 and found.st_uid == os.geteuid():
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(found.st_mode) | 0o700)
    finally:
        os.close(fd)


class _Removal:
    def __init__(self, root: Root, known: Stamps, *, is_resumed: bool) -> None:
        self._root = root
        self._known = known
        names = Counter(each.ino for each in known.values() if is_resumed and each.ino)
        self._touched = {ino for ino, count in names.items() if count > 1}
        self._linked: dict[int, int] = {}  # time of change of inodes that have lost a name here
        self.why = ""

    def remove_in(self, above: bytes, names: list[bytes]) -> None:
        try:
            with self._root.directory(above) as fd, self._open_for_change(fd, above):
                for name in names:
                    self._remove(fd, name, self._known[above + b"/" + name if above else name])
        except OSError:
            return  # not a directory any more: nothing in it is ours

    @contextmanager
    def _open_for_change(self, fd: int, path: bytes) -> Iterator[None]:
        """Lets the block change the directory, if it is the version's. Its mode is restored if an
        entry stays in it."""
        mode = os.fstat(fd).st_mode
        known = self._known.get(path)
        is_closed = known is not None and known.mode == mode and mode & 0o700 != 0o700
        if is_closed:
            with suppress(PermissionError):  # another user's directory
                os.fchmod(fd, stat.S_IMODE(mode) | 0o700)
        try:
            yield
        finally:
            if is_closed and os.listdir(fd):
                with suppress(PermissionError):
                    os.fchmod(fd, stat.S_IMODE(mode))

    def _remove(self, fd: int, name: bytes, known: FileStamp) -> None:
        try:
            if stat.S_ISDIR(known.mode):
                os.rmdir(name, dir_fd=fd)
            else:
                self._remove_file(fd, name, known)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                self.why = self.why or error.strerror or str(error)

    def _remove_file(self, fd: int, name: bytes, known: FileStamp) -> None:
        aside = _LEAVING + blake3(name).hexdigest(8).encode()
        try:
            found = stamps.of_stat(os.stat(name, dir_fd=fd, follow_symlinks=False))
        except FileNotFoundError:  # an earlier removal was killed here
            found = known
        else:
            wanted = known._replace(ctime_ns=self._linked.get(known.ino, known.ctime_ns))
            if found != wanted and not (known.ino in self._touched and found.is_moved(known)):
                return
            if not beneath.rename_new(name, aside, src_dir_fd=fd, dst_dir_fd=fd):
                return
            failpoints.hit("copy-leaving")
        path = os.open(aside, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        try:
            if not stamps.of_stat(os.fstat(path)).is_moved(found):
                beneath.rename_new(aside, name, src_dir_fd=fd, dst_dir_fd=fd)
                return
            os.unlink(aside, dir_fd=fd)
            after = os.fstat(path)
            if after.st_nlink:
                self._linked[after.st_ino] = after.st_ctime_ns
        finally:
            os.close(path)
