"""Google Cloud Storage: its JSON API, through gcsfs' connection and credentials.

    put        one request (uploadType=media, with ifGenerationMatch=0 to create) of any size. gcsfs sends multipart
               bodies with one constant boundary, which an object may hold
    put_parts  a resumable upload
    objects    flat, in pages that say that they are lists
    look       the object's resource; gcsfs lists a directory, too
    read       as it is stored: compressed objects are not unpacked on the way

A put is proven by `generation` and `size` of its answer.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import google.auth
from aiohttp import ClientTimeout
from fsspec.asyn import sync
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError, validate_response
from google.auth.exceptions import RefreshError, TransportError

from cowfs.base.errors import InvalidStateError
from cowfs.store.backends.backend_errors import NoAnswer
from cowfs.store.backends.cloud.bodies import CONNECT_S, LONGEST_S, SILENCE_S, WatchedBody, read_body
from cowfs.store.backends.cloud.provider import NO_LIST, NO_OBJECT, NOT_FOUND_BY_OTHERS, OTHER_RANGE
from cowfs.store.contract import AcceptsSize, Data, ObjectInfo, any_size, nanoseconds
from cowfs.store.credentials.identity import Credentials
from cowfs.store.reliability.patience import silence_s

_PAGE = 1000
_Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class _FileSystem(GCSFileSystem):  # type: ignore[misc]  # untyped
    """gcsfs' own choice among its classes asks Google over gRPC what kind of bucket it is, for a
    minute where that is blocked; the kinds that it looks for have no conditional create."""

    _request = GCSFileSystem._request.__wrapped__  # without the six attempts around it

    def _get_headers(self, *arguments: Any, **named: Any) -> Any:
        """NoAnswer: there is no new access token now, as where who gives them does not answer."""
        try:
            return super()._get_headers(*arguments, **named)
        except HttpError as error:
            why = error.__cause__
            if isinstance(why, RefreshError) and (why.retryable or isinstance(why.__cause__, TransportError)):
                raise NoAnswer("no new access token can be had") from None
            raise
        except TransportError:
            raise NoAnswer("no new access token can be had") from None


class Google:
    file_system = GCSFileSystem
    credentials_hint = (
        "Check the credentials where Google's tools look for them: GOOGLE_APPLICATION_CREDENTIALS, or "
        "`gcloud auth application-default login`."
    )

    def open(self, options: dict[str, Any], given: Credentials | None) -> GCSFileSystem:
        if given is not None:
            from google.oauth2.credentials import Credentials as AccessToken

            options = {**options, "token": AccessToken(given.token)}
        elif os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") and not os.environ.get("STORAGE_EMULATOR_HOST"):
            google.auth.default()  # its error: gcsfs would go on without credentials
        return _FileSystem(
            use_listings_cache=False,
            skip_instance_cache=True,
            requests_timeout=_timeout(silence_s(SILENCE_S)),
            **options,
        )

    def look(self, file_system: GCSFileSystem, path: str) -> ObjectInfo:
        return _info(_resource(file_system, path))

    def read(
        self,
        file_system: GCSFileSystem,
        path: str,
        offset: int = 0,
        length: int | None = None,
        accepts: AcceptsSize = any_size,
    ) -> bytes:
        return self._read(file_system, path, offset, length, accepts)[0]

    def read_state(self, file_system: GCSFileSystem, path: str, tag: str, offset: int, length: int) -> bytes | None:
        """The resource is asked for behind it, since an answer with bytes has another ETag."""
        data, generation = self._read(file_system, path, offset, length)
        found = _resource(file_system, path)
        if _info(found).tag != tag:
            return None
        if generation and str(found["generation"]) != generation:
            raise NoAnswer("a cache has an older state of the object")
        return data

    def _read(
        self, file_system: GCSFileSystem, path: str, offset: int, length: int | None, accepts: AcceptsSize = any_size
    ) -> tuple[bytes, str]:
        """And the generation that the bytes are of, "" if the answer does not say."""
        bucket, _, name = path.partition("/")
        wanted = {} if length is None else {"Range": f"bytes={offset}-{offset + length - 1}"}
        where = f"{file_system._location}/download/storage/v1/b/{{}}/o/{{}}"
        headers = {"Accept-Encoding": "gzip", **wanted}
        status, said, body = _send(
            file_system, "GET", where, bucket, name, headers=headers, accepts=accepts, alt="media"
        )
        if status == 404 and b"No such object" not in body:
            self.look(file_system, path)
            raise NoAnswer(NOT_FOUND_BY_OTHERS)
        validate_response(status, body, where, (bucket, name))
        if not any(header.lower().startswith("x-goog-") for header in said):
            raise NoAnswer(NO_OBJECT)
        if status == 206 and not said.get("Content-Range", "").startswith(f"bytes {offset}-"):
            raise NoAnswer(OTHER_RANGE)
        if status == 200 and length is not None:  # the whole object, since it is unpacked on the way
            body = body[offset : offset + length]
        return body, said.get("X-Goog-Generation", "")

    def put(self, file_system: GCSFileSystem, path: str, data: Data, *, is_new: bool) -> bool:
        bucket, _, name = path.partition("/")
        said = _ask(
            file_system,
            "POST",
            f"{file_system._location}/upload/storage/v1/b/{{}}/o",
            bucket,
            data=bytes(data) if isinstance(data, memoryview) else data,
            uploadType="media",
            name=name,
            ifGenerationMatch="0" if is_new else None,
        )
        return _is_object(said) and int(said["size"]) == memoryview(data).nbytes

    def put_parts(
        self,
        file_system: GCSFileSystem,
        path: str,
        size: int,
        parts: Iterator[bytes],
        repeat: Callable[[Callable[[], Any]], Any],
    ) -> bool:
        bucket, _, name = path.partition("/")
        address = repeat(partial(_begin_upload, file_system, bucket, name))
        said: Any = None
        at = 0
        for part in parts:
            said = repeat(partial(_put_part, file_system, address, part, at, size))
            at += len(part)
        return _is_object(said) and int(said["size"]) == size

    def objects(
        self, file_system: GCSFileSystem, place: str, start_after: str = "", limit: int | None = None
    ) -> Iterable[ObjectInfo]:
        after = start_after.partition("/")[2]
        found: list[ObjectInfo] = []
        for page in _pages(file_system, place, after, _PAGE if limit is None else min(limit + 1, _PAGE)):
            # What begins is listed, too; and markers of directories.
            found += [info for info in page if info.key > after and not info.key.endswith("/")]
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found if limit is not None else sorted(found, key=lambda info: info.key)

    def everything(self, file_system: GCSFileSystem, place: str) -> Iterable[ObjectInfo]:
        return [info for page in _pages(file_system, place, "", _PAGE) for info in page]

    def delete(self, file_system: GCSFileSystem, path: str) -> None:
        bucket, _, name = path.partition("/")
        where = "b/{}/o/{}"
        status, headers, body = _send(file_system, "DELETE", where, bucket, name)
        _parse_answer(status, body, where, (bucket, name))
        if "html" in headers.get("Content-Type", ""):  # a page from a proxy on the way
            raise NoAnswer("it does not say that it has deleted an object")


def _pages(file_system: GCSFileSystem, place: str, start: str, size: int) -> Iterator[list[ObjectInfo]]:
    """From the name `start` on, itself included."""
    bucket, _, prefix = place.partition("/")
    token = None
    while True:
        page = _ask(
            file_system,
            "GET",
            "b/{}/o",
            bucket,
            prefix=prefix,
            startOffset=start or None,
            maxResults=size,
            pageToken=token,
        )
        yield _parse_page(page, prefix)
        token = page.get("nextPageToken")
        if not token:
            return


def _parse_page(page: Any, prefix: str) -> list[ObjectInfo]:
    if not isinstance(page, dict) or page.get("kind") != "storage#objects":
        raise NoAnswer(NO_LIST)
    try:
        found = [_info(each) for each in page.get("items", [])]
    except (KeyError, TypeError, ValueError):
        raise NoAnswer(NO_LIST) from None
    if not all(info.key.startswith(prefix) for info in found):
        raise NoAnswer(NO_LIST)
    return found


def _resource(file_system: GCSFileSystem, path: str) -> dict[str, Any]:
    bucket, _, name = path.partition("/")
    found: Any = _ask(file_system, "GET", "b/{}/o/{}", bucket, name)
    if not _is_object(found):
        raise NoAnswer("it describes no object")
    return dict(found)


def _info(resource: dict[str, Any]) -> ObjectInfo:
    tag = resource.get("etag") or resource.get("generation") or ""
    updated = nanoseconds(datetime.fromisoformat(resource["updated"]))
    return ObjectInfo(resource["name"], int(resource["size"]), updated, str(tag))


def _is_object(said: Any) -> bool:
    return (
        isinstance(said, dict)
        and bool(said.get("generation") and said.get("name") and said.get("updated"))
        and str(said.get("size")).isdecimal()
    )


def _begin_upload(file_system: GCSFileSystem, bucket: str, name: str) -> str:
    """The address of a resumable upload, which is its credential, too."""
    where = f"{file_system._location}/upload/storage/v1/b/{{}}/o"
    status, said, body = _send(file_system, "POST", where, bucket, data=b"", uploadType="resumable", name=name)
    _parse_answer(status, body, where, (bucket,))
    address: str = urljoin(file_system._location, said.get("Location", ""))
    if "upload_id=" not in urlsplit(address).query:
        raise NoAnswer("it has begun no upload")
    return address


def _put_part(file_system: GCSFileSystem, address: str, part: bytes, at: int, size: int) -> Any:
    """at: where in the object it begins. What the answer to the last part says, else None. What the
    server has already it ignores."""
    kept, view = 0, memoryview(part)
    while True:
        span = f"bytes {at + kept}-{at + len(part) - 1}/{size}"
        status, headers, body = _send(
            file_system, "PUT", address, data=bytes(view[kept:]), headers={"Content-Range": span}, is_signed=False
        )
        if status in (404, 410):
            raise InvalidStateError("Google knows nothing of this upload any more", hint="Try again; nothing is lost.")
        if status != 308:
            validate_response(status, body, "upload", ())
            if at + len(part) < size or not _is_object(said := _json(body)):
                raise NoAnswer("it does not say how much of an upload it has")
            return said
        before, kept = kept, int(headers.get("Range", "-").rpartition("-")[2] or at - 1) + 1 - at
        if kept >= len(part):
            return None
        if kept <= before:
            raise NoAnswer("it stores none of the bytes that it receives")


def _ask(file_system: GCSFileSystem, method: str, path: str, *args: str, **named: Any) -> Any:
    """What the answer says, None if it is no JSON. A status that says that something is absent
    counts if it is in Google's words."""
    status, _, body = _send(file_system, method, path, *args, **named)
    return _parse_answer(status, body, path, args)


