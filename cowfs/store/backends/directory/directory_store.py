"""Objects as files below a local directory: the backend of `file://` stores. Ours, because fsspec's
create is a race.

    <root>/<key>              an object, complete and durable
    <root>/.incoming/<name>   an object on its way (`incoming`); ignored by every reading call

    put             temporary file → fsync → rename over the key → fsync of the directory
    put_if_absent   temporary file → fsync → link(), which fails if the key exists → fsync of the directory

Guarantees: an object is visible whole or not at all, also after a power cut; of any number of
processes that create one key exactly one succeeds (link is atomic, on NFS too, where the link count
tells whether a failed reply was a success); a call that finds an object makes its name durable
before it says so (ConflictError is proof, even if the creator died before its fsync). A new
directory is fsynced into its parent before anything in it is acknowledged.

The tree may belong to another user, so every path below the root is opened beneath it (`beneath`).
Links below the root are not followed. An entry of another kind than cowfs makes at that key is
CorruptError, in lists too: it makes nothing look absent (`strange_entries`). Each call opens the
root by its path, which may lead through links, so that a store keeps no file system busy. It then
stays with what it opened.

Refuses: file systems without hard links (put_if_absent), a key that is a directory of other keys.
Empty directories stay. A store neither reads nor changes another store that took the place of the
one that was opened. Threads: no lock is held during I/O; the set of known directories only ever
grows, a stale member costs one retry.

Shared by users: where the root directory's group or others may write, new entries get the root
directory's permissions, regardless of the umask.
"""

from __future__ import annotations

import builtins
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from cowfs.base import beneath, config
from cowfs.base.beneath import DIRECTORY, Root
from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    UnavailableError,
)
from cowfs.base.fork_locks import ForkLock
from cowfs.base.hints import Command
from cowfs.format import keys, object_kinds
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.backend_errors import from_os_error
from cowfs.store.backends.directory import strange_entries
from cowfs.store.backends.directory.incoming import INCOMING, Incoming
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, check_key
from cowfs.store.credentials.identity import Access
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.streams import PIECE_BYTES

_TRIES = 5  # of a put whose file or directory is removed under it


def open_directory_store(
    place: StoreUrl, *, create: bool, access: Access, untrusted_server: str | None
) -> DirectoryStore:
    root, url = Path("/" + place.path), str(place)
    if create:
        create_root(root, url=url)
    open_root(root, url=url)
    return DirectoryStore(root, url=url)


