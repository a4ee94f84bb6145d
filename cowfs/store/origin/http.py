"""Files behind http(s) as an origin: one file, or the files that pages of links name. Many
public data sets are published in this way. fsspec's own calls take a file for absent if they get no
answer about it.

A URL that ends in "/" is a page that lists files, as web servers make them for directories. Links
to places below it are followed; a link that ends in "/" leads to another such page. Links with a
query or a fragment, and links to elsewhere, are not followed. Any other URL is one file. Each file
is looked at once (HEAD) for its size and its ETag, or time of modification; its content is not
read. A file that a page names and the server does not give is listed with its fault.

A read sends If-Match if the ETag is a strong one, and the file is looked at again afterwards: many
servers ignore the condition. A server that does not support ranges answers with the whole file,
which is received only up to the end of the range. An answer with a range must name the requested
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from fsspec.asyn import sync
from fsspec.implementations.http import _file_info

from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from cowfs.base.thread_pool import Helpers
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.fsspec_store import open_through_fsspec
from cowfs.store.credentials.identity import Access
from cowfs.store.origin.contract import OriginObject, other_range, require_unchanged, source_changed, source_gone
from cowfs.store.origin.fsspec import FsspecOrigin

LOOKING_THREADS = 16
BATCH = 256
PAGE_TYPES = ("text/html", "application/xhtml+xml")
PAGE_BYTES = 64 << 20
_NOT_NOW = (408, 425, 429)
NOT_FOUND = "the server does not find it"


def open_http_origin(place: StoreUrl, *, is_page: bool, access: Access, untrusted_server: str | None) -> HttpOrigin:
    origin = open_through_fsspec(HttpOrigin, place, access, untrusted_server)
    origin.is_page = is_page
    return origin


class HttpOrigin(FsspecOrigin):
    """is_page: whether the URL ended in a slash."""

    is_page = False

    def list(self) -> Iterator[OriginObject]:  # type: ignore[override]
        if not self.is_page:
            return
        is_empty = True
        with Helpers(LOOKING_THREADS, name="cowfs-look") as threads:
            links = self._list_links()
            while some := [*islice(links, BATCH)]:
                is_empty = False
                yield from threads.map(self._look_at, some)
        if is_empty:
            raise NotFoundError(
                f"{self.url} is a page without links to files below it",
                hint="Correct the URL. One that does not end in '/' is a file.",
            )

    def _list_links(self) -> Iterator[OriginObject]:
        """What pages name, but for its size and state; each page is read once."""
        waiting, seen = [""], {""}
        while waiting:
            page = waiting.pop()
            try:
                links = self._links_of(page)
            except CowfsError as error:
                if not page or _may_pass(error):
                    raise
                yield _faulty(page, _fault_of(error))
                continue
            for key, fault in sorted(links.items()):
                if key in seen:
                    continue
                seen.add(key)
                if key.endswith("/") and not fault and _is_plain(key):
                    waiting.append(key)
                else:
                    yield _faulty(key, fault)

    def _links_of(self, page: str) -> dict[str, str]:
        """Keys below a page, and the fault of each. InvalidInputError: the page has no links."""
        files, path = self._file_system, self._path(page).rstrip("/") + "/"
        url, text = self._call(page, lambda: sync(files.loop, _get_page, files, path))
        if text is None:
            raise InvalidInputError(
                f"{path} is no page of links, or one of more than {PAGE_BYTES >> 20} MiB",
                hint="A URL that does not end in '/' is a file.",
            )
        found = {}
        for parts in _parts_below(url, text):
            key = page + b"/".join(parts).decode("utf-8", "surrogateescape")
            found[key] = "a part of its name has a '/'" if any(b"/" in part for part in parts) else ""
        return found

    def _look_at(self, link: OriginObject) -> OriginObject:
        """A key that no file can have is not asked for."""
        if link.fault or not _is_plain(link.key):
            return link
        try:
            return self.look(link.key) or _faulty(link.key, NOT_FOUND)
        except CowfsError as error:
            if _may_pass(error):
                raise
            return _faulty(link.key, _fault_of(error))

    def _info(self, path: str) -> dict[str, Any]:
        files = self._file_system
        info: dict[str, Any] = sync(files.loop, _get_info, files, path)
        return info

    def _fetch(self, found: OriginObject, offset: int, length: int) -> bytes:
        files, path = self._file_system, self._path(found.key)
        headers = {"Range": f"bytes={offset}-{offset + length - 1}"} if 0 < length < found.size else {}
        if found.tag.startswith('"'):
            headers["If-Match"] = found.tag
        wanted = (offset, length, found.size)
        start: int
        data: bytes
        try:
            start, data = self._call(found.key, lambda: sync(files.loop, _get, files, path, headers, wanted))
        except NotFoundError:
            raise source_gone(self.url, found.key) from None
        except ConflictError:
            raise source_changed(self.url, found.key) from None
        if start != offset and "Range" in headers:
            require_unchanged(self, found)
            raise other_range(self.url, found.key)
        return data

    def _path(self, key: str) -> str:
        return super()._path(quote(key, safe="/~!$&'()*+,;=:@", errors="surrogateescape"))


def _faulty(key: str, fault: str) -> OriginObject:
    return OriginObject(key, 0, 0, "", fault)


def _may_pass(error: CowfsError) -> bool:
    """Whether it is worth asking again: there was no answer, or a temporary refusal."""
    status = error.details.get("status", 0)
    return isinstance(error, UnavailableError) and (not 300 <= status < 500 or status in _NOT_NOW)


def _fault_of(error: CowfsError) -> str:
    if isinstance(error, NotFoundError):
        return NOT_FOUND
    return "the server denies access to it" if isinstance(error, AccessDeniedError) else error.message


def _is_plain(key: str) -> bool:
    return all(part not in ("", ".", "..") for part in key.removesuffix("/").split("/"))


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _parts_below(url: str, text: str) -> Iterator[list[bytes]]:
    """The links of the page at `url` that lead below it, as the parts of their paths."""
    links = _Links()
    links.feed(text)
    links.close()
    page = urlsplit(url)
    above = _unquote_parts(page.path)[:-1]
    for href in links.found:
        try:
            link = urlsplit(urljoin(url, href.strip(" \t\n\f\r")))
            parts = _unquote_parts(link.path)
        except ValueError:  # of no server's
            continue
        is_here = link.scheme in ("http", "https") and link.netloc == page.netloc and parts[: len(above)] == above
        below = parts[len(above) :]
        if is_here and below not in ([], [b""]) and "?" not in href and "#" not in href:
            yield below


def _unquote_parts(path: str) -> list[bytes]:
    return [unquote_to_bytes(part.encode("utf-8", "surrogateescape")) for part in path.split("/")]


async def _get_page(files: Any, path: str) -> tuple[str, str | None]:
    """Where it was found, and its text; None: it is none of links, or too long."""
    session = await files.set_session()
    async with session.get(files.encode_url(path), **files.kwargs) as answer:
        files._raise_not_found_for_status(answer, path)
        kind = answer.headers.get("Content-Type", PAGE_TYPES[0]).partition(";")[0].strip().lower()
        data = await _part(answer, 0, PAGE_BYTES + 1) if kind in PAGE_TYPES else b""
        if kind not in PAGE_TYPES or len(data) > PAGE_BYTES:
            return str(answer.url), None
        try:
            text = data.decode(answer.charset or "utf-8", "surrogateescape")
        except (LookupError, UnicodeDecodeError):  # its declared encoding is wrong
            text = data.decode("utf-8", "surrogateescape")
        return str(answer.url), text


async def _get_info(files: Any, path: str) -> dict[str, Any]:
    """As fsspec's `info`, which calls everything absent that it gets no answer about."""
    session, url = await files.set_session(), files.encode_url(path)
    info: dict[str, Any] = {}
    with suppress(Exception):  # some servers know no HEAD; of others the next request tells the same
        info = await _file_info(url, session, size_policy="head", **files.kwargs)
    if info.get("size") is None:
        info |= await _file_info(url, session, size_policy="get", **files.kwargs)
    return {"size": None, **info, "type": "file"}


