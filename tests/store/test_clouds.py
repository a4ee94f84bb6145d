"""Google's and Azure's stores through gcsfs and adlfs: the conformance suite, what their
conditional create is on the wire, and what the probe says of a server that ignores it.

The servers are ours and speak the few requests that are made (`cloud_servers`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import fsspec
import pytest
from gcsfs.credentials import GoogleCredentials
from gcsfs.retry import HttpError
from google.auth.exceptions import RefreshError, TransportError

from cowfs.api.storage.resolving import access
from cowfs.errors import AccessDeniedError, ConflictError, InvalidInputError, NotFoundError, UnavailableError
from cowfs.storage import GCS, Azure
from cowfs.store import Credentials, ObjectStore, initialize, open_store, require_writable
from cowfs.store.backends.backend_errors import from_foreign_error
from cowfs.store.backends.cloud import azure, bodies, gcs
from cowfs.store.backends.cloud.azure import connection_string
from cowfs.store.backends.cloud.cloud_store import CloudStore
from cowfs.store.probe import probe
from cowfs.store.reliability import patience
from cowfs.store.reliability.retrying import RetryingStore
from tests.store import cloud_servers
from tests.store.cloud_servers import ACCOUNT, BUCKET, CONTAINER
from tests.store.scripted_server import Answer, Request, ScriptedServer, response
from tests.store.test_conformance import (  # noqa: F401 - run here, over this module's stores
    test_absent_objects,
    test_delete_ignores_absent_keys,
    test_keys_never_leave_the_store,
    test_list_is_ordered_by_key,
    test_list_start_after_and_limit,
    test_list_takes_any_prefix,
    test_put_get_whole_and_ranges,
    test_put_if_absent_after_delete,
    test_put_if_absent_refuses_and_keeps_the_first,
    test_put_replaces,
    test_racing_threads_have_one_winner,
    test_range_beyond_the_end_is_corrupt,
    test_read_only_view,
    test_takes_any_buffer,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sending a large body"
)  # azure's client does, and pytest makes it an error

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # everybody's, of emulators
Fault = Callable[[Request], Answer | None]
LARGE_BYTES = 70 << 20  # more than either sends in one request


@pytest.fixture(params=["gs", "abfs"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def ignores_condition() -> bool:
    return False


@pytest.fixture
def faults() -> list[Fault]:
    """Each is asked about each request, in turn, until one has an answer of its own."""
    return []


@pytest.fixture
def server(
    kind: str, ignores_condition: bool, faults: list[Fault], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ScriptedServer]:
    served = (cloud_servers.Google if kind == "gs" else cloud_servers.Azure)(ignores_condition=ignores_condition)

    def answer(request: Request) -> Answer:
        return next((found for fault in faults if (found := fault(request)) is not None), None) or served(request)

    with ScriptedServer(answer) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.endpoint)
        place = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={server.endpoint}/{ACCOUNT};"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"DefaultEndpointsProtocol=http;{place}")
        yield server


@pytest.fixture
def store_url(kind: str, server: ScriptedServer) -> str:
    place = os.urandom(6).hex()
    return f"gs://{BUCKET}/{place}" if kind == "gs" else f"abfs://{CONTAINER}@{ACCOUNT}/{place}"


def opened(kind: str, url: str) -> RetryingStore:
    if kind == "gs":
        return open_store(url, access=access(GCS(BUCKET, session_token="a-token-of-this-test")))
    return open_store(url)


@pytest.fixture
def store(kind: str, store_url: str) -> Iterator[RetryingStore]:
    store = opened(kind, store_url)
    store.patience.limit_s = 1.0  # a server that this test misunderstands is not waited for
    yield store
    store.close()


def is_create(request: Request) -> bool:
    return request.headers.get("if-none-match") == "*" or "ifGenerationMatch=0" in request.target


@pytest.mark.parametrize("size", [10, pytest.param(LARGE_BYTES, marks=pytest.mark.slow)])
def test_creating_is_one_conditional_request_of_the_provider(
    server: ScriptedServer, store: ObjectStore, size: int
) -> None:
    store.put("replaced", b"1")
    assert not any(is_create(request) for request in server.requests)
    store.put_if_absent("created", b"x" * size)
    assert any(is_create(request) for request in server.requests)
    with pytest.raises(ConflictError):
        store.put_if_absent("created", b"y" * size)
    assert store.size("created") == size
    assert store.get_range("created", size - 1, 1) == b"x"


def test_the_probe_finds_them_safe(store: ObjectStore) -> None:
    assert probe(store).is_safe


def test_an_object_may_hold_what_ends_a_body(store: ObjectStore) -> None:
    data = b"abc\n--==0==--\nxyz"
    store.put("put", data)
    store.put_if_absent("created", data)
    assert store.get("put") == store.get("created") == data


def is_put(request: Request) -> bool:
    return request.method in ("PUT", "POST")


def is_list(request: Request) -> bool:
    return "comp=list" in request.target or ("/o?" in request.target and request.method == "GET")


def once(when: Callable[[Request], bool], answer: bytes) -> Fault:
    """Something on the way answers the first of those requests, and passes it on to nobody."""
    answers = [answer]
    return lambda request: (answers.pop(), True) if when(request) and answers else None


SUCCESSES = {
    "gs": [response("200 OK", b"{}"), response("200 OK", b"[]"), response("200 OK", b"<html>")],
    "abfs": [response("201 Created"), response("201 Created", b"<html>")],
}


def test_a_put_that_something_else_answers_is_repeated(kind: str, store: ObjectStore, faults: list[Fault]) -> None:
    for number, success in enumerate(SUCCESSES[kind]):
        faults[:] = [once(is_put, success)]
        store.put(f"key{number}", b"data")
        assert store.get(f"key{number}") == b"data"
        faults[:] = [once(is_put, success)]
        with pytest.raises(UnavailableError):
            store.put_if_absent(f"new{number}", b"data")
        store.put_if_absent(f"new{number}", b"data")


def test_a_put_without_a_proof_that_arrived_counts(
    kind: str, server: ScriptedServer, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_servers, "described", lambda key, data: {"size": str(len(data))})
    monkeypatch.setattr(cloud_servers, "_properties", lambda data: {"x-ms-blob-type": "BlockBlob"})
    store.put_if_absent("created", b"data")
    assert store.get("created") == b"data"
    assert sum(map(is_put, server.requests)) == 1


NO_LISTS = [
    response("404 Not Found", b"<html>404 not found (gateway)</html>"),
    response("200 OK", b""),
    response("200 OK", b"null"),
    response("200 OK", b"[]"),
    response("200 OK", b"{}"),
    response("200 OK", b'{"items": [{"name": "p"}]}'),
    response("200 OK", b'{"nextPageToken": "x"}'),
    response("200 OK", b"<html>"),
    response("200 OK", b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>x</Message></Error>"),
    response("200 OK", b"<?xml version='1.0'?><EnumerationResults><Blobs/><NextMarker/></EnumerationResults>"),
]


@pytest.mark.parametrize("answer", NO_LISTS)
def test_what_is_no_list_is_asked_for_again(store: RetryingStore, faults: list[Fault], answer: bytes) -> None:
    for key in ("volumes/a/1", "volumes/b/1", "volumes/b/2", "volumes/c/1"):
        store.put(key, b"x")
    for fault in (
        is_list,
        lambda request: is_list(request) and ("arker=" in request.target or "Token" in request.target),
    ):
        faults[:] = [once(fault, answer)]
        assert len(store.list("volumes/")) == 4
        faults[:] = [once(fault, answer)]
        assert [info.key for info in store.list("volumes/", limit=2)] == ["volumes/a/1", "volumes/b/1"]
    faults[:] = [lambda request: (answer, True) if is_list(request) else None]
    store.patience.limit_s = 0.0
    with pytest.raises(UnavailableError, match="does not answer: it "):
        store.list("volumes/")


@pytest.mark.usefixtures("server")
def test_a_bucket_that_is_missing_is_no_empty_one(kind: str) -> None:
    store = opened(kind, f"gs://{BUCKET}none/x" if kind == "gs" else f"abfs://none@{ACCOUNT}/x")
    for call in (
        lambda: store.list("volumes/"),
        lambda: store.list("volumes/", limit=1),
        lambda: store.put("key", b"x"),
    ):
        with pytest.raises(NotFoundError, match="no such bucket or container"):
            call()
    store.close()


def test_requests_are_sent_once(store: RetryingStore, server: ScriptedServer, faults: list[Fault]) -> None:
    """The limits of cowfs count, not those of gcsfs and adlfs."""
    store.patience.limit_s = 0.0
    faults[:] = [lambda request: (response("503 Busy"), True)]
    for call in (
        lambda: store.get("key"),
        lambda: store.size("key"),
        lambda: store.list("volumes/"),
        lambda: store.put("key", b"x"),
        lambda: store.delete(["key"]),
    ):
        before = len(server.requests)
        with pytest.raises(UnavailableError):
            call()
        assert len(server.requests) == before + 1


def test_a_silent_server_is_given_up(
    kind: str, store_url: str, faults: list[Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COWFS_STORE_TIMEOUT", "0.2")
    monkeypatch.setattr(patience, "SHORTEST_SILENCE_S", 0.2)
    for module in (bodies, gcs, azure):
        monkeypatch.setattr(module, "SILENCE_S", 0.2)
    done = threading.Event()
    faults[:] = [lambda request: (b"", not done.wait())]
    store = opened(kind, store_url)
    store.patience.limit_s = 0.0
    try:
        for call in (
            lambda: store.get("key"),
            lambda: store.size("key"),
            lambda: store.list("volumes/"),
            lambda: store.put("key", b"x"),
            lambda: store.put_if_absent("key", b"x"),
        ):
            with pytest.raises(UnavailableError):
                call()
    finally:
        done.set()
        store.close()


@pytest.mark.parametrize("ignores_condition", [True])
def test_a_server_that_ignores_the_condition_needs_the_opt_in(store: ObjectStore) -> None:
    record = initialize(store, writers=[store] * 4)
    assert not record.probe.put_if_absent
    with pytest.raises(InvalidInputError, match="refuse to create") as caught:
        require_writable(record)
    assert "accept_unsafe_store" in caught.value.hint
    require_writable(record, accept_unsafe=True)


def test_a_given_token_is_sent_and_its_successor_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = ["first-token-of-this-test"]
    served = cloud_servers.Google()

    def answer(request: Request) -> tuple[bytes, bool]:
        if request.headers.get("authorization") == "Bearer first-token-of-this-test" and len(tokens) > 1:
            body = b'{"error": {"code": 401, "message": "Request had invalid authentication credentials"}}'
            return b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body, True
        return served(request)

    with ScriptedServer(answer) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.endpoint)
        store = open_store(f"gs://{BUCKET}/x", access=access(GCS(BUCKET, session_token=lambda: tokens[-1])))
        store.put("a", b"1")
        tokens.append("second-token-of-this-test")
        store.put("b", b"2")
        assert store.get("a") == b"1"
        assert server.requests[-1].headers["authorization"] == "Bearer second-token-of-this-test"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("why", "error"),
    [
        (TransportError("no route"), UnavailableError),
        (RefreshError("busy", retryable=True), UnavailableError),
        (RefreshError("invalid_grant"), AccessDeniedError),
    ],
)
def test_a_token_that_cannot_be_had_now_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, why: Exception, error: type[Exception]
) -> None:
    def apply(self: object, headers: object) -> None:
        if isinstance(why, RefreshError):
            raise HttpError({"code": 401, "message": "Invalid Credentials"}) from why  # as gcsfs does
        raise why

    with ScriptedServer(cloud_servers.Google()) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.endpoint)
        store = opened("gs", f"gs://{BUCKET}/x")
        store.patience.limit_s = 0.0
        monkeypatch.setattr(GoogleCredentials, "apply", apply)
        for call in (lambda: store.get("key"), lambda: store.put("key", b"x"), lambda: store.list("")):
            with pytest.raises(error):
                call()
        assert not server.requests


@pytest.mark.parametrize("kind", ["abfs"])
def test_a_time_limit_of_fsspecs_configuration_keeps_nothing_from_azure(
    kind: str, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "abfs", {"read_timeout": 30})
    store = opened(kind, store_url)
    store.put("key", b"x")
    assert store.get("key") == b"x"


@pytest.mark.quick
def test_given_keys_of_azure_come_before_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=other;AccountKey={KEY}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    for made in (
        Azure("con", account="mine", secret_key="bWluZQ=="),
        Azure("con", account="mine", session_token="?sig=s"),
    ):
        given = access(made)
        assert given.identity is not None
        given.identity.ready()
        store = CloudStore("abfs", root="con", url=made.url, options={"account_name": "mine"}, access=given)
        assert store._file_system.service_client.account_name == "mine"
        assert "blob.core.windows.net" in store._file_system.service_client.url
        assert KEY not in store._file_system.connection_string
    assert "sig=s" in connection_string(Credentials(token="?sig=s"), "mine")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("value", "message"), [("AccountName=other", "is of the account other"), ("x", "no connection")]
)
def test_a_connection_string_is_of_the_account_of_the_url(
    monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    """A locator leads to the account that it names."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"{value};AccountKey={KEY}" if "=" in value else value)
    with pytest.raises(InvalidInputError, match=message) as caught:
        open_store("abfs://con@mine/x")
    assert KEY not in f"{caught.value}{caught.value.hint}"


