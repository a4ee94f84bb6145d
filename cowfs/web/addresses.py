"""URLs of volumes, versions and paths, and the way back.

    /v/STORE/VOLUME                          a volume; STORE is "-" for the server's own store
    /v/STORE/VOLUME/WHAT/VERSION/PATH        WHAT: tree, raw, tar, zip, find, log; VERSION is "-" for the newest one

A path is a sequence of bytes, percent-encoded. Names of volumes and versions are checked against
their grammar before they become part of a SOURCE, so that none can mean a locator or another store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import parse_qs, quote, unquote_to_bytes, urlencode

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request

OWN_STORE = "-"
NEWEST = "-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STORE = re.compile(r"-|[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class PathConvertor(Convertor[str]):
    """The rest of a URL, also with newlines."""

    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class ArchiveConvertor(PathConvertor):
    """The kind of an archive."""

    regex = "tar|zip"


register_url_convertor("rest", PathConvertor())
register_url_convertor("archive", ArchiveConvertor())


def check_name(text: str, what: str = "volume") -> str:
    """404 unless it can be the name of a volume, or a tag or id of a version."""
    if not _NAME.fullmatch(text):
        raise HTTPException(404, f"{text!r} is no name of a {what}")
    return text


def check_store(text: str) -> str:
    if not _STORE.fullmatch(text):
        raise HTTPException(404, f"{text!r} is no name of a store")
    return text


def check_path(text: str) -> str:
    """The path from the root, with a leading slash. 400: it has a NUL, "." or "..", or is not made
    of bytes."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise HTTPException(400, "the path has half of a character") from None
    parts = text.split("/")
    if "\0" in text or "." in parts or ".." in parts:
        raise HTTPException(400, "the path has a NUL, or leads out of its directory")
    return "/" + "/".join(filter(None, parts))


def path_of(request: Request) -> str:
    """The path that a URL ends with. Its bytes come from the URL as it was sent, since they need
    not be UTF-8."""
    shown: str = request.path_params.get("path", "")
    if not shown:
        return "/"
    before = request.scope["path"][: len(request.scope["path"]) - len(shown)].count("/")
    raw = request.scope["raw_path"].split(b"/", before)[-1]
    path = unquote_to_bytes(raw)
    if path.decode("utf-8", "replace") != shown:
        raise HTTPException(404, "the URL has an encoded slash before the path")
    return check_path(os.fsdecode(path))


def quote_path(path: str) -> str:
    return quote(os.fsencode(path).strip(b"/"), safe="/")


def volume_url(store: str, name: str, what: str = "") -> str:
    return f"/v/{store}/{name}" + (f"/{what}" if what else "")


def path_url(store: str, name: str, what: str, version: str, path: str = "/", **query: object) -> str:
    return f"/v/{store}/{name}/{what}/{version}/{quote_path(path)}" + (f"?{encode_query(query)}" if query else "")


def encode_query(asked: Mapping[str, object]) -> str:
    """Text with surrogates becomes the bytes that it stands for."""
    return urlencode({key: os.fsencode(str(value)) for key, value in asked.items()})


def query_path(request: Request, name: str = "path") -> str:
    """A path in the query, of any bytes."""
    asked = parse_qs(request.scope["query_string"].decode("latin-1"), errors="surrogateescape")
    return check_path(asked.get(name, ["/"])[0])
