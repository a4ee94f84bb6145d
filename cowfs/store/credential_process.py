"""Credentials that a command prints, in the form of AWS' `credential_process`.

    {"Version": 1, "AccessKeyId": "…", "SecretAccessKey": "…", "SessionToken": "…", "Expiration": "2026-01-01T00:00:00Z"}

The last two may be missing. The command is split as a shell would and run without one, with the
environment of the process that runs it. What it prints is told to nobody, an error of its own
neither: it may hold a part of the answer.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from datetime import datetime
from typing import Any

from cowfs.errors import AccessDeniedError, CowfsError, InvalidInputError
from cowfs.store.identity import Credentials

TIMEOUT_S = 60.0


class CredentialProcess:
    """A source of an `Identity`."""

    renew_s = None
    can_renew = True

    def __init__(self, command: str) -> None:
        """InvalidInputError: no command."""
        self._arguments = split(command)

    def fetch(self) -> Credentials:
        """Runs the command, for TIMEOUT_S at most."""
        status, found = _run(self._arguments)
        if status != 0:
            raise _failed(f"ended with exit status {status}")
        if found is None:
            raise _failed("did not print credentials")
        return found


def split(command: object) -> list[str]:
    """The command's words. InvalidInputError: not a command."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        words = []
    if not words:
        raise InvalidInputError(
            "credential_process is not a command", hint="Give a program and its arguments, as one text."
        )
    return words


def _run(arguments: list[str]) -> tuple[int, Credentials | None]:
    """Exit status, and what was printed. What is no credentials is dropped here: an error keeps the variables of the
    functions that it passed, and some programs send those away."""
    try:
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(f"has not ended after {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise _failed(f"cannot be run: {error.strerror}") from None
    try:
        return done.returncode, _credentials(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError, AttributeError):
        return done.returncode, None


def _credentials(said: dict[str, Any]) -> Credentials:
    access_key, secret_key, token = said["AccessKeyId"], said["SecretAccessKey"], said.get("SessionToken") or None
    if said.get("Version") != 1 or not all(isinstance(each, str) and each for each in (access_key, secret_key)):
        raise ValueError
    if token is not None and not isinstance(token, str):
        raise ValueError
    expires_s = None
    if said.get("Expiration") is not None:
        moment = datetime.fromisoformat(said["Expiration"])
        if moment.tzinfo is None:
            raise ValueError
        expires_s = moment.timestamp()
    return Credentials(access_key, secret_key, token, expires_s)


def _failed(how: str) -> CowfsError:
    return AccessDeniedError(
        f"the credential_process {how}",
        hint='Run it by hand: it must print {"Version": 1, "AccessKeyId": …, "SecretAccessKey": …, "SessionToken": …, '
        '"Expiration": …} and end with status 0.',
    )
