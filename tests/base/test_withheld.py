"""What other programs get of this process' environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cowfs.api.declared.declared_store import DeclaredStore
from cowfs.api.mounts import prepared
from cowfs.base import programs
from cowfs.errors import AccessDeniedError
from cowfs.machine import mounting
from cowfs.store.credentials import commands, unlocking

SECRET = "a passphrase of mine"
DECLARED = ("COWFS_STORES__MAIN__ENCRYPTION_KEY", "NAMED_IN_A_DECLARATION")
VARIABLES = (*unlocking.VARIABLES, *DECLARED)


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("COWFS_STORES__MAIN__URL", "s3://bucket")
    monkeypatch.setattr(programs, "_withheld", set())
    DeclaredStore(preset="local", path="/x", encryption_key={"env": DECLARED[1]}).storage()


def failed(how: str) -> AccessDeniedError:
    return AccessDeniedError(how)


def require_nothing_of(text: str) -> None:
    assert SECRET not in text
    assert "COWFS_STORES__MAIN__URL=s3://bucket" in text


def test_a_credential_command_does_not_get_what_opens_a_store() -> None:
    status, printed = commands.run(["env"], failed)
    assert status == 0
    require_nothing_of(printed.decode())


def test_fusermount_does_not_get_what_opens_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "fusermount3"
    program.write_text("#!/bin/sh\nenv >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    _, said = mounting._fusermount3("-u", "/x")
    require_nothing_of(said)


def test_a_daemon_does_not_get_what_opens_a_store() -> None:
    require_nothing_of("\n".join(f"{name}={value}" for name, value in prepared.environment().items()))


def test_the_same_program_for_the_same_purpose_gets_all_of_it() -> None:
    done = programs.run(["env"], timeout_s=60, env={**os.environ})
    assert all(f"{name}={SECRET}" in done.stdout.decode() for name in VARIABLES)
