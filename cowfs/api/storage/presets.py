"""Presets for providers, with the terms of their consoles as arguments. Each makes a `Storage`.

    S3           Amazon, or the server that AWS_ENDPOINT_URL names
    R2           https://ACCOUNT_ID.r2.cloudflarestorage.com, or ACCOUNT_ID.JURISDICTION.r2…; region auto
    Wasabi       https://s3.REGION.wasabisys.com
    Backblaze    https://s3.REGION.backblazeb2.com; answers 501 to a conditional create: only for volumes of one writer
    MinIO        an endpoint of yours, the bucket in the path; SeaweedFS and Ceph are used the same way
    Hyperstack   the endpoint of its region; makes access keys with api_key; not tested, for lack of an account
    GCS, Azure   with their own protocols, where creating conditionally is ifGenerationMatch=0 and If-None-Match: *
    Local        a directory

Parts of a host name are checked, since credentials must not go to another host. Every preset of an
S3 protocol takes access_key, secret_key, session_token, credential_process and path_style as
`Storage` does, and every preset encryption_key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypedDict, Unpack

from cowfs.api.storage.definition import Credential, EncryptionKey, Storage
from cowfs.base.errors import InvalidInputError
from cowfs.format.store_url import StoreUrl
from cowfs.store.credentials import hyperstack
from cowfs.store.credentials.hyperstack import ApiKey
from cowfs.store.named import parse_place

MINIO_REGION = "us-east-1"
HYPERSTACK_ENDPOINTS = MappingProxyType({"CANADA-1": "https://ca1.obj.nexgencloud.io"})
_OF_KEYS = ("access_key", "secret_key", "session_token", "credential_process")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


class S3Credentials(TypedDict, total=False):
    """The arguments common to all presets of an S3 protocol."""

    access_key: Credential | None
    secret_key: Credential | None
    session_token: Credential | None
    credential_process: str | None
    path_style: bool | None
    encryption_key: EncryptionKey | None


def S3(  # noqa: N802 - presets have the names of their providers
    bucket: str,
    prefix: str = "",
    *,
    region: str | None = None,
    endpoint: str | None = None,
    **credentials: Unpack[S3Credentials],
) -> Storage:
    """Amazon S3, or a server that speaks its protocol at `endpoint`."""
    return Storage(_url("s3", bucket, prefix), endpoint=endpoint, region=region, **credentials)


def R2(  # noqa: N802
    bucket: str,
    prefix: str = "",
    *,
    account_id: str,
    jurisdiction: str | None = None,
    **credentials: Unpack[S3Credentials],
) -> Storage:
    """Cloudflare R2. jurisdiction: "eu" or "fedramp", for buckets that were made in one."""
    host = _label("account_id", account_id)
    if jurisdiction is not None:
        host += f".{_label('jurisdiction', jurisdiction)}"
    return S3(bucket, prefix, endpoint=f"https://{host}.r2.cloudflarestorage.com", region="auto", **credentials)


def Wasabi(  # noqa: N802
    bucket: str, prefix: str = "", *, region: str, **credentials: Unpack[S3Credentials]
) -> Storage:
    """Wasabi, for example region="eu-central-2"."""
    return S3(
        bucket, prefix, endpoint=f"https://s3.{_label('region', region)}.wasabisys.com", region=region, **credentials
    )


def Backblaze(  # noqa: N802
    bucket: str,
    prefix: str = "",
    *,
    region: str,
    key_id: Credential | None = None,
    app_key: Credential | None = None,
    credential_process: str | None = None,
    encryption_key: EncryptionKey | None = None,
) -> Storage:
    """Backblaze B2, for example region="us-west-004", with an application key. The store cannot
    keep two writers of one volume apart: mounting writable needs accept_unsafe_store."""
    return S3(
        bucket,
        prefix,
        endpoint=f"https://s3.{_label('region', region)}.backblazeb2.com",
        region=region,
        access_key=key_id,
        secret_key=app_key,
        credential_process=credential_process,
        encryption_key=encryption_key,
    )


def MinIO(  # noqa: N802
    bucket: str,
    prefix: str = "",
    *,
    endpoint: str,
    region: str = MINIO_REGION,
    **credentials: Unpack[S3Credentials],
) -> Storage:
    """A server of your own: MinIO, SeaweedFS, Ceph."""
    return S3(bucket, prefix, endpoint=endpoint, region=region, **credentials)


def Hyperstack(  # noqa: N802
    bucket: str,
    prefix: str = "",
    *,
    region: str = "CANADA-1",
    endpoint: str | None = None,
    api_key: ApiKey | None = None,
    **credentials: Unpack[S3Credentials],
) -> Storage:
    """Hyperstack's object storage. endpoint: for a region that cowfs does not know.

    api_key: for Hyperstack's API, a text or a function that returns one. The first request to the
    store makes an access key with it. The key is deleted when this process ends; mounts that go on
    are then without a key. `cowfs doctor` lists keys of processes that were killed.
    """
    found = endpoint or HYPERSTACK_ENDPOINTS.get(region)
    if found is None:
        raise InvalidInputError(
            f"the endpoint of Hyperstack's region {region!r} is not known",
            hint=f"Give endpoint=, as Hyperstack's console shows it. Known: {', '.join(HYPERSTACK_ENDPOINTS)}.",
        )
    if api_key is not None:
        if any(credentials.get(name) is not None for name in _OF_KEYS):
            raise InvalidInputError(
                "api_key makes an access key, and another one is given", hint="Give api_key, or the access key."
            )
        keys = hyperstack.keys_of(region, api_key)
        credentials["access_key"], credentials["secret_key"] = keys.access_key, keys.secret_key
    return S3(bucket, prefix, endpoint=found, region=MINIO_REGION, **credentials)


def GCS(  # noqa: N802
    bucket: str,
    prefix: str = "",
    *,
    session_token: Credential | None = None,
    encryption_key: EncryptionKey | None = None,
) -> Storage:
    """Google Cloud Storage. session_token: an OAuth access token; None: Google's application
    default credentials."""
    return Storage(_url("gs", bucket, prefix), session_token=session_token, encryption_key=encryption_key)


def Azure(  # noqa: N802
    container: str,
    prefix: str = "",
    *,
    account: str,
    secret_key: Credential | None = None,
    session_token: Credential | None = None,
    encryption_key: EncryptionKey | None = None,
) -> Storage:
    """Azure Blob Storage. secret_key: the account's key; session_token: a SAS token; None: the
    credentials that Azure's own tools find."""
    return Storage(
        _url("abfs", f"{container}@{account}", prefix),
        secret_key=secret_key,
        session_token=session_token,
        encryption_key=encryption_key,
    )


