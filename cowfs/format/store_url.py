"""Store URLs in their one canonical form: the same store is always the same string.

    s3://bucket;endpoint=http%3A%2F%2F127.0.0.1%3A8333;region=us-east-1/some/prefix
    file:///srv/data        memory://name/prefix        gs://bucket/prefix        https://host:8443/dir

    store URL   = protocol "://" authority *( ";" option ) *( "/" segment )
    protocol    = fsspec's name, lower case; local → file, s3a and s3n → s3, gcs → gs
    authority   = bucket or host[:port]: [A-Za-z0-9._-] and ":" port; absent for file, and may be for memory;
                  for abfs, abfss, az also container "@" account ".dfs.core.windows.net"
    option      = "endpoint=" percent-encoded http(s) URL  |  "region=" name          each at most once, in this order, s3 only
    segment     = percent-encoded; never empty, "." or ".."; "-" stands as %2D, so that "/-/" can end the URL in a locator

Also accepted, and rewritten to the form above: an endpoint that is not encoded
(`;endpoint=http://host:1/prefix`; it then has no path, and a slash between it and a further option
is dropped), and abfs://container@account/prefix. An option in the path of s3: is refused, and so is
";name=" at its start, since it would name another place. Write ; as %3B there.

Percent-encoding is upper case and covers everything but A-Z a-z 0-9 . _ ~ - ! $ & ' ( ) + , : = @,
so never `? * [ ] #`. Paths of file: are bytes (surrogateescape), others UTF-8.

Refuses protocols whose files are not written whole or not at all (sftp, ftp, smb, webhdfs, github,
archives and caches of fsspec). Refuses credentials in any place (user information, options): a URL
is printed, logged and written into locators. Not here: the abilities of a protocol, and whether its
package is installed (`store.open`).
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes, urlsplit

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.format import backends
from cowfs.format.backends import Backend

_PROTOCOL = re.compile(r"[a-z][a-z0-9.-]*")
_AUTHORITY = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?")
_AZURE = re.compile(
    r"(?P<container>[a-z0-9$-]{1,63})@(?P<account>[a-z0-9]{3,24})(?P<host>\.(dfs|blob)\.core\.windows\.net)?"
)
_PLAIN_ENDPOINT = re.compile(r";endpoint=(https?://[^/;]*)(?:/+(?=;[^/;=]+=))?", re.IGNORECASE)
_MISPLACED_OPTION = re.compile(r"(?:^/*;[^/;=]+|;(?:endpoint|region))=", re.IGNORECASE)
_OPTIONS = frozenset({"endpoint", "region"})
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")
_NO_STORES = frozenset(
    [
        "arrow_hdfs",
        "blockcache",
        "cached",
        "dask",
        "data",
        "dir",
        "dropbox",
        "filecache",
        "ftp",
        "generic",
        "git",
        "github",
        "gitlab",
        "hdfs",
        "jlab",
        "jupyter",
        "lakefs",
        "libarchive",
        "reference",
        "root",
        "sftp",
        "simplecache",
        "smb",
        "ssh",
        "tar",
        "wandb",
        "webhdfs",
        "zip",
    ]
)
_SEGMENT_SAFE = ".~!$&'()+,:=@"
_PORTS = {"http": 80, "https": 443}
_CREDENTIALS_HINT = (
    "Give credentials through the environment, for example AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
    "a store URL is written into locators."
)
_EXAMPLE_HINT = "For example s3://bucket/prefix or file:///directory."


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """protocol: fsspec's name. authority: bucket or host[:port], "" for file. path: decoded, no '/'
    at either end (file: relative to the root, so `/` + path is the directory)."""

    protocol: str
    authority: str
    path: str
    endpoint: str | None = None
    region: str | None = None

    def __str__(self) -> str:
        options = "".join(
            f";{name}={quote(value, safe='')}"
            for name, value in (("endpoint", self.endpoint), ("region", self.region))
            if value is not None
        )
        path = "".join("/" + encode_segment(segment) for segment in self.path.split("/") if self.path)
        root = "/" if backends.find(self.protocol).authority == "absent" and not path else ""
        return f"{self.protocol}://{self.authority}{options}{path}{root}"

    @staticmethod
    def parse(text: str) -> StoreUrl:
        """InvalidInputError for anything that is not a store URL, or that carries credentials."""
        protocol, separator, rest = text.partition("://")
        protocol = backends.resolve_alias(protocol.lower())
        if not separator or not _PROTOCOL.fullmatch(protocol):
            raise InvalidInputError(f"{mask_secrets(text)} is not a store URL", hint=_EXAMPLE_HINT)
        if protocol in _NO_STORES:
            raise InvalidInputError(
                f"{protocol}: cannot hold a store: its files do not appear whole or not at all",
                hint="Use an object store, or mount the server as a directory (sshfs, rclone, NFS) and use file:///DIRECTORY.",
            )
        rest = _PLAIN_ENDPOINT.sub(
            lambda found: f";endpoint={quote(found[1].encode(errors='replace'), safe='%')}", rest, count=1
        )
        authority, _, path = rest.partition("/")
        backend = backends.find(protocol)
        if backend.settings & _OPTIONS and _MISPLACED_OPTION.search(path):
            raise InvalidInputError(
                "an option of a store URL is in its path",
                hint="Options belong between bucket and path, s3://BUCKET;region=NAME/PATH, without a slash before them. "
                "In a path, write ; as %3B.",
            )
        authority, *options = authority.split(";")
        authority = _check_authority(protocol, backend, authority, text)
        endpoint, region = _options(protocol, backend, options)
        segments = _segments(backend, path)
        if backend.authority == "optional" and not authority and segments and _AUTHORITY.fullmatch(segments[0]):
            authority = segments.pop(0)  # memory:///a/b and memory://a/b are one place
        return StoreUrl(protocol, authority, "/".join(segments), endpoint, region)

    @staticmethod
    def from_path(path: str) -> StoreUrl:
        """file: URL of an absolute local path (as os.path.abspath gives it)."""
        if not path.startswith("/"):
            raise InvalidInputError(f"{path!r} is not an absolute path", hint="Give the path from / on.")
        segments = [segment for segment in path.split("/") if segment]
        _check_segments(segments)
        return StoreUrl("file", "", "/".join(segments))


def encode_segment(segment: str) -> str:
    """One path segment, percent-encoded so that it cannot be read as a glob, a query or a locator's
    "/-/"."""
    return "%2D" if segment == "-" else quote(segment.encode(errors="surrogateescape"), safe=_SEGMENT_SAFE)


def decode_percent(text: str, title: str) -> bytes:
    """Strict: two hex digits follow each `%`, and `? * [ ] #`, controls and spaces must be
    encoded."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise InvalidInputError(
            f"{title} {mask_secrets(text)} has a % without two hex digits", hint="Write a percent sign as %25."
        )
    if found := re.search(r"[?*\[\]#\x00-\x20\x7f]", text):
        raise InvalidInputError(
            f"{title} {mask_secrets(text)} has the character {found[0]!r}", hint=f"Write it as %{ord(found[0]):02X}."
        )
    try:
        return unquote_to_bytes(text.encode(errors="surrogateescape"))
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{title} {mask_secrets(text)} is not valid Unicode", hint="Write its bytes as %XX."
        ) from error


