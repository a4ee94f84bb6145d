"""Google's and Azure's stores through gcsfs and adlfs: the conformance suite, what their
conditional create is on the wire, and what the probe says of a server that ignores it.

The servers are ours and speak the few requests that are made (`cloud_servers`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cowfs.api.storage.resolving import access
from cowfs.errors import AccessDeniedError, ConflictError, InvalidInputError
from cowfs.storage import GCS, Azure
from cowfs.store import Credentials, ObjectStore, initialize, open_store, require_writable
from cowfs.store.errors import from_foreign_error
from cowfs.store.fsspec_backend import FsspecStore, _as_options
from cowfs.store.probe import probe
from tests.store import cloud_servers
from tests.store.cloud_servers import ACCOUNT, BUCKET, CONTAINER
from tests.store.scripted_server import Request, ScriptedServer
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
LARGE_BYTES = 70 << 20  # more than either sends in one request


@pytest.fixture(params=["gs", "abfs"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def ignores_condition() -> bool:
    return False


@pytest.fixture
def server(kind: str, ignores_condition: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    answer = cloud_servers.Google if kind == "gs" else cloud_servers.Azure
    with ScriptedServer(answer(ignores_condition=ignores_condition)) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.endpoint)
        place = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={server.endpoint}/{ACCOUNT};"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"DefaultEndpointsProtocol=http;{place}")
        yield server


@pytest.fixture
def store_url(kind: str, server: ScriptedServer) -> str:
    place = os.urandom(6).hex()
    return f"gs://{BUCKET}/{place}" if kind == "gs" else f"abfs://{CONTAINER}@{ACCOUNT}/{place}"


@pytest.fixture
def store(kind: str, store_url: str) -> Iterator[ObjectStore]:
    given = access(GCS(BUCKET, session_token="a-token-of-this-test")) if kind == "gs" else None
    opened = open_store(store_url, access=given) if given else open_store(store_url)
    opened.patience.limit_s = 1.0  # a server that this test misunderstands is not waited for
    yield opened
    opened.close()


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
        store = FsspecStore("abfs", root="con", url=made.url, options={"account_name": "mine"}, access=given)
        assert store._file_system.service_client.account_name == "mine"
        assert "blob.core.windows.net" in store._file_system.service_client.url
        assert KEY not in store._file_system.connection_string
    assert "sig=s" in _as_options("abfs", Credentials(token="?sig=s"), "mine")["connection_string"]


@pytest.mark.quick
def test_what_gcsfs_says_in_words_alone_is_understood() -> None:
    assert isinstance(from_foreign_error(OSError("Forbidden: x\nno"), "here"), AccessDeniedError)
    assert isinstance(from_foreign_error(ValueError("Bad Request: x\ninvalid"), "here"), InvalidInputError)
