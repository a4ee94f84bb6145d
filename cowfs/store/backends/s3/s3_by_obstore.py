"""S3's requests through obstore: native, without the interpreter lock while bytes move.

    get, size, put         one request each, sent once: obstore's own retries are off
    stream_range           the same; a body that is abandoned ends its connection
    pages                  ListObjectsV2; a page is as long as the server's (1,000), obstore cannot ask for less
    delete_batch, _one     DeleteObjects, DELETE

**Time.** 5 s to connect. A request fails after SILENCE_S without a byte; one without a body fails
earlier if the user's timeout for stores is shorter (`patience.silence_s`). obstore does not report
the progress of sending: a body has SILENCE_S, and ALLOWANCE times as long as the bodies before it
show that it needs, at first at FIRST_BYTES_PER_S. If that was too short, the next ones get twice
the time, up to LONGEST_S.

**Signing.** Over https a body is not hashed for the signature: TLS protects it, and packs are
verified by BLAKE3 when they are read. Over http the signature covers it. Each request asks for
credentials. None: requests are not signed.

**Forks.** A child that is forked after obstore was used in the parent hangs at its first request,
also with a store of its own: obstore's threads do not exist there. `is_usable` is False in such a
child, and the parent's objects are never released there. A parent may have used obstore before this
module was imported and could notice the fork: obstore that other code has loaded counts only while
its threads exist. docs/decisions/0044-obstore.md

**Threads.** Callers' own. The main thread passes its requests to another thread and waits, since
only the main thread handles signals.

**Retry-After.** obstore hides the headers of a refusal. If a server is busy (429, 503), a HEAD of
the bucket, unsigned, asks for them, once in WISH_S.

obstore raises texts. Only `failure_of` reads them: status, code and message of S3's answer, or the
reason why there was no answer. The rest, with addresses and requests, is dropped.
"""

from __future__ import annotations

import builtins
import http.client
import os
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from cowfs.base import clock, interruptible
from cowfs.base.errors import CowfsError
from cowfs.store.backends import network
from cowfs.store.backends.s3.s3_errors import (
    NO_LENGTH,
    OTHER_RANGE,
    Absent,
    Blocked,
    CredentialsFailed,
    Distrusted,
    Malformed,
    Refused,
    S3Failure,
    Silent,
    Unexpected,
    Unproven,
    require_proof,
)
from cowfs.store.backends.s3.s3_place import S3Place
from cowfs.store.contract import AcceptsSize, Data, ObjectInfo, nanoseconds
from cowfs.store.credentials.identity import Credentials
from cowfs.store.reliability.patience import CLOSING_S, silence_s
from cowfs.store.reliability.retry_after import retry_after_s
from cowfs.store.streams import PIECE_BYTES

if TYPE_CHECKING:
    from obstore import BytesStream, GetOptions
    from obstore.store import ClientConfig, S3CredentialProvider
    from obstore.store import S3Store as Native

T = TypeVar("T")

CONNECT_S = 5.0
SILENCE_S = 60.0
LONGEST_S = 3600.0
FIRST_BYTES_PER_S = 256 << 10
ALLOWANCE = 8
_SMALL_BYTES = 1 << 20  # of a body that has SILENCE_S, and says nothing about the speed of others
WISH_S = 30.0
_PAGE = 1000
_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)

_STATUS = re.compile(r" - Server returned non-2xx status code: (\d{3})[^:]*: ?(.*)", re.DOTALL)
_DELETE_FAILED = re.compile(r"DeleteObjects request failed for key .*?: (.*) \(code: (\w+)\)", re.DOTALL)
_SYSTEM_SAYS = re.compile(r'(?:message|error): "([^"\n]{1,200})"')
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_OTHER_RANGE = ("Content-Range header", "non-partial response when range requested", "Requested ")
_NO_ETAG = "ETag Header missing"

_was_forked = False
_is_of_others = "obstore" in sys.modules


def is_usable() -> bool:
    """Whether this process may use obstore: no ancestor that it was forked from has."""
    return not _was_forked and (not _is_of_others or _has_threads())


