"""Google's and Azure's object stores, by requests of our own (`provider`, `gcs`, `azure`). A put
counts if the answer proves it or the object is found; a list, if it is a genuine one; an object
is absent if the provider says so. obstore, which sends S3's requests, would not replace this: in a
child that was forked, and for keys that are not ours, it cannot be used (decision 44).

Google's creates carry `ifGenerationMatch=0`, Azure's `If-None-Match: *`, in one request or, for
large objects, in the one that completes them. aiohttp repeats a PUT when a kept connection breaks,
so a conflict may be with our own first attempt; `refs` reads the record back to find its author.
"""

from __future__ import annotations

import builtins
from dataclasses import replace
from typing import Any

from fsspec import AbstractFileSystem

from cowfs.base.errors import NotFoundError, UnavailableError
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.cloud.provider import Provider
from cowfs.store.backends.fsspec_store import FsspecStore, key_taken, no_bucket, open_through_fsspec
from cowfs.store.contract import AcceptsSize, Data, ObjectInfo
from cowfs.store.credentials.identity import Access, Credentials


def open_cloud_store(place: StoreUrl, *, create: bool, access: Access, untrusted_server: str | None) -> CloudStore:
    return open_through_fsspec(CloudStore, place, access, untrusted_server, find_file_system)


def find_file_system(protocol: str) -> type[AbstractFileSystem]:
    return _provider_of(protocol).file_system


class CloudStore(FsspecStore):
    def __init__(self, protocol: str, **named: Any) -> None:
        self._provider = _provider_of(protocol)
        super().__init__(protocol, credentials_hint=self._provider.credentials_hint, **named)

    def _open(self, given: Credentials | None) -> AbstractFileSystem:
        return self._provider.open(self._options, given)

    def size(self, key: str) -> int | None:
        path = self._path(key)
        try:
            return self._call(key, lambda: self._provider.look(self._file_system, path)).size
        except NotFoundError:
            return None

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        place = f"{self._root}/{prefix}"
        after = f"{self._root}/{start_after}" if start_after else ""
        try:
            found = self._call(prefix, lambda: self._provider.objects(self._file_system, place, after, limit))
        except NotFoundError as error:
            raise no_bucket(self._url, error) from None
        above = len(f"{self._root}/".partition("/")[2])
        return [replace(info, key=info.key[above:]) for info in found]

    def _read_whole(self, path: str, accepts: AcceptsSize) -> bytes:
        return self._provider.read(self._file_system, path, accepts=accepts)

    def _read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._provider.read(self._file_system, path, offset, length)

    def _remove(self, path: str) -> None:
        self._provider.delete(self._file_system, path)

    def _write(self, key: str, data: Data, *, is_new: bool) -> None:
        """An object that the server does not prove to have is looked for."""
        path = self._path(key)

        def write() -> bool:
            try:
                return self._provider.put(self._file_system, path, data, is_new=is_new)
            except FileExistsError:
                raise key_taken(self._url, key) from None

        try:
            is_proven = self._call(key, write)
        except NotFoundError as error:
            raise no_bucket(self._url, error) from None
        if not is_proven and not self._has(key, data, is_new=is_new):
            raise unproven(self._url, key)

    def _has(self, key: str, data: Data, *, is_new: bool) -> bool:
        if not is_new:  # an earlier object of the same length is taken for it
            return self.size(key) == memoryview(data).nbytes
        try:
            return self.get(key) == data
        except NotFoundError:
            return False


def _provider_of(protocol: str) -> Provider:
    if protocol == "gs":
        from cowfs.store.backends.cloud.gcs import Google

        return Google()
    from cowfs.store.backends.cloud.azure import Azure

    return Azure()


def unproven(url: str, key: str) -> UnavailableError:
    return UnavailableError(
        f"{url} does not answer: it said that it has stored an object, and has not",
        hint="Try again; nothing is lost.",
        details={"key": key},
    )
