"""What AWS' tools find on this machine for S3: credentials, region, endpoint, style of addresses.

    access keys in the environment     read here
    everything else                    botocore's business: ~/.aws/config and ~/.aws/credentials, profiles, SSO, roles, instances

botocore takes a third of a second to import, so it is imported only then: without access keys in
the environment, or for the settings in a configuration file that exists.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache, partial
from typing import Any

from cowfs.base import clock, log
from cowfs.base.fast_dataclass import dataclass
from cowfs.store.backends.s3.s3_errors import CredentialsFailed, NoCredentials, S3Failure
from cowfs.store.credentials.identity import Credentials

DEFAULT_REGION = "us-east-1"
SOON_S = 15 * 60
"""Credentials that end within are renewed; as botocore does, which AWS' roles are made for."""
PAUSE_S = 5.0
"""Between two attempts to get others: many threads are refused at the same moment."""
RENEWAL_S = 30.0
"""So long requests wait for others."""
GIVEN_UP_S = 300.0
"""After this time a renewal without an answer is abandoned, and a new one may start."""

_log = log.get("store")


@dataclass(frozen=True, slots=True)
class Settings:
    """None: not set. style: "path", "virtual" or "auto". ca_bundle: of the configuration file."""

    region: str | None = None
    endpoint: str | None = None
    style: str | None = None
    ca_bundle: str | None = None


@dataclass(eq=False)
class _Renewal:
    """failure: why there are no others, once it is over."""

    begun_s: float
    is_over: threading.Event = field(default_factory=threading.Event)
    failure: S3Failure | None = None


class AmbientCredentials:
    """Credentials of the environment, found once and renewed by botocore. Any thread may call.

    The first ones have no time limit: a person may have to type a code. A thread fetches later
    ones, and callers wait for it RENEWAL_S at most: a credential_process that hangs must not hang
    commits and unmounts.
    """

    def __init__(self) -> None:
        self._newest: Credentials | None = None
        self._found: Any = None  # botocore's, which renews them
        self._lock = threading.Lock()  # guards the next one; not held during a request
        self._renewal: _Renewal | None = None

    @property
    def newest(self) -> Credentials:
        """Never waits; `ready` comes first."""
        assert self._newest is not None
        return self._newest

    def ready(self) -> None:
        """Finds or renews them; may wait. NoCredentials: there are no credentials.
        CredentialsFailed: they could not be fetched."""
        if self._newest is None and (given := _of_variables()) is not None:
            self._newest = given
        elif self._newest is None:
            self._found = _search()
            self._newest = _frozen(self._found)
        elif self._found is not None and _ends_within(self._found, SOON_S):
            failure = self._ask(anew=False)
            if failure is not None and _ends_within(self._found, 0):
                raise failure

    def renew(self, used: Credentials) -> bool:
        """Call it after these credentials were refused as expired, even if their expiry is later.
        Whether the configuration or its credential_process has given others. Never with
        credentials from variables, which do not change while the process runs."""
        if self._found is not None and self.newest == used:
            self._ask(anew=True)
        return self.newest != used

    def _ask(self, *, anew: bool) -> S3Failure | None:
        """anew: the configuration is read again. One at a time, and not again at once."""
        with self._lock:
            now_s, renewal = clock.monotonic_s(), self._renewal
            hangs = renewal is not None and not renewal.is_over.is_set()
            if renewal is None or now_s >= renewal.begun_s + (GIVEN_UP_S if hangs else PAUSE_S):
                renewal = self._renewal = _Renewal(now_s)
                work = partial(self._renew, renewal, anew=anew or hangs)  # botocore's is locked by who hangs
                threading.Thread(target=work, name="cowfs-renewal", daemon=True).start()
        if renewal.is_over.wait(max(0.0, renewal.begun_s + RENEWAL_S - now_s)):
            return renewal.failure
        return CredentialsFailed("the source of the credentials does not answer")

    def _renew(self, renewal: _Renewal, *, anew: bool) -> None:
        try:
            found = _search() if anew else self._found
            now = _frozen(found)
            if self._renewal is not renewal:  # given up meanwhile
                return
            if (now.secret_key, now.token) != (self.newest.secret_key, self.newest.token):
                self._newest = now
            self._found = found
        except S3Failure as failure:
            renewal.failure = failure
            _log.warning("there are no new credentials: %s", failure.reason)
        finally:
            renewal.is_over.set()


