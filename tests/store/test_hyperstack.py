"""Access keys that are made when they are needed and deleted when the process ends, with a server
that answers as Hyperstack's documentation says its API does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from cowfs import storage
from cowfs.api import doctor
from cowfs.api.doctor import hyperstack as checking
from cowfs.api.storage import resolving
from cowfs.errors import AccessDeniedError, CowfsError, InvalidInputError, InvalidStateError, UnavailableError
from cowfs.store.credentials import hyperstack
from tests.store.scripted_server import Answer, Request, ScriptedServer, response

pytestmark = pytest.mark.quick

KILLED = "os.kill(os.getpid(), 9)"
FORKED = "os.fork() or sys.exit(); os.wait(); print(len([*hyperstack.list_keys(KEY)]))"
API_KEY = "api-key-of-the-account"
SECRET = "secret-of-the-access-key"


class Account:
    """Its keys by number; refusal: the status of every answer."""

    def __init__(self) -> None:
        self.keys: dict[int, dict[str, Any]] = {}
        self.refusal: str | None = None

    def answer(self, request: Request) -> Answer:
        assert request.headers["api_key"] == API_KEY
        path, _, query = request.target.partition("?")
        if self.refusal is not None:
            return response(self.refusal, b'{"message": "no more keys"}'), True
        if request.method == "POST":
            asked = json.loads(request.body)
            made = {"id": 7 + len(self.keys), "access_key": "AK", "user_id": 1, **asked}
            self.keys[made["id"]] = made
            return response("201 Created", json.dumps({**made, "secret_key": SECRET}).encode()), True
        if request.method == "DELETE":
            del self.keys[int(path.rpartition("/")[2])]
            return response("200 OK", b"{}"), True
        page = int(query.removeprefix("page="))
        shown = list(self.keys.values())[page - 1 : page]
        meta = {"count": len(self.keys), "current_page": page, "total_pages": len(self.keys)}
        return response("200 OK", json.dumps({"access_keys": shown, "meta": meta}).encode()), True


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture
def server(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer(account.answer) as server:
        monkeypatch.setattr(hyperstack, "API", server.endpoint)
        monkeypatch.setattr(hyperstack, "_all", {})
        yield server
        account.refusal = None
        for keys in hyperstack._all.values():
            keys.delete()


def test_one_key_serves_all_stores_of_a_process(server: ScriptedServer, account: Account) -> None:
    stores = [storage.Hyperstack(name, api_key=API_KEY) for name in ("a", "b")]
    assert (account.keys, stores[0].has_credentials) == ({}, True)
    for each in stores * 2:
        identity = resolving.access(each).identity
        assert identity is not None
        found = identity.ready()
        assert (found.access_key, found.secret_key) == ("AK", SECRET)
    (key,) = account.keys.values()
    assert key["region"] == "CANADA-1"
    assert str(os.getpid()) in key["description"].split()
    assert API_KEY not in repr(stores)
    assert stores[0] == storage.Hyperstack("a", api_key=API_KEY)
    hyperstack.keys_of("CANADA-1", API_KEY).delete()
    assert account.keys == {}


@pytest.mark.parametrize("end", ["", KILLED, FORKED])
def test_a_key_is_deleted_at_the_end_of_its_process(
    server: ScriptedServer, account: Account, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A child that was forked does not delete it; a process that was killed leaves it, to be
    found."""
    code = f"""
import os, sys
from cowfs.store.credentials import hyperstack
hyperstack.API = {server.endpoint!r}
KEY = {API_KEY!r}
hyperstack.keys_of("CANADA-1", KEY).secret_key()
{end}
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    if end == FORKED:
        assert done.stdout == "1\n", "after the child had ended"
    monkeypatch.setenv(checking.API_KEY, API_KEY)
    (said,) = [check() for check in checking.checks()]
    if end == KILLED:
        assert (said.state, len(account.keys)) == (doctor.WARN, 1)
        assert "left by processes that have ended: 7 (process" in said.message
    else:
        assert (said.state, account.keys) == (doctor.OK, {})


def test_keys_that_are_in_use_or_of_others_are_not_said_to_be_left(server: ScriptedServer, account: Account) -> None:
    hyperstack.keys_of("CANADA-1", API_KEY).access_key()
    own = account.keys[7]["description"].split()
    for number, description in enumerate(
        [
            " ".join([*own[:4], "other-machine", own[5]]),
            " ".join([*own[:5], "other-boot"]),
            None,
            "for my backups",
            "cowfs",
        ]
    ):
        account.keys[20 + number] = {"id": 20 + number, "description": description}
    assert [(key.id, key.is_gone) for key in hyperstack.list_keys(API_KEY)] == [(7, False), (20, False), (21, False)]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("401 Unauthorized", AccessDeniedError),
        ("422 Unprocessable", InvalidStateError),
        ("503 Slow Down", UnavailableError),
        ("200 OK", UnavailableError),
    ],
)
def test_what_the_api_refuses_is_told(
    server: ScriptedServer, account: Account, status: str, kind: type[CowfsError]
) -> None:
    account.refusal = status
    with pytest.raises(kind) as caught:
        hyperstack.keys_of("CANADA-1", API_KEY).access_key()
    assert API_KEY not in str(caught.value)
    account.refusal = None
    assert hyperstack.keys_of("CANADA-1", API_KEY).access_key() == "AK", "it is asked for again"


def test_an_api_key_goes_with_no_other_key(server: ScriptedServer) -> None:
    with pytest.raises(InvalidInputError, match="another one is given"):
        storage.Hyperstack("a", api_key=API_KEY, access_key="x", secret_key="y")
