"""Which store a user means: a path, a URL, or a URL that leaves the endpoint or the account to the
environment.

    ~/dir, ./dir          file:///home/me/dir, …
    s3://bucket/p         with AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or `endpoint_url` in ~/.aws/config: that endpoint is written
                          into the URL, as every tool of AWS would use it; so locators lead there from machines that do not have
                          this setting (docs/decisions/0030-endpoints-of-the-environment.md)
    abfs://container/p    the account of AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT_NAME is written into it likewise

Only for what the user names. The URL of a locator or of a working copy is whole as it stands.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

from cowfs.errors import InvalidInputError
from cowfs.format.store_url import AZURE_PROTOCOLS, StoreUrl
from cowfs.store import aws

_WITHOUT_COLON = re.compile(r"(s3a?|gs|gcs|az|abfss?|https?|file)//", re.IGNORECASE)
_HINT = "For example s3://bucket/prefix, file:///directory, or the path of a directory."


def place_named(text: str) -> StoreUrl:
    """The store that `text` means. No I/O but on the configuration of AWS, for s3: alone."""
    place = placed(text)
    if place.protocol == "s3" and place.endpoint is None and (endpoint := environment_endpoint()) is not None:
        return StoreUrl.parse(
            str(replace(place, endpoint=endpoint))
        )  # parsed: the endpoint is checked, and takes its one form
    if place.protocol in AZURE_PROTOCOLS and "@" not in place.authority and (account := environment_account()):
        return StoreUrl.parse(str(replace(place, authority=f"{place.authority}@{account}")))
    return place


def placed(text: object) -> StoreUrl:
    """The store at a URL, or in a directory."""
    if not isinstance(text, str) or not text:
        raise InvalidInputError(f"a store is named by a URL or a path, not {text!r}", hint=_HINT)
    if "://" in text:
        return StoreUrl.parse(text)
    if scheme := scheme_of(text):
        raise InvalidInputError(
            f"{scheme[0]}… is neither a URL nor surely a path",
            hint=f"Write {scheme[1]}://… for a URL, ./{scheme[0]}… for a directory of that name.",
        )
    try:
        return StoreUrl.from_path(os.path.abspath(os.path.expanduser(text)))
    except OSError as error:
        raise InvalidInputError(f"{text} is relative to a directory that is gone", hint="Give a whole path.") from error


def scheme_of(text: str) -> re.Match[str] | None:
    """What makes it a URL, or a URL that somebody mistyped, and no path."""
    return re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text) or _WITHOUT_COLON.match(text)


def environment_endpoint() -> str | None:
    """The endpoint that AWS' tools take for S3 when none is given, None for Amazon's own."""
    return aws.settings().endpoint


def environment_account() -> str | None:
    """The account that Azure's tools take when none is given."""
    said = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    found = re.search(r"(?:^|;)\s*AccountName=([^;]*)", said, re.IGNORECASE)
    if said:  # it decides, whatever its form
        return found[1] if found else None
    return os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
