"""What a person at a terminal is told, and asked, about servers and credentials."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest

from cowfs.base import config
from cowfs.store.credentials import trust
from tests.cli.conftest import Run
from tests.store.scripted_server import Answer, Request, ScriptedServer, response

SECRET = "TOPSECRET-of-the-client"
ID = "0" * 64


def echo(request: Request) -> Answer:
    told = json.dumps(dict(request.headers)).encode()
    return response(f"403 {request.headers.get('authorization', 'stranger')}", told), True


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    import fsspec.config

    monkeypatch.setitem(
        fsspec.config.conf, "http", {"client_kwargs": {"headers": {"Authorization": f"Bearer {SECRET}"}}}
    )


def test_headers_are_never_shown(run: Run) -> None:
    with ScriptedServer(echo) as server:
        for arguments in (
            ("create", "v", "--store", f"{server.endpoint}/x"),
            ("ls", "--store", f"{server.endpoint}/x"),
            ("log", f"cowfs+{server.endpoint}/x/-/v@{ID}"),
        ):
            for form in (arguments, (*arguments, "--json")):
                said = run(*form)
                assert said.code != 0
                assert SECRET not in said.out + said.err
        assert any(SECRET in request.headers.get("authorization", "") for request in server.requests)


def test_what_nobody_expected_is_shown_without_what_it_carries(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unexpected(Exception):
        def __repr__(self) -> str:
            return f"Unexpected(headers={{'Authorization': '{SECRET}'}})"

    def fail(*arguments: object) -> None:
        raise Unexpected(f"Authorization: Bearer {SECRET}")

    monkeypatch.setattr("cowfs.api.stores.open_store", fail)
    said = run("ls")
    assert said.code == 1
    assert "Unexpected" in said.err
    assert SECRET not in said.err


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_store_in_memory_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "variable":
        monkeypatch.setenv("COWFS_STORE", "memory://x")
    said = run("create", "v", *(["--store", "memory://x"] if how == "option" else []))
    assert said.code == 2
    assert "one process" in said.err


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked_once(run: Run, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    asked: list[str] = []

    def confirm(text: str, **options: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(trust, "is_loopback", lambda server: False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "confirm", confirm)
    with ScriptedServer(echo) as server:
        locator = f"cowfs+{server.endpoint}/x/-/v@{ID}"
        said = run("log", locator)
        assert said.code == 9
        assert len(asked) == 1
        assert server.endpoint in asked[0]
        seen = [SECRET in request.headers.get("authorization", "") for request in server.requests]
        assert seen[0] is False
        assert seen[-1] is answer
        run("log", locator)
        assert len(asked) == (1 if answer else 2)
        assert (server.endpoint in config.load_endpoints()) is answer


def test_a_store_named_on_the_command_line_is_remembered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "is_loopback", lambda server: False)
    monkeypatch.setattr(trust, "_named", set())
    with ScriptedServer(echo) as server:
        run("ls", "--store", f"{server.endpoint}/x")
        assert SECRET in server.requests[0].headers["authorization"]
        assert config.load_endpoints() == [server.endpoint]
        assert server.endpoint in trust.format_for_export().split()
