"""The plain objects of a store, for programs that need them besides volumes, from the same bucket
and with the same credentials.

    with storage.R2("data", account_id="…") as s:
        s.upload("model.bin", "models/model.bin")
        s.download("models/model.bin", "copy.bin")

Keys are relative to the store's prefix. An upload is one request, so the object appears whole or
not at all. The file is held in memory meanwhile, and is limited to MOST_BYTES. A download is
fetched in pieces, all of one state of the object (`store.origin`), into a file beside the target.
When complete, that file replaces the target and takes over its permissions. These objects are not
the files of volumes, and nothing here prevents a program from deleting a volume's objects.

Concurrent blocks of one `Storage` share its connections, which end with the last of the blocks.
"""

from __future__ import annotations

import os
import stat
import tempfile
from functools import partial
from pathlib import Path

from cowfs.api.storage.definition import Storage
from cowfs.api.storage.resolving import access
from cowfs.api.twins.threads import in_thread
from cowfs.base.errors import InvalidInputError, NotFoundError, SourceChangedError, UnavailableError, from_local_disk
from cowfs.base.fork_locks import ForkLock
from cowfs.format.store_url import StoreUrl
from cowfs.machine import proc
from cowfs.store import ObjectInfo, open_store
from cowfs.store.contract import check_key
from cowfs.store.origin import OriginObject, open_origin
from cowfs.store.origin.contract import Origin
from cowfs.store.origin.directory import DirectoryOrigin
from cowfs.store.origin.open_origin import RepeatingOrigin

MOST_BYTES = 5 << 30
"""The limit of S3 for one request."""
PIECE_BYTES = 16 << 20

_lock = ForkLock()
_open: dict[tuple[int, Storage], _Place] = {}


class _Place:
    """The state shared by the blocks of one `Storage`."""

    def __init__(self, storage: Storage) -> None:
        self._access = access(storage)
        self.store = open_store(storage.url, create=True, access=self._access)
        self._origin: RepeatingOrigin | None = None
        self.users = 0

    def origin_of(self, key: str) -> tuple[Origin, str]:
        """The origin of an object, and its key there. Links of a directory are followed, as
        everywhere else here."""
        if (url := StoreUrl.parse(self.store.url)).protocol == "file":
            path = Path(os.path.realpath(f"/{url.path}/{key}"))  # Path.resolve fails where links go in circles
            return DirectoryOrigin(path.parent, url=self.store.url), path.name
        with _lock:
            if self._origin is None:
                self._origin = open_origin(self.store.url, access=self._access)
            return self._origin, key

    def close(self) -> None:
        self.store.close()
        if self._origin is not None:
            self._origin.close()


class Objects:
    """Blocking; any thread may call. Every call raises AccessDeniedError, UnavailableError and
    NotFoundError (no such bucket, or object)."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._store = place.store

    def upload(self, src: str | os.PathLike[str], key: str) -> None:
        """Stores a file's bytes as a whole object, replacing an existing one."""
        try:
            with open(src, "rb") as file:
                if (size := os.fstat(file.fileno()).st_size) > MOST_BYTES:
                    raise InvalidInputError(
                        f"{os.fspath(src)} has {size} bytes, and one request takes {MOST_BYTES}",
                        hint="Put it into a volume, or use the provider's own tool.",
                    )
                data = file.read()
        except FileNotFoundError as error:
            raise NotFoundError(f"{os.fspath(src)} does not exist") from error
        except OSError as error:
            raise from_local_disk(
                error, f"{os.fspath(src)} cannot be read", elsewhere="choose another file."
            ) from error
        self._store.put(key, data)

    def download(self, key: str, dst: str | os.PathLike[str]) -> Path:
        """Writes an object's bytes into a file and returns its path. If dst is a directory, the
        file gets the last part of the key as its name. UnavailableError: the object was replaced
        meanwhile. InvalidInputError: dst is a device or another special file."""
        target = Path(dst)
        if target.is_dir():
            target = target / key.rpartition("/")[2]
        check_key(key)
        origin, name = self._place.origin_of(key)
        try:
            if (found := origin.look(name)) is None:
                raise NotFoundError(f"{self._store.url}: {key} does not exist", hint="ls() shows what there is.")
            _fetch(origin, found, target)
        except SourceChangedError:
            raise UnavailableError(
                f"{self._store.url}: {key} was replaced while it was fetched", hint="Try again."
            ) from None
        except OSError as error:
            raise from_local_disk(error, f"{target} cannot be written", elsewhere="choose another file.") from error
        return target

    def ls(self, prefix: str = "") -> list[ObjectInfo]:
        """The objects whose keys begin with prefix, by key: key, size, mtime_ns. Costs one request
        per thousand objects."""
        return self._store.list(prefix)

    def exists(self, key: str) -> bool:
        return self._store.size(key) is not None

    def rm(self, key: str) -> None:
        """Deletes an object. A missing object is no error."""
        self._store.delete([key])


class AsyncObjects:
    """As `Objects`, awaited."""

    def __init__(self, blocking: Objects) -> None:
        self._blocking = blocking

    async def upload(self, src: str | os.PathLike[str], key: str) -> None:
        await in_thread(self._blocking.upload, src, key)

    async def download(self, key: str, dst: str | os.PathLike[str]) -> Path:
        return await in_thread(self._blocking.download, key, dst)

    async def ls(self, prefix: str = "") -> list[ObjectInfo]:
        return await in_thread(partial(self._blocking.ls, prefix))

    async def exists(self, key: str) -> bool:
        return await in_thread(self._blocking.exists, key)

    async def rm(self, key: str) -> None:
        await in_thread(self._blocking.rm, key)


def opened(storage: Storage) -> Objects:
    """The objects for a block, which `release` ends. No request is made yet."""
    key = (os.getpid(), storage)
    with _lock:
        if (place := _open.get(key)) is None:
            place = _open[key] = _Place(storage)
        place.users += 1
    return Objects(place)


def release(storage: Storage) -> None:
    key = (os.getpid(), storage)
    with _lock:
        place = _open[key]
        place.users -= 1
        if place.users:
            return
        del _open[key]
    place.close()


def _fetch(origin: Origin, found: OriginObject, target: Path) -> None:
    mode = _mode_for(target)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name[:100]}.", delete=False) as file:
        try:
            for start in range(0, found.size, PIECE_BYTES):
                file.write(origin.read(found, start, min(PIECE_BYTES, found.size - start)))
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.fileno(), mode)
            os.replace(file.name, target)
        except BaseException:
            os.unlink(file.name)
            raise


def _mode_for(target: Path) -> int:
    """Permissions for a file that replaces this path."""
    try:
        there = target.lstat()
    except FileNotFoundError:
        return 0o666 & ~_umask()
    if stat.S_ISLNK(there.st_mode):
        return 0o666 & ~_umask()
    if not stat.S_ISREG(there.st_mode):
        raise InvalidInputError(f"{target} is no file", hint="Choose another name.")
    return there.st_mode & 0o777


def _umask() -> int:
    """The umask of this process, which can only be read by setting it."""
    with proc.require_readable():
        text = Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("Umask:")).split()[1], 8)
