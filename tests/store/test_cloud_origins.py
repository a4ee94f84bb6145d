"""Google's and Azure's buckets as origins: of imports, linked files and exports."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.api.storage.resolving import access
from cowfs.blocking import ROVolume, Store
from cowfs.errors import AccessDeniedError, NotFoundError, SourceChangedError, UnavailableError
from cowfs.storage import GCS, Storage
from cowfs.store.origin import cloud
from cowfs.store.origin.open_origin import RepeatingOrigin, open_origin
from cowfs.store.reliability.patience import Patience
from tests.store import cloud_servers
from tests.store.cloud_servers import BUCKET, CONTAINER
from tests.store.scripted_server import ScriptedServer, response
from tests.store.test_clouds import (  # noqa: F401 - fixtures
    NO_LISTS,
    Fault,
    faults,
    ignores_condition,
    is_list,
    is_put,
    kind,
    once,
    server,
    store_url,
)

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body")

NAMES = ["a", "a//b", ".hidden", "dir/b", "dir/", "lines", "sp ace/ü%41+?#&=1", "v?versionid=2", "x" * 300]
STEP = 256 << 10


def credentials(kind: str) -> Storage | None:  # noqa: F811
    return GCS(BUCKET, session_token="a-token-of-this-test") if kind == "gs" else None


def opened(kind: str, url: str) -> RepeatingOrigin:  # noqa: F811
    given = credentials(kind)
    return open_origin(url, patience=Patience(limit_s=1.0), **({"access": access(given)} if given else {}))


@pytest.fixture
def origin(kind: str, store_url: str) -> Iterator[RepeatingOrigin]:  # noqa: F811
    origin = opened(kind, store_url)
    yield origin
    origin.close()


def put(origin: RepeatingOrigin, key: str, data: bytes) -> None:
    pieces = [data[start : start + 100_000] for start in range(0, len(data), 100_000)]
    origin.put(key, len(data), lambda: iter(pieces))


def contents(version: ROVolume) -> dict[str, bytes]:
    return {
        entry.path: version.files.read(entry.path) for entry in version.files.ls(recursive=True) if entry.type == "file"
    }


def test_an_object_may_have_any_name_and_content(origin: RepeatingOrigin) -> None:
    for name in NAMES:
        put(origin, name, b"" if name.endswith("/") else f"--==0==--\n{name}".encode())
    found = {each.key: each for each in origin.list()}
    assert sorted(found) == sorted(NAMES)
    for name, each in found.items():
        if not name.endswith("/"):
            data = f"--==0==--\n{name}".encode()
            assert origin.look(name) == each
            assert origin.read(each, 0, len(data)) == data
            assert origin.read(each, 3, 4) == data[3:7]
    origin.delete(["v?versionid=2", "never there", "sp ace/ü%41+?#&=1"])
    assert sorted(each.key for each in origin.list()) == sorted({*NAMES} - {"v?versionid=2", "sp ace/ü%41+?#&=1"})


@pytest.mark.parametrize("size", [STEP, STEP + 1, 3 * STEP, 3 * STEP + 77])
def test_large_objects_are_put_in_parts(
    server: ScriptedServer,  # noqa: F811
    faults: list[Fault],  # noqa: F811
    origin: RepeatingOrigin,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    monkeypatch.setattr(cloud, "PART_BYTES", STEP)
    monkeypatch.setattr(cloud_servers.Google, "keeps_bytes", 100_000)  # of each request, as it may
    faults.append(once(lambda request: is_put(request) and len(request.body) == STEP, response("503 Busy")))
    data = os.urandom(size)
    put(origin, "large", data)
    (found,) = origin.list()
    assert origin.read(found, 0, size) == data
    assert max(len(request.body) for request in server.requests) <= STEP


def test_a_part_that_something_else_answers_is_sent_again(
    faults: list[Fault],  # noqa: F811
    origin: RepeatingOrigin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cloud, "PART_BYTES", STEP)
    for answer in (response("404 Not Found", b"<html>"), response("308 Go On"), response("502 Bad", b"<html>")):
        faults[:] = [once(lambda request: is_put(request) and len(request.body) == STEP, answer)]
        data = os.urandom(2 * STEP)
        put(origin, "large", data)
        assert origin.read(next(origin.list()), 0, len(data)) == data


@pytest.mark.parametrize("answer", NO_LISTS)
def test_what_is_no_list_is_no_empty_bucket(
    origin: RepeatingOrigin,
    faults: list[Fault],  # noqa: F811
    answer: bytes,
) -> None:
    put(origin, "a", b"1")
    faults.append(lambda request: (answer, True) if is_list(request) else None)
    with pytest.raises(UnavailableError):
        list(origin.list())


def test_a_bucket_that_is_missing_is_no_empty_one(kind: str, store_url: str) -> None:  # noqa: F811
    origin = opened(kind, store_url.replace(BUCKET if kind == "gs" else CONTAINER, "none"))
    for call in (origin.list, lambda: put(origin, "a", b"1")):
        with pytest.raises(NotFoundError, match="no such bucket"):
            call()


def test_what_others_say_is_not_there_is_asked_for_again(
    kind: str,  # noqa: F811
    origin: RepeatingOrigin,
    faults: list[Fault],  # noqa: F811
) -> None:
    put(origin, "a", b"12345")
    found = origin.look("a")
    assert found is not None
    answers = [response("404 Not Found", b"<html>not found</html>"), response("200 OK", b"<html>")]
    for answer in answers if kind == "gs" else [response("404 Not Found"), response("200 OK")]:
        for call in (lambda: origin.look("a"), lambda: origin.read(found, 0, 5)):
            faults[:] = [once(lambda request: request.method in ("GET", "HEAD"), answer)]
            assert call() in (found, b"12345")


def test_another_range_than_was_asked_for_is_no_content(
    kind: str,  # noqa: F811
    origin: RepeatingOrigin,
    faults: list[Fault],  # noqa: F811
) -> None:
    put(origin, "a", b"0123456789")
    found = origin.look("a")
    assert found is not None
    head = b"HTTP/1.1 206 Part\r\nContent-Length: 5\r\nContent-Range: bytes 5-9/10\r\n"
    known = f'X-Goog-Generation: {cloud_servers.generation(b"0123456789")}\r\nETag: "{found.tag}"\r\n'.encode()
    answer = head + known + b"x-ms-blob-type: BlockBlob\r\n\r\n56789"
    faults.append(once(lambda request: request.method == "GET", answer))
    assert origin.read(found, 0, 5) == b"01234"


@pytest.mark.parametrize("status", ["302 Found", "307 Elsewhere", "200 OK"])
def test_who_sends_elsewhere_has_done_nothing(
    kind: str,  # noqa: F811
    origin: RepeatingOrigin,
    faults: list[Fault],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    status: str,
) -> None:
    """A portal that wants a login, for one."""
    monkeypatch.setattr(cloud, "PART_BYTES", STEP)
    page = b"<html>"
    with ScriptedServer(lambda request: (response("200 OK", page), True)) as portal:
        headers = f"\r\nLocation: {portal.endpoint}/in\r\n\r\n".encode()
        answer = response(status, page).replace(b"\r\n\r\n", headers, 1).replace(b"application/xml", b"text/html", 1)
        data = os.urandom(2 * STEP)
        for method, size in itertools.product(("POST", "PUT"), (5, len(data))):
            faults[:] = [once(lambda request, method=method: request.method == method, answer)]  # type: ignore[misc]
            put(origin, "a", data[:size])
            found = origin.look("a")
            assert found is not None
            assert origin.read(found, 0, size) == data[:size]
        if kind == "gs":
            faults[:] = [once(lambda request: request.method in ("GET", "HEAD"), answer)]
            assert origin.look("a") is not None
            faults[:] = [once(lambda request: request.method == "DELETE", answer)]
        origin.delete(["a"])
        assert origin.look("a") is None
        assert not any(request.body for request in portal.requests), "no content went there"


def test_an_error_is_told_in_words_though_it_came_compressed(
    kind: str,  # noqa: F811
    origin: RepeatingOrigin,
    faults: list[Fault],  # noqa: F811
) -> None:
    put(origin, "a", b"1")
    found = origin.look("a")
    assert found is not None
    body = gzip.compress(b'{"error": {"code": 503, "message": "come again"}}')
    answer = response("503 Busy", body).replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n", 1)
    faults.append(lambda request: (answer, True))
    with pytest.raises(UnavailableError) as caught:
        origin.read(found, 0, 1)
    assert caught.value.message.isprintable()


def test_a_whole_bucket_is_no_object(kind: str, server: ScriptedServer) -> None:  # noqa: F811
    origin = opened(kind, f"gs://{BUCKET}" if kind == "gs" else f"abfs://{CONTAINER}@{cloud_servers.ACCOUNT}")
    assert origin.look("") is None
    assert list(origin.list()) == []


def test_an_object_that_is_replaced_or_gone_is_called_so(
    kind: str,  # noqa: F811
    store_url: str,  # noqa: F811
    origin: RepeatingOrigin,
) -> None:
    put(origin, "a", b"12345")
    found = origin.look("a")
    assert found is not None
    for data in (b"1234567", b"54321", b"1"):
        put(origin, "a", data)
        with pytest.raises(SourceChangedError, match="was replaced"):
            origin.read(found, 3, 2)
    opened(kind, store_url).delete(["a"])
    assert origin.look("a") is None
    with pytest.raises(SourceChangedError, match="is gone"):
        origin.read(found, 0, 5)


def test_a_prefix_becomes_a_version(
    kind: str,  # noqa: F811
    store_url: str,  # noqa: F811
    origin: RepeatingOrigin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    put(origin, "dir/a", b"one")
    put(origin, "b?c#d", b"two")
    put(origin, "empty/", b"")
    store = tmp_path / "store"
    store.mkdir()
    given = credentials(kind)
    for link in [False] if given else [False, True]:  # links are read with the environment's
        version = Store(store).import_(store_url, f"copy-{link}", storage=given, link=link)
        assert version.files.stat("empty").type == "directory"
        assert contents(version) == {"/dir/a": b"one", "/b?c#d": b"two"}
        again = Store(store).import_(store_url, f"copy-{link}", storage=given, link=link)
        assert again.locator == version.locator, "nothing has changed"
    one = Store(store).import_(f"{store_url}/dir/a", "one", storage=given)
    assert contents(one) == {"/a": b"one"}


@pytest.mark.parametrize("kind", ["gs"])
def test_an_upload_that_the_server_has_forgotten_begins_anew(
    kind: str,  # noqa: F811
    origin: RepeatingOrigin,
    faults: list[Fault],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cloud, "PART_BYTES", STEP)
    data = os.urandom(3 * STEP)
    faults.append(once(lambda request: request.method == "PUT", response("410 Gone", b"Gone")))
    put(origin, "large", data)
    assert origin.read(next(origin.list()), 0, len(data)) == data


@pytest.mark.parametrize("kind", ["abfs"])
def test_what_azure_hides_is_not_called_absent(
    kind: str,  # noqa: F811
    origin: RepeatingOrigin,
    faults: list[Fault],  # noqa: F811
) -> None:
    put(origin, "a", b"1")
    hidden = response("404 Not Found").replace(b"\r\n\r\n", b"\r\nx-ms-error-code: ResourceNotFound\r\n\r\n", 1)
    faults.append(lambda request: (hidden, True))
    for call in (lambda: origin.look("a"), origin.list, lambda: origin.delete(["a"])):
        with pytest.raises(AccessDeniedError, match="may not see it"):
            call()


def test_a_cache_with_an_older_state_is_asked_again(
    kind: str,  # noqa: F811
    origin: RepeatingOrigin,
    faults: list[Fault],  # noqa: F811
) -> None:
    put(origin, "a", b"older")
    answer = b"HTTP/1.1 206 Part\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/5\r\nx-ms-blob-type: BlockBlob\r\n"
    tags = f'X-Goog-Generation: {cloud_servers.generation(b"older")}\r\nETag: "older"\r\n\r\nolder'.encode()
    put(origin, "a", b"newer")
    found = origin.look("a")
    assert found is not None
    faults.append(once(lambda request: request.method == "GET", answer + tags))
    if kind == "gs":
        assert origin.read(found, 0, 5) == b"newer"
    else:
        with pytest.raises(SourceChangedError):
            origin.read(found, 0, 5)
