"""Storage: a store's URL and the credentials for it.

    url, endpoint, region   one canonical store URL, as in locators; never a credential in it
    access_key, secret_key, session_token
                            a text, or a function that returns one (or an awaitable) each time it is called
    credential_process      a command that prints credentials, in AWS' form
    none of these           the credentials that the provider's own tools find: environment, profile, the machine's role
    encryption_key          opens an encrypted store, and makes a new one encrypted: a passphrase (a text or such a function), a
                            KeyFile or a KeyCommand; never sent to the store

A Storage is a value: frozen, hashable, and equal to another with the same fields. It holds secrets,
and shows none in its repr or str. Pickled, it is its URL alone, and uses the credentials of the
process that unpickles it. Copies within a process keep the secrets.

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

from cowfs.base.errors import InvalidInputError
from cowfs.format import backends
from cowfs.format.backends import Backend
from cowfs.format.store_url import StoreUrl
from cowfs.store import store_names
from cowfs.store.credentials import unlocking
from cowfs.store.credentials.credential_process import CredentialProcess
from cowfs.store.named import parse_place

if TYPE_CHECKING:
    from cowfs.api.storage.objects import AsyncObjects, Objects

Credential = str | Callable[[], str | Awaitable[str]]
"""A secret, or a function that returns it. The function is called again when the secret may have
expired, in the process that made it and on a thread of its own. An awaitable is awaited there, in
an asyncio event loop of its own."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The key of an encrypted store, read from this file: 32 random bytes or more."""

    path: str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class KeyCommand:
    """The key of an encrypted store, printed by this command: 32 random bytes or more, as a key
    management service decrypts them. The command is split as by a shell, and run without one."""

    command: str = field(repr=False)

    def __post_init__(self) -> None:
        unlocking.words_of(self.command)


EncryptionKey = Credential | KeyFile | KeyCommand
"""A `Credential` is a passphrase."""

_SECRETS = ("access_key", "secret_key", "session_token")


@dataclass(frozen=True, slots=True)
class Storage:
    """A store and its credentials, for the argument store= of every call that has one. As a
    context, it gives the store's plain objects.

    endpoint, region: as in the URL, for s3. path_style: whether an s3 server finds the bucket in
    the path (True) or in the host's name (False); None: the default. credential_process also runs
    after the process of the functions has ended. encryption_key: a store that is not encrypted is
    refused; None: COWFS_ENCRYPTION_PASSPHRASE and the related variables. InvalidInputError: fields
    that contradict each other.
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
        backend = backends.find(place.protocol)
        self._check_credentials(place.protocol, backend)
        if self.path_style is not None and (
            "path_style" not in backend.settings or not isinstance(self.path_style, bool)
        ):
            raise InvalidInputError("path_style is True or False, and for s3: only", hint="Leave it out.")

    def _check_credentials(self, protocol: str, backend: Backend) -> None:
        given = {name for name in _SECRETS if getattr(self, name) is not None}
        for name in given:
            _check_credential(name, getattr(self, name))
        if self.encryption_key is not None and not isinstance(self.encryption_key, KeyFile | KeyCommand):
            _check_credential("encryption_key", self.encryption_key)
        if given and given not in backend.credentials:
            raise InvalidInputError(
                f"{protocol}: stores are not asked with {' and '.join(sorted(given))}",
                hint=f"They take {text}." if (text := backend.credentials_text) else "They take no credentials.",
            )
        if self.credential_process is not None:
            if "credential_process" not in backend.settings:
                raise InvalidInputError("credential_process is for s3: stores only", hint="Leave it out.")
            CredentialProcess(self.credential_process)  # checks that it is a command

    @property
    def has_credentials(self) -> bool:
        """Whether any were given; otherwise those of the environment are used."""
        return self.credential_process is not None or any(getattr(self, name) is not None for name in _SECRETS)

    # -- plain objects

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
        from cowfs.api.twins.threads import in_any_case

        await in_any_case(release, self)

    # -- as a value

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self.url, self.path_style))


def _unpickle(url: str, path_style: bool | None) -> Storage:
    return Storage(url, path_style=path_style)


def _check_credential(name: str, value: object) -> None:
    if not (isinstance(value, str) and value) and not callable(value):
        raise InvalidInputError(
            f"{name} is neither a text nor a function", hint="Leave it out to use what the environment has."
        )
    if not isinstance(value, Hashable):
        raise InvalidInputError(f"{name} cannot be hashed", hint="Wrap it: lambda: …, or a method of an object.")


def _place(url: object, endpoint: object, region: object) -> StoreUrl:
    """The store at a URL, with separately given endpoint and region."""
    if isinstance(url, str) and store_names.is_name(url):
        named = store_names.find_store(url)
        if not named.is_url:
            raise InvalidInputError(
                f"{url!r} names a store that has settings of its own", hint=f"Give the name alone: Store({url!r})."
            )
        url = named.url
    place = parse_place(os.fspath(url) if isinstance(url, os.PathLike) else url)
    for name, given, found in (("endpoint", endpoint, place.endpoint), ("region", region, place.region)):
        if given is None:
            continue
        if not isinstance(given, str) or not given or name not in backends.find(place.protocol).settings:
            raise InvalidInputError(f"{name} is a text, and for s3: stores only", hint="Leave it out.")
        place = StoreUrl.parse(str(replace(place, **{name: given})))
        if found is not None and getattr(place, name) != found:
            raise InvalidInputError(f"the URL names another {name} than {name}=", hint="Give one of them.")
    return place
