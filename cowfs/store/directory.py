"""Objects as files below a local directory: the backend of `file://` stores. Ours, because fsspec's
create is a race.

    <root>/<key>              an object, complete and durable
    <root>/.incoming/<name>   an object on its way; ignored by every reading call, swept after an hour

    put             temporary file → fsync → rename over the key → fsync of the directory
    put_if_absent   temporary file → fsync → link(), which fails if the key exists → fsync of the directory

Guarantees: an object is visible whole or not at all, also after a power cut; of any number of
processes that create one key exactly one succeeds (link is atomic, on NFS too, where the link count
tells whether a failed reply was a success); a call that finds an object makes its name durable
before it says so (ConflictError is proof, even if the creator died before its fsync). A new
directory is fsynced into its parent before anything in it is acknowledged.

Refuses: file systems without hard links (put_if_absent), a key that is a directory of other keys.
Empty directories stay. What was opened as one store writes and deletes in no other that is
at its path by then. Large objects go past the kernel's page cache (O_DIRECT) where their memory and
the file system allow it: that costs a tenth of the processor time, and what programs read stays in
memory. Threads: no lock is held during I/O; the set of known directories only ever grows, a stale
member costs one retry.

Shared by users: where the root directory's group or others may write, whatever is made in it may be
written and read as the root directory says, whatever the umask.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from cowfs import clock, config
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
)
from cowfs.format import keys
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, check_key
from cowfs.store.errors import from_os_error
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.streams import PIECE_BYTES

INCOMING = ".incoming"
# A writer needs seconds between creating and linking its file; one that sleeps longer gets ENOENT
# from link and tries again.
_SWEEP_AFTER_S = 3600.0
_DIRECT_FROM_BYTES = 1 << 20
_DIRECT_ALIGNMENT = 4096  # of memory, offset and length: what any disk is content with


class DirectoryStore:
    """Opens the store in `root`, which must exist. url is what `.url` answers."""

    def __init__(self, root: Path, *, url: str) -> None:
        self._root = root
        self._url = url
        self._known_directories: set[str] = set()
        self._shared_mode = _shared_mode(root)
        try:
            found = os.stat(root)
            self._place, self._opened = (found.st_dev, found.st_ino), self._record()
        except OSError as error:
            raise from_os_error(error, url) from error
        self._sweep()

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str) -> bytes:
        path = self._path(key)
        try:
            with open(path, "rb", buffering=0) as file:
                return _read_exactly(file.fileno(), os.fstat(file.fileno()).st_size, 0)
        except OSError as error:
            raise from_os_error(error, f"{self._url}: {key}") from error

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        path = self._path(key)
        try:
            with open(path, "rb", buffering=0) as file:
                data = _read_exactly(file.fileno(), length, offset)
        except OSError as error:
            raise from_os_error(error, f"{self._url}: {key}") from error
        if len(data) != length:
            raise CorruptError(
                f"{self._url}: {key} ends at byte {offset + len(data)}, bytes {offset} to {offset + length} were expected"
            )
        return data

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        path, end = self._path(key), offset + length
        try:
            with open(path, "rb", buffering=0) as file:
                buffer = memoryview(bytearray(min(length, PIECE_BYTES)))
                while offset < end and (count := os.preadv(file.fileno(), [buffer[: end - offset]], offset)):
                    offset += count
                    yield buffer[:count]
        except OSError as error:
            raise from_os_error(error, f"{self._url}: {key}") from error
        if offset < end:
            raise CorruptError(f"{self._url}: {key} ends at byte {offset}, bytes up to {end} were expected")

    def size(self, key: str) -> int | None:
        try:
            found = os.stat(self._path(key))
            return found.st_size if stat.S_ISREG(found.st_mode) else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise from_os_error(error, f"{self._url}: {key}") from error

    def put(self, key: str, data: Data) -> None:
        self._create(key, data, replace=True)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._create(key, data, replace=False)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        directory = prefix.rpartition("/")[0]
        found = self._walk(directory + "/" if directory else "", prefix, start_after)
        try:
            return builtins.list(islice(found, limit))
        except OSError as error:
            raise from_os_error(error, f"{self._url}: listing {prefix!r}") from error

    def delete(self, keys: Iterable[str]) -> None:
        parents = set()
        try:
            self._require_same()
        except OSError as error:
            raise from_os_error(error, self._url) from error
        for key in keys:
            path = self._path(key)
            try:
                os.unlink(path)
                parents.add(os.path.dirname(path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise from_os_error(error, f"{self._url}: deleting {key}") from error
        for parent in parents:
            _sync_directory(parent)

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass

    # -- writing

    def _require_same(self) -> None:
        """InvalidStateError: another store is there than the one that was opened, or none, as after
        a disk was changed. Nothing of ours may get into it, nor be missing where we think it is."""
        try:
            found = os.stat(self._root)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._gone() from error
        place = (found.st_dev, found.st_ino)
        if place == self._place:
            if self._opened is None:  # it was no store yet
                self._opened = self._record()
            return
        record = self._record()
        if self._opened is not None and record != self._opened:
            raise self._gone()
        self._place, self._opened = place, record

    def _gone(self) -> InvalidStateError:
        return InvalidStateError(
            f"{self._url} has not the store any more that was opened there",
            hint="Make that one available there again; uncommitted work is kept.",
        )

    def _record(self) -> bytes | None:
        """What the store says of itself; None: nothing yet."""
        try:
            return (self._root / keys.STORE).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _create(self, key: str, data: Data, *, replace: bool) -> None:
        path = self._path(key)
        where = f"{self._url}: {key}"
        try:
            self._require_same()
            if not replace and os.path.lexists(path):  # saves writing the bytes; link() below decides
                raise FileExistsError(errno.EEXIST, "exists", path)
            temporary = self._write_temporary(data)
            try:
                self._publish(temporary, path, replace=replace)
            finally:
                _unlink_quietly(temporary)
        except FileExistsError as error:
            if replace:
                raise from_os_error(error, where) from error
            # Whoever created it may have died before its fsync; what we report as existing must
            # stay.
            _sync_directory(os.path.dirname(path))
            raise ConflictError(f"{where} exists already", details={"key": key}) from error
        except (NotADirectoryError, IsADirectoryError) as error:
            raise InvalidInputError(
                f"{where}: a key of this store cannot be an object and a directory of objects", hint="Use another name."
            ) from error
        except OSError as error:
            raise from_os_error(error, where) from error

    def _write_temporary(self, data: Data) -> str:
        incoming = self._root / INCOMING
        path = str(incoming / clock.random_bytes(16).hex())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o666)
        except FileNotFoundError:
            with suppress(FileExistsError):
                self._make(str(incoming))
            fd = os.open(path, flags, 0o666)
        try:
            if self._shared_mode:
                os.fchmod(fd, self._shared_mode & 0o666)
            _write_all(fd, memoryview(data))
            os.fsync(fd)
        except BaseException:
            _unlink_quietly(path)
            raise
        finally:
            os.close(fd)
        return path

    def _publish(self, temporary: str, path: str, *, replace: bool) -> None:
        parent = os.path.dirname(path)
        try:
            self._make_directory(parent)
            self._name(temporary, path, replace=replace)
        except FileNotFoundError:  # somebody removed the directory since we last saw it, or swept our file
            self._known_directories.clear()
            self._make_directory(parent)
            self._name(temporary, path, replace=replace)
        _sync_directory(parent)

    def _name(self, temporary: str, path: str, *, replace: bool) -> None:
        if replace:
            os.rename(temporary, path)
            return
        try:
            os.link(temporary, path, follow_symlinks=False)
        except OSError as error:
            # NFS: the reply was lost and the repeated request failed, although the first one did
            # the work.
            if _link_count(temporary) == 2:
                return
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
                raise InvalidInputError(
                    f"{self._url}: this file system has no hard links, so objects cannot be created atomically",
                    hint="Place the store on a local file system such as ext4 or xfs.",
                ) from error
            raise

    def _make_directory(self, path: str) -> None:
        """Creates path and its missing parents; each directory this process has not seen yet is
        fsynced into its parent."""
        if path in self._known_directories or path == str(self._root):
            return
        parent = os.path.dirname(path)
        self._make_directory(parent)
        try:
            self._make(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, "an object is in the way", path) from None
        _sync_directory(parent)
        self._known_directories.add(path)

    def _make(self, path: str) -> None:
        os.mkdir(path)
        if self._shared_mode:
            os.chmod(path, self._shared_mode)

    def _sweep(self) -> None:
        """Removes what crashed writers left behind. Best effort: the store may be read-only or
        somebody else's."""
        oldest_ns = clock.now_ns() - int(_SWEEP_AFTER_S * 1e9)
        try:
            with os.scandir(self._root / INCOMING) as entries:
                for entry in entries:
                    if entry.stat(follow_symlinks=False).st_mtime_ns < oldest_ns:
                        _unlink_quietly(entry.path)
        except OSError:
            return

    # -- reading

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}"

    def _walk(self, directory: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Objects below `directory` (a key prefix that is empty or ends in '/') in key order, one
        directory at a time. Where one goes meanwhile its directory is read again: what took its
        place may be new (`refs`)."""
        behind = gone = ""  # the last key that was dealt with, and the last that was not there any more
        while True:
            try:
                with os.scandir(f"{self._root}/{directory}") as entries:
                    names = sorted(entry.name + "/" if entry.is_dir() else entry.name for entry in entries)
            except (FileNotFoundError, NotADirectoryError):
                return
            for name in names:
                key = directory + name
                if key <= behind:
                    continue
                if name.endswith("/"):
                    overlaps = key.startswith(prefix) or prefix.startswith(key)
                    all_before = key < start_after and not start_after.startswith(key)
                    if overlaps and not all_before and key != INCOMING + "/":
                        yield from self._walk(key, prefix, start_after)
                elif key.startswith(prefix) and key > start_after:
                    try:
                        found = os.stat(f"{self._root}/{key}")
                    except FileNotFoundError:
                        if key == gone:
                            continue  # a symbolic link to nowhere
                        gone = key
                        break
                    yield ObjectInfo(key, found.st_size, found.st_mtime_ns)
                behind = key
            else:
                return


def create_root(root: Path, *, url: str) -> None:
    """Makes the directory of a store and its missing parents, durably. Below the user's data
    directory they are the user's alone, as XDG has it."""
    mode = 0o700 if config.is_in_data_dir(root) else 0o777
    try:
        missing = [path for path in (root, *root.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(mode, exist_ok=True)
            _sync_directory(str(path.parent))
        if not root.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(root))
    except FileNotFoundError as error:  # a file system that takes no directories, as /proc
        raise AccessDeniedError(
            f"there can be no store at {url}: {error.filename} cannot be made", hint="Choose another place."
        ) from error
    except (NotADirectoryError, FileExistsError) as error:
        raise _no_directory(root, url) from error
    except OSError as error:
        raise from_os_error(error, url) from error


def _no_directory(root: Path, url: str) -> InvalidInputError:
    found = next(path for path in (root, *root.parents) if os.path.lexists(path))
    return InvalidInputError(
        f"there can be no store at {url}: {found} is not a directory",
        hint="Give a directory, or a path where one can be made.",
    )


def _shared_mode(root: Path) -> int:
    """Permissions of directories in a store whose root others may write to; 0: the umask says. Not
    the sticky bit, with which they could not replace each other's objects."""
    try:
        mode = os.stat(root).st_mode
    except OSError:  # whoever uses the store is told
        return 0
    return mode & 0o2777 if mode & 0o022 else 0


def open_root(root: Path, *, url: str) -> None:
    """Checks that the directory of a store is there."""
    try:
        with os.scandir(root):
            pass
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no store at {url}: {root} does not exist",
            hint="Check the path, or make a volume there first: `cowfs create NAME --store URL`, or Volume.new(NAME, store=URL).mount().",
        ) from None
    except NotADirectoryError as error:
        raise _no_directory(root, url) from error
    except OSError as error:
        raise from_os_error(error, url) from error


def _read_exactly(fd: int, length: int, offset: int) -> bytes:
    """Up to length bytes from offset; fewer only at the end of the file."""
    data = os.pread(fd, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    done = len(data)
    while done < length and (data := os.pread(fd, length - done, offset + done)):
        parts.append(data)
        done += len(data)
    return b"".join(parts)


def _write_all(fd: int, data: memoryview) -> None:
    """To a file that was opened for writing, at its beginning."""
    if len(data) >= _DIRECT_FROM_BYTES:
        data = data[_write_direct(fd, data[: len(data) - len(data) % _DIRECT_ALIGNMENT]) :]
    while data:
        data = data[os.write(fd, data) :]


def _write_direct(fd: int, data: memoryview) -> int:
    """Bytes that could be written past the page cache."""
    flags, done = fcntl.fcntl(fd, fcntl.F_GETFL), 0
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        while done < len(data):
            done += os.write(fd, data[done:])
    except OSError as error:
        if error.errno != errno.EINVAL:  # the file system, or the memory, is not made for it
            raise
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
    return done


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems do not sync directories, and need not
            raise
    finally:
        os.close(fd)


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # renamed away, or left to the sweep


def _link_count(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_nlink
    except OSError:
        return 0