def test_who_is_refused_hears_where_this_provider_looks(
    kind: str, store_url: str, faults: list[Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # Google's library would look for its cloud
    faults[:] = [lambda request: (response("403 Forbidden"), True)]
    with pytest.raises(AccessDeniedError) as caught:
        open_store(store_url).get("key")
    assert ("GOOGLE_" in caught.value.hint, "AZURE_" in caught.value.hint) == (kind == "gs", kind == "abfs")


@pytest.mark.quick
@pytest.mark.parametrize("content", [None, "{", '{"type": "service_account", "private_key": "secret-of-this-test"}'])
def test_a_file_of_credentials_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    """gcsfs would go on without any."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    if content is not None:
        (tmp_path / "key.json").write_text(content)
    with pytest.raises(AccessDeniedError) as caught:
        open_store("gs://bucket/x")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.hint
    assert "secret-of-this-test" not in str(caught.value)


@pytest.mark.quick
def test_what_gcsfs_says_in_words_alone_is_understood() -> None:
    assert isinstance(from_foreign_error(OSError("Forbidden: x\nno"), "here"), AccessDeniedError)
    assert isinstance(from_foreign_error(ValueError("Bad Request: x\ninvalid"), "here"), InvalidInputError)


def test_another_file_system_of_the_protocol_changes_nothing(
    kind: str, store: RetryingStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flyte registers its own for gs and abfs."""
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.setitem(import_module("fsspec.registry")._registry, kind, MemoryFileSystem)
    assert fsspec.get_filesystem_class(kind) is MemoryFileSystem
    again = opened(kind, store_url)
    again.put("a", b"x")
    assert store.get("a") == b"x"
    again.close()
