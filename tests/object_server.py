"""As much of S3 as imports and links need, in this process: a bucket that tests fill and change,
and that remembers what it was asked.

    ListObjectsV2     1,000 keys an answer
    HEAD, GET         Range, If-Match (unless `ignores_conditions`), ETag, Last-Modified
    PUT, DELETE       a whole object; neither parts nor batches

It checks no signature. Whether a real server answers so is for tests with SeaweedFS.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"
MTIME_S = 1_700_000_000


class Stored(NamedTuple):
    data: bytes
    etag: str
    mtime_s: int


@dataclass
class ObjectServer:
    """requests: (what, key) in order; what is LIST, HEAD, GET or PUT. swallowed: how many writing
    requests something on the way answers, and does not pass on, with page_tag for an ETag.
    own_tags: ETags are no MD5s. cuts: how many answers of an object
    it cuts in half, which then say so few bytes. misplaced: how many ranges are answered by others
    of the same length, which say so. dropped: headers that answers of objects lack."""

    ignores_conditions: bool = False
    swallowed: int = 0
    page_tag: str = ""
    own_tags: bool = False
    cuts: float = 0
    misplaced: float = 0
    dropped: frozenset[str] = frozenset()
    objects: dict[str, Stored] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def url(self, prefix: str = "") -> str:
        path = f"/{prefix}" if prefix else ""
        return f"s3://{BUCKET};endpoint={quote(self.endpoint, safe='')};region=us-east-1{path}"

    def put(self, key: str, data: bytes, *, mtime_s: int = MTIME_S) -> None:
        digest = hashlib.md5(data).hexdigest()
        self.objects[key] = Stored(data, f'"own-{digest}"' if self.own_tags else f'"{digest}"', mtime_s)

    def asked(self, what: str) -> list[str]:
        """The keys of these requests, in order."""
        return [key for name, key in self.requests if name == what]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bucket: ObjectServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bucket = bucket


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _bucket(self) -> ObjectServer:
        assert isinstance(self.server, _Server)
        return self.server.bucket

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if "list-type" in query:
            self._bucket.requests.append(("LIST", query.get("prefix", [""])[0]))
            self._reply(200, _listing(self._bucket, query), {"Content-Type": "application/xml"})
        else:
            self._object("GET")

    def do_HEAD(self) -> None:
        self._object("HEAD")

    def do_PUT(self) -> None:
        key = self._key()
        self._bucket.requests.append(("PUT", key))
        if self._is_swallowed():
            self.rfile.read(int(self.headers["Content-Length"]))
            self._reply(200, b"", {"ETag": self._bucket.page_tag} if self._bucket.page_tag else None)
            return
        self._bucket.put(key, self.rfile.read(int(self.headers["Content-Length"])))
        self._reply(200, b"", {"ETag": self._bucket.objects[key].etag})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self._is_swallowed():
            self._reply(200, b"")
            return
        self._reply(501, b"<Error><Code>NotImplemented</Code></Error>")

    def do_DELETE(self) -> None:
        self._bucket.requests.append(("DELETE", self._key()))
        if self._is_swallowed():
            self._reply(200, b"")
            return
        self._bucket.objects.pop(self._key(), None)
        self._reply(204, b"")

    def _is_swallowed(self) -> bool:
        self._bucket.swallowed -= 1
        return self._bucket.swallowed >= 0

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")

    def _object(self, what: str) -> None:
        key = self._key()
        self._bucket.requests.append((what, key))
        self._bucket.headers.append(dict(self.headers))
        found = self._bucket.objects.get(key)
        if found is None:
            self._reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        condition = self.headers.get("If-Match")
        if condition not in (None, found.etag) and not self._bucket.ignores_conditions:
            self._reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        status, data = 200, found.data
        headers = {"ETag": found.etag, "Last-Modified": formatdate(found.mtime_s, usegmt=True)}
        if asked := self.headers.get("Range"):
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            if first >= len(data):
                self._reply(416, b"<Error><Code>InvalidRange</Code></Error>")
                return
            if self._bucket.misplaced > 0:
                self._bucket.misplaced -= 1
                first, last = (0, last - first) if first else (1, last + 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            status, data = 206, data[first : last + 1]
        if what == "GET" and self._bucket.cuts > 0:
            self._bucket.cuts -= 1
            data = data[: len(data) // 2]
        self._reply(status, data, {name: value for name, value in headers.items() if name not in self._bucket.dropped})

    def _reply(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in self._bucket.dropped:
            self.send_header("Content-Length", str(len(data)))
        elif self.command == "GET":
            self.send_header("Transfer-Encoding", "chunked")
            data = b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Only errors go to stderr."""


def _listing(server: ObjectServer, query: dict[str, list[str]]) -> bytes:
    prefix = query.get("prefix", [""])[0]
    after = query.get("continuation-token", [""])[0]
    keys = sorted(key for key in server.objects if key.startswith(prefix) and key > after)
    shown, more = keys[:1000], len(keys) > 1000
    rows = []
    for key in shown:
        found = server.objects[key]
        modified = datetime.fromtimestamp(found.mtime_s, UTC).isoformat()
        rows.append(
            f"<Contents><Key>{escape(quote(key))}</Key><Size>{len(found.data)}</Size>"
            f"<ETag>{escape(found.etag)}</ETag><LastModified>{modified}</LastModified></Contents>"
        )
    token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
    return (
        '<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType>'
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(rows)}</ListBucketResult>"
    ).encode()
