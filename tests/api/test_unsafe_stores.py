"""Stores without a conditional create: what a server does that answers 501 to it, as Backblaze B2,
or ignores it. Writing there needs the opt-in, and works with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from cowfs.blocking import Volume
from cowfs.errors import ConflictError, InvalidInputError
from cowfs.store import load_record, open_store
from tests.forwarding import forward
from tests.seaweedfs import SeaweedFS
from tests.store.scripted_server import Answer, Request, ScriptedServer, response

pytestmark = [pytest.mark.s3, pytest.mark.mount, pytest.mark.usefixtures("place")]


def not_implemented(server: SeaweedFS, request: Request) -> Answer:
    if request.headers.get("if-none-match") == "*":
        body = b"<Error><Code>NotImplemented</Code><Message>A header you provided is not implemented</Message></Error>"
        return response("501 Not Implemented", body), True
    return forward(server, request)


def ignored(server: SeaweedFS, request: Request) -> Answer:
    """The condition is signed, so what is put without it is put anew."""
    if request.headers.get("if-none-match") != "*":
        return forward(server, request)
    key = unquote(request.target).removeprefix(f"/{server.bucket}/")
    server.ask(lambda client: client.put_object(Bucket=server.bucket, Key=key, Body=request.body))
    return response("200 OK"), True


@pytest.fixture(params=[not_implemented, ignored])
def url(
    request: pytest.FixtureRequest, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, place: Path
) -> Iterator[str]:
    answer: Callable[[SeaweedFS, Request], Answer] = request.param
    for name, value in seaweedfs.credentials.items():
        monkeypatch.setenv(name, value)
    with ScriptedServer(lambda each: answer(seaweedfs, each)) as proxy:
        yield f"s3://{seaweedfs.bucket};endpoint={proxy.endpoint};region=us-east-1/unsafe/{place.name}"


def test_such_a_store_is_refused_and_with_the_opt_in_written_to(url: str) -> None:
    with pytest.raises(InvalidInputError, match="refuse to create") as caught:
        Volume.new("data", store=url).mount()
    assert "accept_unsafe_store" in caught.value.hint
    volume = Volume.new("data", store=url)
    path = volume.mount(accept_unsafe_store=True)
    (path / "file").write_text("one")
    first = volume.commit("one")
    (path / "file").write_text("two")
    volume.commit("two")
    volume.unmount()
    again = Volume.open("data", store=url)
    assert (again.mount(accept_unsafe_store=True) / "file").read_text() == "two"
    assert [each.message for each in again.history()] == ["two", "one"]
    assert first.fork("fork").history()[0] == first
    with pytest.raises(ConflictError):
        first.fork("fork", strict=True)
    again.unmount()


def test_creating_there_keeps_what_is_there(url: str) -> None:
    Volume.new("data", store=url).resolve(accept_unsafe_store=True)
    store = open_store(url)
    load_record(store)
    store.put_if_absent("volumes/x", b"first")
    with pytest.raises(ConflictError):
        store.put_if_absent("volumes/x", b"second")
    assert store.get("volumes/x") == b"first"
    store.close()
