"""Any other fsspec file system as an object store: gs:// and abfs://, memory://, http(s):// to
read, and whatever else is installed.

Of Google's and Azure's the requests that matter are made by their own clients (`provider`, `gcs`,
`azure`): what is put counts if the answer proves it or the object is found, a list if it is one.

Of others fsspec's own file calls are used. A list walks directories in the order of keys, and only
those that can hold one: the first key of a volume costs a listing a level, however many objects
there are. What put_if_absent is worth depends on the file system (`pipe_file(mode="create")`); the
probe finds out. memory:// is one store per process, and there a lock makes it exact. http(s) has no
lists worth the name: InvalidInputError; refs are then probed by number.

Google's creates carry `ifGenerationMatch=0`, Azure's `If-None-Match: *`, in one request or, for
large objects, in the one that completes them. aiohttp repeats a PUT when a kept connection breaks,
so a conflict may be with our own first attempt; `refs` reads back whose record it is.

Credentials come from wherever the file system's package looks for them by itself, unless an
identity gives them: then the file system is made anew whenever they change. Its listings cache is
off. An untrusted server (`trust`) gets nothing of fsspec's configuration, which may hold
headers and passwords. Errors are mapped by `errors`, and not chained: what libraries raise may
carry requests.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

import fsspec
import fsspec.config
from fsspec import AbstractFileSystem

from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from cowfs.fork_locks import ForkLock
from cowfs.format.store_url import AZURE_PROTOCOLS
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, check_key
from cowfs.store.errors import CREDENTIALS_HINT, from_foreign_error, refused_anonymously
from cowfs.store.identity import AMBIENT, Access, Credentials, Refusal
from cowfs.store.provider import Provider
from cowfs.store.readonly import ReadOnlyStore

T = TypeVar("T")

_MODIFIED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_memory_lock = ForkLock()
_configuration_lock = ForkLock()


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
    ) -> None:
        """options: what the file system takes from the URL. untrusted_server: the URL's server,
        when it may see no credentials of the environment."""
        self._protocol = protocol
        self._root = root
        self._url = url
        self._provider = _provider_of(protocol)
        self._can_list = protocol not in ("http", "https")
        self._untrusted_server = untrusted_server
        self._exclusive: AbstractContextManager[object] = _memory_lock if protocol == "memory" else nullcontext()
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
        if self._provider is not None:
            return self._provider.open(self._options, given)
        return fsspec.get_filesystem_class(self._protocol)(
            use_listings_cache=False, skip_instance_cache=True, **self._options
        )

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str) -> bytes:
        path = self._path(key)
        data: bytes = self._call(key, lambda: self._file_system.cat_file(path))
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        path = self._path(key)
        data: bytes = b""
        if length:
            data = self._call(key, lambda: self._file_system.cat_file(path, start=offset, end=offset + length))
        if len(data) != length:
            raise CorruptError(f"{self._url}: {key} gave {len(data)} bytes at {offset}, {length} were expected")
        return data

    def size(self, key: str) -> int | None:
        path, provider = self._path(key), self._provider
        try:
            if provider is not None:
                return self._call(key, lambda: provider.size(self._file_system, path))
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
        if self._provider is not None:
            return self._listed(self._provider, prefix, start_after, limit)
        directory = prefix.rpartition("/")[0]
        return builtins.list(islice(self._walk(directory, prefix, start_after), limit))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            try:
                self._call(key, lambda path=path: self._file_system.rm_file(path))  # type: ignore[misc]
            except NotFoundError:
                continue

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}"

    def _listed(
        self, provider: Provider, prefix: str, start_after: str, limit: int | None
    ) -> builtins.list[ObjectInfo]:
        after = f"{self._root}/{start_after}" if start_after else ""
        try:
            found = self._call(
                prefix, lambda: provider.objects(self._file_system, f"{self._root}/{prefix}", after, limit)
            )
        except NotFoundError as error:
            raise self._no_bucket(error) from None
        above = len(f"{self._root}/".partition("/")[2])
        return [replace(info, key=info.key[above:]) for info in found]

    def _walk(self, directory: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Files below a directory in the order of their keys. What cannot hold a key in question is
        not listed."""
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
                    yield ObjectInfo(key, int(info["size"]), _modified_ns(info))
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
        if self._provider is not None and found.hint == CREDENTIALS_HINT:
            found.set_hint(self._provider.credentials_hint)
        if self._untrusted_server and found.kind == "access_denied":
            found = refused_anonymously(found, self._untrusted_server)
        raise found

    def _write(self, key: str, data: Data, *, is_new: bool) -> None:
        """An object that the server does not prove to have is looked for."""
        path = self._path(key)

        def write() -> bool:
            try:
                return self._put(path, data, is_new=is_new)
            except FileExistsError:
                raise ConflictError(f"{self._url}: {key} exists already", details={"key": key}) from None

        try:
            is_proven = self._call(key, write)
        except NotFoundError as error:
            raise self._no_bucket(error) from None
        if not is_proven and not self._has(key, data, is_new=is_new):
            raise UnavailableError(
                f"{self._url} does not answer: it said that it has stored an object, and has not",
                hint="Try again; nothing is lost.",
                details={"key": key},
            )

    def _put(self, path: str, data: Data, *, is_new: bool) -> bool:
        if self._provider is not None:
            return self._provider.put(self._file_system, path, data, is_new=is_new)
        if parent := path.rpartition("/")[0]:
            self._file_system.makedirs(parent, exist_ok=True)
        self._file_system.pipe_file(path, bytes(data), mode="create" if is_new else "overwrite")
        return True

    def _has(self, key: str, data: Data, *, is_new: bool) -> bool:
        if not is_new:
            return self.size(key) == memoryview(data).nbytes
        try:
            return self.get(key) == data
        except NotFoundError:
            return False

    def _no_bucket(self, error: NotFoundError) -> NotFoundError:
        return NotFoundError(
            f"{self._url}: there is no such bucket or container",
            hint="Create it first, or correct its name in the store's URL.",
            details={**error.details, "code": "NoSuchBucket"},
        )


def _provider_of(protocol: str) -> Provider | None:
    """None: fsspec's own calls are all that is known of it."""
    if protocol == "gs":
        from cowfs.store.gcs import Google

        return Google()
    if protocol in AZURE_PROTOCOLS:
        from cowfs.store.azure import Azure

        return Azure()
    return None


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


def _modified_ns(info: dict[str, Any]) -> int:
    """0 where the file system does not say."""
    for name in _MODIFIED:
        value = info.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1e9)
        if isinstance(value, (int, float)):
            return int(value * 1e9)
    return 0
