"""Opens files beneath a directory that other users may write to.

A store's directory, a folder without FUSE, a shared cache, the source of an upload: any name in
them may be a symbolic link, a pipe, or a huge file that another user put there. So a path is never
handed to the kernel as a string. `Root` holds the directory open, and each call resolves a relative
path from that descriptor: `openat2` with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, or one name at a
time with O_NOFOLLOW where the kernel lacks it (`native/local`).

Guarantees: no symbolic link is followed below the root; nothing outside of it is opened, changed or
removed; opening never waits for the other end of a pipe; a read takes at most the stated number of
bytes. The root itself may be reached through links: the caller named it, and it is resolved once.

Errors are OSErrors that name the path: ELOOP for a link, EXDEV for "..", and `UnexpectedEntry` for
an entry of another kind, owner or size than the caller asked for.

Paths are bytes or str, relative, without "..". Threads: a Root may be used by any number of them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from cowfs.native.local import FoundStat

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
READ = os.O_RDONLY | os.O_NONBLOCK
Path = str | bytes
_NOREPLACE = 1


class UnexpectedEntry(OSError):
    """The entry at the path is not of the expected kind, owner or size."""

    def __init__(self, number: int, message: str, path: Path) -> None:
        super().__init__(number, message, path)


class Root:
    """fd: an open directory, which `close` closes. path: what errors name."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self.path = os.fsencode(path)

    @classmethod
    def open(cls, path: str | bytes | os.PathLike[str]) -> Self:
        """The directory at `path`, which may itself be reached through links."""
        name = os.fspath(path)
        return cls(os.open(name, DIRECTORY | os.O_CLOEXEC), name)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- opening

    def open_fd(self, path: Path, flags: int, mode: int = 0) -> int:
        """A descriptor, as of `os.open`; the caller closes it."""
        try:
            return _open(self._fd, os.fsencode(path), flags, mode)
        except OSError as error:
            error.filename = self._full_path(path)
            raise

    @contextmanager
    def directory(self, path: Path = b"") -> Iterator[int]:
        """A descriptor of the directory `path`; "" is the root."""
        fd = self.open_fd(path, DIRECTORY)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def parent(self, path: Path) -> Iterator[tuple[int, bytes]]:
        """(descriptor of the directory that holds it, its name there): for calls with dir_fd, which
        must not follow links either."""
        above, _, name = os.fsencode(path).rpartition(b"/")
        fd = self.open_fd(above, os.O_PATH | os.O_DIRECTORY)  # others may be allowed to enter it, not to list it
        try:
            with self._name_path_in_errors(path):
                yield fd, name
        finally:
            os.close(fd)

    def open_file(self, path: Path, *, limit_bytes: int | None = None) -> int:
        """A descriptor of a regular file, to read; the caller closes it. UnexpectedEntry: it is of
        another kind (EINVAL), or longer than limit_bytes (EFBIG)."""
        fd = self.open_fd(path, READ)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
                raise UnexpectedEntry(number, f"{kind(found.st_mode)}, not a regular file", self._full_path(path))
            if limit_bytes is not None and found.st_size > limit_bytes:
                message = f"{found.st_size} bytes, more than the limit of {limit_bytes}"
                raise UnexpectedEntry(errno.EFBIG, message, self._full_path(path))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def read(self, path: Path, *, limit_bytes: int) -> bytes:
        """All bytes of a regular file. UnexpectedEntry: as of `open_file`; also EFBIG for a file
        that grows past the limit while it is read."""
        fd = self.open_file(path, limit_bytes=limit_bytes)
        try:
            with self._name_path_in_errors(path):
                size = os.fstat(fd).st_size
                parts, left = [], min(size, limit_bytes) + 1  # one more than it should have: it may grow
                while left and (part := os.read(fd, left)):
                    parts.append(part)
                    left -= len(part)
        finally:
            os.close(fd)
        data = b"".join(parts)
        if len(data) > limit_bytes:
            raise UnexpectedEntry(errno.EFBIG, f"more than the limit of {limit_bytes} bytes", self._full_path(path))
        return data

    def stat(self, path: Path = b"") -> os.stat_result:
        """Of the entry itself, a link included."""
        if not path:
            return os.fstat(self._fd)
        with self.parent(path) as (fd, name):
            return os.stat(name, dir_fd=fd, follow_symlinks=False)

    def list(self, path: Path = b"") -> list[tuple[bytes, FoundStat]]:
        """Entries of a directory, sorted by name, each as it is itself; what vanishes meanwhile is
        left out."""
        with self.directory(path) as fd, self._name_path_in_errors(path):
            from cowfs.native.local import list_directory

            return list_directory(fd)

    def exists(self, path: Path) -> bool:
        """Whether there is an entry of any kind. OSError: that cannot be told."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    # -- changing

    def make_directory(self, path: Path, mode: int = 0o777, *, exact: bool = False) -> bool:
        """Makes one directory, whose parent exists. exact: with this mode regardless of the umask;
        the mode is set through a descriptor of the new directory. Returns False if a directory
        exists there, which stays unchanged. UnexpectedEntry: the directory, or another entry of
        that name, belongs to another user."""
        with self.parent(path) as (above, name):
            try:
                os.mkdir(name, mode, dir_fd=above)
            except FileExistsError:
                if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                    return False
                raise UnexpectedEntry(errno.ENOTDIR, "not a directory", self._full_path(path)) from None
            if exact:
                fd = self._open_new(above, name, path, is_mapped=True)
                try:
                    os.fchmod(fd, mode)
                finally:
                    os.close(fd)
        return True

    def make_directories(self, path: Path) -> None:
        """Makes the directory and its missing parents. Errors as of `make_directory`."""
        parts = os.fsencode(path).split(b"/") if path else []
        for count in range(1, len(parts) + 1):
            self.make_directory(b"/".join(parts[:count]))

    def make_private(self, path: Path) -> Root:
        """Makes a directory that only this user may enter, and opens it. FileExistsError: the name
        is taken. UnexpectedEntry: as of `make_directory`."""
        with self.parent(path) as (above, name):
            os.mkdir(name, 0o700, dir_fd=above)
            fd = self._open_new(above, name, path)
            with suppress(PermissionError):  # a file system that shows one mode for all
                os.fchmod(fd, 0o700)
            return Root(fd, self._full_path(path))

    def _open_new(self, above: int, name: bytes, path: Path, *, is_mapped: bool = False) -> int:
        """A descriptor of the directory that was made there a moment ago. is_mapped: its file
        system may show another owner for the entries of this user, as NFS does for root."""
        fd = _open(above, name, DIRECTORY)
        owner = os.fstat(fd).st_uid
        is_ours = owner == os.geteuid() or (is_mapped and owner == _owner_of_new(above, name + b".owner"))
        if is_ours and not os.listdir(fd):
            return fd
        os.close(fd)
        message = "not the directory that was made: it was replaced, or its file system shows another owner"
        raise UnexpectedEntry(errno.EPERM, message, self._full_path(path))

    def unlink(self, path: Path) -> None:
        with self.parent(path) as (fd, name):
            os.unlink(name, dir_fd=fd)

    def remove_directory(self, path: Path) -> None:
        """An empty one."""
        with self.parent(path) as (fd, name):
            os.rmdir(name, dir_fd=fd)

    def sync_directory(self, path: Path = b"") -> None:
        """Makes the names in it durable."""
        with self.directory(path) as fd, self._name_path_in_errors(path):
            sync(fd)

    # -- naming

    def _full_path(self, path: Path) -> bytes:
        return os.path.join(self.path, os.fsencode(path))

    @contextmanager
    def _name_path_in_errors(self, path: Path) -> Iterator[None]:
        """An OSError of the block names the whole path."""
        try:
            yield
        except OSError as error:
            if error.filename2 is None:
                error.filename = self._full_path(path)
            raise


def _owner_of_new(directory: int, name: bytes) -> int:
    """The owner that the file system shows for new entries. name: of a file to make and remove."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)
        os.unlink(name, dir_fd=directory)


