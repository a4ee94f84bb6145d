"""Google Cloud Storage: its JSON API, by gcsfs' connection and credentials.

    put      one request (uploadType=media, with ifGenerationMatch=0 to create) of whatever size. gcsfs sends multipart
             bodies with one constant boundary, which an object may hold
    objects  flat, in pages that say that they are lists
    size     the object's resource; gcsfs lists a directory, too

get and delete are gcsfs' own. Requests are sent once, so a put is proven by `generation` and `size`
of its answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import google.auth
from aiohttp import ClientTimeout
from fsspec.asyn import sync
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError, validate_response
from google.auth.exceptions import RefreshError, TransportError

from cowfs.store.bodies import CONNECT_S, LONGEST_S, SILENCE_S, WatchedBody
from cowfs.store.contract import Data, ObjectInfo, nanoseconds
from cowfs.store.errors import NoAnswer
from cowfs.store.identity import Credentials
from cowfs.store.patience import silence_s
from cowfs.store.provider import NO_LIST, NOT_FOUND_BY_OTHERS

_PAGE = 1000


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

    def size(self, file_system: GCSFileSystem, path: str) -> int:
        bucket, _, name = path.partition("/")
        found = _ask(file_system, "GET", "b/{}/o/{}", bucket, name)
        if not _is_object(found):
            raise NoAnswer("it describes no object")
        return int(found["size"])

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

    def objects(
        self, file_system: GCSFileSystem, place: str, start_after: str, limit: int | None
    ) -> Iterable[ObjectInfo]:
        bucket, _, prefix = place.partition("/")
        after = start_after.partition("/")[2]
        found: list[ObjectInfo] = []
        token = None
        while limit is None or len(found) < limit:
            page = _ask(
                file_system,
                "GET",
                "b/{}/o",
                bucket,
                prefix=prefix,
                startOffset=after or None,  # itself, too
                maxResults=_PAGE if limit is None else min(limit + 1, _PAGE),
                pageToken=token,
            )
            found += [info for info in _listed(page, prefix) if info.key > after]
            token = page.get("nextPageToken")
            if not token:
                break
        return found[:limit] if limit is not None else sorted(found, key=lambda info: info.key)


def _listed(page: Any, prefix: str) -> list[ObjectInfo]:
    """Without what web consoles put in the place of directories."""
    if not isinstance(page, dict) or page.get("kind") != "storage#objects":
        raise NoAnswer(NO_LIST)
    try:
        found = [
            ObjectInfo(each["name"], int(each["size"]), nanoseconds(datetime.fromisoformat(each["updated"])))
            for each in page.get("items", [])
        ]
    except (KeyError, TypeError, ValueError):
        raise NoAnswer(NO_LIST) from None
    if not all(info.key.startswith(prefix) for info in found):
        raise NoAnswer(NO_LIST)
    return [info for info in found if not info.key.endswith("/")]


def _is_object(said: Any) -> bool:
    return isinstance(said, dict) and bool(said.get("generation")) and str(said.get("size")).isdecimal()


def _ask(file_system: GCSFileSystem, method: str, path: str, *args: str, **named: Any) -> Any:
    """What the answer says, None if it is no JSON. A status that says that something is absent
    counts if it is in Google's words."""
    return sync(file_system.loop, _asked, file_system, method, path, *args, **named)


async def _asked(
    file_system: GCSFileSystem,
    method: str,
    path: str,
    *args: str,
    data: bytes | bytearray | None = None,
    **parameters: Any,
) -> Any:
    await file_system._set_session()
    async with file_system.session.request(
        method,
        file_system._format_path(path, args),
        params=file_system._get_params(parameters),
        headers=file_system._get_headers({"Content-Type": "application/octet-stream"} if data is not None else None),
        data=None if data is None else WatchedBody(data),
        allow_redirects=False,
        timeout=file_system.requests_timeout if data is None else _timeout(SILENCE_S),
    ) as answer:
        body = await answer.read()
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if answer.status == 404 and not (isinstance(said, dict) and "error" in said):
        raise NoAnswer(NOT_FOUND_BY_OTHERS)
    validate_response(answer.status, body, path, args)
    return said


def _timeout(silence_s: float) -> ClientTimeout:
    return ClientTimeout(total=LONGEST_S, sock_connect=CONNECT_S, sock_read=silence_s)