class ObstoreRequests:
    """Of one store; thread-safe. credentials: the newest ones, None: do not sign."""

    def __init__(self, place: S3Place, credentials: Callable[[], Credentials] | None) -> None:
        self._place = place
        self._provider = _Provider(credentials) if credentials else None
        self._silence_s = silence_s(SILENCE_S)  # of requests that only ask
        self._lock = threading.Lock()  # guards the next two; never held during a request
        self._natives: dict[tuple[float, bool], Native] = {}
        self._wish = _Wish(place.address)
        self._bytes_per_s = float(FIRST_BYTES_PER_S)  # of one body, as far as is known; a race does no harm

    def get(self, key: str, accepts: AcceptsSize) -> bytes:
        import obstore

        def whole(native: Native) -> bytes:
            found = obstore.get(native, self._path(key))
            accepts(int(found.meta["size"]))
            return found.bytes().to_bytes()

        return self._ask(whole)

    def get_range(self, key: str, offset: int, length: int) -> memoryview:
        import obstore

        return self._ask(
            lambda native: memoryview(obstore.get_range(native, self._path(key), start=offset, length=length))
        )

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        import obstore

        options: GetOptions = {"range": (offset, offset + length)}
        found = self._ask(lambda native: obstore.get(native, self._path(key), options=options))
        return _pieces(found.stream(PIECE_BYTES))

    def size(self, key: str) -> int:
        import obstore

        return self._ask(lambda native: int(obstore.head(native, self._path(key))["size"]))

    def size_by_get(self, key: str) -> int:
        """The same by a request whose answer says why it is refused."""
        import obstore

        return self._ask(
            lambda native: int(obstore.get(native, self._path(key), options={"range": (0, 1)}).meta["size"])
        )

    def put(self, key: str, data: Data, *, is_new: bool) -> None:
        import obstore

        path, size = self._path(key), memoryview(data).nbytes
        began_s, limit_s = clock.monotonic_s(), self._limit_s(size)
        try:
            answer = self._ask(
                lambda native: obstore.put(
                    native, path, data, mode="create" if is_new else "overwrite", use_multipart=False
                ),
                limit_s=limit_s,
            )
        except Silent:
            if size > _SMALL_BYTES and clock.monotonic_s() - began_s >= limit_s:
                self._bytes_per_s = min(self._bytes_per_s, ALLOWANCE * size / (2 * limit_s))
            raise
        if size > _SMALL_BYTES:
            self._bytes_per_s = min(size / max(clock.monotonic_s() - began_s, 1e-3), 2 * self._bytes_per_s)
        require_proof(answer["e_tag"])

    def pages(self, prefix: str, start_after: str, most: int) -> Iterator[builtins.list[ObjectInfo]]:
        """Objects in the server's order. obstore lists whole folders. If a prefix ends within a
        name, the server skips the objects before it, and this function those after it."""
        import obstore

        folder, _, begin = prefix.rpartition("/")
        first = max(start_after, _just_below(prefix) if begin else "")
        offset = self._place.prefix + first if first else None
        stream = self._ask(
            lambda native: obstore.list(
                native, (self._place.prefix + folder).rstrip("/") or None, offset=offset, chunk_size=_PAGE
            )
        )
        while (page := self._ask(lambda _: next(stream, None))) is not None:
            found = [self._info(each) for each in page]
            yield [info for info in found if info.key.startswith(prefix)]
            if begin and found and found[-1].key > prefix and not found[-1].key.startswith(prefix):
                return

    def delete_batch(self, keys: Sequence[str]) -> None:
        import obstore

        self._ask(lambda native: obstore.delete(native, [self._path(key) for key in keys]), limit_s=SILENCE_S)

    def delete_one(self, key: str) -> None:
        import obstore

        self._ask(lambda native: obstore.delete(native, [self._path(key)]), limit_s=SILENCE_S, one_by_one=True)

    def close(self) -> None:
        with self._lock:
            self._natives = {}

    def abandon(self) -> None:
        """In a child that was just forked: nothing of the parent's is used or released."""
        import ctypes

        for native in self._natives.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))

    def _ask(self, request: Callable[[Native], T], *, limit_s: float | None = None, one_by_one: bool = False) -> T:
        native = self._native(self._silence_s if limit_s is None else limit_s, one_by_one)
        try:
            return _run_off_main_thread(lambda: _attempt(lambda: request(native)))
        except Refused as refused:
            if refused.status in (429, 503):
                refused.retry_after_s = self._wish.remaining_s()
            raise

    def _native(self, limit_s: float, one_by_one: bool) -> Native:
        """The client for requests with these settings, which obstore sets per client."""
        with self._lock:
            if (limit_s, one_by_one) not in self._natives:
                self._natives[limit_s, one_by_one] = self._connect_checked(limit_s, one_by_one)
            return self._natives[limit_s, one_by_one]

    def _connect_checked(self, limit_s: float, one_by_one: bool) -> Native:
        try:
            return _attempt(lambda: self._connect(limit_s, one_by_one))
        except Malformed:  # obstore does not say that it is for certificates
            network.trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            raise

    def _connect(self, limit_s: float, one_by_one: bool) -> Native:
        from obstore.store import S3Store as Native

        place = self._place
        return Native(
            place.bucket,
            # Set here, so that obstore's own variables have no effect.
            aws_endpoint_url_s3=place.address,
            virtual_hosted_style_request=True,  # the address is the bucket's
            region=place.region,
            skip_signature=self._provider is None,
            unsigned_payload=place.address.startswith("https:"),
            disable_bulk_delete=one_by_one,
            s3_express=place.bucket.endswith("--x-s3"),
            request_payer=False,
            credential_provider=cast("S3CredentialProvider | None", self._provider),
            client_options={
                "allow_http": True,
                "connect_timeout": timedelta(seconds=CONNECT_S),
                "timeout": timedelta(seconds=LONGEST_S),
                "read_timeout": timedelta(seconds=limit_s),
                "pool_max_idle_per_host": "64",
                **_network(place.address),
            },
            retry_config={"max_retries": 0, "retry_timeout": timedelta(0)},
        )

    def _limit_s(self, size_bytes: int) -> float:
        """One of few values: each has a client of its own."""
        sending_s = ALLOWANCE * size_bytes / self._bytes_per_s if size_bytes > _SMALL_BYTES else 0.0
        limit_s = SILENCE_S
        while limit_s < min(SILENCE_S + sending_s, LONGEST_S):
            limit_s *= 2
        return limit_s

    def _path(self, key: str) -> str:
        return self._place.prefix + key

    def _info(self, found: Any) -> ObjectInfo:
        key = found["path"][len(self._place.prefix) :]
        return ObjectInfo(key, int(found["size"]), nanoseconds(found["last_modified"]))