def sync(directory: int) -> None:
    """Makes the names in an open directory durable. Some network file systems do not sync
    directories, and need not."""
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def rename_new(name: bytes, to: bytes, *, src_dir_fd: int, dst_dir_fd: int) -> bool:
    """Renames an entry of one directory into another one. False: the new name is taken. A file
    system that cannot do both at once (NFS) may replace a file that comes there at that moment."""
    number = _renameat2(src_dir_fd, name, dst_dir_fd, to)
    if not number:
        return True
    if number == errno.EEXIST:
        return False
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number), name, None, to)
    try:
        os.stat(to, dir_fd=dst_dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, to, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        return True
    return False


def _renameat2(src_dir_fd: int, name: bytes, dst_dir_fd: int, to: bytes) -> int:
    """The number of its error, or 0. ENOSYS: the C library does not know it."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return errno.ENOSYS
    return ctypes.get_errno() if call(src_dir_fd, name, dst_dir_fd, to, _NOREPLACE) else 0


def _open(root: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Loads the extension at the first call: `import cowfs` does without it."""
    from cowfs.native.local import open_beneath

    return open_beneath(root, path, flags, mode)


def kind(mode: int) -> str:
    """What an entry with this st_mode is, in words."""
    kinds = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
    }
    return kinds.get(stat.S_IFMT(mode), "an entry of an unknown kind")