class DirectoryStore:
    """Opens the store in `root`, which must exist. url is what `.url` answers."""

    def __init__(self, root: Path, *, url: str) -> None:
        self._path = root
        self._url = url
        self._known_directories: set[str] = set()
        self._comparing = ForkLock()
        try:
            with Root.open(root) as opened:
                found = os.fstat(opened.fileno())
                self._place, self._record = (found.st_dev, found.st_ino), self._read_record(opened)
        except OSError as error:
            raise from_os_error(error, url) from error
        self._incoming = Incoming(_find_shared_mode(found))

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str) -> bytes:
        with self._open_root_for(key) as root:
            return root.read(key, limit_bytes=object_kinds.largest_read(key))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        object_kinds.check_read(key, length, url=self._url)
        with self._open_root_for(key) as root:
            fd = root.open_file(key)
            try:
                present = max(0, min(length, os.fstat(fd).st_size - offset))
                data = _read_exactly(fd, present, offset)
            finally:
                os.close(fd)
        if len(data) != length:
            raise CorruptError(
                f"{self._url}: {key} ends at byte {offset + len(data)}, bytes {offset} to {offset + length} were expected"
            )
        return data

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        end = offset + length
        with self._open_root_for(key) as root:
            fd = root.open_file(key)
        try:
            buffer = memoryview(bytearray(min(length, PIECE_BYTES)))
            while offset < end and (count := os.preadv(fd, [buffer[: end - offset]], offset)):
                offset += count
                yield buffer[:count]
        except OSError as error:
            raise from_os_error(error, f"{self._url}: {key}") from error
        finally:
            os.close(fd)
        if offset < end:
            raise CorruptError(f"{self._url}: {key} ends at byte {offset}, bytes up to {end} were expected")

    def size(self, key: str) -> int | None:
        try:
            with self._open_root_for(key) as root, root.parent(key) as (parent, name):
                found = _object(parent, name)
        except NotFoundError:
            return None
        return None if found is None else found.st_size

    def put(self, key: str, data: Data) -> None:
        self._create(key, data, replace=True)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._create(key, data, replace=False)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        directory = prefix.rpartition("/")[0]
        with self._same_root() as root, self._translate_errors(root, directory):
            found = self._walk(root, directory + "/" if directory else "", prefix, start_after)
            return builtins.list(islice(found, limit))

    def delete(self, keys: Iterable[str]) -> None:
        above = set()
        with self._same_root() as root:
            for key in keys:
                check_key(key)
                try:
                    with self._translate_errors(root, key), root.parent(key) as (parent, name):
                        _object(parent, name)
                        os.unlink(name, dir_fd=parent)
                    above.add(key.rpartition("/")[0])
                except NotFoundError:
                    continue
            for each in above:
                with self._translate_errors(root, each):
                    root.sync_directory(each)

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        """Nothing is held open."""

    # -- opening

    @contextmanager
    def _open_root_for(self, key: str) -> Iterator[Root]:
        """The root, for a call about `key`, whose OSErrors become ours."""
        check_key(key)
        with self._same_root() as root:
            try:
                yield root
            except OSError as error:
                raise self._error(error, root, key) from error

    def _same_root(self) -> Root:
        """InvalidStateError: another store than the opened one is there, or none, as after a disk
        was changed. Our objects must not get into it, and an object that is missing there must
        not count as absent."""
        try:
            root = Root.open(self._path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._store_gone() from error
        except OSError as error:
            raise from_os_error(error, self._url) from error
        try:
            found = os.fstat(root.fileno())
            place = (found.st_dev, found.st_ino)
            if place != self._place or self._record is None:
                self._compare(root, place)
        except BaseException:
            root.close()
            raise
        return root

    def _compare(self, root: Root, place: tuple[int, int]) -> None:
        with self._comparing:  # another thread may find the record of a store that is being made
            record = self._read_record(root)
            if self._record is not None and record != self._record:
                raise self._store_gone()
            if place != self._place:
                self._known_directories.clear()
            self._place, self._record = place, record

    def _store_gone(self) -> InvalidStateError:
        return InvalidStateError(
            f"{self._url} has not the store any more that was opened there",
            hint="Make that one available there again; uncommitted work is kept.",
        )

    def _read_record(self, root: Root) -> bytes | None:
        """What the store says of itself; None: nothing yet."""
        try:
            return root.read(keys.STORE, limit_bytes=object_kinds.largest_read(keys.STORE))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(error, root, keys.STORE) from error

    @contextmanager
    def _translate_errors(self, root: Root, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(error, root, key) from error

    def _error(self, error: OSError, root: Root, key: str) -> CowfsError:
        if isinstance(error, beneath.UnexpectedEntry) and error.errno == errno.EFBIG:
            return object_kinds.too_large(key, str(error.strerror), url=self._url)
        return strange_entries.explain(error, root, key, url=self._url) or from_os_error(error, f"{self._url}: {key}")

    # -- writing

    def _create(self, key: str, data: Data, *, replace: bool) -> None:
        above, _, name = key.rpartition("/")
        with self._open_root_for(key) as root:
            for _ in range(_TRIES):
                try:
                    with self._ensure_directory(root, above) as parent:
                        return self._publish(root, data, parent, name, key, replace=replace)
                except FileNotFoundError:  # our file was swept, or a directory removed that this process has seen
                    self._known_directories.clear()
                except OSError as error:
                    if error.errno == errno.EXDEV:
                        raise InvalidInputError(
                            f"{self._url}: {key} lies on another file system than {INCOMING}, so nothing can be put there",
                            hint="A store is written on one file system; parts that are mounted into it can only be read.",
                        ) from error
                    if error.errno not in (errno.ENOTDIR, errno.EISDIR, errno.ELOOP):
                        raise
                    raise strange_entries.explain(error, root, key, INCOMING, url=self._url) or InvalidInputError(
                        f"{self._url}: {key}: a key of this store cannot be an object and a directory of objects",
                        hint="Use another name.",
                    ) from error
        raise UnavailableError(
            f"{self._url}: {key}: new files in {INCOMING}, or directories of the store, are removed at once",
            hint="Stop the program that removes them, and try again; nothing is lost.",
        )

    def _publish(self, root: Root, data: Data, parent: int, name: str, key: str, *, replace: bool) -> None:
        if _object(parent, name) is not None and not replace:  # saves writing the bytes; link() below decides
            raise self._exists(parent, key)
        with self._incoming.write(root, data) as (incoming, temporary):
            if replace:
                os.rename(temporary, name, src_dir_fd=incoming, dst_dir_fd=parent)
            else:
                try:
                    self._link(incoming, temporary, parent, name)
                except FileExistsError as error:
                    raise self._exists(parent, key) from error
        beneath.sync(parent)

    def _exists(self, parent: int, key: str) -> ConflictError:
        """The creator may have died before its fsync; an object that is reported as existing must
        stay."""
        beneath.sync(parent)
        return ConflictError(f"{self._url}: {key} exists already", details={"key": key})

    def _link(self, incoming: int, temporary: str, parent: int, name: str) -> None:
        try:
            os.link(temporary, name, src_dir_fd=incoming, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            # NFS: the reply was lost and the repeated request failed, although the first one did
            # the work.
            if _link_count(incoming, temporary) == 2:
                return
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
                raise InvalidInputError(
                    f"{self._url}: this file system has no hard links, so objects cannot be created atomically",
                    hint="Place the store on a local file system such as ext4 or xfs.",
                ) from error
            raise

    @contextmanager
    def _ensure_directory(self, root: Root, path: str) -> Iterator[int]:
        """A descriptor of the directory `path`, made with its missing parents."""
        self._make_directory(root, path)
        fd = root.open_fd(path, DIRECTORY)
        try:
            yield fd
        finally:
            os.close(fd)

    def _make_directory(self, root: Root, path: str) -> None:
        """Each directory this process has not seen yet is fsynced into its parent."""
        if not path or path in self._known_directories:
            return
        above = path.rpartition("/")[0]
        self._make_directory(root, above)
        self._incoming.make_directory(root, path)
        root.sync_directory(above)
        self._known_directories.add(path)

    # -- reading

    def _walk(self, root: Root, directory: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Objects below `directory` (a key prefix that is empty or ends in '/') in key order, one
        directory at a time. Where one goes meanwhile its directory is read again: what took its
        place may be new (`refs`)."""
        behind = gone = ""  # the last key that was dealt with, and the last that was not there any more
        while True:
            if (fd := self._open_listed(root, directory)) is None:
                return
            try:
                for name in _names(fd):
                    key = directory + name
                    if key <= behind or key.startswith("."):
                        continue
                    if name.endswith("/"):
                        overlaps = key.startswith(prefix) or prefix.startswith(key)
                        all_before = key < start_after and not start_after.startswith(key)
                        if overlaps and not all_before:
                            yield from self._walk(root, key, prefix, start_after)
                    elif key.startswith(prefix) and key > start_after:
                        try:
                            info = self._look(fd, name, key)
                        except FileNotFoundError:
                            if key == gone:
                                continue
                            gone = key
                            break
                        if info is not None:
                            yield info
                    behind = key
                else:
                    return
            finally:
                os.close(fd)

    def _open_listed(self, root: Root, directory: str) -> int | None:
        """None: it does not exist, and so no key below it."""
        path = directory.rstrip("/")
        try:
            fd = root.open_fd(path, DIRECTORY)
        except OSError as error:
            if isinstance(found := self._error(error, root, path), NotFoundError):
                return None
            raise found from error
        if object_kinds.is_object(path):
            os.close(fd)
            raise strange_entries.strange(path, stat.S_IFDIR, self._url)
        return fd

    def _look(self, directory: int, name: str, key: str) -> ObjectInfo | None:
        """None: it is no object, and nothing that cowfs could miss."""
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if strange_entries.is_strange(key, found.st_mode):
            raise strange_entries.strange(key, found.st_mode, self._url)
        return ObjectInfo(key, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _names(directory: int) -> builtins.list[str]:
    """In the order of keys."""
    with os.scandir(directory) as entries:
        return sorted(entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in entries)


def _object(parent: int, name: str | bytes) -> os.stat_result | None:
    """None: nothing is there. OSError: something that is not an object."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
        raise beneath.UnexpectedEntry(number, beneath.kind(found.st_mode), name)
    return found


def _link_count(directory: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_nlink
    except OSError:
        return 0


def _find_shared_mode(root: os.stat_result) -> int:
    """Permissions of directories in a store whose root others may write to; 0: the umask decides.
    Not the sticky bit, with which they could not replace each other's objects."""
    return root.st_mode & 0o2777 if root.st_mode & 0o022 else 0


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


def open_root(root: Path, *, url: str) -> None:
    """Checks that the directory of a store is there."""
    try:
        with os.scandir(root):
            pass
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no store at {url}: {root} does not exist",
            hint=f"Check the path, or make a volume there first: {Command('create', 'NAME', '--store', 'URL')}, or "
            "Volume.new(NAME, store=URL).mount().",
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


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems do not sync directories, and need not
            raise
    finally:
        os.close(fd)
