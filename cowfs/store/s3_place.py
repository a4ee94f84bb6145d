"""Where a bucket answers: the address that requests for it begin with, and its region.

    given endpoint     in the path: ENDPOINT/BUCKET. With virtual-hosted style: BUCKET.ENDPOINT
    Amazon's           BUCKET.s3.REGION.amazonaws.com (amazonaws.com.cn in China); in the path, if the name has dots, for which
                       there are no certificates

What the store's URL leaves open is what AWS' tools would take (`aws.settings`). A region that
nobody named is us-east-1; Amazon's tell those who come to the wrong one where a bucket lies
(`region_of`).
"""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from cowfs.store import aws
from cowfs.store.s3_errors import Malformed
from cowfs.values import dataclass

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
    """Where a bucket of Amazon's lies, None when nobody says. One request, which is not signed."""
    connection = http.client.HTTPSConnection("s3.amazonaws.com", timeout=_ANSWER_S)
    try:
        connection.request("HEAD", f"/{bucket}")
        return connection.getresponse().getheader("x-amz-bucket-region")
    except (OSError, http.client.HTTPException):
        return None
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
