"""Credentials that a command prints, in the form of AWS' `credential_process`.

    {"Version": 1, "AccessKeyId": "…", "SecretAccessKey": "…", "SessionToken": "…", "Expiration": "2026-01-01T00:00:00Z"}

The last two may be missing. How the command is run: `commands`.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from cowfs.base.errors import AccessDeniedError, CowfsError
from cowfs.store.credentials import commands
from cowfs.store.credentials.identity import Credentials


class CredentialProcess:
    """A source of an `Identity`."""

    renew_s = None
    can_renew = True

    def __init__(self, command: str) -> None:
        """InvalidInputError: no command."""
        self._words = commands.words_of(command, "credential_process is not a command")

    def fetch(self) -> Credentials:
        """Runs the command, for a minute at most."""
        status, found = _run(self._words)
        if status != 0:
            raise _failure(f"ended with exit status {status}")
        if found is None:
            raise _failure("did not print credentials")
        return found


def _run(words: list[str]) -> tuple[int, Credentials | None]:
    """Exit status and output. Output that is not credentials is dropped here: an error keeps the
    variables of the functions that it passed, and some programs send those away."""
    status, printed = commands.run(words, _failure)
    try:
        return status, _credentials(json.loads(printed))
    except (ValueError, KeyError, TypeError, AttributeError):
        return status, None


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


def _failure(how: str) -> CowfsError:
    return AccessDeniedError(
        f"the credential_process {how}",
        hint='Run it by hand: it must print {"Version": 1, "AccessKeyId": …, "SecretAccessKey": …, "SessionToken": …, '
        '"Expiration": …} and end with status 0.',
    )
