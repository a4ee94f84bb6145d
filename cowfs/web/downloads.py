"""Contents of versions as downloads: a file, whole or in part, and a directory as a tar or zip.

A file of a version never changes, so its ETag is made of the version and the path. Everything is
sent in pieces of PIECE_BYTES, each read when the client has taken the one before. A read that fails
breaks the connection off: what arrived is shorter than announced, and never looks complete.

A file is shown by the browser only if it begins as an image does. All else is an attachment of no
type: a page or a drawing with a script in it would run with the rights of its reader.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cowfs.blocking import Entry, ROVolume
from cowfs.web import archives
from cowfs.web.addresses import path_of
from cowfs.web.answers import refuse
from cowfs.web.places import version_of

PIECE_BYTES = 1 << 18
UNKNOWN = "application/octet-stream"
IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
ISOLATED = {"content-security-policy": "default-src 'none'; sandbox", "cache-control": "private, no-cache"}


def image_type(head: bytes) -> str | None:
    """The type of an image that begins so; None: it is none, or one that may hold scripts."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in IMAGES if head.startswith(magic)), None)


def send_file(request: Request, version: ROVolume, path: str, *, as_image: bool = False) -> Response:
    """The file at a path; links are followed. as_image: shown in a page if it is an image."""
    entry = version.files.stat(path)
    if entry.type != "file":
        return refuse(request, 400, f"{path} is a {entry.type}, not a file", kind="invalid_input")
    etag = _etag(version, entry)
    shown = image_type(version.files.read(entry, 0, 16)) if as_image else None
    headers = {**ISOLATED, "etag": etag, "accept-ranges": "bytes", "content-type": shown or UNKNOWN}
    if shown is None:
        headers["content-disposition"] = attachment(entry.name)
    if etag in (each.strip() for each in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    start, end, status = 0, entry.size, 200
    if request.headers.get("if-range", etag) == etag and (asked := request.headers.get("range")):
        found = parse_range(asked, entry.size)
        if found is not None:
            start, end = found
            status = 206
            headers["content-range"] = f"bytes {start}-{end - 1}/{entry.size}"
        if found is not None and start >= end:
            return Response(status_code=416, headers={"content-range": f"bytes */{entry.size}"})
    headers["content-length"] = str(end - start)
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    return StreamingResponse(read_pieces(version, entry, start, end), status, headers)


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Start and end of one range; empty if it lies behind the end of the file. None: several ranges
    or another unit, which a server may ignore."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        return max(size - int(last), 0), size
    if last and int(last) < int(first):
        return None
    return int(first), min(int(last) + 1 if last else size, size)


def read_pieces(version: ROVolume, entry: Entry, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The bytes of a file. OSError: they are fewer than its size."""
    left = (entry.size if end is None else end) - start
    with version.files.open(entry) as file:
        file.seek(start)
        while left > 0:
            piece = file.read(min(left, PIECE_BYTES))
            if not piece:
                raise OSError(f"{entry.path} is shorter than it should be")
            left -= len(piece)
            yield piece


def send_archive(request: Request, version: ROVolume, path: str, kind: str) -> Response:
    """A directory as a tar (exact) or a zip. 404, 400 before anything is sent."""
    top = version.files.stat(path)
    if top.type != "directory":
        return refuse(request, 400, f"{path} is a {top.type}, not a directory", kind="invalid_input")
    name = top.name or version.name
    pieces = archives.make_tar if kind == "tar" else archives.make_zip
    headers = {**ISOLATED, "content-type": UNKNOWN, "content-disposition": attachment(f"{name}.{kind}")}
    if request.method == "HEAD":
        return Response(headers=headers)
    return StreamingResponse(archives.gather(pieces(version, top, name, read_pieces)), headers=headers)


def attachment(name: str) -> str:
    """Content-Disposition for a name of any bytes."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return f"attachment; filename*=UTF-8''{quote(text, safe='')}"


def _etag(version: ROVolume, entry: Entry) -> str:
    digest = blake2b(os.fsencode(entry.path), key=bytes.fromhex(version.id), digest_size=16)
    return f'"{digest.hexdigest()}"'


def raw(request: Request) -> Response:
    return send_file(request, version_of(request), path_of(request), as_image="image" in request.query_params)


def archive(request: Request) -> Response:
    return send_archive(request, version_of(request), path_of(request), request.path_params["kind"])
