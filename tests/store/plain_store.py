"""A backend from outside the package: objects in a dictionary, registered by `register`."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterable

from cowfs.base import clock
from cowfs.errors import ConflictError, CorruptError, NotFoundError
from cowfs.format import backends
from cowfs.format.backends import Backend
from cowfs.format.object_kinds import check_read
from cowfs.format.store_url import StoreUrl
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, check_key
from cowfs.store.credentials.identity import Access
from cowfs.store.readonly import ReadOnlyStore

_lock = threading.Lock()
_Objects = dict[str, tuple[bytes, int]]
_places: dict[str, _Objects] = {}


def open_plain_store(place: StoreUrl, *, create: bool, access: Access, untrusted_server: str | None) -> ObjectStore:
    with _lock:
        return PlainStore(str(place), _places.setdefault(str(place), {}))


PLAIN = Backend(protocols=("plain",), aliases=("plainer",), store=open_plain_store, reach="process")


def register() -> None:
    backends.register(PLAIN)


class PlainStore:
    def __init__(self, url: str, objects: _Objects) -> None:
        self.url = url
        self._objects = objects

    def get(self, key: str) -> bytes:
        check_key(key)
        with _lock:
            found = self._objects.get(key)
        if found is None:
            raise NotFoundError(f"{self.url}: {key} does not exist")
        check_read(key, len(found[0]), url=self.url)
        return found[0]

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        check_key(key)
        with _lock:
            found = self._objects.get(key)
        if length and found is None:
            raise NotFoundError(f"{self.url}: {key} does not exist")
        data = found[0][offset : offset + length] if found is not None else b""
        if len(data) != length:
            raise CorruptError(f"{self.url}: {key} is too short")
        return data

    def size(self, key: str) -> int | None:
        check_key(key)
        with _lock:
            return len(self._objects[key][0]) if key in self._objects else None

    def put(self, key: str, data: Data) -> None:
        check_key(key)
        with _lock:
            self._objects[key] = bytes(data), clock.now_ns()

    def put_if_absent(self, key: str, data: Data) -> None:
        check_key(key)
        with _lock:
            if key in self._objects:
                raise ConflictError(f"{self.url}: {key} exists")
            self._objects[key] = bytes(data), clock.now_ns()

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        with _lock:
            found = sorted((key, *value) for key, value in self._objects.items() if key.startswith(prefix))
        return [ObjectInfo(key, len(data), time_ns) for key, data, time_ns in found if key > start_after][:limit]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            check_key(key)
            with _lock:
                self._objects.pop(key, None)

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass
