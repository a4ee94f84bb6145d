"""S3 and everything that speaks its protocol, through s3fs' connection handling and S3's own
requests.

s3fs' file calls are not used: they list and look up what we did not ask for, retry by themselves,
and turn 43 error codes into EINVAL. Here each call of the contract is one request (a list: one for
each 1,000 keys; a delete likewise).

    call            request                       notes
    put_if_absent   PUT with If-None-Match: *     412 is ConflictError; 409 (another one in flight) is UnavailableError
    get_range       GET with Range                a server may send less than asked: checked
    list            ListObjectsV2, StartAfter     pages in the server's order; sorted when the whole answer is at hand

No retries: s3fs', botocore's and aiohttp's (which repeats a PUT when a kept connection breaks) are
off, so a conditional put is sent once; `retrying` repeats what may be repeated. Time: 5 s to
connect, 60 s without progress in either direction; then UnavailableError. A body of any size may
take as long as it moves: it is handed over in pieces, and the kernel is told to keep little of it
that was not sent, so that a piece taken is a piece on its way. LONGEST_S bounds even a server that
sends a byte a minute. Credentials: those of an `identity`, or without one where AWS tools look
(environment, ~/.aws, instance role), and none for a server that `trust` does not know; where there
are none, requests are not signed, as public buckets have it. Of an identity every request is signed
with the newest credentials, over the same connections, and one that was refused is sent again when
there are others. Endpoint and region: the store's URL, else those of AWS' tools. Threads: requests
run on fsspec's event loop thread; callers wait. After a fork the child connects anew.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import aiohttp
import s3fs
from aiobotocore.credentials import AioCredentials  # type: ignore[import-untyped]
from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]
from aiobotocore.session import AioSession  # type: ignore[import-untyped]
from aiohttp.abc import AbstractStreamWriter
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError
from botocore.handlers import add_expect_header
from botocore.parsers import ResponseParserError

from cowfs.errors import AccessDeniedError, CorruptError, CowfsError, InvalidInputError, NotFoundError
from cowfs.store.contract import Data, ObjectInfo, ObjectStore, check_key
from cowfs.store.errors import refused_anonymously
from cowfs.store.identity import AMBIENT, Access, Credentials, Identity
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.s3_errors import NO_CREDENTIALS, from_s3_error, is_unexplained, refusal_of
from cowfs.store.s3_models import use_small_models

T = TypeVar("T")

_CONNECT_S = 5
_SILENCE_S = 60
_LONGEST_S = 3600
_PIECE_BYTES = 64 << 10  # of a body: each must be taken within _SILENCE_S
_UNSENT_BYTES = 128 << 10
_LIST_PAGE = 1000
_DELETE_BATCH = 1000
_REQUEST_ERRORS = (
    OSError,  # s3fs' translations, and time-outs
    ClientError,
    BotoCoreError,
    HTTPClientError,
    ResponseParserError,
    aiohttp.ClientError,
    ValueError,  # a malformed endpoint
)


class S3Store:
    """The objects below `prefix` (empty, or ending in '/') of a bucket."""

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str,
        url: str,
        endpoint: str | None,
        region: str | None,
        untrusted_server: str | None = None,
        access: Access = AMBIENT,
    ) -> None:
        """untrusted_server: the endpoint, when it may not see credentials of the environment."""
        self._bucket = bucket
        self._prefix = prefix
        self._url = url
        self._endpoint = endpoint
        self._region = region
        self._access = access
        self._identity = access.identity
        self._untrusted_server = untrusted_server
        self._lock = threading.Lock()  # guards those below; never held during a request
        self._is_anonymous = self._untrusted_server is not None
        self._file_system: s3fs.S3FileSystem | None = None
        self._pid = 0

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str) -> bytes:
        return self._run(lambda: self._get(key, {}), key)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        if length == 0:
            check_key(key)
            return b""
        data = self._run(lambda: self._get(key, {"Range": f"bytes={offset}-{offset + length - 1}"}), key)
        if len(data) != length:
            raise CorruptError(
                f"{self._url}: {key} gave {len(data)} bytes at {offset}, {length} were expected", details={"key": key}
            )
        return data

    def size(self, key: str) -> int | None:
        try:
            return self._run(lambda: self._size(key), key)
        except NotFoundError:
            return None

    def put(self, key: str, data: Data) -> None:
        self._run(lambda: self._call("put_object", key=key, Body=_body(data)), key)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._run(lambda: self._call("put_object", key=key, Body=_body(data), IfNoneMatch="*"), key)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        if limit is not None:
            return builtins.list(islice(self._pages(prefix, start_after, limit), limit))
        return sorted(self._pages(prefix, start_after, _LIST_PAGE), key=lambda info: info.key)

    def delete(self, keys: Iterable[str]) -> None:
        doomed = builtins.list(keys)
        for key in doomed:
            check_key(key)
        for start in range(0, len(doomed), _DELETE_BATCH):
            some = doomed[start : start + _DELETE_BATCH]
            if len(some) == 1 or not self._delete_batch(some):
                for key in some:
                    self._delete_one(key)

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        with self._lock:
            file_system, self._file_system = self._file_system, None
        if file_system is not None and file_system._s3 is not None and self._pid == os.getpid():
            asyncio.run_coroutine_threadsafe(_disconnect(file_system), file_system.loop).result(_CONNECT_S)

    # -- requests

    def _connection(self) -> s3fs.S3FileSystem:
        with self._lock:
            if self._file_system is None or self._pid != os.getpid():
                self._file_system = _connect(
                    self._endpoint, self._region, anonymous=self._is_anonymous, access=self._access
                )
                self._pid = os.getpid()
            return self._file_system

    def _run(self, request: Callable[[], Coroutine[Any, Any, T]], key: str) -> T:
        """Waits for a request that runs on the loop's thread; its error, if any, becomes one of
        ours."""
        if self._identity is not None:
            return self._run_as(self._identity, request, key)
        try:
            return self._attempt(request)
        except CowfsError:  # a key that is none; it is a ValueError too
            raise
        except NoCredentialsError:  # nothing was sent
            self._give_no_name()
        except _REQUEST_ERRORS as error:
            raise self._explained(error, key) from None  # what servers and libraries say may hold credentials
        try:
            return self._attempt(request)
        except CowfsError:
            raise
        except _REQUEST_ERRORS as error:
            raise self._explained(error, key) from None

    def _run_as(self, identity: Identity, request: Callable[[], Coroutine[Any, Any, T]], key: str) -> T:
        """As `_run`, with given credentials."""

        def attempt(_: Credentials) -> T:  # the request asks for them when it is signed
            try:
                return self._attempt(request)
            except CowfsError:
                raise
            except _REQUEST_ERRORS as error:
                raise from_s3_error(error, url=self._url, key=key) from None

        return identity.run(attempt, refusal_of)

    def _attempt(self, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        loop = self._connection().loop
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(request(), _LONGEST_S), loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def _give_no_name(self) -> None:
        """There are no credentials: the bucket may be public."""
        with self._lock:
            if not self._is_anonymous:
                self._is_anonymous, self._file_system = True, None

    def _explained(self, error: BaseException, key: str) -> CowfsError:
        found = from_s3_error(error, url=self._url, key=key)
        if not isinstance(found, AccessDeniedError) or not self._is_anonymous:
            return found
        return refused_anonymously(found, self._untrusted_server, hint=NO_CREDENTIALS)

    def _delete_batch(self, some: builtins.list[str]) -> bool:
        """False when the server does not know this request."""
        objects = [{"Key": self._prefix + key} for key in some]
        try:
            answer = self._run(
                lambda: self._call("delete_objects", Delete={"Objects": objects, "Quiet": True}), some[0]
            )
        except InvalidInputError as error:
            if error.details.get("status") in (400, 405, 501):
                return False
            raise
        for failed in answer.get("Errors", []):
            if failed.get("Code") != "NoSuchKey":
                refused = ClientError({"Error": failed}, "DeleteObjects")
                raise self._explained(refused, failed.get("Key", ""))
        return True

    def _delete_one(self, key: str) -> None:
        try:
            self._run(lambda: self._call("delete_object", key=key), key)
        except NotFoundError as error:
            if error.details.get("code") == "NoSuchBucket":
                raise

    async def _call(self, method: str, *, key: str | None = None, **arguments: Any) -> dict[str, Any]:
        if key is not None:
            check_key(key)
            arguments["Key"] = self._prefix + key
        answer: dict[str, Any] = await self._connection()._call_s3(method, Bucket=self._bucket, **arguments)
        return answer

    async def _size(self, key: str) -> int:
        try:
            return int((await self._call("head_object", key=key))["ContentLength"])
        except _REQUEST_ERRORS as error:
            if not is_unexplained(error):
                raise
        # The answer to HEAD has no body. That to GET says why: credentials that have expired are not the same as
        # ones that may not.
        answer = await self._call("get_object", key=key, Range="bytes=0-0")
        async with answer["Body"] as body:
            await body.read()
        return int(answer["ContentRange"].rpartition("/")[2])

    async def _get(self, key: str, arguments: dict[str, Any]) -> bytes:
        answer = await self._call("get_object", key=key, **arguments)
        data = _allocated(int(answer["ContentLength"]))
        async with answer["Body"] as body:  # all at once, it would be held twice for a moment: in pieces, and joined
            while piece := await body.read(_PIECE_BYTES):
                data.write(piece)
        data.truncate()
        return data.getvalue()

    def _pages(self, prefix: str, start_after: str, page: int) -> Iterator[ObjectInfo]:
        arguments: dict[str, Any] = {"Prefix": self._prefix + prefix, "MaxKeys": min(page, _LIST_PAGE)}
        if start_after:
            arguments["StartAfter"] = self._prefix + start_after
        while True:
            answer = self._run(partial(self._call, "list_objects_v2", **arguments), prefix)
            for entry in answer.get("Contents", []):
                yield ObjectInfo(
                    entry["Key"][len(self._prefix) :], int(entry["Size"]), _nanoseconds(entry["LastModified"])
                )
            if not answer.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]


class _Pieces(aiohttp.Payload):
    """A request's body, handed over piece by piece: TimeoutError when the connection takes none for
    _SILENCE_S."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        transport = getattr(writer, "transport", None)
        connection = transport and transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        body = memoryview(self._value)[:content_length]
        for start in range(0, len(body), _PIECE_BYTES):
            async with asyncio.timeout(_SILENCE_S):
                await writer.write(body[start : start + _PIECE_BYTES])
                await writer.drain()


