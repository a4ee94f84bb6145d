"""Which servers may see the user's credentials: those the user named, never one that only a locator
names.

A locator comes from elsewhere, and holds an endpoint. A signed request shows the server a key id
and a session token. So a server counts as the user's own only if it is one of these, compared by
scheme, host and port:

    this machine (loopback)         `COWFS_TRUSTED_ENDPOINTS` (separated by commas or spaces)
    the default store's             `trusted_endpoints` in config.toml, or a line of `trusted_endpoints` beside it
    AWS_ENDPOINT_URL(_S3), `endpoint_url` in ~/.aws/config
    one of a store that the user named: --store, store=…     (`name`: remembered beside config.toml, handed on to daemons)

A version may have links to directories (`index.links`). A directory of this machine is read only if
the user has linked it here (`name_directory`): a version from elsewhere must not show or publish
files of the reader's disk.

Any other server is asked without credentials, as a public store is. A store without a server in its
URL (s3 at AWS, gs, az, file) is the user's own.
"""

from __future__ import annotations

import contextlib
import os
import re
from urllib.parse import urlsplit

from cowfs.base import config
from cowfs.base.errors import AccessDeniedError
from cowfs.base.fork_locks import ForkLock
from cowfs.format import backends
from cowfs.format.store_url import StoreUrl
from cowfs.store.credentials import aws

VARIABLE = "COWFS_TRUSTED_ENDPOINTS"
_PORTS = {"http": 80, "https": 443}

_lock = ForkLock()
_named: set[str] = set()


def server_of(place: StoreUrl) -> str | None:
    """scheme://host:port of the server that the URL itself names, None when it names none."""
    if place.endpoint is not None:
        return _server(place.endpoint)
    return _server(f"{place.protocol}://{place.authority}") if backends.find(place.protocol).names_server else None


def is_trusted(place: StoreUrl) -> bool:
    """Whether requests to this store may carry credentials."""
    server = server_of(place)
    return server is None or is_loopback(server) or server in _list_trusted() or server in _of_aws()


def is_loopback(server: str) -> bool:
    import ipaddress

    host = urlsplit(server).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def name(place: StoreUrl) -> None:
    """The user named this store: its server is trusted, here and in what runs later on this
    machine."""
    server = server_of(place)
    if server is None or is_trusted(place):
        return
    with _lock:
        _named.add(server)
    with contextlib.suppress(OSError):  # where nothing can be remembered, this process still knows
        remember(server)


def name_directory(place: StoreUrl) -> None:
    """The user has linked this directory: its files may be read through links, here and later."""
    if is_linkable(place):
        return
    with _lock:
        _named.add(_directory(place))
    with contextlib.suppress(OSError):
        remember(_directory(place))


def is_linkable(place: StoreUrl) -> bool:
    """Whether links to this place may be followed."""
    if (reach := backends.find(place.protocol).reach) != "machine":
        return reach == "network"
    with _lock:
        known = set(_named)
    known.update(_split(os.environ.get(VARIABLE, "")), config.load_endpoints())
    path = _directory(place)
    return any(
        (path == each or path.startswith(f"{each.rstrip('/')}/")) and _is_really_within(place, each)
        for each in known
        if each
    )


def _is_really_within(place: StoreUrl, known: str) -> bool:
    """Whether no symbolic link below the directory that is known leads out of it."""
    above, below = (os.path.realpath("/" + each.path) for each in (StoreUrl.parse(known), place))
    return os.path.commonpath([above, below]) == above


def _directory(place: StoreUrl) -> str:
    """Its URL, without a comma, which would end it in a list."""
    return str(place).replace(",", "%2C")


def remember(server: str) -> None:
    """Adds the server to the file that lists trusted ones. OSError."""
    path = config.endpoints_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(f"{server}\n")


def format_for_export() -> str:
    """The value of VARIABLE for a process that acts for this one."""
    with _lock:
        named = set(_named)
    return " ".join(sorted(named | set(_split(os.environ.get(VARIABLE, "")))))


def _list_trusted() -> set[str]:
    with _lock:
        found = set(_named)
    found.update(_server(text) for text in _split(os.environ.get(VARIABLE, "")))
    found.update(_server(text) for text in config.load_endpoints())
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        if text := os.environ.get(variable):
            found.add(_server(text))
    with contextlib.suppress(AccessDeniedError):  # nothing says where it is
        if "://" in (url := config.default_store()) and (server := server_of(StoreUrl.parse(url))):
            found.add(server)
    return found


def _of_aws() -> set[str]:
    """Endpoints of the profiles in AWS' own configuration. Asked last: botocore is slow to
    import."""
    if not aws.has_configuration():
        return set()
    import botocore.session
    from botocore.exceptions import BotoCoreError

    try:
        settings = botocore.session.Session().full_config
    except BotoCoreError:
        return set()
    sections = [*settings.get("profiles", {}).values(), *settings.get("services", {}).values()]
    texts = [str(section.get("endpoint_url", "")) for section in sections]
    texts += [str(section["s3"].get("endpoint_url", "")) for section in sections if isinstance(section.get("s3"), dict)]
    return {_server(text) for text in texts if text}


def _split(text: str) -> list[str]:
    return [part for part in re.split(r"[\s,]+", text) if part]


def _server(url: str) -> str:
    """scheme://host:port; text that is no such URL is returned as it is, and equals nothing."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return url
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"
