"""Credentials never get into a message, whoever wrote it; ordinary messages stay as they are."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.base import log
from cowfs.base.errors import CowfsError, UnavailableError, from_record, to_record, unexpected
from cowfs.base.redaction import describe_error, redact

pytestmark = pytest.mark.quick

SECRET = "TOPSECRET0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"{{'Authorization': 'Bearer {SECRET}', 'Host': 'x'}}",
        f'{{"authorization": "{SECRET}"}}',
        f"headers=<CIMultiDictProxy('Host': 'a', 'X-Custom': '{SECRET}')>, real_url=x",
        f"headers={{'X-Custom': '{SECRET}'}}",
        f"Cookie: a=1; session={SECRET}",
        f"X-Amz-Security-Token: {SECRET}",
        f"x-ms-copy-source: https://a/b?sig={SECRET}",
        f"AWS4-HMAC-SHA256 Credential=AKIA/20261122/eu/s3/aws4_request, SignedHeaders=host, Signature={SECRET}",
        f"https://user:{SECRET}@host/path is not found",
        f"https://account.blob.core.windows.net/c/k?sv=2026&sig={SECRET}",
        f"GET https://b.s3.amazonaws.com/k?X-Amz-Signature={SECRET}&X-Amz-Expires=5 (403)",
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET};EndpointSuffix=x",
        f"SharedAccessSignature={SECRET}",
        f"client_secret={SECRET}",
        f'{{"password": "{SECRET}", "user": "me"}}',
        f"Bearer {SECRET}",
        f"Basic {SECRET}==",
    ],
)
def test_credentials_are_hidden(text: str) -> None:
    once = redact(text)
    assert SECRET not in once
    assert redact(once) == once
    error = CowfsError(text, hint=text, details={"seen": text})
    assert SECRET not in f"{error} {error.message} {error.hint} {error.details} {to_record(error)}"


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket;endpoint=http%3A%2F%2F127.0.0.1%3A8333;region=us-east-1/x: packs/ab/abcd does not exist",
        "cowfs+s3://bucket/prefix/-/name@0123",
        "/home/me/secret/token.txt: No such file or directory",
        "volume v is being written by me on host at /mnt (pid 1) since 2026-11-22 10:00:00 UTC",
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.",
        "label 'a' has no '='",
        "https://host/path answers 404",
    ],
)
def test_ordinary_messages_stay(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert redact(text) == text


def test_values_of_the_environment_are_hidden_wherever_they_turn_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "/slash+and/plus==")
    monkeypatch.setenv("FSSPEC_HTTP_CLIENT_KWARGS", f'{{"headers": {{"X-Mine": "Token {SECRET}"}}}}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json")
    told = redact(f"what about /slash+and/plus== or {SECRET}? See /home/me/key.json")
    assert told == "what about … or …? See /home/me/key.json"


def test_foreign_errors_are_told_without_what_they_carry() -> None:
    class RequestFailed(Exception):
        def __repr__(self) -> str:
            return f"RequestFailed(headers={SECRET!r})"

    assert describe_error(RequestFailed(f"403 Forbidden\nAuthorization: {SECRET}")) == "RequestFailed: 403 Forbidden"
    assert describe_error(KeyError()) == "KeyError"
    assert SECRET not in str(unexpected("commit failed", RequestFailed("no"), hint="Report it."))


def test_what_other_libraries_log_of_errors_is_shown_on_demand() -> None:
    program = (
        "import logging\nfrom cowfs.base import log\nlog.configure(is_command=True)\n"
        "logging.getLogger('gcsfs').error('of theirs')\nlog.get('test').warning('of ours')"
    )
    for level, shown in (("warning", False), ("debug", True)):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "COWFS_LOG": level, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("of theirs" in done.stderr, "of ours" in done.stderr) == (shown, True)


def test_tracebacks_in_the_log_are_redacted(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger("cowfs")
    before = root.handlers[:], root.level, root.propagate
    try:
        log.configure()
        try:
            raise ValueError(f"Authorization: Bearer {SECRET}")
        except ValueError:
            log.get("test").exception("it failed")
        shown = capsys.readouterr().err
    finally:
        root.handlers[:], root.level, root.propagate = before[0], before[1], before[2]
    assert "it failed" in shown
    assert "ValueError" in shown
    assert SECRET not in shown


PARTS = [*"abc=:/?@ &'\"<>;\n…", "sig=", "https://", "Bearer ", "cookie: ", "headers=<", "secret12"]


@given(st.lists(st.sampled_from(PARTS)).map("".join))
def test_hiding_twice_is_hiding_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def test_errors_travel_between_processes() -> None:
    error = UnavailableError("no answer", hint="wait", details={"n": 1, "key": "a"})
    assert to_record(from_record(to_record(error))) == to_record(error)


def test_a_container_of_azure_is_no_user() -> None:
    for url in ("abfs://con-1@account.dfs.core.windows.net/p", "cowfs+abfs://con@acc.dfs.core.windows.net/p/-/v"):
        assert redact(f"{url}: not there") == f"{url}: not there"
    for url in ("abfs://user:word@account.dfs.core.windows.net/p", "https://con@account.example.org/p"):
        assert "con@" not in redact(url)
        assert "word" not in redact(url)
