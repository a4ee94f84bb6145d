"""A bucket of Google's or a container of Azure's, or a prefix of it, as an origin: with the
requests, credentials and errors of `CloudStore`.

An object of more than PART_BYTES is put in parts, one after the other. A put counts if the answer
proves it. A read is of the state that was listed, by its tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from cowfs.base.errors import CorruptError, InvalidStateError, NotFoundError
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.cloud.cloud_store import CloudStore, find_file_system, unproven
from cowfs.store.backends.cloud.provider import PART_STEP_BYTES, PARTS_MAX
from cowfs.store.backends.fsspec_store import no_bucket, open_through_fsspec
from cowfs.store.contract import ObjectInfo
from cowfs.store.credentials.identity import Access
from cowfs.store.origin.contract import (
    OriginObject,
    Repeat,
    cut,
    fitting,
    require_unchanged,
    source_changed,
    source_gone,
    split_parts,
)

PART_BYTES = 16 << 20
UPLOADS = 3
"""How often an object is begun anew whose upload the server has forgotten."""


def open_cloud_origin(place: StoreUrl, *, is_page: bool, access: Access, untrusted_server: str | None) -> CloudOrigin:
    return open_through_fsspec(CloudOrigin, place, access, untrusted_server, find_file_system)


class CloudOrigin(CloudStore):
    def list(self) -> Iterator[OriginObject]:  # type: ignore[override] # of another contract
        place = f"{self._root}/"
        above = len(place.partition("/")[2])
        try:
            found = self._call("", lambda: self._provider.everything(self._file_system, place))
        except NotFoundError as error:
            raise no_bucket(self._url, error) from None
        for info in found:
            if key := info.key[above:]:  # else a marker of the prefix itself
                yield _object(key, info)

    def look(self, key: str) -> OriginObject | None:
        if "/" not in self._path(key):  # all of a bucket
            return None
        try:
            return _object(key, self._call(key, lambda: self._provider.look(self._file_system, self._path(key))))
        except NotFoundError:
            return None

    def read(self, found: OriginObject, offset: int, length: int) -> bytes:
        path = self._path(found.key)
        try:
            data = self._call(
                found.key, lambda: self._provider.read_state(self._file_system, path, found.tag, offset, length)
            )
        except NotFoundError:
            raise source_gone(self.url, found.key) from None
        except CorruptError as error:
            if error.details.get("status") == 416:
                require_unchanged(self, found)
            raise
        if data is None:
            raise source_changed(self.url, found.key)
        if len(data) != length:
            raise cut(self.url, found.key, length, len(data))
        return data

    def put(  # type: ignore[override] # of another contract
        self, key: str, size: int, pieces: Callable[[], Iterator[bytes]], repeat: Repeat[Any]
    ) -> OriginObject:
        path = self._path(key)
        if size <= PART_BYTES:
            body = b"".join(pieces())
            repeat(lambda: self._prove(key, lambda: self._provider.put(self._file_system, path, body, is_new=False)))
        else:
            self._put_in_parts(key, size, pieces, partial(self._repeat_call, key, repeat))
        made: OriginObject | None = repeat(lambda: self.look(key))
        if made is None or made.size != size:
            raise source_changed(self.url, key)
        return made

    def _put_in_parts(self, key: str, size: int, pieces: Callable[[], Iterator[bytes]], repeat: Repeat[Any]) -> None:
        path = self._path(key)
        step = max(PART_BYTES, -(-size // PARTS_MAX // PART_STEP_BYTES) * PART_STEP_BYTES)

        def put() -> bool:
            return self._provider.put_parts(self._file_system, path, size, split_parts(pieces(), step), repeat)

        for left in reversed(range(UPLOADS)):
            try:
                self._prove(key, put)
            except InvalidStateError:
                if not left:
                    raise
            else:
                return

    def _repeat_call(self, key: str, repeat: Repeat[Any], request: Callable[[], Any]) -> Any:
        return repeat(lambda: self._call(key, request))

    def _prove(self, key: str, put: Callable[[], bool]) -> None:
        try:
            is_proven = self._call(key, put)
        except NotFoundError as error:
            raise no_bucket(self._url, error) from None
        if not is_proven:
            raise unproven(self._url, key)

    def delete(self, keys: Sequence[str], repeat: Repeat[Any]) -> None:  # type: ignore[override]
        for key in keys:
            path = self._path(key)
            with suppress(NotFoundError):
                self._repeat_call(key, repeat, lambda path=path: self._remove(path))  # type: ignore[misc]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root


def _object(key: str, info: ObjectInfo) -> OriginObject:
    return OriginObject(key, info.size, fitting(info.mtime_ns), info.tag)