def _check_authority(protocol: str, backend: Backend, authority: str, text: str) -> str:
    if backend.authority == "account" and (azure := _AZURE.fullmatch(authority)):
        return authority if azure["host"] else f"{authority}.dfs.core.windows.net"
    if "@" in authority and backend.authority == "account":
        raise InvalidInputError(
            f"{protocol}: a container has 1 to 63 of a-z, 0-9, $ and -, an account 3 to 24 of a-z and 0-9",
            hint=f"Behind {protocol}:// come CONTAINER@ACCOUNT and a path. {_CREDENTIALS_HINT}",
        )
    if "@" in authority:
        raise InvalidInputError("a store URL carries no user name, key or password", hint=_CREDENTIALS_HINT)
    if backend.authority == "absent":
        if authority:
            raise InvalidInputError(
                f"{mask_secrets(text)} has a host",
                hint=f"A local directory is file:///…; did you mean file:///{authority}…?",
            )
    elif not _AUTHORITY.fullmatch(authority) and (authority or backend.authority != "optional"):
        raise InvalidInputError(f"{mask_secrets(text)} does not name a bucket or host", hint=_EXAMPLE_HINT)
    return authority


def _options(protocol: str, backend: Backend, options: list[str]) -> tuple[str | None, str | None]:
    found: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if name not in backend.settings & _OPTIONS:
            # The value is not shown: it may be a secret.
            raise InvalidInputError(
                f"{protocol}: store URLs have no option {name[:32]!r}",
                hint=f"endpoint and region, for s3: only. {_CREDENTIALS_HINT}",
            )
        if name in found or not equals or not value:
            raise InvalidInputError(
                f"the option {name} of a store URL is empty or given twice", hint=f"Give it once, as {name}=VALUE."
            )
        found[name] = _text(decode_percent(value, f"option {name}"), name)
    endpoint, region = found.get("endpoint"), found.get("region")
    if region is not None and not _REGION.fullmatch(region):
        raise InvalidInputError(
            f"{mask_secrets(region)} is not the name of a region", hint="For example region=us-east-1."
        )
    return (None if endpoint is None else _endpoint(endpoint)), region


