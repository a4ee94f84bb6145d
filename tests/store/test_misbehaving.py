"""One suite of answers that go wrong, over every backend that speaks HTTP: each code means the
same, and no secret comes back.

The server says in its body, and in the reason of its status line, everything it was told. Backends
whose packages are not installed here are stood in for by errors made as theirs are.
"""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from botocore.exceptions import HTTPClientError

from cowfs import errors
from cowfs.errors import CorruptError, CowfsError, InvalidStateError
from cowfs.store import open_store
from cowfs.store.backends.backend_errors import from_foreign_error
from cowfs.store.backends.s3 import s3_by_obstore, s3_by_s3fs
from cowfs.store.backends.s3.s3_errors import from_failure
from cowfs.store.contract import list_carefully
from cowfs.store.credentials import trust
from cowfs.store.reliability.damaged import read_range_as
from cowfs.store.reliability.patience import RETRY_AFTER
from cowfs.store.streams import stream_range
from tests.store.conftest import WarpClock
from tests.store.scripted_server import Answer, Request, ScriptedServer, response

SECRET = "not-a-secret-at-all"
TOKEN = "session-token-of-somebody"
HEADER = "bearer-of-the-http-client"

KINDS = {
    400: "invalid_input",
    401: "access_denied",
    403: "access_denied",
    404: "not_found",
    410: "not_found",
    413: "invalid_input",
    416: "corrupt",
    418: "unavailable",
    429: "unavailable",
    500: "unavailable",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
    507: "no_space",
}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    import fsspec.config

    configured = {"client_kwargs": {"headers": {"Authorization": f"Bearer {HEADER}", "X-Mine": HEADER}}}
    monkeypatch.setitem(fsspec.config.conf, "http", configured)
    monkeypatch.setenv("FSSPEC_HTTP_CLIENT_KWARGS", json.dumps(configured["client_kwargs"]))


def s3_url(server: ScriptedServer) -> str:
    return f"s3://cowfs;endpoint={quote(server.endpoint, safe='')};region=us-east-1/stores"


def http_url(server: ScriptedServer) -> str:
    return f"{server.endpoint}/stores"


FORKED = "s3 in a forked child"
URLS: dict[str, Callable[[ScriptedServer], str]] = {"s3": s3_url, FORKED: s3_url, "http": http_url}