def _parse_answer(status: int, body: bytes, path: str, args: tuple[str, ...]) -> Any:
    said = _json(body)
    if status == 404 and not (isinstance(said, dict) and "error" in said):
        raise NoAnswer(NOT_FOUND_BY_OTHERS)
    validate_response(status, body, path, args)
    if status >= 300:
        raise NoAnswer("it sends elsewhere")
    return said


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _send(file_system: GCSFileSystem, method: str, path: str, *args: str, **named: Any) -> _Answer:
    answer: _Answer = sync(file_system.loop, _send_async, file_system, method, path, *args, **named)
    if 300 <= answer[0] < 400 and answer[0] != 308:
        raise NoAnswer("it sends elsewhere")
    return answer


async def _send_async(
    file_system: GCSFileSystem,
    method: str,
    path: str,
    *args: str,
    data: bytes | bytearray | None = None,
    headers: Mapping[str, str] | None = None,
    is_signed: bool = True,
    accepts: AcceptsSize = any_size,
    **parameters: Any,
) -> _Answer:
    await file_system._set_session()
    own = {**({"Content-Type": "application/octet-stream"} if data is not None else {}), **(headers or {})}
    async with file_system.session.request(
        method,
        file_system._format_path(path, args),
        params=file_system._get_params(parameters) if is_signed else None,
        headers=file_system._get_headers(own) if is_signed else own,
        data=None if data is None else WatchedBody(data),
        allow_redirects=method == "GET",
        auto_decompress=False if "Accept-Encoding" in own else None,
        timeout=file_system.requests_timeout if data is None else _timeout(SILENCE_S),
    ) as answer:
        body = await read_body(answer, accepts if answer.status < 300 else any_size)
        if answer.status >= 400 and "Accept-Encoding" in own:
            with suppress(OSError, EOFError, zlib.error):  # it is not compressed
                body = gzip.decompress(body)
        return answer.status, answer.headers, body


def _timeout(silence_s: float) -> ClientTimeout:
    return ClientTimeout(total=LONGEST_S, sock_connect=CONNECT_S, sock_read=silence_s)
