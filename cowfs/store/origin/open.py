"""From a URL to an origin.

    file://, a path        directory        s3://   s3        http(s)://   http        anything else fsspec knows   fsspec

URLs are written as those of stores, and checked as these (`format.store_url`, `trust`): a server
that the user has not named gets no credentials of the environment. Plain origins are what is no
store: archives, repositories and chains of file systems ("zip://::s3://…"), which fsspec opens by
itself. Only the user names one; no version does.

Reads, looks and lists are repeated while the origin does not answer, as long as its patience lasts;
reads that are cut as `damaged` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, cast

from cowfs import clock, log
from cowfs.errors import AccessDeniedError, InvalidInputError, NotFoundError, UnavailableError
from cowfs.format.store_url import StoreUrl, shown
from cowfs.redaction import described
from cowfs.store import trust
from cowfs.store.damaged import agreed
from cowfs.store.identity import AMBIENT, Access
from cowfs.store.named import place_named
from cowfs.store.open import through_fsspec, untrusted_server
from cowfs.store.origin.contract import Destination, Origin, OriginObject
from cowfs.store.patience import Patience, Pauses

T = TypeVar("T")

_PLAIN = re.compile(r".*::|(zip|tar|libarchive|github|gitlab|git|sftp|ssh|ftp|smb|hdfs|webhdfs)://", re.DOTALL)
_PACKED_TAR = re.compile(r"tar://[^:]*::[^?]*\.(?:tar\.|t)(gz|bz2?|xz)(?:\?.*)?", re.DOTALL)
_COMPRESSIONS = {"gz": "gzip", "bz": "bz2", "bz2": "bz2", "xz": "xz"}
"""Of fsspec, which does not take them from names like .tgz."""

_log = log.get("store")


class RepeatingOrigin:
    """Repeats what fails because the origin does not answer."""

    def __init__(self, origin: Origin, patience: Patience) -> None:
        self._origin = origin
        self._patience = patience

    @property
    def url(self) -> str:
        return self._origin.url

    def list(self) -> Iterator[OriginObject]:
        return iter(self._repeat(lambda: [*self._origin.list()]))

    def look(self, key: str) -> OriginObject | None:
        return self._repeat(lambda: self._origin.look(key))

    def read(self, found: OriginObject, offset: int, length: int) -> bytes:
        if not length:
            return b""
        return agreed(lambda: self._repeat(lambda: self._origin.read(found, offset, length)), bytes)

    def put(self, key: str, size: int, pieces: Callable[[], Iterator[bytes]]) -> OriginObject:
        return self._destination().put(key, size, pieces, self._repeat)

    def delete(self, keys: Sequence[str]) -> None:
        self._destination().delete(keys, self._repeat)

    def _destination(self) -> Destination:
        if not hasattr(self._origin, "put"):
            raise InvalidInputError(
                f"{self.url} is a directory of this machine",
                hint="`cowfs download` and files.download() copy a version there.",
            )
        return cast("Destination", self._origin)

    def hurry(self) -> None:
        """From now on nothing is repeated."""
        self._patience.limit_s = 0.0

    def close(self) -> None:
        self.hurry()
        self._origin.close()

    def _repeat(self, call: Callable[[], T]) -> T:
        began_s, pauses = clock.monotonic_s(), Pauses()
        while True:
            try:
                found = call()
            except UnavailableError as error:
                _log.info("a request failed: %s", error)
                self._patience.tell(error, began_s)
                if not self._patience.wait_to_repeat(error, pauses, began_s):
                    raise
            else:
                self._patience.succeeded()
                return found


def open_origin(url: str, *, access: Access = AMBIENT, patience: Patience | None = None) -> RepeatingOrigin:
    """InvalidInputError: no URL of objects, or a protocol without its package. NotFoundError: no
    such directory. No request is made to a remote origin yet."""
    if is_plain(url):
        return RepeatingOrigin(_open_plain(url), patience or Patience())
    place = place_named(url)
    is_page = url.endswith("/") or not place.path
    return RepeatingOrigin(_open(place, access, is_page=is_page), patience or Patience())


def open_linked(url: str, *, store_url: str, access: Access, patience: Patience) -> RepeatingOrigin:
    """An origin that a version names. store_url, access: of the version's store; credentials that
    were given for it are used if the origin is in the same bucket. AccessDeniedError: a directory
    of this machine that the user has not linked."""
    place = StoreUrl.parse(url)
    if not trust.is_linkable(place):
        raise AccessDeniedError(
            f"a version links files of {url}, which is a place of this machine",
            hint="If these are your own files and you mean to read them through this version, say so: "
            f"COWFS_TRUSTED_ENDPOINTS={url}, or a line of that text in trusted_endpoints beside config.toml.",
        )
    own = StoreUrl.parse(store_url) if store_url else None
    is_own = own is not None and (own.protocol, own.authority, own.endpoint) == (
        place.protocol,
        place.authority,
        place.endpoint,
    )
    return RepeatingOrigin(_open(place, access if is_own else AMBIENT, is_page=True), patience)


def is_plain(url: str) -> bool:
    """Whether it is no store's URL, and fsspec alone understands it."""
    return _PLAIN.match(url) is not None


def _open(place: StoreUrl, access: Access, *, is_page: bool) -> Origin:
    url = str(place)
    if place.protocol == "file":
        from cowfs.store.origin.directory import DirectoryOrigin

        root = Path("/" + place.path)
        if not root.is_dir():
            raise NotFoundError(f"there is no directory {root}", hint="Give the directory that is to be linked.")
        return DirectoryOrigin(root, url=url)
    if place.protocol == "s3":
        from cowfs.store.origin.s3 import S3Origin

        return S3Origin(
            bucket=place.authority,
            prefix=f"{place.path}/" if place.path else "",
            url=url,
            endpoint=place.endpoint,
            region=place.region,
            untrusted_server=untrusted_server(place) if access.identity is None else None,
            access=access,
        )
    if place.protocol in ("http", "https"):
        from cowfs.store.origin.http import HttpOrigin

        opened = through_fsspec(HttpOrigin, place, url, access)
        opened.is_page = is_page
        return opened
    from cowfs.store.origin.fsspec import FsspecOrigin

    return through_fsspec(FsspecOrigin, place, url, access)


def _open_plain(url: str) -> Origin:
    import fsspec.core

    from cowfs.store.origin.plain import PlainOrigin

    name = shown(url).strip("'")
    packed = _PACKED_TAR.fullmatch(url)
    options = {"tar": {"compression": _COMPRESSIONS[packed[1]]}} if packed is not None else {}
    try:
        file_system, path = fsspec.core.url_to_fs(url, **options)
    except Exception as error:  # noqa: BLE001 - somebody else's class, which may want what no URL says
        raise InvalidInputError(
            f"{name} cannot be opened: {described(error)}",
            hint="An archive is named as zip://::URL or tar://::PATH. The documentation of fsspec says what else it takes.",
        ) from None
    return PlainOrigin(file_system, path, name)
