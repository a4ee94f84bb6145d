"""S3's requests through s3fs, where obstore cannot go (docs/decisions/0044-obstore.md): in a child
that was forked after obstore was used, as data loaders do, and to keys that are not ours
(`origin.s3`), which obstore changes or refuses.

s3fs' file calls are not used: they list and look up what we did not ask for, retry by themselves,
and turn 43 error codes into EINVAL. Its connection handling is, with S3's own requests.

No retries: s3fs', botocore's and aiohttp's (which repeats a PUT when a kept connection breaks) are
off. Time: as long as bytes move in either direction, SILENCE_S without (`bodies`). LONGEST_S bounds
even a server that sends a byte a minute. Threads: requests run on fsspec's event loop thread;
callers wait.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import re
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import aiohttp
import s3fs
from aiobotocore.credentials import AioCredentials  # type: ignore[import-untyped]
from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]
from aiobotocore.session import AioSession  # type: ignore[import-untyped]
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    ParamValidationError,
    ProxyConnectionError,
    SSLError,
)
from botocore.handlers import add_expect_header
from botocore.parsers import ResponseParserError

from cowfs.store.backends import network
from cowfs.store.backends.backend_errors import has_ended, is_not_listening
from cowfs.store.backends.cloud.bodies import CONNECT_S, LONGEST_S, PIECE_BYTES, SILENCE_S, WatchedBody
from cowfs.store.backends.s3.s3_errors import (
    NO_LENGTH,
    OTHER_RANGE,
    Absent,
    Blocked,
    Distrusted,
    Ended,
    Malformed,
    Misconfigured,
    Refused,
    S3Failure,
    Silent,
    Unexpected,
    require_proof,
)
from cowfs.store.backends.s3.s3_place import S3Place
from cowfs.store.contract import AcceptsSize, Data, ObjectInfo, any_size, nanoseconds
from cowfs.store.credentials.identity import Credentials
from cowfs.store.reliability.retry_after import retry_after_s
from cowfs.store.streams import RANGE_BYTES

T = TypeVar("T")

_LIST_PAGE = 1000
_CERTIFICATE = re.compile(r"certificate verify failed: ([^(\n]*[^(\n ])")
_REQUEST_ERRORS = (
    OSError,  # s3fs' translations, and time-outs
    ClientError,
    BotoCoreError,
    HTTPClientError,
    ResponseParserError,
    aiohttp.ClientError,
    ValueError,  # a malformed endpoint
)


class S3fsRequests:
    """Of one store; thread-safe. credentials: the newest ones, None: do not sign."""

    def __init__(self, place: S3Place, credentials: Callable[[], Credentials] | None) -> None:
        self._place = place
        self._credentials = credentials
        self._lock = threading.Lock()  # guards the next; never held during a request
        self._file_system: s3fs.S3FileSystem | None = None

    def get(self, key: str, accepts: AcceptsSize) -> bytes:
        return self._ask(lambda: self._get(key, {}, accepts))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._ask(lambda: self._get(key, {"Range": f"bytes={offset}-{offset + length - 1}"}))

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        """One request for each piece."""
        first = self.get_range(key, offset, min(length, RANGE_BYTES))
        return self._pieces(key, first, offset + len(first), offset + length)

    def _pieces(self, key: str, piece: Data, offset: int, end: int) -> Iterator[Data]:
        yield piece
        while offset < end and len(piece) == RANGE_BYTES:  # else the object ends here
            piece = self.get_range(key, offset, min(end - offset, RANGE_BYTES))
            offset += len(piece)
            yield piece

    def size(self, key: str) -> int:
        return int(self.head(Key=self._place.prefix + key)["ContentLength"])

    def size_by_get(self, key: str) -> int:
        """The same by a request whose answer says why it is refused."""

        async def ask() -> int:
            answer = await self._call("get_object", key=key, Range="bytes=0-0")
            async with answer["Body"] as body:
                await body.read()
            if (length := answer.get("ContentRange", "").rpartition("/")[2]).isdecimal():
                return int(length)
            raise Silent(NO_LENGTH)

        return self._ask(ask)

    def put(self, key: str, data: Data, *, is_new: bool) -> None:
        condition = {"IfNoneMatch": "*"} if is_new else {}
        answer = self._ask(lambda: self._call("put_object", key=key, Body=_body(data), **condition))
        require_proof(answer.get("ETag"))

    def pages(self, prefix: str, start_after: str, most: int) -> Iterator[builtins.list[ObjectInfo]]:
        arguments: dict[str, Any] = {
            "Prefix": self._place.prefix + prefix,
            "MaxKeys": min(most or _LIST_PAGE, _LIST_PAGE),
        }
        if start_after:
            arguments["StartAfter"] = self._place.prefix + start_after
        while True:
            answer = self.list_page(**arguments)
            yield [
                ObjectInfo(
                    entry["Key"][len(self._place.prefix) :], int(entry["Size"]), nanoseconds(entry["LastModified"])
                )
                for entry in answer.get("Contents", [])
            ]
            if not answer.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def list_page(self, **arguments: Any) -> dict[str, Any]:
        """Silent: the answer of status 200 is not a list of objects, or is incomplete and does not
        name its continuation."""
        answer = self._ask(lambda: self._call("list_objects_v2", **arguments))
        is_list = any(name in answer for name in ("IsTruncated", "Name", "KeyCount", "Contents"))
        is_list &= all({"Key", "Size", "LastModified"} <= entry.keys() for entry in answer.get("Contents", []))
        if not is_list or (answer.get("IsTruncated") and not answer.get("NextContinuationToken")):
            raise Silent("it sends no reliable list")
        return answer

    def delete_batch(self, keys: Sequence[str]) -> None:
        objects = [{"Key": self._place.prefix + key} for key in keys]
        answer = self._ask(lambda: self._call("delete_objects", Delete={"Objects": objects}))
        gone = {deleted.get("Key") for deleted in answer.get("Deleted", [])}
        for failed in answer.get("Errors", []):
            if failed.get("Code") != "NoSuchKey":
                raise Refused(200, failed.get("Code", ""), failed.get("Message", ""))
            gone.add(failed.get("Key"))
        if any(each["Key"] not in gone for each in objects):  # a proxy may have answered
            raise Refused(501, "NotImplemented", "it does not list the deleted objects")

    def delete_one(self, key: str) -> None:
        self._ask(lambda: self._call("delete_object", key=key))

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Any operation of S3's, in the words of botocore."""
        return self._ask(lambda: self._call(operation, **arguments))

    def head(self, **arguments: Any) -> dict[str, Any]:
        """With ContentLength. Silent: the answer does not say how long the object is."""
        answer = self.call("head_object", **arguments)
        if "ContentLength" not in answer:
            raise Silent(NO_LENGTH)
        return answer

    def get_object(self, **arguments: Any) -> tuple[str, bytes]:
        """ETag and body. Unexpected: of another range than was asked for."""

        async def ask() -> tuple[str, bytes]:
            answer = await self._call("get_object", **arguments)
            return answer.get("ETag", ""), await _body_of(answer, arguments.get("Range", ""))

        return self._ask(ask)

    def close(self) -> None:
        with self._lock:
            file_system, self._file_system = self._file_system, None
        if file_system is not None and file_system._s3 is not None:
            asyncio.run_coroutine_threadsafe(_disconnect(file_system), file_system.loop).result(CONNECT_S)

    def abandon(self) -> None:
        """In a child that was just forked: the loop's thread is not there."""

    def _connection(self) -> s3fs.S3FileSystem:
        with self._lock:
            if self._file_system is None:
                self._file_system = _connect(self._place, self._credentials)
            return self._file_system

    def _ask(self, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Waits for a request that runs on the loop's thread."""
        try:
            loop = self._connection().loop
            future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(request(), LONGEST_S), loop)
            try:
                return future.result()
            finally:
                future.cancel()
        except _REQUEST_ERRORS as error:
            raise _failure_of(error) from None

    async def _call(self, method: str, *, key: str | None = None, **arguments: Any) -> dict[str, Any]:
        if key is not None:
            arguments["Key"] = self._place.prefix + key
        answer: dict[str, Any] = await self._connection()._call_s3(method, Bucket=self._place.bucket, **arguments)
        return answer

    async def _get(self, key: str, arguments: dict[str, Any], accepts: AcceptsSize = any_size) -> bytes:
        answer = await self._call("get_object", key=key, **arguments)
        return await _body_of(answer, arguments.get("Range", ""), accepts)