def Local(path: str | os.PathLike[str], *, encryption_key: EncryptionKey | None = None) -> Storage:  # noqa: N802
    """A directory."""
    place = parse_place(os.fspath(path))
    if place.protocol != "file":
        raise InvalidInputError(f"{place} is not a directory", hint="Give a path, or use Storage(url).")
    return Storage(str(place), encryption_key=encryption_key)


PRESETS: Mapping[str, Callable[..., Storage]] = MappingProxyType(
    {preset.__name__.lower(): preset for preset in (S3, GCS, R2, Wasabi, Backblaze, MinIO, Hyperstack, Azure, Local)}
)
"""By the names in files: `preset = "r2"`."""


def _url(protocol: str, authority: object, prefix: str) -> str:
    """The URL from a bucket's name and the path in it, neither of them encoded."""
    if not isinstance(authority, str) or re.search(r"[;/]", authority):
        raise InvalidInputError(
            f"{authority!r} is not the name of a bucket", hint="A path in the bucket is the prefix: S3(bucket, prefix)."
        )
    parts = [part for part in prefix.split("/") if part]
    return str(StoreUrl.parse(str(StoreUrl(protocol, authority, "/".join(parts)))))


def _label(name: str, value: object) -> str:
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise InvalidInputError(
            f"{name} is not a part of a host's name: {value!r}", hint="Copy it from the provider's console."
        )
    return value.lower()
