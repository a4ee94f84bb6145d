"""The author and the run that manifests record, unless the caller specifies others.

author        argument, COWFS_AUTHOR, git's user.name and user.email, else user@host
produced_by   argument, COWFS_PRODUCED_BY (a JSON object), else what the task system tells (`tasks.systems`);
              keys: system, workflow, run, action, attempt, output, host. host is added when it is missing.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any

from cowfs.api.tasks import systems
from cowfs.api.versions.labels import Labels, as_texts
from cowfs.base import programs
from cowfs.base.errors import InvalidInputError
from cowfs.machine.lock import user_name
from cowfs.version.commit import CommitRequest

KEYS = ("system", "workflow", "run", "action", "attempt", "output", "host")


def commit_request(
    message: str,
    author_given: str | None = None,
    produced_by_given: Mapping[str, str] | None = None,
    labels: Labels | None = None,
) -> CommitRequest:
    """The commit request, completed from the environment. InvalidInputError: a value has another
    type."""
    if not isinstance(message, str):
        raise InvalidInputError(f"message is {message!r}", hint="Give a text; leave it out for none.")
    if not isinstance(author_given, str | None):
        raise InvalidInputError(
            f"author is {author_given!r}", hint="Give a text; leave it out for the one of the environment."
        )
    texts = as_texts(labels)
    given = {"message": message, "author": author_given is not None, "labels": texts}
    return CommitRequest(
        message,
        author(author_given),
        texts,
        produced_by(produced_by_given),
        given=frozenset(name for name, value in given.items() if value),
    )


def author(given: str | None = None) -> str:
    """The author of a version made now."""
    if given is not None:
        return given
    if named := os.environ.get("COWFS_AUTHOR"):
        return named
    name, email = _git_user()
    if name and email:
        return f"{name} <{email}>"
    return name or email or f"{user_name()}@{socket.gethostname()}"


def produced_by(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a version made now is recorded to come from."""
    _check_table(given)
    found: Mapping[Any, Any] = given if given is not None else _from_environment()
    _check_table(found)
    return {**found, "host": found.get("host") or socket.gethostname()}


def _check_table(table: object) -> None:
    if table is None:
        return
    if not isinstance(table, Mapping):
        raise InvalidInputError(f"produced_by is {table!r}", hint="Give a dict of texts.")
    for key, value in table.items():
        if key == "":
            raise InvalidInputError(f"produced_by has an entry without a key: {value!r}", hint="Give each one a key.")
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInputError(
                f"produced_by has an entry that is not text: {key!r}: {value!r}",
                hint=f"Give text values; usual keys: {', '.join(KEYS)}.",
            )


def _from_environment() -> dict[Any, Any]:
    text = os.environ.get("COWFS_PRODUCED_BY")
    if not text:
        return systems.detect()
    try:
        record = json.loads(text)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise InvalidInputError(
            "COWFS_PRODUCED_BY is not a JSON object",
            hint='For example: COWFS_PRODUCED_BY=\'{"system": "cron", "run": "2024-05-01"}\'.',
        )
    return record


def _git_user() -> tuple[str, str]:
    """Name and address in the user's own settings. git is run in / so that it does not search for a
    repository on a mount that may hang."""
    try:
        done = programs.run(["git", "config", "--null", "--get-regexp", r"^user\.(name|email)$"], cwd="/", timeout_s=5)
    except (OSError, TimeoutExpired):
        return "", ""
    found = dict(each.partition(b"\n")[::2] for each in done.stdout.split(b"\0"))
    return _text(found.get(b"user.name", b"")), _text(found.get(b"user.email", b""))


def _text(value: bytes) -> str:
    with suppress(UnicodeDecodeError):
        return value.decode().strip()
    return ""
