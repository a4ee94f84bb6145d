"""Resolves a `Storage` to credentials: calls its functions, runs its command.

Functions are called in the process that made them, on the thread that needs the credentials. An
awaitable result is awaited in an asyncio event loop on a thread of its own. The caller's own loop
cannot be used: it may be blocked by a read of a mount that waits for these very credentials. The
lifetime of a function's values is unknown, so the function is called again after RENEW_S, and when
the store refuses the values.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any

from cowfs.api.storage.definition import Credential, KeyCommand, KeyFile, Storage
from cowfs.base.errors import AccessDeniedError
from cowfs.base.redaction import describe_error
from cowfs.base.thread_pool import Threads
from cowfs.format.key_slots import Secret
from cowfs.store import AMBIENT, Access, Credentials, Identity
from cowfs.store.credentials import unlocking
from cowfs.store.credentials.credential_process import CredentialProcess
from cowfs.store.credentials.identity import Source

RENEW_S = 300.0
AWAIT_S = 60.0


def access(storage: Storage | None) -> Access:
    """The access to its store, with a new identity each time. No function is called yet."""
    if storage is None:
        return AMBIENT
    identity = Identity(_source(storage)) if storage.has_credentials else None
    key = _GivenKey(storage) if storage.encryption_key is not None else None
    return Access(identity, storage.path_style, storage.credential_process, has_functions(storage), key)


def has_functions(storage: Storage) -> bool:
    """Whether only this process can supply its credentials."""
    return any(callable(each) for each in _values(storage))


def _source(storage: Storage) -> Source:
    if not any(value is not None for value in _values(storage)):
        assert storage.credential_process is not None
        return CredentialProcess(storage.credential_process)
    return _Given(storage)


class _Given:
    """Texts and functions of a Storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.can_renew = has_functions(storage)
        self.renew_s = RENEW_S if self.can_renew else None

    def fetch(self) -> Credentials:
        access_key, secret_key, token = (self._value(name) for name in ("access_key", "secret_key", "session_token"))
        return Credentials(access_key or "", secret_key or "", token)

    def _value(self, name: str) -> str | None:
        given: Credential | None = getattr(self._storage, name)
        return None if given is None else _text(self._storage, name, given)


class _GivenKey:
    """The key of a Storage's encrypted store."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def secret(self) -> Secret:
        return secret_of(self._storage)


def secret_of(storage: Storage) -> Secret:
    """The secret of a Storage with an encryption_key."""
    match storage.encryption_key:
        case KeyFile(path):
            return unlocking.of_file(path)
        case KeyCommand(command):
            return unlocking.of_command(command)
        case given:
            assert given is not None
            return unlocking.passphrase(_text(storage, "encryption_key", given))


def _text(storage: Storage, name: str, given: Credential) -> str:
    if isinstance(given, str):
        return given
    try:
        found: Any = given()
        if inspect.isawaitable(found):
            found = _await_result(found)
    except Exception as error:
        raise AccessDeniedError(
            f"{storage.url}: the function for {name} failed: {describe_error(error)}",
            hint="It is called without arguments, and returns the credential as a text.",
        ) from error
    if not isinstance(found, str) or not found:
        raise AccessDeniedError(
            f"{storage.url}: the function for {name} returned no text",
            hint="It is called without arguments, and returns the credential as a text.",
        )
    return found


def _await_result(awaitable: Awaitable[str]) -> Any:
    """Awaits on a thread of its own, since this one may have a running event loop."""
    import asyncio  # slow to import, and seldom needed

    async def wait() -> Any:
        return await asyncio.wait_for(_plain(awaitable), AWAIT_S)

    with Threads(1, name="credentials") as pool:
        return pool.submit(lambda: asyncio.run(wait())).result()


async def _plain(awaitable: Awaitable[str]) -> str:
    return await awaitable


def _values(storage: Storage) -> tuple[Credential | None, ...]:
    return storage.access_key, storage.secret_key, storage.session_token
