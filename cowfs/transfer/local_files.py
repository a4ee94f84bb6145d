"""A directory of this machine, which uploads read and `copying` writes to.

Data from a version can come from anyone, so nothing is written outside of the directory: each path
is opened component by component, and a symbolic link in the middle is an error. Only the directory
itself may be reached through links, because the user who names it means their target. A file
appears whole under its name, or not at all. A special file is never replaced.

    .cowfs-<16 hex>-<16 hex>       a file being written: a hash of its name, then a random number
    .cowfs-part-<16 hex>-<16 hex>  a large file that can be resumed: hashes of name and content
    .cowfs-names-<16 hex>/         empty files, for a moment: tests whether their names are the same here
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol, Self

from blake3 import blake3

from cowfs.base import clock, failpoints
from cowfs.base.errors import InvalidInputError, NoSpaceError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import ChunkHash
from cowfs.format.codec import Blob, Codec
from cowfs.machine.folders import mapped_stores
from cowfs.machine.folders.stamps import clamp_ns, is_special
from cowfs.native.local import FoundStat, list_directory, open_beneath, read_small_files
from cowfs.transfer.names_alike import differ_in_case
from cowfs.transfer.source_files import SourceFile, Stamp, wide_ino

_BESIDE = b".cowfs-%b-%b"
_PART = b".cowfs-part-%b-%b"
_NAMES = b".cowfs-names-%b"
_LEFT = re.compile(rb"\.cowfs-(part-)?([0-9a-f]{16})-[0-9a-f]{16}")
_LEFT_NAMES = re.compile(rb"\.cowfs-names-[0-9a-f]{16}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_BYTES = 4095  # PATH_MAX without its zero
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


# maps a reader of (offset, length) of the existing bytes to the pieces that are missing
Missing = Callable[[Callable[[int, int], bytes]], Generator[tuple[int, bytes]]]


@dataclass(frozen=True, slots=True)
class LocalAttr:
    """ino: unique on this machine, not only on its file system."""

    ino: int
    mode: int
    nlink: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> LocalAttr:
        ino = wide_ino(found.st_dev, found.st_ino)
        mtime_ns = clamp_ns(found.st_mtime_ns)
        return cls(ino, found.st_mode, found.st_nlink, found.st_size, mtime_ns, found.st_ctime_ns)


class Clones(Protocol):
    """The interface of `ClonedFiles`."""

    def fill(self, content_id: str, fd: int) -> bool: ...
    def keep(self, content_id: str, fd: int) -> None: ...


class LocalFiles:
    """Paths are relative to `root`, an existing directory; "" is that directory. The half-written
    files that a killed copy has left in a directory are removed when a copy of the same names
    enters it (`tidy`); a file that is being written is locked. fd: the directory, if it is open
    already; it is duplicated."""

    def __init__(self, root: bytes, fd: int | None = None) -> None:
        self._path = root
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if fd is None else os.dup(fd)
        self._noted: dict[int, bool] = {}
        self._tells_case = set[bytes]()  # directories known to tell upper from lower case

    @property
    def path(self) -> bytes:
        return self._path

    def close(self) -> None:
        os.close(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading

    def times_tell(self, path: bytes, ino: int) -> bool:
        """Whether times show every change of a file, stores through a mapping included. ino: a wide
        one."""
        device = ino >> 64
        if device not in self._noted:
            with self._parent(path) as (directory, _):
                self._noted[device] = mapped_stores.are_noted(directory)
        return self._noted[device]

    def stat(self, path: bytes) -> LocalAttr:
        with self._parent(path) as (directory, name):
            return LocalAttr.of(os.stat(name, dir_fd=directory, follow_symlinks=False))

    def list(self, path: bytes) -> list[tuple[bytes, LocalAttr]]:
        """Sorted by name. Entries that vanish meanwhile are left out."""
        with self._directory(path) as directory:
            found = list_directory(directory)
        return [
            (name, LocalAttr(wide_ino(dev, ino), mode, nlink, size, mtime_ns, ctime_ns))
            for name, (dev, ino, mode, nlink, size, mtime_ns, ctime_ns) in found
        ]

    def read_small(
        self, path: bytes, names: Sequence[bytes], limit: int, name_key: bytes | None, compresses: bool
    ) -> Sequence[tuple[Stamp, Blob] | None]:
        """Reads files of the directory `path`, each as it was at one moment, as a blob. None: the
        file is larger than `limit`, or must be read individually. name_key: as for `Sealing`.
        compresses: whether to compress where that pays."""
        with self._directory(path) as directory:
            found = read_small_files(directory, names, limit, name_key, compresses)
        return [each and (_stamp(each[0]), Blob(ChunkHash(each[1]), Codec(each[2]), each[3])) for each in found]

    def readlink(self, path: bytes) -> bytes:
        with self._parent(path) as (directory, name):
            return os.readlink(name, dir_fd=directory)

    def open_file(self, path: bytes) -> SourceFile:
        """Opens a file. The caller closes it."""
        with self._parent(path) as (directory, name):
            return SourceFile(os.open(name, _READ, dir_fd=directory))

    # -- changing

    def require_possible(self, path: bytes) -> None:
        """OSError: no directory can be opened with this path."""
        with self._name_errors(path):
            if len(path) > _PATH_BYTES:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def make_directory(self, path: bytes) -> bool:
        """Creates a directory unless it exists; returns whether it was created. An existing one is
        made accessible to its owner, because files will be written into it; its attributes are set
        at the end. The root is left as it is, because it belongs to the user."""
        with self._parent(path) as (directory, name):
            try:
                os.mkdir(name, 0o700, dir_fd=directory)
            except FileExistsError:
                mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
                if not stat.S_ISDIR(mode):
                    raise
                if path and mode & 0o700 != 0o700:
                    _open_up(name, directory, mode)
                return False
            return True

    def put(
        self,
        path: bytes,
        pieces: Iterable[tuple[int, bytes]],
        *,
        mode: int,
        mtime_ns: int,
        xattrs: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """xattrs: extended attributes, where the file system supports them."""
        with self._parent(path) as (directory, name), self._replace(path, directory, name) as beside:
            os.close(write_new(beside, directory, pieces, mode=mode, mtime_ns=mtime_ns, xattrs=xattrs))

    def put_rest(
        self,
        path: bytes,
        missing: Missing,
        *,
        content_id: str,
        mode: int,
        mtime_ns: int,
        clones: Clones | None = None,
    ) -> None:
        """As `put`, but after a kill, or an error in `missing`, the written part stays, and the
        next call for the same content resumes it. missing: receives a function that reads (offset,
        length) of the existing bytes, fewer at the end, and yields the pieces that are missing. If
        another process is writing the same content, or may write to the part, all of it is written
        anew. clones: whole files that may have the content; the written file is added to them."""
        with self._parent(path) as (directory, name):
            self._require_replaceable(path, directory, name)
            part = part_name(name, content_id)
            fd = _open_part(part, directory)
            if fd is None:
                with closing(missing(lambda offset, length: b"")) as pieces:
                    self.put(path, pieces, mode=mode, mtime_ns=mtime_ns)
                return
            try:
                if clones is not None and os.fstat(fd).st_size == 0:
                    clones.fill(content_id, fd)
                with closing(missing(lambda offset, length: os.pread(fd, length, offset))) as pieces:
                    _fill(fd, pieces, mode, mtime_ns)
                if clones is not None:
                    clones.keep(content_id, fd)
                self._prepare_name(fd)
                self._give_name(path, part, directory, name)
            except OSError:  # of this machine: no space, a directory in the way
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=directory)
                raise
            finally:
                os.close(fd)

    def settle(self) -> None:
        """Returns when every file that was put has its name: a subclass may rename later than `put`
        returns."""

    def tidy(self, path: bytes, names: Iterable[bytes]) -> Sequence[bytes]:
        """Removes half-written files named after `names` that killed copies have left in the
        directory `path`. Returns the paths of large ones: they may be resumed, and `remove_left`
        removes them after a complete copy. Files whose own name is in `names` stay."""
        with self._directory(path) as directory:
            there = [os.fsencode(each) for each in os.listdir(directory)]
            found = [each for name in there if (each := _LEFT.fullmatch(name))]
            trials = [name for name in there if _LEFT_NAMES.fullmatch(name)]
            if not found and not trials:
                return []
            known = set(names)
            for name in trials:
                if name not in known:
                    _remove_trial(name, directory)
            hashes = {_hash(name) for name in known}
            left = [each for each in found if each[2] in hashes and each[0] not in known]
            for each in left:
                if each[1] is None:
                    _remove_left(each[0], directory)
        return [path + b"/" + each[0] if path else each[0] for each in left if each[1] is not None]

    def remove_left(self, path: bytes) -> None:
        """Removes a path from `tidy`, unless it is being written now."""
        with self._parent(path) as (directory, name):
            _remove_left(name, directory)

    def first_same(self, path: bytes, alike: Iterable[Sequence[bytes]]) -> tuple[bytes, bytes] | None:
        """Finds two names that are the same in the directory `path`. alike: groups of names that
        may be the same. They are tried in a temporary directory, there or in the nearest existing
        parent that can have one. If there is none, nothing can be written either. Names of
        existing, different files are not tried."""
        while True:
            with contextlib.suppress(OSError), self._open_parent(path + b"/." if path else b"") as (directory, _):
                return self._first_same(path, [each for each in alike if not _are_apart(each, directory)], directory)
            if not path:
                return None
            path = path.rpartition(b"/")[0]

    def _first_same(self, path: bytes, alike: Sequence[Sequence[bytes]], directory: int) -> tuple[bytes, bytes] | None:
        if path in self._tells_case:
            alike = [each for each in alike if not differ_in_case(each)]
        if not alike:
            return None
        with _trial(directory) as at:
            for names in alike:
                is_case = differ_in_case(names)
                if is_case and path in self._tells_case:
                    continue
                made, found = _try_names(names, at)
                if found is not None:
                    return found
                if is_case and made > 1:
                    self._tells_case.add(path)
        return None

    def symlink(self, path: bytes, target: bytes, *, mtime_ns: int) -> None:
        with self._parent(path) as (directory, name), self._replace(path, directory, name) as beside:
            os.symlink(target, beside, dir_fd=directory)
            os.utime(beside, ns=(mtime_ns, mtime_ns), dir_fd=directory, follow_symlinks=False)

    def link(self, existing: bytes, path: bytes) -> None:
        """Does nothing if both are names of one file already: a rename of one over the other would
        do nothing either, and leave the temporary name."""
        with contextlib.suppress(FileNotFoundError):
            if self.stat(existing).ino == self.stat(path).ino:
                return
        with (
            self._parent(existing) as (source, old),
            self._parent(path) as (directory, name),
            self._replace(path, directory, name) as beside,
        ):
            os.link(old, beside, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)

    def set_attributes(self, path: bytes, *, mode: int, mtime_ns: int) -> None:
        """Sets attributes of a directory."""
        with self._directory(path) as fd:
            os.fchmod(fd, mode)
            os.utime(fd, ns=(mtime_ns, mtime_ns))

    @contextmanager
    def _directory(self, path: bytes) -> Iterator[int]:
        """Yields a descriptor of the directory `path`."""
        with self._parent(path + b"/." if path else b"") as (directory, _):
            yield directory

    @contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Yields (descriptor of the parent directory, name in it). An OSError of the block gets the
        whole path."""
        with self._name_errors(path), self._open_parent(path) as found:
            yield found

    @contextmanager
    def _name_errors(self, path: bytes) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = os.path.join(self._path, path)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                shown = os.fsdecode(error.filename)
                raise NoSpaceError(
                    f"{shown}: {error.strerror}", hint="Free space there, or copy to another disk."
                ) from error
            raise

    @contextmanager
    def _open_parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        above, _, name = path.rpartition(b"/")
        directory = open_beneath(self._root, above, _DIRECTORY)
        try:
            yield directory, name or b"."
        finally:
            os.close(directory)

    @contextmanager
    def _replace(self, path: bytes, directory: int, name: bytes) -> Iterator[bytes]:
        """Yields a temporary name; the file that the block creates under it then replaces `name`,
        at `path`."""
        with self._temporary_name(path, directory, name) as beside:
            yield beside
            self._give_name(path, beside, directory, name)

    @contextmanager
    def _temporary_name(self, path: bytes, directory: int, name: bytes) -> Iterator[bytes]:
        """As `_replace`, but the caller renames the file later; it is removed if the block
        fails."""
        self._require_replaceable(path, directory, name)
        beside = _BESIDE % (_hash(name), clock.random_bytes(8).hex().encode())
        try:
            yield beside
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=directory)
            raise

    def _prepare_name(self, fd: int) -> None:
        """Called when `put_rest` has written a file completely, just before it gets its name."""

    def _give_name(self, path: bytes, beside: bytes, directory: int, name: bytes) -> None:
        self._require_replaceable(path, directory, name)
        os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)

    def _require_replaceable(self, path: bytes, directory: int, name: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            if is_special(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise special_file(os.path.join(self._path, path))


def _stamp(found: FoundStat) -> Stamp:
    dev, ino, mode, _, size, mtime_ns, ctime_ns = found
    return Stamp(wide_ino(dev, ino), mode, size, mtime_ns, ctime_ns)


def special_file(path: bytes) -> InvalidInputError:
    """The error for a special file in the way of a copy."""
    shown = os.fsdecode(path)
    return InvalidInputError(
        f"{shown} is a device, a pipe or a socket, which a copy does not replace",
        hint=f"{Command('cat', 'SOURCE:PATH', into=shown)} writes to it. Otherwise choose another target, or remove it.",
    )


def _open_up(name: bytes, directory: int, mode: int) -> None:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)  # it may not be readable
    try:
        with contextlib.suppress(PermissionError):  # another user's: writing into it will fail
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) | 0o700)
    finally:
        os.close(fd)