def _search() -> Any:
    """botocore's credentials. NoCredentials; CredentialsFailed: the configuration, or a command
    that it names, fails."""
    import botocore.session

    with _failing():
        found = botocore.session.Session().get_credentials()
    if found is None:
        raise NoCredentials("no credentials were found")
    return found


def _frozen(found: Any) -> Credentials:
    """CredentialsFailed: they cannot be renewed."""
    with _failing():
        now = found.get_frozen_credentials()
        return Credentials(now.access_key, now.secret_key, now.token)


@contextmanager
def _failing() -> Iterator[None]:
    """Raises CredentialsFailed for errors of a credential_process. botocore passes them on
    unchanged: the command's own message, which may be empty, or an error in its JSON."""
    from botocore.exceptions import BotoCoreError, CredentialRetrievalError

    try:
        yield
    except CredentialRetrievalError as error:
        said = str(error).rstrip()
        raise CredentialsFailed(said + " it failed, and said nothing" if said.endswith(":") else said) from None
    except ValueError as error:
        raise CredentialsFailed(f"credentials cannot be read, from the credential_process, say: {error}") from None
    except (BotoCoreError, OSError, RuntimeError) as error:
        raise CredentialsFailed(str(error)) from None


def _ends_within(found: Any, seconds: float) -> bool:
    """Whether credentials that have an expiry expire within so many seconds."""
    return bool(getattr(found, "refresh_needed", lambda _: False)(seconds))


def are_in_variables() -> bool:
    """Whether the environment's credentials stand in variables."""
    return _of_variables() is not None


def settings() -> Settings:
    """Of the environment and the configuration file."""
    return _settings(tuple(item for item in os.environ.items() if item[0] == "HOME" or item[0].startswith("AWS_")))


def has_configuration() -> bool:
    """Whether there is a configuration file of AWS' tools."""
    places = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    return any(os.path.exists(os.path.expanduser(os.environ.get(name) or usual)) for name, usual in places)


@lru_cache(maxsize=4)
def _settings(variables: tuple[tuple[str, str], ...]) -> Settings:
    """Cached by the variables: reading the configuration is slow."""
    given = dict(variables)
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or None
    if has_configuration() or "AWS_PROFILE" in given:
        return _of_configuration(region)
    if given.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return Settings(region)
    return Settings(region, given.get("AWS_ENDPOINT_URL_S3") or given.get("AWS_ENDPOINT_URL") or None)


def _of_configuration(region: str | None) -> Settings:
    """botocore reads the variables by itself."""
    from botocore.configprovider import ConfiguredEndpointProvider
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    session = Session()
    try:
        region = region or session.get_config_variable("region")
        style = (session.get_config_variable("s3") or {}).get("addressing_style")
        bundle = session.get_scoped_config().get("ca_bundle")
        if session.get_config_variable("ignore_configured_endpoint_urls"):
            return Settings(region, None, style, bundle)
        provider = ConfiguredEndpointProvider(
            full_config=session.full_config, scoped_config=session.get_scoped_config(), client_name="s3"
        )
        return Settings(region, provider.provide() or None, style, bundle)
    except BotoCoreError:  # a profile that does not exist: connecting says so
        return Settings(region)


def _of_variables() -> Credentials | None:
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        return None
    return Credentials(key, secret, os.environ.get("AWS_SESSION_TOKEN") or os.environ.get("AWS_SECURITY_TOKEN") or None)