class _Session(AIOHTTPSession):  # type: ignore[misc]  # untyped
    """Connections whose requests are sent once, their bodies watched.

    aiohttp would repeat a PUT, conditional or not, when a kept connection breaks.
    """

    async def send(self, request: Any) -> Any:
        if isinstance(request.body, io.BytesIO):  # botocore's wrapper of the given body, rewound
            request.body = WatchedBody(request.body.getvalue())
        return await super().send(request)

    def _get_ssl_context(self) -> ssl.SSLContext:
        context: ssl.SSLContext = super()._get_ssl_context()
        with suppress(Misconfigured):  # `_connect` has refused requests over https
            network.trust(context)
        return context

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


def _body(data: Data) -> bytes | bytearray:
    """What botocore takes; a pack is not copied."""
    return bytes(data) if isinstance(data, memoryview) else data


async def _body_of(answer: dict[str, Any], wanted: str, accepts: AcceptsSize = any_size) -> bytes:
    """wanted: the range that was asked for, "" all of it. How long it is, is for the caller to look
    at; where it begins, only the answer says."""
    given = answer.get("ContentRange", "").lower().replace(" ", "=", 1)
    async with answer["Body"] as body:  # all at once, it would be held twice for a moment: in pieces, and joined
        if wanted and wanted.partition("-")[0] != given.partition("-")[0]:
            raise Unexpected(OTHER_RANGE)
        accepts(length := int(answer.get("ContentLength", 0)))
        data = _allocate(length)
        while piece := await body.read(PIECE_BYTES):
            data.write(piece)
            accepts(data.tell())
    data.truncate()
    return data.getvalue()


