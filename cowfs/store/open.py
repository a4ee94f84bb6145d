"""From a URL to a store: which backend serves which protocol.

    file://, a bare path   directory        s3://   s3        anything else fsspec knows   fsspec_backend

Backends are imported when they are needed: a directory store loads neither fsspec nor obstore,
an s3 store no s3fs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cowfs.errors import CowfsError, InvalidInputError
from cowfs.format.store_url import StoreUrl
from cowfs.redaction import described
from cowfs.store import trust
from cowfs.store.contract import ObjectStore
from cowfs.store.identity import AMBIENT, Access
from cowfs.store.named import placed
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.retrying import RetryingStore
from cowfs.store.unlocking import AMBIENT_KEY

if TYPE_CHECKING:
    from cowfs.store.fsspec_backend import FsspecStore

S = TypeVar("S", bound="FsspecStore")

EXTRAS = {
    "gs": "cowfs[gcs]",
    "gcs": "cowfs[gcs]",
    "abfs": "cowfs[azure]",
    "abfss": "cowfs[azure]",
    "az": "cowfs[azure]",
}
"""Of this package, by protocol."""


def open_store(url: str, *, create: bool = False, access: Access = AMBIENT) -> RetryingStore:
    """The store at `url` (or a bare path), wrapped with retries of a brief patience. create makes a
    missing directory. access: credentials for this store alone; without them those of the
    environment are used, for servers that may see them (`trust`).

    InvalidInputError: not a URL, or a protocol without its package (the hint names it).
    NotFoundError: no such directory. No request is made to a remote store yet.
    """
    backend = _open_backend(placed(url), create=create, access=access)
    store = RetryingStore(backend, key_source=access.key or AMBIENT_KEY, known=access.known)
    if access.identity is not None:
        access.identity.wakes(store)
    return store


def _open_backend(place: StoreUrl, *, create: bool, access: Access) -> ObjectStore:
    url = str(place)
    if place.protocol == "file":
        return _open_directory(place, url, create=create)
    if place.protocol == "s3":
        from cowfs.store.s3 import S3Store

        prefix = f"{place.path}/" if place.path else ""
        return S3Store(
            bucket=place.authority,
            prefix=prefix,
            url=url,
            endpoint=place.endpoint,
            region=place.region,
            untrusted_server=untrusted_server(place) if access.identity is None else None,
            access=access,
        )
    return _open_fsspec(place, url, access)


def untrusted_server(place: StoreUrl) -> str | None:
    """The server that may not see credentials of the environment."""
    return None if trust.is_trusted(place) else trust.server_of(place)


def _open_directory(place: StoreUrl, url: str, *, create: bool) -> ObjectStore:
    from cowfs.store.directory import DirectoryStore, create_root, open_root

    root = Path("/" + place.path)
    if create:
        create_root(root, url=url)
    open_root(root, url=url)
    return DirectoryStore(root, url=url)


def _open_fsspec(place: StoreUrl, url: str, access: Access) -> ObjectStore:
    from cowfs.store.fsspec_backend import FsspecStore

    store = through_fsspec(FsspecStore, place, url, access)
    return ReadOnlyStore(store) if place.protocol in ("http", "https") else store


def through_fsspec(kind: type[S], place: StoreUrl, url: str, access: Access) -> S:
    """What stands at the URL as an object of that class, with the options that the URL says.
    InvalidInputError as `open_store`."""
    import fsspec

    plain = f"{place.protocol}://{place.authority}/{place.path}".rstrip("/")
    try:
        cls = fsspec.get_filesystem_class(place.protocol)
    except ImportError as error:
        raise InvalidInputError(
            f"{url}: the package for {place.protocol}:// is not installed",
            hint=f"pip install '{EXTRAS[place.protocol]}' ({error})." if place.protocol in EXTRAS else f"{error}.",
        ) from error
    except (ValueError, AttributeError) as error:  # the latter for what a package no longer has
        raise InvalidInputError(
            f"{url}: there is no store protocol {place.protocol!r}",
            hint="Use file:///DIRECTORY, s3://BUCKET/PREFIX, or another protocol that an fsspec package provides.",
        ) from error
    try:
        return kind(
            place.protocol,
            root=cls._strip_protocol(plain).rstrip("/"),
            url=url,
            options=cls._get_kwargs_from_urls(plain),
            untrusted_server=untrusted_server(place) if access.identity is None else None,
            access=access,
        )
    except CowfsError:
        raise
    except Exception as error:  # noqa: BLE001 - somebody else's class, which may want what no URL says
        raise InvalidInputError(
            f"{url} cannot be opened as a store: {described(error)}",
            hint="Use file:///DIRECTORY, s3://BUCKET/PREFIX, or another object store.",
        ) from None
