"""Credentials of AWS' configuration that a store calls expired before they say so: the
configuration is asked for others, and the request sent again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from cowfs.errors import AccessDeniedError
from cowfs.store import open_store
from cowfs.store.backends.s3 import s3_by_obstore
from cowfs.store.backends.s3.s3_errors import CredentialsFailed
from cowfs.store.credentials import aws
from tests.store.scripted_server import STORED, Answer, Request, ScriptedServer, response

EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>no longer</Message></Error>"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A credential_process whose keys are numbered; how often it ran is the length of the file."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    program, asked = tmp_path / "credentials.py", tmp_path / "asked"
    asked.touch()
    program.write_text(f"""
import json, pathlib
asked = pathlib.Path({str(asked)!r})
asked.write_text(asked.read_text() + "x")
number = len(asked.read_text())
print(json.dumps({{"Version": 1, "AccessKeyId": f"KEY{{number}}", "SecretAccessKey": f"secret-{{number}}",
                   "SessionToken": f"token-{{number}}", "Expiration": "2099-01-01T00:00:00Z"}}))
""")
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {sys.executable} {program}\nregion = x\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return asked


@pytest.fixture
def expired() -> set[str]:
    """Keys that the server takes for expired."""
    return set()


@pytest.fixture
def url(expired: set[str]) -> Iterator[str]:
    def answer(request: Request) -> Answer:
        if any(key in request.headers.get("authorization", "") for key in expired):
            return response("403 Forbidden", EXPIRED), True
        return STORED if request.method == "PUT" else response("200 OK", b"value"), True

    with ScriptedServer(answer) as server:
        yield f"s3://bucket;endpoint={quote(server.endpoint, safe='')};region=x/p"


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("print('no JSON')", "from the credential_process, say: Expecting value"),
        ("raise SystemExit(3)", "said nothing"),
    ],
)
def test_a_program_that_gives_no_credentials_is_told_of(
    asked: Path, url: str, does: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "credentials.py").write_text(does)
    with pytest.raises(AccessDeniedError, match=told):
        open_store(url).put("key", b"value")


@pytest.mark.parametrize("backend", ["obstore", "s3fs"])
def test_others_are_asked_for_when_the_store_says_that_these_have_expired(
    asked: Path, url: str, expired: set[str], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_by_obstore, "is_usable", lambda: backend == "obstore")
    monkeypatch.setattr(aws, "PAUSE_S", 3600.0)
    store = open_store(url)
    store.put("key", b"value")
    assert asked.read_text() == "x"
    expired.add("KEY1/")
    store.put("key", b"value")
    store.put("key", b"value")
    assert asked.read_text() == "xx"
    expired.add("KEY2/")
    with pytest.raises(AccessDeniedError):  # a moment ago they were asked for
        store.put("key", b"value")
    assert asked.read_text() == "xx"
    monkeypatch.setattr(aws, "PAUSE_S", 0.0)
    store.put("key", b"value")
    expired.add("KEY")
    with pytest.raises(AccessDeniedError):
        store.put("key", b"value")
    store.close()


@pytest.mark.parametrize("ends", [True, False])
def test_a_process_that_fails_or_hangs_is_asked_again_later(
    asked: Path, url: str, expired: set[str], ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As programs do that wait for a person: whoever waits for them is not waited for, and given up
    at last."""
    monkeypatch.setattr(aws, "PAUSE_S", 0.0)
    program, stopped = asked.with_name("credentials.py"), asked.with_name("stopped")
    works = program.read_text()
    waits = f"import os, time\nwhile not os.path.exists({str(stopped)!r}): time.sleep(0.05)\n"
    store = open_store(url)
    store.put("key", b"value")
    expired.add("KEY1/")
    for broken in ("print('log in first')", "raise SystemExit(1)", "import os; os.write(1, bytes([255]))", waits):
        program.write_text(broken)
        monkeypatch.setattr(aws, "RENEWAL_S", 0.2 if broken == waits else 60.0)
        for _ in range(2):
            with pytest.raises(AccessDeniedError, match="no longer"):
                store.put("key", b"value")
    program.write_text(works)
    monkeypatch.setattr(aws, "RENEWAL_S", 60.0)
    if ends:
        stopped.touch()
        with suppress(AccessDeniedError):  # waits for what has hung so far
            store.put("key", b"value")
    else:
        monkeypatch.setattr(aws, "GIVEN_UP_S", 0.0)
    store.put("key", b"value")
    if ends:
        assert asked.read_text() == "xx"
    else:  # the new process may be given up as well, on a busy machine
        assert asked.read_text().startswith("xx")
    stopped.touch()
    store.close()


def test_credentials_that_end_soon_are_renewed_and_a_process_that_hangs_holds_nothing_up(
    asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until they have ended: then it is said that there are no others."""
    monkeypatch.setattr(aws, "PAUSE_S", 0.0)
    have_ended = False
    ends = aws._ends_within
    monkeypatch.setattr(aws, "_ends_within", lambda found, s: have_ended if s == 0 else ends(found, s))
    program, stopped = asked.with_name("credentials.py"), asked.with_name("stopped")
    soon = (datetime.now(UTC) + timedelta(seconds=600)).strftime("%Y-%m-%dT%H:%M:%SZ")
    works = program.read_text().replace("2099-01-01T00:00:00Z", soon)
    program.write_text(works)
    credentials = aws.AmbientCredentials()
    credentials.ready()
    first = credentials.newest
    credentials.ready()
    newest = credentials.newest
    assert newest != first
    monkeypatch.setattr(aws, "RENEWAL_S", 0.2)
    program.write_text(f"import os, time\nwhile not os.path.exists({str(stopped)!r}): time.sleep(0.05)\n")
    credentials.ready()
    assert credentials.newest == newest
    have_ended = True
    with pytest.raises(CredentialsFailed, match="does not answer"):
        credentials.ready()
    program.write_text(works)
    stopped.touch()
    monkeypatch.setattr(aws, "RENEWAL_S", 60.0)
    with suppress(CredentialsFailed):  # of what has hung so far
        credentials.ready()
    credentials.ready()
    assert credentials.newest != newest