def _allocate(length: int) -> io.BytesIO:
    """A buffer to be filled from its start: a growing one leaves holes in the heap."""
    data = io.BytesIO()
    if length > 0:
        data.seek(length - 1)
        data.write(b"\0")
        data.seek(0)
    return data


class _Newest(AioCredentials):  # type: ignore[misc]  # untyped
    """What botocore signs each request with; it asks for the credentials every time."""

    def __init__(self, newest: Callable[[], Credentials]) -> None:
        super().__init__("", "")
        self._give = newest

    async def get_frozen_credentials(self) -> Credentials:
        return self._give()


def _connect(place: S3Place, credentials: Callable[[], Credentials] | None) -> s3fs.S3FileSystem:
    session = AioSession()
    if credentials is not None:
        session._credentials = _Newest(credentials)
    # Asking before each upload costs a round trip, and aiohttp waits for the answer without a time
    # limit.
    session.unregister("before-call.s3", add_expect_header)
    proxy = network.proxy_of(place.address)
    file_system = s3fs.S3FileSystem(
        anon=credentials is None,
        session=session,
        endpoint_url=place.endpoint,
        client_kwargs={"region_name": place.region, "verify": _authorities(place)},
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": CONNECT_S,
            "read_timeout": SILENCE_S,
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "http_session_cls": _Session,
            "max_pool_connections": 64,
            "proxies": {} if proxy is None else dict.fromkeys(("http", "https"), proxy),
            "s3": {"addressing_style": "path" if place.is_in_path else "virtual"},
            # Many compatible servers refuse the newer checksum headers; over plain HTTP the
            # signature covers the body.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
    )
    file_system.retries = 1
    return file_system


def _authorities(place: S3Place) -> str | bool:
    """A file of authorities that `_Session` trusts in any case, in the place of botocore's own
    choice; True: that choice, if this machine has no such file."""
    return (place.address.startswith("https:") and network.authorities()) or True


async def _disconnect(file_system: s3fs.S3FileSystem) -> None:
    client, file_system._s3 = file_system._s3, None
    await client.close()


def _failure_of(error: BaseException) -> S3Failure:
    answer = error if isinstance(error, ClientError) else error.__cause__
    if isinstance(answer, ClientError):
        problem, metadata = answer.response.get("Error", {}), answer.response.get("ResponseMetadata", {})
        wait_s = retry_after_s(metadata.get("HTTPHeaders", {}))
        status = int(metadata.get("HTTPStatusCode", 0))
        return Refused(status, str(problem.get("Code", "")), str(problem.get("Message", "")), wait_s)
    reason = str(error) or type(error).__name__
    if isinstance(error, HTTPClientError) and has_ended(error):
        return Ended(reason)
    if isinstance(error, (ParamValidationError, ValueError)):
        return Malformed(reason)
    if isinstance(error, ProxyConnectionError):
        return Blocked("the proxy does not connect to it")
    if isinstance(error, SSLError) and (unaccepted := _CERTIFICATE.search(reason)):
        return Distrusted(f"its certificate is not accepted: {unaccepted[1]}")
    if is_not_listening(error):
        return Absent("Connection refused")
    return Silent("no complete answer in time" if isinstance(error, TimeoutError) else reason)