def _endpoint(text: str) -> str:
    """Lower-case scheme and host, no default port, no trailing slash."""
    hint, place = "For example http://127.0.0.1:8333.", {"option": "endpoint"}
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInputError(f"the endpoint is not a URL: {error}", hint=hint, details=place) from error
    if "@" in parts.netloc:
        raise InvalidInputError("an endpoint carries no user name, key or password", hint=_CREDENTIALS_HINT)
    if (
        parts.scheme not in _PORTS
        or not host
        or parts.query
        or parts.fragment
        or not re.fullmatch(r"[A-Za-z0-9_.:%-]+", host)
    ):
        raise InvalidInputError(
            f"the endpoint {mask_secrets(text)} is not an http or https URL of a host", hint=hint, details=place
        )
    shown_host = f"[{host}]" if ":" in host else host
    shown_port = "" if port is None or port == _PORTS[parts.scheme] else f":{port}"
    return f"{parts.scheme}://{shown_host}{shown_port}{parts.path.rstrip('/')}"


def _segments(backend: Backend, text: str) -> list[str]:
    segments = [decode_percent(segment, "path segment") for segment in text.split("/") if segment]
    if backend.authority == "absent":
        decoded = [segment.decode(errors="surrogateescape") for segment in segments]
    else:
        decoded = [_text(segment, "path") for segment in segments]
    _check_segments(decoded)
    return decoded


def _check_segments(segments: list[str]) -> None:
    for segment in segments:
        if segment in (".", "..") or "/" in segment or "\0" in segment:
            raise InvalidInputError(
                f"a store's path cannot have the part {segment!r}", hint="Give the path without detours."
            )


def _text(data: bytes, title: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"the {title} of a store URL is not UTF-8",
            hint="Only a directory of this machine may have such a name: file:///…, with %XX.",
        ) from error


def mask_secrets(text: str) -> str:
    """The text for a message, without parts that may be user information, an option's value or a
    query."""
    text = re.sub(r"//.*@", "//…@", text, flags=re.DOTALL)
    text = re.sub(r"[?].*", "?…", text, flags=re.DOTALL)
    return repr(re.sub(r";([^=;/]*)=[^;/]*", r";\1=…", text)[:200])