class _Session(AIOHTTPSession):  # type: ignore[misc]  # untyped
    """Connections whose requests are sent once, their bodies watched.

    aiohttp would repeat a PUT, conditional or not, when a kept connection breaks.
    """

    async def send(self, request: Any) -> Any:
        if isinstance(request.body, io.BytesIO):  # botocore's wrapper of what it was given, rewound
            request.body = _Pieces(request.body.getvalue())
        return await super().send(request)

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


def _body(data: Data) -> bytes | bytearray:
    """What botocore takes; a pack is not copied."""
    return bytes(data) if isinstance(data, memoryview) else data


def _allocated(length: int) -> io.BytesIO:
    """A buffer to be filled from its start: one that grows leaves holes in the heap."""
    data = io.BytesIO()
    if length > 0:
        data.seek(length - 1)
        data.write(b"\0")
        data.seek(0)
    return data


class _Newest(AioCredentials):  # type: ignore[misc]  # untyped
    """What botocore signs each request with; it asks for the credentials every time."""

    def __init__(self, identity: Identity) -> None:
        super().__init__("", "")
        self._identity = identity

    async def get_frozen_credentials(self) -> Credentials:
        return self._identity.newest


def _connect(endpoint: str | None, region: str | None, *, anonymous: bool, access: Access) -> s3fs.S3FileSystem:
    session = AioSession()
    styles = {True: "path", False: "virtual", None: None}
    style = styles[access.path_style]
    if access.identity is not None:
        session._credentials = _Newest(access.identity)
    use_small_models(session)
    # Asking before each upload costs a round trip, and aiohttp waits for the answer without a time
    # limit.
    session.unregister("before-call.s3", add_expect_header)
    file_system = s3fs.S3FileSystem(
        anon=anonymous,
        session=session,
        endpoint_url=endpoint,
        client_kwargs={"region_name": region} if region else None,
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": _CONNECT_S,
            "read_timeout": _SILENCE_S,
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "http_session_cls": _Session,
            "max_pool_connections": 64,
            **({"s3": {"addressing_style": style}} if style else {}),
            # Many compatible servers refuse the newer checksum headers; over plain HTTP the
            # signature covers the body.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
    )
    file_system.retries = 1
    return file_system


async def _disconnect(file_system: s3fs.S3FileSystem) -> None:
    client, file_system._s3 = file_system._s3, None
    await client.close()


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000
