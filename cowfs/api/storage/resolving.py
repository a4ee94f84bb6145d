"""From a `Storage` to credentials: what its functions return, what its command prints.

Functions are called in the process that made them, on the thread that needs the credentials; what
they return may be awaited, which is done in an asyncio event loop on a thread of its own. The
caller's own loop is not used: it may stand still in a read of a mount that waits for these very
credentials. Nobody says how long a function's values are good, so they are asked for again after
RENEW_S, and when the store refuses them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any

from cowfs.api.storage.storage import Credential, KeyCommand, KeyFile, Storage
from cowfs.errors import AccessDeniedError
from cowfs.format.key_slots import Secret
from cowfs.helpers import Threads
from cowfs.redaction import described
from cowfs.store import AMBIENT, Access, Credentials, Identity, unlocking
from cowfs.store.credential_process import CredentialProcess
from cowfs.store.identity import Source

RENEW_S = 300.0
AWAIT_S = 60.0


def access(storage: Storage | None) -> Access:
    """How its store is asked: an identity of its own each time. Nothing is called yet."""
    if storage is None:
        return AMBIENT
    identity = Identity(_source(storage)) if storage.has_credentials else None
    key = _GivenKey(storage) if storage.encryption_key is not None else None
    return Access(identity, storage.path_style, storage.credential_process, has_functions(storage), key)


def has_functions(storage: Storage) -> bool:
    """Whether only this process can say what its credentials are."""
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
    """Of a Storage with an encryption_key."""
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
            found = _awaited(found)
    except Exception as error:
        raise AccessDeniedError(
            f"{storage.url}: the function for {name} failed: {described(error)}",
            hint="It is called without arguments, and returns the credential as a text.",
        ) from error
    if not isinstance(found, str) or not found:
        raise AccessDeniedError(
            f"{storage.url}: the function for {name} returned no text",
            hint="It is called without arguments, and returns the credential as a text.",
        )
    return found


def _awaited(awaitable: Awaitable[str]) -> Any:
    """On a thread of its own: this one may have a running event loop."""
    import asyncio  # slow to import, and seldom needed

    async def wait() -> Any:
        return await asyncio.wait_for(_plain(awaitable), AWAIT_S)

    with Threads(1, name="credentials") as pool:
        return pool.submit(lambda: asyncio.run(wait())).result()


async def _plain(awaitable: Awaitable[str]) -> str:
    return await awaitable


def _values(storage: Storage) -> tuple[Credential | None, ...]:
    return storage.access_key, storage.secret_key, storage.session_token
