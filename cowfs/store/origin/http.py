"""Files behind http(s) as an origin: one file, or those that pages of links name.

A URL that ends in "/" is a page that lists files, as web servers make them for directories; links
to what lies below it are followed, a link that ends in "/" to another such page. Links with a
query, and to elsewhere, are not. Any other URL is one file. Each file is looked at once (HEAD) for
its size and its ETag, or time of modification: nothing of it is read.

A read sends If-Match where the ETag is a strong one, and the file is looked at again afterwards:
many servers ignore the condition. One that knows no ranges answers with the whole file; of a range
the answer must say that it is the one that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote

from fsspec.asyn import sync

from cowfs.errors import ConflictError, NotFoundError
from cowfs.helpers import Helpers
from cowfs.store.origin.contract import OriginObject, changed, gone, other_range, require_unchanged
from cowfs.store.origin.fsspec import FsspecOrigin

LOOKING_THREADS = 16
BATCH = 256


class HttpOrigin(FsspecOrigin):
    """is_page: whether the URL ended in a slash."""

    is_page = False

    def list(self) -> Iterator[OriginObject]:  # type: ignore[override]
        if not self.is_page:
            return
        with Helpers(LOOKING_THREADS, name="cowfs-look") as threads:
            keys = self._linked()
            while some := [*islice(keys, BATCH)]:
                yield from (found for found in threads.map(self.look, some) if found is not None)

    def _linked(self) -> Iterator[str]:
        """Keys of the files that pages name; each page is read once."""
        waiting, seen = [""], {""}
        while waiting:
            page = waiting.pop()
            url = self._path(page).rstrip("/") + "/"
            names: list[str] = self._call(page, lambda url=url: self._file_system.ls(url, detail=False))  # type: ignore[misc]
            for name in sorted(names):
                key = unquote(self._key(name))
                is_plain = all(part not in ("", ".", "..") for part in key.rstrip("/").split("/"))
                if not is_plain or "?" in name or "#" in name or key in seen:
                    continue
                seen.add(key)
                if key.endswith("/"):
                    waiting.append(key)
                else:
                    yield key

    def _fetched(self, found: OriginObject, offset: int, length: int) -> bytes:
        files, path = self._file_system, self._path(found.key)
        headers = {"Range": f"bytes={offset}-{offset + length - 1}"} if 0 < length < found.size else {}
        if found.tag.startswith('"'):
            headers["If-Match"] = found.tag
        start: int | None
        data: bytes
        try:
            start, data = self._call(found.key, lambda: sync(files.loop, _get, files, path, headers))
        except NotFoundError:
            raise gone(self.url, found.key) from None
        except ConflictError:
            raise changed(self.url, found.key) from None
        if start is None and len(data) == found.size:
            return data[offset : offset + length]
        if start != offset and "Range" in headers:
            require_unchanged(self, found)
            raise other_range(self.url, found.key)
        return data

    def _path(self, key: str) -> str:
        return super()._path(quote(key, safe="/~!$&'()*+,;=:@"))


async def _get(files: Any, path: str, headers: dict[str, str]) -> tuple[int | None, bytes]:
    """An answer, and where in the file it begins: None for the whole of it, -1 if it does not
    say."""
    arguments = {**files.kwargs, "headers": {**files.kwargs.get("headers", {}), **headers}}
    session = await files.set_session()
    async with session.get(files.encode_url(path), **arguments) as answer:
        files._raise_not_found_for_status(answer, path)
        data: bytes = await answer.read()
        if answer.status != 206:
            return None, data
        start = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
        return int(start) if start.isdecimal() else -1, data
