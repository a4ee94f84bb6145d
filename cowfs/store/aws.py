"""What AWS' tools find on this machine for S3: credentials, region, endpoint, style of addresses.

    access keys in the environment     read here
    everything else                    botocore's business: ~/.aws/config and ~/.aws/credentials, profiles, SSO, roles, instances

botocore takes a third of a second to import, so it is imported only then: without access keys in
the environment, or for the settings in a configuration file that exists.
"""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cowfs import clock, log
from cowfs.store.identity import Credentials
from cowfs.store.s3_errors import CredentialsFailed, NoCredentials, S3Failure

DEFAULT_REGION = "us-east-1"
PAUSE_S = 5.0
"""Between two attempts to get others: many threads are refused at the same moment."""
RENEWAL_S = 30.0
"""So long a request waits for others: a credential_process may wait for a person."""

_log = log.get("store")


@dataclass(frozen=True, slots=True)
class Settings:
    """None: not set. style: "path", "virtual" or "auto"."""

    region: str | None = None
    endpoint: str | None = None
    style: str | None = None


class AmbientCredentials:
    """Those of the environment, found once and renewed by botocore. Any thread may call."""

    def __init__(self) -> None:
        self._newest: Credentials | None = None
        self._found: Any = None  # botocore's, which renews them
        self._lock = threading.Lock()  # guards those below; not held while anybody is asked
        self._renewal: threading.Event | None = None
        self._renewed_s = -math.inf

    @property
    def newest(self) -> Credentials:
        """Never waits; `ready` comes first."""
        assert self._newest is not None
        return self._newest

    def ready(self) -> None:
        """Finds or renews them; may wait. NoCredentials: there are none. CredentialsFailed: they
        cannot be had."""
        if self._newest is None and (given := _of_variables()) is not None:
            self._newest = given
        elif self._newest is None or self._found is not None:
            self._found = self._found or _searched()
            self._take(_frozen(self._found))

    def renew(self, used: Credentials) -> bool:
        """After these were refused as expired, whatever they said of their end: whether there are
        others, in the configuration or by its credential_process, which is waited for RENEWAL_S at
        most. Not of variables, which this process has for good."""
        if self._found is None:
            return False
        with self._lock:
            is_under_way = self._renewal is not None and not self._renewal.is_set()
            if self.newest == used and not is_under_way and clock.monotonic_s() >= self._renewed_s + PAUSE_S:
                self._renewed_s, self._renewal = clock.monotonic_s(), threading.Event()
                threading.Thread(target=self._renew, args=(self._renewal,), name="cowfs-renewal", daemon=True).start()
            renewal = self._renewal
        if renewal is not None:
            renewal.wait(RENEWAL_S)
        return self.newest != used

    def _renew(self, renewal: threading.Event) -> None:
        try:
            found = _searched()
            self._take(_frozen(found))
            self._found = found
        except S3Failure as failure:
            _log.info("there are no other credentials: %s", failure.reason)
        finally:
            renewal.set()

    def _take(self, now: Credentials) -> None:
        before = self._newest
        if before is None or (before.secret_key, before.token) != (now.secret_key, now.token):
            self._newest = now


def _searched() -> Any:
    """botocore's. NoCredentials, CredentialsFailed as `AmbientCredentials.ready`."""
    import botocore.session
    from botocore.exceptions import BotoCoreError

    try:
        found = botocore.session.Session().get_credentials()
    except (BotoCoreError, OSError, ValueError) as error:  # a credential_process fails as programs do
        raise CredentialsFailed(str(error)) from None
    if found is None:
        raise NoCredentials("no credentials were found")
    return found


def _frozen(found: Any) -> Credentials:
    """CredentialsFailed: they cannot be renewed."""
    from botocore.exceptions import BotoCoreError

    try:
        now = found.get_frozen_credentials()
    except (BotoCoreError, OSError, ValueError) as error:
        raise CredentialsFailed(str(error)) from None
    return Credentials(now.access_key, now.secret_key, now.token)


def are_in_variables() -> bool:
    """Whether the environment's credentials stand in variables."""
    return _of_variables() is not None


def settings() -> Settings:
    """Of the environment and the configuration file."""
    return _settings(tuple(item for item in os.environ.items() if item[0] == "HOME" or item[0].startswith("AWS_")))


def has_configuration() -> bool:
    """Whether there is a configuration file of AWS' tools."""
    places = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    return any(Path(os.environ.get(name) or usual).expanduser().exists() for name, usual in places)


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
        if session.get_config_variable("ignore_configured_endpoint_urls"):
            return Settings(region, None, style)
        provider = ConfiguredEndpointProvider(
            full_config=session.full_config, scoped_config=session.get_scoped_config(), client_name="s3"
        )
        return Settings(region, provider.provide() or None, style)
    except BotoCoreError:  # a profile that does not exist: connecting says so
        return Settings(region)


def _of_variables() -> Credentials | None:
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        return None
    return Credentials(key, secret, os.environ.get("AWS_SESSION_TOKEN") or os.environ.get("AWS_SECURITY_TOKEN") or None)
