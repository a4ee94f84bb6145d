"""Files behind http(s) as an origin: one file, or those that pages of links name.

A URL that ends in "/" is a page that lists files, as web servers make them for directories; links
to what lies below it are followed, a link that ends in "/" to another such page. Links with a
query, and to elsewhere, are not. Any other URL is one file. Each file is looked at once (HEAD) for
its size and its ETag, or time of modification: nothing of it is read.

A read sends If-Match where the ETag is a strong one, and the file is looked at again afterwards:
many servers ignore the condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote

from cowfs.errors import ConflictError, NotFoundError
from cowfs.helpers import Helpers
from cowfs.store.origin.contract import OriginObject, changed, gone
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
        path = self._path(found.key)
        arguments: dict[str, Any] = {}
        if found.tag.startswith('"'):
            arguments["headers"] = {"If-Match": found.tag}
        try:
            data: bytes = self._call(
                found.key, lambda: self._file_system.cat_file(path, start=offset, end=offset + length, **arguments)
            )
        except NotFoundError:
            raise gone(self.url, found.key) from None
        except ConflictError:
            raise changed(self.url, found.key) from None
        return data[offset : offset + length] if len(data) == found.size > length else data  # it knows no ranges

    def _path(self, key: str) -> str:
        return super()._path(quote(key, safe="/~!$&'()*+,;=:@"))