class _Provider:
    """Gives obstore credentials. They are marked as old, so that obstore asks at each request."""

    def __init__(self, newest: Callable[[], Credentials]) -> None:
        self._newest = newest

    def __call__(self) -> dict[str, Any]:
        found = self._newest()
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": _ALWAYS,
        }


class _Wish:
    """How long a busy server wants to be left alone."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()  # held while it is asked: others wait for the same answer
        self._asked_s = float("-inf")
        self._until_s = 0.0

    def remaining_s(self) -> float:
        with self._lock:
            if clock.monotonic_s() >= self._asked_s + WISH_S:
                wish_s = self._ask()
                self._asked_s = clock.monotonic_s()
                self._until_s = self._asked_s + wish_s
            return max(self._until_s - clock.monotonic_s(), 0.0)

    def _ask(self) -> float:
        try:
            connection, target, headers = network.connection(self._address, CONNECT_S)
        except S3Failure:
            return 0.0
        try:
            connection.connect()
            with _limit_time(connection.sock):
                connection.request("HEAD", target, headers=headers)
                answer = connection.getresponse()
                said = {name.lower(): value for name, value in answer.getheaders()}
        except (OSError, http.client.HTTPException, ValueError, RuntimeError):  # cut in the middle; or no thread for it
            return 0.0
        finally:
            connection.close()
        return retry_after_s(said) if answer.status in (429, 503) else 0.0


@contextmanager
def _limit_time(connected: socket.socket) -> Iterator[None]:
    """Cuts the connection if the block takes longer than CONNECT_S: a socket's time limit is for
    each byte of an answer, not for all of them. RuntimeError: no thread can be had."""

    def cut() -> None:
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(CONNECT_S, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _pieces(stream: BytesStream) -> Iterator[Data]:
    while (piece := _run_off_main_thread(lambda: _attempt(lambda: next(stream, None)))) is not None:
        yield piece


def failure_of(error: BaseException) -> S3Failure:
    """What obstore's error says. Its text: what failed, then a dump of the error and its causes."""
    said, _, dump = str(error).partition("\n\nDebug source:\n")
    if found := _STATUS.search(said):
        return Refused(int(found[1]), *_of_body(found[2]))
    if found := _DELETE_FAILED.search(said):
        return Refused(200, found[2], found[1])
    if "Received redirect without LOCATION" in said:
        return Refused(301, "PermanentRedirect", "the bucket lies in another region")
    if any(words in said for words in _OTHER_RANGE):
        return Unexpected(OTHER_RANGE)
    if "invalid list response" in said:
        return Malformed("its list cannot be read")
    if "invalid DeleteObjects response" in said:
        return Unexpected("no list of deleted objects")
    if _NO_ETAG in said:
        return Unproven("no ETag")
    if "Unauthenticated" in dump or "credential" in said.lower():
        return CredentialsFailed("the credentials cannot be read")
    if isinstance(error, ValueError) or any(
        kind in dump for kind in ("InvalidPath", "UnableToParseUrl", "kind: Builder")
    ):
        return Malformed("this is not the address of a bucket")
    return _silence_of(dump)


