"""Any other fsspec file system as an object store: memory://, http(s):// to read, and all other
installed ones. Google's and Azure's stores are `cloud`, which is built on this.

It uses fsspec's own file calls. A list walks directories in the order of keys, and only those that
can hold a matching key: the first key of a volume costs one listing per level, however many objects
there are. The guarantee of put_if_absent depends on the file system (`pipe_file(mode="create")`);
the probe tests it. memory:// is one store per process, where a lock makes put_if_absent exact.
http(s) has no usable lists: InvalidInputError; refs are then probed by number.

The file system's package finds credentials by itself, unless an identity gives them: then a new
file system is made each time they change. Its listings cache is off. An untrusted server (`trust`)
gets nothing of fsspec's configuration, which may hold headers and passwords. `backend_errors` maps
errors, and they are not chained: exceptions of libraries may carry requests.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import fsspec
import fsspec.config
from fsspec import AbstractFileSystem

from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
)
from cowfs.base.fork_locks import ForkLock
from cowfs.base.redaction import describe_error
from cowfs.format import object_kinds
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.backend_errors import CREDENTIALS_HINT, from_foreign_error, refused_anonymously
from cowfs.store.backends.imports import package_missing
from cowfs.store.contract import AcceptsSize, Data, ObjectInfo, ObjectStore, check_key, nanoseconds
from cowfs.store.credentials.identity import AMBIENT, Access, Credentials, Refusal
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.streams import RANGE_BYTES

S = TypeVar("S", bound="FsspecStore")
T = TypeVar("T")

_MODIFIED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_memory_lock = ForkLock()
_configuration_lock = ForkLock()


def open_fsspec_store(place: StoreUrl, *, create: bool, access: Access, untrusted_server: str | None) -> ObjectStore:
    return open_through_fsspec(FsspecStore, place, access, untrusted_server)


def open_memory_store(place: StoreUrl, *, create: bool, access: Access, untrusted_server: str | None) -> ObjectStore:
    return open_through_fsspec(partial(FsspecStore, exclusive=_memory_lock), place, access, untrusted_server)


def open_http_store(place: StoreUrl, *, create: bool, access: Access, untrusted_server: str | None) -> ObjectStore:
    return ReadOnlyStore(open_through_fsspec(partial(FsspecStore, can_list=False), place, access, untrusted_server))


def open_through_fsspec(
    kind: Callable[..., S],
    place: StoreUrl,
    access: Access,
    untrusted_server: str | None,
    find_class: Callable[[str], type[AbstractFileSystem]] = fsspec.get_filesystem_class,
) -> S:
    """A store of this class at `place`, with the options that its file system takes from the URL.
    find_class: the file system of a protocol; that of fsspec's registry may be another one than a
    backend is written for, since other libraries exchange it (Flyte does). InvalidInputError:
    fsspec has no such protocol, or its package is not installed."""
    url = str(place)
    plain = f"{place.protocol}://{place.authority}/{place.path}".rstrip("/")
    try:
        cls = find_class(place.protocol)
    except ImportError as error:
        raise package_missing(place, error) from error
    except (ValueError, AttributeError) as error:  # AttributeError: the package no longer has that class
        raise InvalidInputError(
            f"{url}: there is no store protocol {place.protocol!r}",
            hint="Use file:///DIRECTORY, s3://BUCKET/PREFIX, or another protocol that an fsspec package provides.",
        ) from error
    try:
        return kind(
            place.protocol,
            root=cls._strip_protocol(plain).rstrip("/"),
            url=url,
            options=cls._get_kwargs_from_urls(plain),
            untrusted_server=untrusted_server,
            access=access,
        )
    except CowfsError:
        raise
    except Exception as error:  # noqa: BLE001 - a foreign class, which may need more than a URL
        raise InvalidInputError(
            f"{url} cannot be opened as a store: {describe_error(error)}",
            hint="Use file:///DIRECTORY, s3://BUCKET/PREFIX, or another object store.",
        ) from None


class FsspecStore:
    """The files below `root` (a path as the file system writes it, without '/' at its end)."""

    def __init__(
        self,
        protocol: str,
        *,
        root: str,
        url: str,
        options: dict[str, Any] | None = None,
        untrusted_server: str | None = None,
        access: Access = AMBIENT,
        credentials_hint: str = CREDENTIALS_HINT,
        exclusive: AbstractContextManager[object] | None = None,
        can_list: bool = True,
    ) -> None:
        """options: what the file system takes from the URL. untrusted_server: the URL's server,
        when it may see no credentials of the environment. exclusive: held during each call."""
        self._credentials_hint = credentials_hint
        self._protocol = protocol
        self._root = root
        self._url = url
        self._can_list = can_list
        self._untrusted_server = untrusted_server
        self._exclusive = exclusive or nullcontext()
        self._options = options or {}
        self._identity = access.identity
        self._lock = threading.Lock()  # guards the next two; never held during a request
        self._made_for: Credentials | None = None
        self._made = None if access.identity is not None else self._make(None)

    @property
    def _file_system(self) -> AbstractFileSystem:
        """The one of the credentials that are in use now."""
        if self._identity is None:
            return self._made
        newest = self._identity.newest
        with self._lock:
            if self._made_for is None or not self._made_for.is_same(newest):
                self._made, self._made_for = self._make(newest), newest
            return self._made

    def _make(self, given: Credentials | None) -> AbstractFileSystem:
        with _without_configuration() if self._untrusted_server or given else nullcontext():
            return self._attempt("", lambda: self._open(given))

    def _open(self, given: Credentials | None) -> AbstractFileSystem:
        return fsspec.get_filesystem_class(self._protocol)(
            use_listings_cache=False, skip_instance_cache=True, **self._options
        )

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str) -> bytes:
        path, accepts = self._path(key), partial(object_kinds.check_read, key, url=self._url)
        return self._call(key, lambda: self._read_whole(path, accepts))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        path = self._path(key)
        data = self._call(key, lambda: self._read(path, offset, length)) if length else b""
        if len(data) != length:
            raise CorruptError(f"{self._url}: {key} gave {len(data)} bytes at {offset}, {length} were expected")
        return data

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        path, end = self._path(key), offset + length
        while offset < end:
            part = min(RANGE_BYTES, end - offset)
            data = self._call(key, partial(self._read, path, offset, part))
            if data:
                yield data
            offset += len(data)
            if len(data) != part:
                raise CorruptError(f"{self._url}: {key} ends at byte {offset}, bytes up to {end} were expected")

    def size(self, key: str) -> int | None:
        path = self._path(key)
        try:
            info = self._call(key, lambda: self._file_system.info(path))
        except NotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" and info["size"] is not None else None

    def put(self, key: str, data: Data) -> None:
        self._write(key, data, is_new=False)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._write(key, data, is_new=True)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        if not self._can_list:
            raise InvalidInputError(
                f"{self._url} cannot be listed",
                hint="Over http, versions are read by their locators; nothing else works.",
            )
        directory = prefix.rpartition("/")[0]
        return builtins.list(islice(self._walk(directory, prefix, start_after), limit))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            try:
                self._call(key, lambda path=path: self._remove(path))  # type: ignore[misc]
            except NotFoundError:
                continue

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass

    def _read_whole(self, path: str, accepts: AcceptsSize) -> bytes:
        """Of HTTP in one request, whose error says more than a look's. Elsewhere a look goes
        before, since what fsspec reads has no limit."""
        if self._file_system.protocol == ("http", "https"):
            from cowfs.store.backends.cloud.bodies import get_whole

            return get_whole(self._file_system, path, accepts)
        accepts(self._file_system.info(path).get("size") or 0)
        data = self._read(path)
        accepts(len(data))
        return data

    def _read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        span = {} if length is None else {"start": offset, "end": offset + length}
        data: bytes = self._file_system.cat_file(path, **span)
        return data

    def _remove(self, path: str) -> None:
        self._file_system.rm_file(path)

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}"

    def _walk(self, directory: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Files below a directory in the order of their keys. Directories that cannot hold a
        matching key are not listed."""
        try:
            entries = self._call(
                directory, lambda: self._file_system.ls(f"{self._root}/{directory}".rstrip("/"), detail=True)
            )
        except NotFoundError:
            return
        found = []
        for info in entries:
            key = info["name"].rstrip("/").removeprefix(self._root).lstrip("/")
            if key != directory:  # some list a directory, or its marker, in itself
                found.append((key if info["type"] == "file" else f"{key}/", info))
        for key, info in sorted(found, key=lambda entry: entry[0]):
            if info["type"] == "file":
                if key.startswith(prefix) and key > start_after:
                    yield ObjectInfo(key, int(info["size"]), _mtime_ns(info))
            elif (key.startswith(prefix) or prefix.startswith(key)) and (
                key > start_after or start_after.startswith(key)
            ):
                yield from self._walk(key[:-1], prefix, start_after)

    def _call(self, key: str, call: Callable[[], T]) -> T:
        if self._identity is None:
            return self._attempt(key, call)
        return self._identity.run(lambda _: self._attempt(key, call), _refusal_of)

    def _attempt(self, key: str, call: Callable[[], T]) -> T:
        where = f"{self._url}: {key}" if key else self._url
        try:
            with self._exclusive:
                return call()
        except CowfsError:
            raise
        except Exception as error:
            if (found := from_foreign_error(error, where)) is None:
                raise
        if found.hint == CREDENTIALS_HINT:
            found.set_hint(self._credentials_hint)
        if self._untrusted_server and found.kind == "access_denied":
            found = refused_anonymously(found, self._untrusted_server)
        raise found

    def _write(self, key: str, data: Data, *, is_new: bool) -> None:
        path = self._path(key)

        def write() -> None:
            if parent := path.rpartition("/")[0]:
                self._file_system.makedirs(parent, exist_ok=True)
            try:
                self._file_system.pipe_file(path, bytes(data), mode="create" if is_new else "overwrite")
            except FileExistsError:
                raise key_taken(self._url, key) from None

        try:
            self._call(key, write)
        except NotFoundError as error:
            raise no_bucket(self._url, error) from None


def key_taken(url: str, key: str) -> ConflictError:
    return ConflictError(f"{url}: {key} exists already", details={"key": key})


def no_bucket(url: str, error: NotFoundError) -> NotFoundError:
    return NotFoundError(
        f"{url}: there is no such bucket or container",
        hint="Create it first, or correct its name in the store's URL.",
        details={**error.details, "code": "NoSuchBucket"},
    )


def _refusal_of(error: CowfsError) -> Refusal | None:
    if not isinstance(error, AccessDeniedError):
        return None
    is_known = error.details.get("status") == 403 and error.details.get("code") != "AuthenticationFailed"
    return "denied" if is_known else "expired"


@contextmanager
def _without_configuration() -> Iterator[None]:
    """fsspec's own configuration (files, FSSPEC_ variables) is not applied to file systems made
    inside."""
    with _configuration_lock:
        saved = dict(fsspec.config.conf)
        fsspec.config.conf.clear()
        try:
            yield
        finally:
            fsspec.config.conf.update(saved)


def _mtime_ns(info: dict[str, Any]) -> int:
    """0 where the file system does not say."""
    for name in _MODIFIED:
        value = info.get(name)
        if isinstance(value, (datetime, int, float)):
            return nanoseconds(value)
    return 0