async def _get(files: Any, path: str, headers: dict[str, str], wanted: tuple[int, int, int]) -> tuple[int, bytes]:
    """wanted: (offset, length, the file's size). Bytes, and where in the file they begin: -1 if the
    answer does not say. None of a whole file of another size."""
    offset, length, size = wanted
    arguments = {
        **files.kwargs,
        "headers": {"Accept-Encoding": "identity", **files.kwargs.get("headers", {}), **headers},
    }
    session = await files.set_session()
    async with session.get(files.encode_url(path), **arguments) as answer:
        files._raise_not_found_for_status(answer, path)
        if answer.status == 206:
            start = answer.headers.get("Content-Range", "").lower().removeprefix("bytes ").partition("-")[0]
            return int(start) if start.isdecimal() else -1, await answer.read()
        if "Range" not in headers:
            return 0, await _part(answer, 0, size + 1)
        if answer.content_length not in (None, size) and "Content-Encoding" not in answer.headers:
            return offset, b""
        return offset, await _part(answer, offset, length)


async def _part(answer: Any, offset: int, length: int) -> bytes:
    """A range of the answer's bytes, before any was received. Bytes after the range are not
    received."""
    taken, position, end = bytearray(), 0, offset + length
    async for data in answer.content.iter_any():
        taken += data[max(offset - position, 0) : max(end - position, 0)]
        position += len(data)
        if position >= end:
            answer.close()
            break
    return bytes(taken)
