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

from cowfs.base.errors import InvalidInputError
from cowfs.format import backends
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.imports import load_address

_HINT = "For example s3://bucket/prefix, file:///directory, or the path of a directory."


def place_named(text: str) -> StoreUrl:
    """The store that `text` means. No I/O, but s3: reads AWS' configuration."""
    place = parse_place(text)
    return load_address(place).complete(place)


def parse_place(text: object) -> StoreUrl:
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
    """The part that makes the text a URL, or a mistyped URL, and not a path."""
    without_colon = rf"({'|'.join(map(re.escape, backends.spellings()))})//"
    return re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text) or re.match(without_colon, text, re.IGNORECASE)
