"""Who makes a version, and in what run: what manifests record unless the caller says otherwise.

    author        argument, COWFS_AUTHOR, git's user.name and user.email, else user@host
    produced_by   argument, COWFS_PRODUCED_BY (a JSON object), else what the environment of a known system shows;
                  keys: system, run, action, output, host. host is added when it is missing.

Known systems: Flyte (its execution and task variables), GitHub Actions. Nothing secret is read:
only the variables named here, and none of their values is a credential.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

from cowfs.errors import InvalidInputError
from cowfs.machine.lock import user_name
from cowfs.version.commit import CommitRequest

KEYS = ("system", "run", "action", "output", "host")

# system → key of produced_by → variables of which the first that is set counts
_SYSTEMS: dict[str, dict[str, tuple[str, ...]]] = {
    "flyte": {
        "run": ("FLYTE_INTERNAL_EXECUTION_ID", "RUN_NAME"),
        "action": ("FLYTE_INTERNAL_TASK_NAME", "ACTION_NAME"),
    },
    "github-actions": {"run": ("GITHUB_RUN_ID",), "action": ("GITHUB_JOB",)},
}
_MARKS = {"flyte": ("FLYTE_INTERNAL_EXECUTION_ID", "_U_RUN_BASE"), "github-actions": ("GITHUB_ACTIONS",)}


def commit_request(
    message: str,
    author_given: str | None = None,
    produced_by_given: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> CommitRequest:
    """A commit's record of itself, completed from the environment. InvalidInputError for what is no
    text."""
    if not isinstance(message, str):
        raise InvalidInputError(f"message is {message!r}", hint="Give a text; leave it out for none.")
    if not isinstance(author_given, str | None):
        raise InvalidInputError(
            f"author is {author_given!r}", hint="Give a text; leave it out for the one of the environment."
        )
    _check_table("labels", labels)
    given = {"message": message, "author": author_given is not None, "labels": labels}
    return CommitRequest(
        message,
        author(author_given),
        dict(labels or {}),
        produced_by(produced_by_given),
        given=frozenset(name for name, value in given.items() if value),
    )


def author(given: str | None = None) -> str:
    """The author of a version made now."""
    if given is not None:
        return given
    if named := os.environ.get("COWFS_AUTHOR"):
        return named
    name, email = _git("user.name"), _git("user.email")
    if name and email:
        return f"{name} <{email}>"
    return name or email or f"{user_name()}@{socket.gethostname()}"


def produced_by(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a version made now is recorded to come from."""
    _check_table("produced_by", given)
    found: Mapping[Any, Any] = given if given is not None else _from_environment()
    _check_table("produced_by", found)
    return {**found, "host": found.get("host") or socket.gethostname()}


def _check_table(name: str, table: object) -> None:
    if table is None:
        return
    if not isinstance(table, Mapping):
        raise InvalidInputError(f"{name} is {table!r}", hint="Give a dict of texts.")
    for key, value in table.items():
        if key == "":
            raise InvalidInputError(f"{name} has an entry without a key: {value!r}", hint="Give each one a key.")
        if not isinstance(key, str) or not isinstance(value, str):
            usual = f"; usual keys: {', '.join(KEYS)}" if name == "produced_by" else ""
            raise InvalidInputError(
                f"{name} has an entry that is not text: {key!r}: {value!r}", hint=f"Give text values{usual}."
            )


def _from_environment() -> dict[Any, Any]:
    text = os.environ.get("COWFS_PRODUCED_BY")
    if not text:
        return _detected()
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


def _detected() -> dict[str, str]:
    for system, variables in _SYSTEMS.items():
        if any(os.environ.get(mark) for mark in _MARKS[system]):
            values = {key: next(filter(None, map(os.environ.get, names)), "") for key, names in variables.items()}
            return {"system": system, **{key: value for key, value in values.items() if value}}
    return {}


def _git(key: str) -> str:
    """The user's own setting; asked at / so that git does not look into a repository that may lie
    on a hanging mount."""
    try:
        done = subprocess.run(
            ["git", "config", "--get", key], cwd="/", capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
