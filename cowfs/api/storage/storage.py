"""Storage: a store's URL, and the credentials to ask it with.

    url, endpoint, region   one canonical store URL, as locators have it; never a credential in it
    access_key, secret_key, session_token
                            a text, or a function that returns one (or something to await) each time it is asked
    credential_process      a command that prints credentials, in AWS' form
    none of these           what the provider's own tools find: environment, profile, the machine's role
    encryption_key          opens an encrypted store, and makes a new one encrypted: a passphrase (a text or such a function), a
                            KeyFile or a KeyCommand; never handed to the store

A Storage is a value: frozen, equal to another with the same fields, and able to be a key. It holds
secrets, and shows none: not in its repr or str, and pickled it is its URL alone, which is then
asked with the credentials of wherever it was unpickled. Copies within a process keep them.

Which fields mean what:

    s3            access_key and secret_key, with session_token for temporary ones; or credential_process
    gs            session_token: an OAuth access token
    abfs, az      secret_key: the account's key; or session_token: a SAS token
    others        none
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cowfs.errors import InvalidInputError
from cowfs.format.store_url import StoreUrl
from cowfs.store import unlocking
from cowfs.store.credential_process import CredentialProcess
from cowfs.store.named import placed

if TYPE_CHECKING:
    from cowfs.api.storage.objects import AsyncObjects, Objects

Credential = str | Callable[[], str | Awaitable[str]]
"""A secret, or what returns it: called again when it may have expired, in the process that made it
and on a thread of its own. An awaitable is awaited there, in an asyncio event loop of its own."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The key of an encrypted store is what this file holds: 32 random bytes or more."""

    path: str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class KeyCommand:
    """The key of an encrypted store is what this command prints: 32 random bytes or more, as a key
    management service decrypts them. It is split as a shell would and run without one."""

    command: str = field(repr=False)

    def __post_init__(self) -> None:
        unlocking.words_of(self.command)


EncryptionKey = Credential | KeyFile | KeyCommand
"""A `Credential` is a passphrase."""

_SECRETS = ("access_key", "secret_key", "session_token")
_TAKEN = {
    "s3": ({"access_key", "secret_key"}, {"access_key", "secret_key", "session_token"}),
    "gs": ({"session_token"},),
    **dict.fromkeys(("abfs", "abfss", "az"), ({"secret_key"}, {"session_token"})),
}
_WANTED = {
    "s3": "access_key and secret_key, and session_token for temporary ones",
    "gs": "session_token, an OAuth access token",
    **dict.fromkeys(("abfs", "abfss", "az"), "secret_key, the account's key, or session_token, a SAS token"),
}


@dataclass(frozen=True, slots=True)
class Storage:
    """A store and its credentials, for store= of every call that takes one; as a context, its plain
    objects.

    endpoint, region: as in the URL, for s3. path_style: whether an s3 server finds the bucket in
    the path (True) or in the host's name (False); None: as usual. credential_process runs also
    where the functions' process is gone. encryption_key: a store that is not encrypted is refused;
    None: COWFS_ENCRYPTION_PASSPHRASE and its like. InvalidInputError: fields that do not go
    together.
    """

    url: str
    endpoint: str | None = field(default=None, kw_only=True)
    region: str | None = field(default=None, kw_only=True)
    access_key: Credential | None = field(default=None, kw_only=True, repr=False)
    secret_key: Credential | None = field(default=None, kw_only=True, repr=False)
    session_token: Credential | None = field(default=None, kw_only=True, repr=False)
    path_style: bool | None = field(default=None, kw_only=True)
    credential_process: str | None = field(default=None, kw_only=True, repr=False)
    encryption_key: EncryptionKey | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        place = _place(self.url, self.endpoint, self.region)
        for name, value in (("url", str(place)), ("endpoint", place.endpoint), ("region", place.region)):
            object.__setattr__(self, name, value)
        self._check_credentials(place.protocol)
        if self.path_style is not None and (place.protocol != "s3" or not isinstance(self.path_style, bool)):
            raise InvalidInputError("path_style is True or False, and for s3: only", hint="Leave it out.")

    def _check_credentials(self, protocol: str) -> None:
        given = {name for name in _SECRETS if getattr(self, name) is not None}
        for name in given:
            _check_credential(name, getattr(self, name))
        if self.encryption_key is not None and not isinstance(self.encryption_key, KeyFile | KeyCommand):
            _check_credential("encryption_key", self.encryption_key)
        if given and given not in _TAKEN.get(protocol, ()):
            raise InvalidInputError(
                f"{protocol}: stores are not asked with {' and '.join(sorted(given))}",
                hint=f"They take {_WANTED[protocol]}." if protocol in _WANTED else "They take no credentials.",
            )
        if self.credential_process is not None:
            if protocol != "s3":
                raise InvalidInputError("credential_process is for s3: stores only", hint="Leave it out.")
            CredentialProcess(self.credential_process)  # a command, at least

    @property
    def has_credentials(self) -> bool:
        """Whether any were given; else those of the environment are used."""
        return self.credential_process is not None or any(getattr(self, name) is not None for name in _SECRETS)

    # -- its objects

    def __enter__(self) -> Objects:
        from cowfs.api.storage.objects import opened

        return opened(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from cowfs.api.storage.objects import release

        release(self)

    async def __aenter__(self) -> AsyncObjects:
        from cowfs.api.storage.objects import AsyncObjects, opened

        return AsyncObjects(opened(self))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from cowfs.api.storage.objects import release
        from cowfs.api.threads import in_any_case

        await in_any_case(release, self)

    # -- as a value

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (self.url, self.path_style))


def _unpickled(url: str, path_style: bool | None) -> Storage:
    return Storage(url, path_style=path_style)


def _check_credential(name: str, value: object) -> None:
    if not (isinstance(value, str) and value) and not callable(value):
        raise InvalidInputError(
            f"{name} is neither a text nor a function", hint="Leave it out to use what the environment has."
        )
    if not isinstance(value, Hashable):
        raise InvalidInputError(f"{name} cannot be hashed", hint="Wrap it: lambda: …, or a method of an object.")


def _place(url: object, endpoint: object, region: object) -> StoreUrl:
    """The store at a URL, with what is said of it besides."""
    place = placed(os.fspath(url) if isinstance(url, os.PathLike) else url)
    for name, given, found in (("endpoint", endpoint, place.endpoint), ("region", region, place.region)):
        if given is None:
            continue
        if not isinstance(given, str) or not given or place.protocol != "s3":
            raise InvalidInputError(f"{name} is a text, and for s3: stores only", hint="Leave it out.")
        place = StoreUrl.parse(str(replace(place, **{name: given})))
        if found is not None and getattr(place, name) != found:
            raise InvalidInputError(f"the URL names another {name} than {name}=", hint="Give one of them.")
    return place
