"""Any other fsspec file system as an origin: memory and the other installed ones, as well as
read-only ones (github, libarchive, …) that cannot be stores.

Files are found by one recursive listing of the file system's own. The first of TAGS that it lists
identifies the state of a file, else its time of modification. These file systems have no common
form of conditional reads, so each file is looked at again after a read: if two looks agree, the
bytes read between them are of the state that both show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from cowfs.base.errors import InvalidInputError, NotFoundError
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.fsspec_store import FsspecStore, open_through_fsspec
from cowfs.store.credentials.identity import Access
from cowfs.store.origin.contract import (
    OriginObject,
    Repeat,
    cut,
    mtime_of,
    require_unchanged,
    source_changed,
    source_gone,
)

TAGS = ("ETag", "etag", "generation", "version_id", "sha", "md5Hash", "content_md5", "CRC", "Last-Modified")
_MODIFIED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created", "Last-Modified")


def open_fsspec_origin(place: StoreUrl, *, is_page: bool, access: Access, untrusted_server: str | None) -> FsspecOrigin:
    return open_through_fsspec(FsspecOrigin, place, access, untrusted_server)


class FsspecOrigin(FsspecStore):
    def list(self) -> Iterator[OriginObject]:  # type: ignore[override] # of another contract
        found: dict[str, dict[str, Any]] = self._call(
            "", lambda: self._file_system.find(self._root, detail=True, withdirs=False)
        )
        for name, info in found.items():
            key = self._key(name)
            if not key:  # the URL is a file's: `look`
                continue
            if info["type"] == "file":
                yield self._object(key, info)
            else:  # a link, perhaps to a file
                yield self.look(key) or OriginObject(key, 0, 0, "", "no file")

    def look(self, key: str) -> OriginObject | None:
        try:
            info = self._call(key, lambda: self._info(self._path(key)))
        except NotFoundError:
            return None
        return self._object(key, info) if info["type"] == "file" else None

    def read(self, found: OriginObject, offset: int, length: int) -> bytes:
        data = self._fetch(found, offset, length)
        require_unchanged(self, found)
        if len(data) != length:
            raise cut(self.url, found.key, length, len(data))
        return data

    def put(  # type: ignore[override] # of another contract
        self, key: str, size: int, pieces: Callable[[], Iterator[bytes]], repeat: Repeat[Any]
    ) -> OriginObject:
        repeat(lambda: self._call(key, lambda: self._write_all(self._path(key), pieces())))
        made: OriginObject | None = repeat(lambda: self.look(key))
        if made is None or made.size != size:
            raise source_changed(self.url, key)
        return made

    def delete(self, keys: Sequence[str], repeat: Repeat[Any]) -> None:  # type: ignore[override]
        for key in keys:
            with suppress(NotFoundError):
                repeat(lambda key=key: self._call(key, lambda: self._file_system.rm_file(self._path(key))))  # type: ignore[misc]

    def _write_all(self, path: str, pieces: Iterator[bytes]) -> None:
        file = self._file_system.open(path, "wb")
        try:
            for piece in pieces:
                file.write(piece)
        except BaseException:
            with suppress(Exception):
                file.discard()
            file.closed = True  # closing would publish the bytes written so far
            raise
        file.close()

    def _fetch(self, found: OriginObject, offset: int, length: int) -> bytes:
        path = self._path(found.key)
        try:
            data: bytes = self._call(
                found.key, lambda: self._file_system.cat_file(path, start=offset, end=offset + length)
            )
        except NotFoundError:
            raise source_gone(self.url, found.key) from None
        return data[offset : offset + length] if len(data) == found.size > length else data  # it knows no ranges

    def _info(self, path: str) -> dict[str, Any]:
        info: dict[str, Any] = self._file_system.info(path)
        return info

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _key(self, name: str) -> str:
        return name.removeprefix(self._root).removeprefix("/")

    def _object(self, key: str, info: dict[str, Any]) -> OriginObject:
        if info.get("size") is None:
            raise InvalidInputError(
                f"{self.url} does not say how long {key or 'the file'} is", hint="Download it, and upload the copy."
            )
        tag = next((str(info[name]) for name in TAGS if info.get(name)), "")
        return OriginObject(key, int(info["size"]), _mtime_ns(info), tag)


def _mtime_ns(info: dict[str, Any]) -> int:
    """0 where the file system does not say."""
    for name in _MODIFIED:
        value = info.get(name)
        if isinstance(value, str):
            value = _parse_time(value)
        if isinstance(value, (datetime, int, float)):
            return mtime_of(value)
    return 0


def _parse_time(text: str) -> datetime | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return parse(text)
        except ValueError:
            continue
    return None