def _of_body(body: str) -> tuple[str, str]:
    """Code and message of S3's error document."""
    code, message = (re.search(rf"<{name}>([^<]*)</{name}>", body) for name in ("Code", "Message"))
    return (code[1].strip() if code else "", _unescape(message[1].strip()) if message else "")


def _unescape(text: str) -> str:
    from html import unescape

    return " ".join(unescape(text).split())


def _silence_of(dump: str) -> Silent:
    if "ProxyAuthRequired" in dump:
        return Blocked("the proxy wants another user or password")
    if "TunnelUnsuccessful" in dump:
        return Blocked("the proxy does not connect to it")
    if (unaccepted := _CERTIFICATE.search(dump)) and not _SYSTEM_SAYS.search(dump):
        return Distrusted(f"its certificate is not accepted: {unaccepted[1]}")
    kind = Absent if "ConnectionRefused" in dump else Silent
    return kind(_why_silent(dump))


def _why_silent(dump: str) -> str:
    if "kind: Timeout" in dump or "TimedOut" in dump:
        return "no complete answer in time"
    if "InvalidMessage(" in dump or "tls handshake eof" in dump:
        return "it does not speak TLS: is it an http: endpoint?"
    if found := _SYSTEM_SAYS.search(dump):
        return found[1]
    if "MissingContentLength" in dump:
        return NO_LENGTH
    if "Parse(" in dump or "Invalid" in dump:
        return "its text is not an answer of S3"
    return "the connection broke"


def _attempt(request: Callable[[], T]) -> T:
    """Its failure instead of obstore's error."""
    from obstore.exceptions import BaseError

    try:
        return request()
    except (BaseError, OSError, NotImplementedError, ValueError) as error:
        if isinstance(error, CowfsError):
            raise
        raise failure_of(error) from None


def _run_off_main_thread(request: Callable[[], T]) -> T:
    """Runs a request in another thread. A request without a waiting caller, or with one in a hurry,
    has CLOSING_S; so has one in the thread that works for it. Silent: it was not answered by
    then."""
    if threading.current_thread() is not threading.main_thread() and not interruptible.is_work():
        return request()
    results: list[T] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(request())
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            problems.append(error)

    thread = threading.Thread(target=run, name="cowfs-s3", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread can be had
        return request()
    while thread.is_alive() and interruptible.has_time():
        thread.join(interruptible.LOOK_S)
    thread.join(CLOSING_S)
    if thread.is_alive():
        raise Silent("it was not answered soon, and its caller waits no longer")
    if problems:
        raise problems.pop()
    return results.pop()


def _network(address: str) -> ClientConfig:
    """Settings of authorities and proxies. obstore would read the variables of proxies in its own
    way; its only form of "directly" is a proxy that applies to all others."""
    found: ClientConfig = {}
    if address.startswith("https:") and (bundle := network.users_bundle()) is not None:
        found["root_certificate"] = bundle
    if network.has_proxies():
        proxy = network.proxy_of(address)
        found["proxy_url"] = proxy or "http://localhost"
        if proxy is None:
            found["proxy_excludes"] = (urlsplit(address).hostname or "").rstrip(".")
    return found


def _just_below(key: str) -> str:
    """What sorts before `key`, and behind all other keys that do: they are ASCII, without '//'."""
    below = chr(ord(key[-1]) - 1)
    return key[:-1] + ("." if below == "/" else below) + "~" * 64


def _has_threads() -> bool:
    """Whether obstore's threads run in this process."""
    return any(path.read_text() == "tokio-rt-worker\n" for path in Path("/proc/self/task").glob("*/comm"))


def _note_fork() -> None:
    global _was_forked
    _was_forked = _was_forked or "obstore" in sys.modules


os.register_at_fork(after_in_child=_note_fork)