def _are_apart(names: Sequence[bytes], directory: int) -> bool:
    """Whether all of the names are existing, different files."""
    try:
        found = [os.stat(name, dir_fd=directory, follow_symlinks=False) for name in names]
    except OSError:
        return False
    return len({(each.st_dev, each.st_ino) for each in found}) == len(names)


@contextmanager
def _trial(directory: int) -> Iterator[int]:
    """A new directory in this one, for the block; locked, so that no other copy removes it."""
    beside = _NAMES % clock.random_bytes(8).hex().encode()
    at = -1
    try:
        os.mkdir(beside, 0o700, dir_fd=directory)
        at = os.open(beside, _DIRECTORY, dir_fd=directory)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(at, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield at
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(beside, dir_fd=directory)
        if at >= 0:
            os.close(at)


def _remove_trial(name: bytes, directory: int) -> None:
    """Removes a directory that a killed copy has left, if it contains only empty files."""
    with contextlib.suppress(OSError):
        at = os.open(name, _DIRECTORY, dir_fd=directory)
        try:
            fcntl.flock(at, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = os.listdir(at)
            if all(_is_empty(os.stat(each, dir_fd=at, follow_symlinks=False)) for each in left):
                for each in left:
                    os.unlink(each, dir_fd=at)
                os.rmdir(name, dir_fd=directory)
        finally:
            os.close(at)


def _is_empty(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def _try_names(names: Sequence[bytes], directory: int) -> tuple[int, tuple[bytes, bytes] | None]:
    """Creates the names in an empty directory. Returns how many can be created, and two that are
    the same. All are removed afterwards."""
    made: list[bytes] = []
    try:
        for name in names:
            try:
                fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
            except OSError as error:
                if made and isinstance(error, FileExistsError):
                    return len(made), (_other_name(name, made, directory), name)
                continue  # a name that no file can have here: the copy itself reports it
            made.append(name)
            os.close(fd)
        return len(made), None
    finally:
        for name in made:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)


def _other_name(name: bytes, made: list[bytes], directory: int) -> bytes:
    """Which of the created names is the same as `name`. Removes the others."""
    while len(made) > 1:
        os.unlink(other := made.pop(), dir_fd=directory)
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return other
    return made[0]


def _open_part(part: bytes, directory: int) -> int | None:
    """Opens and locks a partial file, which the caller closes. None: another process has it, or may
    write to it. A file created here belongs to this process, whatever owner and mode the file
    system shows: some show the same ones for all files."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    is_made = False
    try:
        with contextlib.suppress(FileExistsError):
            fd = os.open(part, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
            is_made = True
        if not is_made:
            fd = os.open(part, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found, named = os.fstat(fd), os.stat(part, dir_fd=directory, follow_symlinks=False)
        is_ours = is_made or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)
        if is_ours and stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_ino == named.st_ino:
            return fd
        is_left = is_made
    except OSError as error:
        is_left = error.errno not in (errno.EWOULDBLOCK, errno.ENOENT)  # a file system without locks: it is unused
    if is_left:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=directory)
    os.close(fd)
    return None


def write_new(
    beside: bytes,
    directory: int,
    pieces: Iterable[tuple[int, bytes]],
    *,
    mode: int,
    mtime_ns: int,
    xattrs: Sequence[tuple[bytes, bytes]],
) -> int:
    """Creates a new file, locked as one that is being written. The caller closes it."""
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for attribute, value in xattrs:
            with contextlib.suppress(OSError):
                os.setxattr(fd, attribute, value)
        _fill(fd, pieces, mode, mtime_ns)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _fill(fd: int, pieces: Iterable[tuple[int, bytes]], mode: int, mtime_ns: int) -> None:
    """Writes pieces. A piece without bytes sets the size of the file."""
    size = 0
    for offset, data in pieces:
        if not data:
            os.ftruncate(fd, offset)
            size = offset
            continue
        _write(fd, offset, data)
        size = max(size, offset + len(data))
        failpoints.hit("download-piece-written")
    os.ftruncate(fd, size)
    os.fchmod(fd, mode)
    os.utime(fd, ns=(mtime_ns, mtime_ns))


def part_name(name: bytes, content_id: str) -> bytes:
    """The name of the partial file that `put_rest` writes for `name`."""
    return _PART % (_hash(name), _hash(content_id.encode()))


def _hash(data: bytes) -> bytes:
    return blake3(data).hexdigest(8).encode()


def _remove_left(left: bytes, directory: int) -> None:
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(os.stat(left, dir_fd=directory, follow_symlinks=False).st_mode):
            return
        fd = os.open(left, _READ, dir_fd=directory)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(left, dir_fd=directory)
        finally:
            os.close(fd)


def _write(fd: int, offset: int, data: bytes) -> None:
    while data:
        done = os.pwrite(fd, data, offset)
        offset, data = offset + done, data[done:]
