"""A declared store: a URL, or a provider's preset, and the places of its credentials.

    main = "s3://bucket/prefix"
    main = {url = "s3://bucket/prefix", region = "eu-central-1"}
    main = {preset = "r2", account_id = "a1", bucket = "data", access_key = {env = "R2_KEY"}, secret_key = {file = "r2.secret"}}

The keys are those of `cowfs.storage`. The signature of a preset decides which keys it takes. A
declaration never contains a secret: it names a variable or a file, which is read when the store is
first used. Without credentials, those of the environment are used.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, PlainValidator, model_validator

from cowfs.api.declared import problems
from cowfs.api.declared.problems import Path as KeyPath
from cowfs.api.declared.problems import Problem, Refused
from cowfs.api.declared.value import Value
from cowfs.api.storage.definition import Storage
from cowfs.api.storage.presets import PRESETS, S3Credentials
from cowfs.base import programs
from cowfs.base.errors import AccessDeniedError, InvalidInputError, unreadable

SECRETS = ("access_key", "secret_key", "session_token", "key_id", "app_key", "encryption_key")
_OF_URLS = (
    "endpoint",
    "region",
    "path_style",
    "credential_process",
    "access_key",
    "secret_key",
    "session_token",
    "encryption_key",
)
_LONGEST_SECRET = 1 << 16


class Secret(Value):
    """The place of a secret: an environment variable, or a file. The last line end of the file is
    dropped."""

    env: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Secret:
        if bool(self.env) == bool(self.file):
            raise InvalidInputError("a secret is found in one place", hint=_SECRET_HINT)
        return self

    def read(self, key: str) -> str:
        """AccessDeniedError: the secret is missing. key: its key in the declaration."""
        if self.env:
            if not (value := os.environ.get(self.env)):
                raise AccessDeniedError(
                    f"the environment variable {self.env}, which {key} names, is not set", hint=f"Set {self.env}."
                )
            return value
        assert self.file is not None
        return _read(Path(self.file), key)


_SECRET_HINT = 'Write {env = "NAME"} or {file = "PATH"}.'


def _secret(given: object) -> object:
    if isinstance(given, str):  # the value is not repeated in the error: it may be a secret
        raise InvalidInputError("a secret does not stand in the declaration itself", hint=_SECRET_HINT)
    return given


def _read(file: Path, key: str) -> str:
    hint = "Make it readable, and put nothing but the secret into it."
    try:
        with open(os.path.expanduser(file), "rb") as opened:
            text = opened.read(_LONGEST_SECRET).decode().rstrip("\r\n")
    except OSError as error:
        raise unreadable(error, f"{file}, which {key} names, cannot be read", hint=hint) from error
    except ValueError:
        raise AccessDeniedError(f"{file}, which {key} names, is no text", hint=hint) from None
    if not text:
        raise AccessDeniedError(f"{file}, which {key} names, is empty", hint=hint)
    return text


_Found = Annotated[Secret | None, BeforeValidator(_secret)]


def _preset(name: str | None) -> str | None:
    """Checked by itself, so that an error in another key does not hide an unknown preset."""
    if name is not None and name not in PRESETS:
        raise InvalidInputError(f"there is no preset {name!r}", hint=problems.near(name, PRESETS, "Presets"))
    return name


MADE_FROM = "api_key"
"""A key of a preset that cannot be declared. The access key that is made from it ends with the
process that requested it, but a declared mount outlives `cowfs up`."""


class DeclaredStore(Value):
    """A store by its URL, or by a preset of `cowfs.storage` and its arguments.

    url           a URL or a directory; a relative one in a file is relative to that file
    preset        s3, r2, gcs, azure, wasabi, backblaze, minio, hyperstack, local
    access_key, secret_key, session_token, key_id, app_key, encryption_key
                  the place of a credential, or of the passphrase of an encrypted store: {"env": NAME} or {"file": PATH}
    others        as in `cowfs.storage`
    """

    url: str | None = None
    preset: Annotated[str | None, AfterValidator(_preset)] = None
    bucket: str | None = None
    prefix: str | None = None
    container: str | None = None
    account: str | None = None
    account_id: str | None = None
    jurisdiction: str | None = None
    path: str | None = None
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    credential_process: str | None = None
    access_key: _Found = None
    secret_key: _Found = None
    session_token: _Found = None
    key_id: _Found = None
    app_key: _Found = None
    encryption_key: _Found = None

    if TYPE_CHECKING:  # the arguments accept more types than the fields store

        def __init__(
            self,
            *,
            url: str | None = None,
            preset: str | None = None,
            bucket: str | None = None,
            prefix: str | None = None,
            container: str | None = None,
            account: str | None = None,
            account_id: str | None = None,
            jurisdiction: str | None = None,
            path: str | None = None,
            endpoint: str | None = None,
            region: str | None = None,
            path_style: bool | None = None,
            credential_process: str | None = None,
            access_key: Secret | Mapping[str, str] | None = None,
            secret_key: Secret | Mapping[str, str] | None = None,
            session_token: Secret | Mapping[str, str] | None = None,
            key_id: Secret | Mapping[str, str] | None = None,
            app_key: Secret | Mapping[str, str] | None = None,
            encryption_key: Secret | Mapping[str, str] | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _is_one(self) -> DeclaredStore:
        if found := list(self._wrong_keys()):
            raise Refused(found)
        if self.encryption_key is not None and self.encryption_key.env:
            programs.withhold(self.encryption_key.env)  # before any program is started, for any store
        try:
            self.without_secrets()
        except InvalidInputError as error:
            option = error.details.get("option")  # given by itself, or within the URL
            at = option if option and getattr(self, option) else "url" if self.url is not None else "preset"
            raise Refused([Problem((at,), error.message, error.open_hint)]) from error
        return self

    @classmethod
    def keys_at(cls, path: KeyPath) -> list[str]:
        return Secret.keys_at(()) if path else list(cls.model_fields)

    def storage(self) -> Storage:
        """The store with its secrets. AccessDeniedError: one of them is missing."""
        found = {key: secret.read(key) for key in SECRETS if (secret := getattr(self, key)) is not None}
        return self._make(found)

    def without_secrets(self) -> Storage:
        """The same place, with placeholders for its secrets."""
        return self._make({key: "…" for key in SECRETS if getattr(self, key) is not None})

    def secret_files(self) -> list[str]:
        """The files that its secrets are read from."""
        secrets = (getattr(self, key) for key in SECRETS)
        return [each.file for each in secrets if each is not None and each.file]

    def _make(self, secrets: dict[str, str]) -> Storage:
        given = {key: getattr(self, key) for key in self._check_given() - {"url", "preset", *SECRETS}} | secrets
        if self.url is not None:
            return Storage(self.url, **given)
        assert self.preset is not None
        return PRESETS[self.preset](**given)

    def _check_given(self) -> set[str]:
        return {key for key in type(self).model_fields if getattr(self, key) is not None}

    def _wrong_keys(self) -> Iterator[Problem]:
        if (self.url is None) == (self.preset is None):
            yield Problem((), "a store has either a url or a preset", f"Presets: {', '.join(PRESETS)}.")
            return
        what = "a store with a url" if self.url is not None else f"the preset {self.preset}"
        taken, needed = _keys_of(self.preset)
        for key in sorted(self._check_given() - {"url", "preset", *taken}):
            yield Problem((key,), f"{what} takes no {key}", f"It takes: {', '.join(taken)}.")
        for key in sorted(needed - self._check_given()):
            yield Problem((), f"{what} needs {key}", f"It takes: {', '.join(taken)}.")


def _keys_of(preset: str | None) -> tuple[list[str], set[str]]:
    """The allowed and the required keys of a preset; None: of a store with a URL."""
    if preset is None:
        return list(_OF_URLS), set()
    parameters = inspect.signature(PRESETS[preset]).parameters.values()
    is_open = any(each.kind is each.VAR_KEYWORD for each in parameters)
    named = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD and each.name != MADE_FROM]
    others = list(S3Credentials.__annotations__) if is_open else []
    return [*named, *others], {each.name for each in parameters if each.name in named and each.default is each.empty}


def _store(given: object) -> DeclaredStore | Storage:
    """A string is the URL of a store without other keys."""
    if isinstance(given, Storage | DeclaredStore):
        return given
    return DeclaredStore.model_validate({"url": given} if isinstance(given, str) else given)


AnyStore = Annotated[DeclaredStore | Storage, PlainValidator(_store)]


def storage_of(store: DeclaredStore | Storage) -> Storage:
    return store if isinstance(store, Storage) else store.storage()
