"""The address of a bucket, which requests for it begin with, and its region.

    given endpoint     in the path: ENDPOINT/BUCKET. With virtual-hosted style: BUCKET.ENDPOINT
    Amazon's           BUCKET.s3.REGION.amazonaws.com (amazonaws.com.cn in China); in the path, if the name has dots, for which
                       there are no certificates

Missing parts of the store's URL come from AWS' settings, as for AWS' tools (`aws.settings`). The
default region is us-east-1; in another region Amazon's servers say where a bucket lies
(`region_of`).
"""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from cowfs.base.fast_dataclass import dataclass
from cowfs.store.backends import network
from cowfs.store.backends.s3.s3_errors import Malformed
from cowfs.store.credentials import aws

_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class S3Place:
    """prefix: of keys, empty or ending in '/'. endpoint: of the service. address: of the bucket."""

    bucket: str
    prefix: str
    endpoint: str
    address: str
    region: str

    @property
    def is_in_path(self) -> bool:
        return self.address.endswith(f"/{self.bucket}")

    @property
    def is_amazons(self) -> bool:
        return (urlsplit(self.endpoint).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))


def place_of(bucket: str, prefix: str, endpoint: str | None, region: str | None, *, path_style: bool | None) -> S3Place:
    """path_style None: as usual there."""
    found = aws.settings()
    region = region or found.region or aws.DEFAULT_REGION
    given = endpoint or found.endpoint
    if path_style is None and found.style in ("path", "virtual"):
        path_style = found.style == "path"
    if path_style is None:
        path_style = given is not None or "." in bucket
    service = (given or f"https://s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}").rstrip("/")
    return S3Place(bucket, prefix, service, _address(service, bucket, path_style=path_style), region)


def region_of(bucket: str) -> str | None:
    """The region of a bucket of Amazon's, None: unknown. One request, which is not signed."""
    connection, target, _ = network.connection(f"https://s3.amazonaws.com/{bucket}", _ANSWER_S)
    try:
        connection.request("HEAD", target)
        return connection.getresponse().getheader("x-amz-bucket-region")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def wants_https(place: S3Place) -> bool:
    """Whether a server that is asked by http sends to https. One request, which is not signed."""
    if not place.address.startswith("http:"):
        return False
    connection, target, headers = network.connection(place.address, _ANSWER_S)
    try:
        connection.request("HEAD", target, headers=headers)
        answer = connection.getresponse()
        return 300 <= answer.status < 400 and (answer.getheader("Location") or "").lower().startswith("https:")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _address(service: str, bucket: str, *, path_style: bool) -> str:
    try:
        parts = urlsplit(service)
    except ValueError:
        raise Malformed("its endpoint is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise Malformed("its endpoint is not a URL")
    if path_style:
        return f"{service}/{bucket}"
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()
