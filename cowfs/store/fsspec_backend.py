"""Any other fsspec file system as an object store: memory://, http(s):// to read, and whatever else
is installed (gs://, az://, …).

Only fsspec's own file calls are used. A list walks directories in the order of keys, and only those
that can hold one: the first key of a volume costs a listing a level, however many objects there
are. What put_if_absent is worth depends on the file system (`pipe_file(mode="create")`); the probe
finds out. memory:// is one store per process, and there a lock makes it exact. http(s) has no lists
worth the name: InvalidInputError; refs are then probed by number.

gcsfs creates with `ifGenerationMatch=0`, adlfs with `If-None-Match: *`, in one request or, for
large objects, with the one that completes them. Both repeat requests by themselves, so a conflict
may be with our own first attempt; `refs` reads back whose record it is.

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
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar, cast

import fsspec
import fsspec.config
from fsspec import AbstractFileSystem

from cowfs.errors import AccessDeniedError, ConflictError, CorruptError, CowfsError, InvalidInputError, NotFoundError
from cowfs.fork_locks import ForkLock
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, check_key
from cowfs.store.errors import from_foreign_error, refused_anonymously
from cowfs.store.identity import AMBIENT, Access, Credentials, Refusal
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
        self._can_list = protocol not in ("http", "https")
        self._untrusted_server = untrusted_server
        self._exclusive: AbstractContextManager[object] = _memory_lock if protocol == "memory" else nullcontext()
        self._options = options or {}
        self._identity = access.identity
        self._lock = threading.Lock()  # guards the next two; never held during a request
        self._made_for: Credentials | None = None
        self._made = None if access.identity is not None else self._make({})

    @property
    def _file_system(self) -> AbstractFileSystem:
        """The one of the credentials that are in use now."""
        if self._identity is None:
            return self._made
        newest = self._identity.newest
        with self._lock:
            if self._made_for is None or not self._made_for.is_same(newest):
                given = _as_options(self._protocol, newest, self._options.get("account_name", ""))
                self._made, self._made_for = self._make(given), newest
            return self._made

    def _make(self, credentials: dict[str, Any]) -> AbstractFileSystem:
        with _without_configuration() if self._untrusted_server or credentials else nullcontext():
            return self._attempt(
                "",
                lambda: _class_of(self._protocol)(
                    use_listings_cache=False,
                    skip_instance_cache=True,
                    **self._options,
                    **credentials,
                ),
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
        path = self._path(key)
        try:
            info = self._call(key, lambda: self._file_system.info(path))
        except NotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" and info["size"] is not None else None

    def put(self, key: str, data: Data) -> None:
        self._write(key, data, "overwrite")

    def put_if_absent(self, key: str, data: Data) -> None:
        self._write(key, data, "create")

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
        if self._untrusted_server and found.kind == "access_denied":
            found = refused_anonymously(found, self._untrusted_server)
        raise found

    def _write(self, key: str, data: Data, mode: str) -> None:
        path = self._path(key)

        def write() -> None:
            if parent := path.rpartition("/")[0]:
                self._file_system.makedirs(parent, exist_ok=True)
            try:
                self._file_system.pipe_file(path, bytes(data), mode=mode)
            except FileExistsError:
                raise ConflictError(f"{self._url}: {key} exists already", details={"key": key}) from None

        try:
            self._call(key, write)
        except NotFoundError as error:
            raise NotFoundError(
                f"{self._url}: there is no such bucket or container",
                hint="Create it first, or correct its name in the store's URL.",
                details={**error.details, "code": "NoSuchBucket"},
            ) from None


def _class_of(protocol: str) -> type[AbstractFileSystem]:
    """gcsfs' own choice asks Google over gRPC what kind of bucket it is, for a minute where that is
    blocked; the kinds that it looks for have no conditional create."""
    if protocol == "gs":
        from gcsfs.core import GCSFileSystem

        return cast("type[AbstractFileSystem]", GCSFileSystem)
    return cast("type[AbstractFileSystem]", fsspec.get_filesystem_class(protocol))


def _as_options(protocol: str, given: Credentials, account: str) -> dict[str, Any]:
    """What a file system's class takes its credentials as."""
    if protocol == "gs":
        from google.oauth2.credentials import Credentials as AccessToken

        return {"token": AccessToken(given.token)}
    # A whole connection string: keys, and a string for another account, in the environment come
    # before the others.
    if given.token is not None:
        endpoint = f"BlobEndpoint=https://{account}.blob.core.windows.net"
        return {"connection_string": f"{endpoint};SharedAccessSignature={given.token.removeprefix('?')}"}
    return {
        "connection_string": f"DefaultEndpointsProtocol=https;AccountName={account};AccountKey={given.secret_key};"
        "EndpointSuffix=core.windows.net"
    }


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
