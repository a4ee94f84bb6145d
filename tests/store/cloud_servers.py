"""The few requests of Google's and Azure's stores that gcsfs and adlfs make, for `ScriptedServer`.

Both keep objects in memory and honour their provider's condition on creating: `ifGenerationMatch=0`
is refused with 412, `If-None-Match: *` with 409 BlobAlreadyExists. ignores_condition makes a server
that does not look at it. Credentials are not checked; `ScriptedServer.requests` has them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.store.scripted_server import Answer, Request

ACCOUNT, CONTAINER, BUCKET = "devstoreaccount1", "container", "bucket"
PAGE = 3
"""What a list holds at most: theirs are longer."""


class _Objects:
    def __init__(self, ignores_condition: bool) -> None:
        self._ignores_condition = ignores_condition
        self._lock = threading.Lock()
        self.kept: dict[str, bytes] = {}

    def create(self, key: str, data: bytes, *, if_absent: bool) -> bool:
        with self._lock:
            if if_absent and not self._ignores_condition and key in self.kept:
                return False
            self.kept[key] = data
            return True

    def listed(self, prefix: str, delimiter: str) -> Iterator[tuple[str, bytes | None]]:
        """Objects, and what they have in common up to the delimiter, which has no bytes."""
        with self._lock:
            keys = sorted(key for key in self.kept if key.startswith(prefix))
        seen = set()
        for key in keys:
            below, found, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            if not found:
                yield key, self.kept[key]
            elif below not in seen:
                seen.add(below)
                yield f"{prefix}{below}{delimiter}", None


class Google:
    """Answers as Google Cloud Storage does.

    keeps_bytes: of each request that goes on with an upload."""

    keeps_bytes = 1 << 30

    def __init__(self, *, ignores_condition: bool = False) -> None:
        self._ignores_condition = ignores_condition
        self._objects = _Objects(ignores_condition)
        self._uploads: dict[str, tuple[str, bool, bytearray]] = {}

    def __call__(self, request: Request) -> Answer:
        url, query = _parsed(request)
        found = re.fullmatch(r"(/upload|/download)?/storage/v1/b/([^/]+)/o(?:/(.+))?", url)
        if found is None or unquote(found[2]) != BUCKET:
            return _json(404, {"error": {"code": 404, "message": "no such bucket"}})
        if found[1] == "/upload":
            return self._upload(request, query, query.get("ifGenerationMatch") == "0")
        if not (key := unquote(found[3] or "")):
            return _json(200, self._listing(query))
        if (data := self._objects.kept.get(key)) is None:
            return _json(404, {"error": {"code": 404, "message": "no such object"}})
        if request.method == "DELETE":
            self._objects.kept.pop(key, None)
            return _answer(204)
        if query.get("alt") == "media":
            return _ranged(data, request.headers.get("range"), {"X-Goog-Generation": generation(data)})
        return _json(200, described(key, data))

    def _upload(self, request: Request, query: dict[str, str], is_conditional: bool) -> Answer:
        if "upload_id" in query:
            return self._go_on(request, *self._uploads[query["upload_id"]])
        if query["uploadType"] == "media":
            return self._stored(query["name"], request.body, is_conditional)
        if query["uploadType"] == "resumable":
            key = query["name"]
            if is_conditional and not self._ignores_condition and key in self._objects.kept:
                return _CONDITION_NOT_MET
            name = str(len(self._uploads))
            self._uploads[name] = (key, is_conditional, bytearray())
            return _answer(
                200, headers={"Location": f"http://{request.headers['host']}{request.target}&upload_id={name}"}
            )
        boundary = b"--" + request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
        _, head, body = request.body.split(boundary, 2)
        data = body.partition(b"\n\n")[2].partition(b"\n" + boundary)[0]
        return self._stored(json.loads(head.partition(b"\n\n")[2])["name"], data, is_conditional)

    def _go_on(self, request: Request, key: str, is_conditional: bool, kept: bytearray) -> Answer:
        span, _, total = request.headers["content-range"].removeprefix("bytes ").partition("/")
        start = int(span.partition("-")[0])
        assert start <= len(kept), "there is a gap"
        kept += request.body[len(kept) - start :][: self.keeps_bytes]
        if len(kept) < int(total):
            return _answer(308, headers={"Range": f"bytes=0-{len(kept) - 1}"} if kept else {})
        return self._stored(key, bytes(kept), is_conditional)

    def _stored(self, key: str, data: bytes, is_conditional: bool) -> Answer:
        if not self._objects.create(key, data, if_absent=is_conditional):
            return _CONDITION_NOT_MET
        return _json(200, described(key, data))

    def _listing(self, query: dict[str, str]) -> dict[str, object]:
        first = query.get("pageToken") or query.get("startOffset", "")
        listed = self._objects.listed(query.get("prefix", ""), query.get("delimiter", ""))
        found, behind = _page([(key, data) for key, data in listed if key >= first], query.get("maxResults"))
        return {
            "kind": "storage#objects",
            "items": [described(key, data) for key, data in found if data is not None],
            "prefixes": [key for key, data in found if data is None],
            **({"nextPageToken": behind} if behind else {}),
        }


def generation(data: bytes) -> str:
    return str(int.from_bytes(hashlib.md5(data).digest()[:7]))


def described(key: str, data: bytes) -> dict[str, object]:
    return {
        "bucket": BUCKET,
        "name": key,
        "size": str(len(data)),
        "generation": generation(data),
        "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
        "updated": "2026-01-02T03:04:05.678Z",
        "timeCreated": "2026-01-02T03:04:05.678Z",
        "contentType": "application/octet-stream",
    }


class Azure:
    """Answers as Azure Blob Storage does."""

    def __init__(self, *, ignores_condition: bool = False) -> None:
        self._objects = _Objects(ignores_condition)
        self._blocks: dict[tuple[str, str], bytes] = {}

    def __call__(self, request: Request) -> Answer:
        url, query = _parsed(request)
        container, _, key = unquote(url).removeprefix(f"/{ACCOUNT}/").partition("/")
        if container != CONTAINER:
            return _refused(request, 404, "ContainerNotFound")
        if not key:
            return self._listing(query) if query.get("comp") == "list" else _answer(200, headers=_properties(b""))
        if request.method == "PUT":
            return self._put(request, key, query)
        if (data := self._objects.kept.get(key)) is None:
            return _refused(request, 404, "BlobNotFound")
        if request.method == "DELETE":
            self._objects.kept.pop(key, None)
            return _answer(202)
        if request.method == "HEAD":
            return _answer(200, headers=_properties(data), length=len(data))
        return _ranged(data, request.headers.get("x-ms-range") or request.headers.get("range"), _properties(data))

    def _put(self, request: Request, key: str, query: dict[str, str]) -> Answer:
        data = request.body
        if query.get("comp") == "block":
            self._blocks[key, query["blockid"]] = data
            return _answer(201)
        if query.get("comp") == "blocklist":
            data = b"".join(self._blocks[key, name] for name in re.findall(r"<Latest>([^<]+)</Latest>", data.decode()))
        if not self._objects.create(key, data, if_absent=request.headers.get("if-none-match") == "*"):
            return _refused(request, 409, "BlobAlreadyExists")
        return _answer(201, headers=_properties(data))

    def _listing(self, query: dict[str, str]) -> Answer:
        listed = self._objects.listed(query.get("prefix", ""), query.get("delimiter", ""))
        found, behind = _page(
            [(key, data) for key, data in listed if key >= query.get("marker", "")], query.get("maxresults")
        )
        rows = []
        for key, data in found:
            name = f"<Name>{escape(key)}</Name>"
            if data is None:
                rows.append(f"<BlobPrefix>{name}</BlobPrefix>")
                continue
            known = {**_properties(data), "Content-Length": str(len(data)), "BlobType": "BlockBlob"}
            known["Etag"] = known.pop("ETag").strip('"')
            fields = "".join(f"<{field}>{escape(value)}</{field}>" for field, value in known.items())
            rows.append(f"<Blob>{name}<Properties>{fields}</Properties></Blob>")
        asked = "".join(
            f"<{title}>{escape(query.get(title.lower(), ''))}</{title}>" for title in ("Prefix", "Delimiter")
        )
        said = f"{asked}<Blobs>{''.join(rows)}</Blobs><NextMarker>{escape(behind)}</NextMarker>"
        body = f'<?xml version="1.0"?><EnumerationResults ContainerName="{CONTAINER}">{said}</EnumerationResults>'
        return _answer(200, body.encode(), {"Content-Type": "application/xml"})


def _page(found: list[tuple[str, bytes | None]], most: str | None) -> tuple[list[tuple[str, bytes | None]], str]:
    """And with what the next one begins, "" if there is none."""
    size = min(int(most or PAGE), PAGE)
    return found[:size], found[size][0] if len(found) > size else ""


def _parsed(request: Request) -> tuple[str, dict[str, str]]:
    """Path and query of a request."""
    url = urlsplit(request.target)
    return url.path, {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}


def _refused(request: Request, status: int, code: str) -> Answer:
    body = b"" if request.method == "HEAD" else f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return _answer(status, body, {"x-ms-error-code": code, "Content-Type": "application/xml"})


def _properties(data: bytes) -> dict[str, str]:
    return {
        "Last-Modified": formatdate(1767323045, usegmt=True),
        "ETag": f'"{hashlib.md5(data).hexdigest()}"',
        "x-ms-blob-type": "BlockBlob",
        "Content-Type": "application/octet-stream",
        "x-ms-creation-time": formatdate(1767323045, usegmt=True),
    }


def _ranged(data: bytes, wanted: str | None, headers: dict[str, str] | None = None) -> Answer:
    if wanted is None:
        return _answer(200, data, headers)
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start, end = int(first), min(int(last) if last else len(data) - 1, len(data) - 1)
    if start >= len(data):
        return _answer(416, b"", {"x-ms-error-code": "InvalidRange", "Content-Range": f"bytes */{len(data)}"})
    return _answer(206, data[start : end + 1], {**(headers or {}), "Content-Range": f"bytes {start}-{end}/{len(data)}"})


def _json(status: int, value: object) -> Answer:
    return _answer(status, json.dumps(value).encode(), {"Content-Type": "application/json; charset=UTF-8"})


def _answer(
    status: int, body: bytes = b"", headers: dict[str, str] | None = None, *, length: int | None = None
) -> Answer:
    lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body, True


_CONDITION_NOT_MET = _json(412, {"error": {"code": 412, "message": "conditionNotMet"}})
