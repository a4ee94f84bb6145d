"""URLs of S3: which server one names, and the endpoint that AWS' settings add.

Two URLs name one bucket if host and port of their endpoints are equal. A URL without an endpoint
has that of the environment, else Amazon's. All names of this machine are one server, all of
Amazon's are one, and http and https at their default ports are one. A server that has further
names, or is reached through another one, is not recognised.
"""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlsplit

from cowfs.format.store_url import StoreUrl
from cowfs.store.credentials import aws, trust

_AMAZONS = re.compile(r"(.*\.)?amazonaws\.com(\.cn)?")
_PORTS = {"http": 80, "https": 443}


class S3Address:
    def is_same_root(self, one: StoreUrl, other: StoreUrl) -> bool:
        return one.authority == other.authority and _server(one) == _server(other)

    def complete(self, place: StoreUrl) -> StoreUrl:
        """With AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or `endpoint_url` of ~/.aws/config."""
        if place.endpoint is not None or (endpoint := aws.settings().endpoint) is None:
            return place
        # Parsing checks the endpoint and gives it its canonical form.
        return StoreUrl.parse(str(replace(place, endpoint=endpoint)))


def _server(place: StoreUrl) -> tuple[str, int | None, str]:
    endpoint = place.endpoint or aws.settings().endpoint or "https://s3.amazonaws.com"
    parts = urlsplit(endpoint)
    host, port = (parts.hostname or "").rstrip("."), parts.port
    if _AMAZONS.fullmatch(host):
        return "amazonaws.com", None, ""
    if trust.is_loopback(endpoint):
        host = "localhost"
    return host, None if port == _PORTS.get(parts.scheme) else port, parts.path.rstrip("/")
