"""Opens the origin at a URL: the backend's (`format.backends` has the table), with retries around
it.

URLs are written as those of stores, and checked in the same way (`format.store_url`, `trust`): a
server that the user has not named gets no credentials of the environment. Plain origins cannot be
stores: repositories and chains of file systems ("simplecache::s3://…"), which fsspec opens by
itself. Only the user names one; no version does. Archives are not origins: `archive` reads them
from one.

Reads, looks and lists are repeated while the origin does not answer, as long as its patience lasts;
truncated reads are repeated as `damaged` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

from cowfs.base import clock, log
from cowfs.base.errors import AccessDeniedError, InvalidInputError, UnavailableError
from cowfs.base.hints import Command
from cowfs.base.redaction import describe_error
from cowfs.format.store_url import StoreUrl, mask_secrets
from cowfs.store.backends.imports import load_origin_opener
from cowfs.store.credentials import trust
from cowfs.store.credentials.identity import AMBIENT, Access
from cowfs.store.named import place_named
from cowfs.store.open import find_untrusted_server
from cowfs.store.origin.contract import Destination, Origin, OriginObject
from cowfs.store.reliability.damaged import ask_until_agreed
from cowfs.store.reliability.patience import Patience, Pauses

T = TypeVar("T")

_PLAIN = re.compile(r".*::|(zip|tar|libarchive|github|gitlab|git|sftp|ssh|ftp|smb|hdfs|webhdfs)://", re.DOTALL)

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
        return ask_until_agreed(lambda: self._repeat(lambda: self._origin.read(found, offset, length)), bytes)

    def put(self, key: str, size: int, pieces: Callable[[], Iterator[bytes]]) -> OriginObject:
        return self._destination().put(key, size, pieces, self._repeat)

    def delete(self, keys: Sequence[str]) -> None:
        self._destination().delete(keys, self._repeat)

    def _destination(self) -> Destination:
        if not hasattr(self._origin, "put"):
            raise InvalidInputError(
                f"{self.url} is a directory of this machine",
                hint=f"{Command('download')} and files.download() copy a version there.",
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
                self._patience.note_success()
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
    opener = load_origin_opener(place)
    return opener(place, is_page=is_page, access=access, untrusted_server=find_untrusted_server(place, access))


def _open_plain(url: str) -> Origin:
    import fsspec.core

    from cowfs.store.origin.plain import PlainOrigin

    name = mask_secrets(url).strip("'")
    try:
        file_system, path = fsspec.core.url_to_fs(url)
    except Exception as error:  # noqa: BLE001 - a foreign class, which may need more than a URL
        raise InvalidInputError(
            f"{name} cannot be opened: {describe_error(error)}",
            hint="The documentation of fsspec describes its form. An archive is named as zip://::URL or tar://::PATH.",
        ) from None
    return PlainOrigin(file_system, path, name)
