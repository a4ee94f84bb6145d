"""The files of a volume that is mounted on this machine, accessed through its path: the counterpart
of `Files` for a session in this process. Other programs see a change at once, and the mount is what
is committed.

As everywhere in `LocalFiles`, each path is opened name by name from the mount's root, and a
symbolic link in the middle is an error: nothing outside of the mount is read or written.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Self

from cowfs.base.errors import NOT_REGULAR
from cowfs.session.opened_file import READ_BYTES
from cowfs.transfer.local_files import LocalAttr, LocalFiles

COPY_BYTES = 1 << 30
HIDDEN_NAME = b".cowfs"
NOT_SHARED = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.ENOSYS, errno.EINVAL})


class MountedFiles(LocalFiles):
    """root: the mount's path."""

    def list(self, path: bytes) -> list[tuple[bytes, LocalAttr]]:
        """Hides the names that the mount adds to the volume (`session/looks`)."""
        return [(name, attr) for name, attr in super().list(path) if path or name != HIDDEN_NAME or _is_own(attr)]

    def open(self, path: bytes, flags: int) -> MountedFile:
        with self._parent(path) as (directory, name):
            fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=directory)
            try:
                mode = os.fstat(fd).st_mode
                if stat.S_ISDIR(mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if not stat.S_ISREG(mode):
                    raise OSError(errno.EINVAL, NOT_REGULAR)
            except BaseException:
                os.close(fd)
                raise
        return MountedFile(fd)

    def mkdir(self, path: bytes) -> None:
        with self._parent(path) as (directory, name):
            os.mkdir(name, 0o755, dir_fd=directory)

    def remove(self, path: bytes) -> None:
        with self._parent(path) as (directory, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)

    def move(self, source: bytes, target: bytes) -> None:
        with self._parent(source) as (from_directory, old), self._parent(target) as (to_directory, new):
            os.rename(old, new, src_dir_fd=from_directory, dst_dir_fd=to_directory)

    def new_symlink(self, path: bytes, target: bytes) -> None:
        with self._parent(path) as (directory, name):
            os.symlink(target, name, dir_fd=directory)

    def chmod(self, path: bytes, mode: int) -> None:
        with self._parent(path) as (directory, name):
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            try:
                os.chmod(f"/proc/self/fd/{fd}", mode)
            finally:
                os.close(fd)

    def xattr(self, path: bytes, name: bytes) -> bytes | None:
        """None: the file has no such attribute, or its file system does not support them."""
        with self._parent(path) as (directory, last):
            fd = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
            try:
                return os.getxattr(fd, name)
            except OSError:
                return None
            finally:
                os.close(fd)

    def share(self, source: bytes, target: bytes) -> None:
        """As `Files.share`: the mount shares extents for copy_file_range."""
        with self.open(source, os.O_RDONLY) as from_file:
            found = os.fstat(from_file.fd)
            is_new = self._is_missing(target)
            with self.open(target, os.O_WRONLY | os.O_CREAT) as to_file:
                if os.path.samestat(found, os.fstat(to_file.fd)):
                    return
                os.ftruncate(to_file.fd, 0)
                _copy(from_file.fd, to_file.fd)
                if is_new:
                    os.fchmod(to_file.fd, found.st_mode & 0o777)

    def _is_missing(self, path: bytes) -> bool:
        try:
            self.stat(path)
        except FileNotFoundError:
            return True
        return False


class MountedFile:
    """One open file of a mount."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, offset: int, length: int) -> bytes:
        pieces = []
        while length > 0 and (piece := os.pread(self.fd, min(length, READ_BYTES), offset)):
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(self.fd, view, offset)
            offset, view = offset + done, view[done:]

    def append(self, data: bytes) -> int:
        """The file was opened with O_APPEND."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
        return os.lseek(self.fd, 0, os.SEEK_CUR)

    def replace(self, data: bytes) -> None:
        """Writes first, then truncates: a kill in between loses nothing."""
        self.write(0, data)
        self.truncate(len(data))

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def sync(self) -> None:
        os.fsync(self.fd)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _is_own(attr: LocalAttr) -> bool:
    """Inodes of the volume have numbers of 48 bits (native/mounted)."""
    return attr.ino >> 48 & 0xFFFF == 0


def _copy(source: int, target: int) -> None:
    """Copies from the current positions to the end."""
    while True:
        try:
            done = os.copy_file_range(source, target, COPY_BYTES)
        except OSError as error:
            if error.errno not in NOT_SHARED:
                raise
            break
        if done == 0:
            return
    while data := os.read(source, READ_BYTES):
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]
