"""Whether one place lies in another, however their URLs are spelled: before objects of the one are
written, deleted or read as if the other were not there.

    s3              one server: host and port of the endpoint, of the environment where the URL has none; all names of
                    this machine are one, all of Amazon's, and http and https at their own ports
    abfs, abfss, az one container, if not both name accounts that differ
    memory          its authority is a part of the path

A server that has further names, or is reached through another one, is not told.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from cowfs.format.store_url import AZURE_PROTOCOLS, StoreUrl
from cowfs.store import aws, trust

_AMAZONS = re.compile(r"(.*\.)?amazonaws\.com(\.cn)?")
_PORTS = {"http": 80, "https": 443}


def path_within(place: StoreUrl, other: StoreUrl) -> str | None:
    """The path of `place` below `other`, "" for the same place; None: it lies elsewhere."""
    path, above = _parts(place), _parts(other)
    if not _has_same_root(place, other) or path[: len(above)] != above:
        return None
    return "/".join(path[len(above) :])


def is_one(url: str, other: str) -> bool:
    """Whether two URLs of stores lead to one place."""
    return url == other or path_within(StoreUrl.parse(url), StoreUrl.parse(other)) == ""


def _parts(place: StoreUrl) -> list[str]:
    path = f"{place.authority}/{place.path}" if place.protocol == "memory" else place.path
    return [part for part in path.split("/") if part]


def _has_same_root(one: StoreUrl, other: StoreUrl) -> bool:
    if one.protocol in AZURE_PROTOCOLS and other.protocol in AZURE_PROTOCOLS:
        (container, account), (other_container, other_account) = (_container(each) for each in (one, other))
        return container == other_container and (account == other_account or not account or not other_account)
    if one.protocol != other.protocol:
        return False
    if one.protocol == "s3":
        return one.authority == other.authority and _server(one) == _server(other)
    return one.protocol == "memory" or one.authority == other.authority


def _container(place: StoreUrl) -> tuple[str, str]:
    """And the account, "" where the URL names none."""
    container, _, host = place.authority.partition("@")
    return container, host.partition(".")[0]


def _server(place: StoreUrl) -> tuple[str, int | None, str]:
    endpoint = place.endpoint or aws.settings().endpoint or "https://s3.amazonaws.com"
    parts = urlsplit(endpoint)
    host, port = (parts.hostname or "").rstrip("."), parts.port
    if _AMAZONS.fullmatch(host):
        return "amazonaws.com", None, ""
    if trust.is_loopback(endpoint):
        host = "localhost"
    return host, None if port == _PORTS.get(parts.scheme) else port, parts.path.rstrip("/")