@pytest.fixture(autouse=True)
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sends requests in a forked child is a backend of its own."""
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("backend") == FORKED:
        monkeypatch.setattr(s3_by_obstore, "is_usable", lambda: False)


def echo(status: int) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        told = "; ".join(f"{name}: {value}" for name, value in request.headers.items())
        body = f"<Error><Code>X</Code><Message>{told} {request.target}</Message></Error>".encode()
        reason = request.headers.get("authorization", "nobody").replace("\r", "")
        return response(f"{status} {reason}", b"" if request.method == "HEAD" else body), True

    return answer


def assert_tells_nothing(error: CowfsError, server: ScriptedServer) -> None:
    shown = "".join(traceback.format_exception(error)) + json.dumps(errors.to_record(error))
    for secret in (SECRET, TOKEN, HEADER, "Signature=", "Bearer "):
        assert secret not in shown
    signatures = [request.headers.get("authorization", "").rpartition("=")[2] for request in server.requests]
    assert not any(signature and signature in shown for signature in signatures)


@pytest.mark.parametrize("backend", URLS)
@pytest.mark.parametrize("status", KINDS)
def test_each_status_means_the_same_and_tells_no_secret(warp: WarpClock, backend: str, status: int) -> None:
    with ScriptedServer(echo(status)) as server:
        store = open_store(URLS[backend](server))
        calls: list[Callable[[], object]] = [
            lambda: store.get("key"),
            lambda: store.get_range("key", 0, 5),
            lambda: list(stream_range(store, "key", 0, 5)),
        ]
        if backend != "http":
            calls += [lambda: store.put("key", b"x"), lambda: store.list(""), lambda: store.delete(["key"])]
        for call in calls[: 5 if KINDS[status] == "not_found" else None]:
            before = len(server.requests)
            with pytest.raises(CowfsError) as caught:
                call()
            assert caught.value.kind == KINDS[status]
            assert_tells_nothing(caught.value, server)
            asked = [request.method for request in server.requests[before:]]
            assert (len(asked) - asked.count("HEAD") > 1) == (KINDS[status] == "unavailable")  # repeated, or not
        store.close()


@pytest.mark.parametrize("backend", ["s3", FORKED])
@pytest.mark.parametrize("body", [b"the whole object", b"<html>", gzip.compress(b"whole", mtime=0)])
def test_answers_that_something_on_the_way_has_changed_are_called_so(
    warp: WarpClock, backend: str, body: bytes
) -> None:
    """Of a range the whole object, a page instead of it, or a body that is packed."""
    ranged = f'HTTP/1.1 206 Partial\r\nContent-Range: bytes 4-8/99\r\nETag: "1"\r\nContent-Length: {len(body)}\r\n\r\n'
    answer = ranged.encode() + body if body[:1] == b"\x1f" else response("200 OK", body)
    with ScriptedServer(lambda _: (answer, True)) as server:
        store = open_store(URLS[backend](server))
        with pytest.raises(CorruptError) as caught:
            read_range_as(store, "key", 4, 5, bytes)
        assert "something between this machine" in caught.value.hint
        store.close()


@pytest.mark.parametrize("backend", URLS)
def test_a_connection_that_breaks_is_repeated(warp: WarpClock, backend: str) -> None:
    broken = iter([True, True])

    def answer(request: Request) -> Answer:
        return (b"", False) if next(broken, False) else (response("200 OK", b"value"), True)

    with ScriptedServer(answer) as server:
        store = open_store(URLS[backend](server))
        assert store.get("key") == b"value"
        assert len(server.requests) == 3
        store.close()


@pytest.mark.parametrize("backend", URLS)
def test_retry_after_is_heard(warp: WarpClock, backend: str) -> None:
    def answer(request: Request) -> Answer:
        if warp.waited_s > 29:
            return response("200 OK", b"value"), True
        return b"HTTP/1.1 503 Busy\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n", True

    with ScriptedServer(answer) as server:
        store = open_store(URLS[backend](server))
        assert store.get("key") == b"value"
        assert 29 < warp.waited_s < 40
        assert [request.method for request in server.requests if request.method == "GET"] == ["GET", "GET"]
        store.close()


def test_a_wish_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and so does none of what is asked for."""
    monkeypatch.setattr(s3_by_obstore, "CONNECT_S", 0.2)

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nX: ")
            for _ in range(200):
                connection.sendall(b"x")
                time.sleep(0.05)
            connection.sendall(b"\r\nRetry-After: 30\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60.0)
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        assert s3_by_obstore._Wish(f"http://127.0.0.1:{listener.getsockname()[1]}").remaining_s() == 0.0
        thread.join()


def test_http_stores_are_read_and_not_written(warp: WarpClock) -> None:
    with ScriptedServer(lambda request: (response("200 OK", b"value"), True)) as server:
        store = open_store(http_url(server))
        assert store.get("key") == b"value"
        for put in (store.put, store.put_if_absent):
            with pytest.raises(CowfsError) as caught:
                put("key", b"")
            assert caught.value.kind == "read_only"
        with pytest.raises(CowfsError, match="listed") as caught:
            store.list("")
        assert "locator" in caught.value.hint
        store.close()


# -- whom credentials are shown to


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of this machine count as somebody else's."""
    monkeypatch.setattr(trust, "is_loopback", lambda server: False)
    monkeypatch.setattr(trust, "_named", set())


def heard(server: ScriptedServer) -> str:
    return json.dumps([[request.target, dict(request.headers)] for request in server.requests])


@pytest.mark.parametrize("backend", URLS)
def test_a_server_that_only_a_locator_names_sees_no_credentials(warp: WarpClock, far_away: None, backend: str) -> None:
    """A public store is read; where strangers are refused, the error says how to trust the
    server."""
    with ScriptedServer(lambda request: (response("200 OK", b"value"), True)) as server:
        store = open_store(URLS[backend](server))
        assert store.get("key") == b"value"
        store.close()
        for secret in (SECRET, TOKEN, HEADER, "cowfs-tests", "uthorization"):
            assert secret not in heard(server)
    with ScriptedServer(echo(403)) as server:
        store = open_store(URLS[backend](server))
        with pytest.raises(CowfsError) as caught:
            store.get("key")
        assert caught.value.kind == "access_denied"
        assert trust.VARIABLE in caught.value.hint
        assert caught.value.details["untrusted_server"] == server.endpoint
        store.close()
        for secret in (SECRET, TOKEN, HEADER, "cowfs-tests"):
            assert secret not in heard(server)


@pytest.mark.parametrize("backend", URLS)
@pytest.mark.parametrize("how", ["variable", "list", "file", "default store", "named", "aws"])
def test_a_server_of_the_user_sees_credentials(
    warp: WarpClock, far_away: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str, how: str
) -> None:
    with ScriptedServer(lambda request: (response("200 OK", b"value"), True)) as server:
        url = URLS[backend](server)
        (tmp_path / "cowfs").mkdir()
        if how == "variable":
            monkeypatch.setenv(trust.VARIABLE, f"https://other.example, {server.endpoint}/")
        elif how == "list":
            (tmp_path / "cowfs" / "config.toml").write_text(f'trusted_endpoints = ["{server.endpoint}"]\n')
        elif how == "file":
            trust.remember(server.endpoint)
        elif how == "default store":
            monkeypatch.setenv("COWFS_STORE", url)
        elif how == "aws":
            (tmp_path / "aws").write_text(f"[default]\nregion = x\nendpoint_url = {server.endpoint}\n")
            monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
        else:
            from cowfs.api import stores

            stores.name(url)
            assert server.endpoint in trust.format_for_export().split()
        store = open_store(url)
        assert store.get("key") == b"value"
        store.close()
        assert (HEADER if backend == "http" else TOKEN) in heard(server)


@pytest.mark.quick
def test_what_is_loopback() -> None:
    for server in ("http://127.0.0.1:9000", "http://[::1]:1", "https://localhost:443", "http://s3.localhost:80"):
        assert trust.is_loopback(server)
    for server in ("http://127.0.0.1.evil.example:80", "http://localhost.evil.example:80", "http://10.0.0.1:80"):
        assert not trust.is_loopback(server)


def test_a_bucket_without_credentials_is_asked_unsigned(warp: WarpClock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with ScriptedServer(lambda request: (response("200 OK", b"public"), True)) as server:
        store = open_store(s3_url(server))
        assert store.get("key") == b"public"
        assert "uthorization" not in heard(server)
        store.close()
    with ScriptedServer(echo(403)) as server:
        store = open_store(s3_url(server))
        with pytest.raises(CowfsError, match="none were found") as caught:
            store.get("key")
        assert "AWS_ACCESS_KEY_ID" in caught.value.hint
        store.close()


def test_expired_credentials_are_called_so(warp: WarpClock) -> None:
    body = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
    with ScriptedServer(lambda request: (response("400 Bad Request", body), True)) as server:
        store = open_store(s3_url(server))
        with pytest.raises(CowfsError, match="expired") as caught:
            store.get("key")
        assert caught.value.kind == "access_denied"
        assert "mount" in caught.value.hint
        store.close()


# -- answers of status 200 that say nothing

LISTED = b"<Contents><Key>stores/key</Key><Size>1</Size><ETag>1</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
NO_LISTS = {
    "error": b'<?xml version="1.0"?><Error><Code>InternalError</Code><Message>later</Message></Error>',
    "empty": b"",
    "page": b"<html><body><p>Log in to go on</p></body></html>",
    "unclosed": b"<ListBucketResult>",
    "whither": b"<ListBucketResult><IsTruncated>true</IsTruncated>" + LISTED + b"</ListBucketResult>",
}


@pytest.mark.parametrize("body", NO_LISTS.values(), ids=NO_LISTS)
@pytest.mark.parametrize("backend", ["s3", FORKED])
def test_what_is_no_list_is_not_taken_for_one_by_who_deletes(warp: WarpClock, backend: str, body: bytes) -> None:
    """A collection took it for a store without volumes, and deleted everything."""
    with ScriptedServer(lambda request: (response("200 OK", body), True)) as server:
        store = open_store(s3_url(server))
        list_carefully(store.read_only())
        with pytest.raises(CowfsError) as caught:
            store.list("volumes/")
        assert caught.value.kind in ("unavailable", "invalid_input")
        store.close()


@pytest.mark.parametrize("backend", ["s3", FORKED])
def test_a_careful_list_is_a_list(warp: WarpClock, backend: str) -> None:
    def answer(request: Request) -> Answer:
        more = "continuation-token" not in request.target
        token = b"<NextContinuationToken>t</NextContinuationToken>" if more else b""
        listed = LISTED.replace(b"stores/key", b"stores/first") if more else LISTED
        body = b"<ListBucketResult><IsTruncated>%s</IsTruncated>" % (b"true" if more else b"false")
        return response("200 OK", body + token + listed + b"</ListBucketResult>"), True

    with ScriptedServer(answer) as server:
        store = open_store(s3_url(server))
        list_carefully(store)
        assert [info.key for info in store.list("")] == ["first", "key"]
        store.close()


@pytest.mark.parametrize("backend", ["s3", FORKED])
@pytest.mark.parametrize("stored", [None, b"x", b"y", b"longer"])
@pytest.mark.parametrize("call", ["put", "put_if_absent"])
@pytest.mark.parametrize("tag", ["", 'W/"3f-abc"', '"5f3a-abc"', f'W/"{"1" * 32}"'])
def test_what_was_put_without_a_proof_is_looked_for(
    warp: WarpClock, backend: str, stored: bytes | None, call: str, tag: str
) -> None:
    """A box on the way answered 200 by itself, maybe with the ETag of its own page."""

    def answer(request: Request) -> Answer:
        if request.method == "PUT":
            return (
                f"HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: 0\r\n\r\n".encode() if tag else response("200 OK")
            ), True
        if stored is None:
            return response(
                "404 Not Found", b"" if request.method == "HEAD" else b"<Error><Code>NoSuchKey</Code></Error>"
            ), True
        head = f'HTTP/1.1 200 OK\r\nContent-Length: {len(stored)}\r\nETag: "1"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n'
        return head.encode() + (b"" if request.method == "HEAD" else stored), True

    is_there = stored == b"x" or (call == "put" and stored == b"y")  # of what is replaced the length has to do
    with ScriptedServer(answer) as server:
        store = open_store(s3_url(server))
        if is_there:
            getattr(store, call)("key", b"x")
        else:
            with pytest.raises(CowfsError) as caught:
                getattr(store, call)("key", b"x")
            assert caught.value.kind == "unavailable"
        store.close()


@pytest.mark.parametrize("backend", ["s3", FORKED])
@pytest.mark.parametrize("tag", ["1" * 32, f'"{"aF" * 16}"', f'"{"1" * 32}-2"'])
def test_an_etag_of_s3s_is_a_proof(backend: str, tag: str) -> None:
    stored = f"HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: 0\r\n\r\n".encode()
    with ScriptedServer(lambda request: (stored, True)) as server:
        store = open_store(s3_url(server))
        store.put("key", b"x")
        store.put_if_absent("key", b"x")
        assert [request.method for request in server.requests] == ["PUT", "PUT"]
        store.close()


# -- requests some servers lack


def deleting(known: bool) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        if request.method == "DELETE":
            return b"HTTP/1.1 204 No Content\r\n\r\n", True
        if request.method == "HEAD":
            return response("404 Not Found"), True
        if not known:
            return response("501 Not Implemented", b"<Error><Code>NotImplemented</Code></Error>"), True
        deleted = b"".join(b"<Deleted><Key>stores/%s</Key></Deleted>" % key for key in (b"one", b"two", b"three"))
        return response("200 OK", b"<DeleteResult>" + deleted + b"</DeleteResult>"), True

    return answer


@pytest.mark.parametrize("known", [True, False])
def test_one_key_is_deleted_by_the_plain_request(known: bool) -> None:
    with ScriptedServer(deleting(known)) as server:
        store = open_store(s3_url(server))
        store.delete(["one"])
        assert [request.method for request in server.requests] == ["DELETE"]
        server.requests.clear()
        store.delete(["one", "two", "three"])
        methods = [request.method for request in server.requests]
        assert methods == (["POST"] if known else ["POST", "DELETE", "DELETE", "DELETE", "HEAD"])
        store.close()


@pytest.mark.parametrize("backend", ["s3", FORKED])
def test_what_a_page_says_to_have_deleted_is_not(warp: WarpClock, backend: str) -> None:
    def answer(request: Request) -> Answer:
        if request.method == "HEAD":
            last_modified = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT"
            return f'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nETag: "1"\r\n{last_modified}\r\n\r\n'.encode(), True
        return response("200 OK", b"<html><body>Blocked</body></html>"), True

    with ScriptedServer(answer) as server:
        store = open_store(s3_url(server))
        with pytest.raises(CowfsError, match="has not") as caught:
            store.delete(["one", "two"])
        assert caught.value.kind == "unavailable"
        store.close()


# -- packages that are not installed here


class HttpResponseError(Exception):
    """azure.core's: no OSError; knows the whole request."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"Operation returned an invalid status\nAuthorization: SharedKey {SECRET}")
        self.status_code = status_code
        self.response = type("Response", (), {"headers": {"Retry-After": "9"}})()


class HttpError(Exception):
    """gcsfs': the status is called code, and may be text."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{{'code': {code}, 'token': '{TOKEN}'}}")
        self.code = str(code)


class ServiceRequestError(Exception):
    pass


class GoogleAuthError(Exception):
    pass


class DefaultCredentialsError(GoogleAuthError):
    pass


@pytest.mark.quick
@pytest.mark.parametrize("make", [HttpResponseError, HttpError])
@pytest.mark.parametrize("status", KINDS)
def test_errors_of_other_libraries(make: Callable[[int], Exception], status: int) -> None:
    found = from_foreign_error(make(status), "az://c: key")
    assert found is not None
    assert found.kind == KINDS[status]
    assert "az://c: key" in found.message
    assert SECRET not in str(found)
    assert TOKEN not in str(found)
    assert found.details.get(RETRY_AFTER) == (9.0 if make is HttpResponseError else None)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServiceRequestError("cannot connect"), "unavailable"),
        (TimeoutError(), "unavailable"),
        (ConnectionResetError(104, "reset"), "unavailable"),
        (DefaultCredentialsError("not found"), "access_denied"),
        (ValueError("Must provide either a connection_string or account_name with credentials!!"), "access_denied"),
        (PermissionError("no"), "access_denied"),
        (FileNotFoundError("no"), "not_found"),
        (NotImplementedError(), "read_only"),
        (RuntimeError("something new"), "unavailable"),
        (RuntimeError("cannot schedule new futures after interpreter shutdown"), "invalid_state"),
    ],
)
def test_errors_without_a_status(error: Exception, kind: str) -> None:
    found = from_foreign_error(error, "az://c")
    assert found is not None
    assert found.kind == kind


@pytest.mark.quick
def test_requests_through_s3fs_end_with_the_interpreter() -> None:
    error = HTTPClientError(error=RuntimeError("cannot schedule new futures after interpreter shutdown"))
    found = from_failure(s3_by_s3fs._failure_of(error), url="s3://bucket", key="key")
    assert isinstance(found, InvalidStateError)
    assert "main thread" in found.hint


@pytest.mark.quick
@pytest.mark.parametrize("error", [TypeError("missing 'host'"), AttributeError("x"), KeyError("y")])
def test_mistakes_of_programs_stay_what_they_are(error: Exception) -> None:
    assert from_foreign_error(error, "az://c") is None
