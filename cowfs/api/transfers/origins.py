"""Places that files are imported from and exported to, as a user names them: a URL of any store, or
a path of this machine.

The user names the URL, so its server may see the user's credentials (`store.credentials.trust`).
With a `Storage`, it sees only the credentials of that `Storage`. A URL of S3 that names the store's
bucket and no endpoint means the server and the region of the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from cowfs.api import stores
from cowfs.api.storage.definition import Storage
from cowfs.api.storage.resolving import access
from cowfs.base.errors import AccessDeniedError, InvalidInputError, NotFoundError, UnavailableError
from cowfs.format.store_url import StoreUrl
from cowfs.store.credentials import trust
from cowfs.store.named import parse_place, place_named
from cowfs.store.nesting import path_within
from cowfs.store.origin.open_origin import RepeatingOrigin, is_plain, open_origin


def text_of(url: object) -> str:
    if not isinstance(url, str | os.PathLike) or not (text := os.fsdecode(url)):
        raise InvalidInputError(
            f"what is imported is named by a URL or a path, not {url!r}", hint="For example s3://bucket/prefix."
        )
    return text


def local_path(text: str) -> str | None:
    """The local path, if the place is on this machine."""
    if is_plain(text) or (place := parse_place(text)).protocol != "file":
        return None
    return os.fsdecode(os.fsencode("/" + place.path))


@contextmanager
def enter_place(text: str, storage: Storage | None, store_url: str) -> Iterator[RepeatingOrigin]:
    """Opens the place for the length of a block. If its requests fail, and it may be meant to lie
    on the store's server, the hint says how to name it there."""
    whole = complete(text, store_url) if storage is None else text
    with closing(open_place(whole, storage)) as origin:
        try:
            yield origin
        except (AccessDeniedError, NotFoundError, UnavailableError) as error:
            server = _server_of(parse_place(whole), store_url) if storage is None and not is_plain(whole) else None
            if server is not None and origin.url in error.message:
                place = parse_place(whole)
                error.set_hint(
                    f"{error.open_hint} The store is on another server, {server.endpoint}, where this bucket is "
                    f"s3://{place.authority};endpoint={server.endpoint}/{place.path}.".lstrip()
                )
            raise


def complete(text: str, store_url: str) -> str:
    """The URL; with the endpoint and region of the store, if it names the store's bucket and no
    endpoint."""
    if is_plain(text) or (own := _server_of(place := parse_place(text), store_url)) is None:
        return text
    if place.authority != own.authority:
        return text
    return f"{replace(place, endpoint=own.endpoint, region=place.region or own.region)}{_slash(text)}"


def _server_of(place: StoreUrl, store_url: str) -> StoreUrl | None:
    """The store, if both are of S3 and it alone names its server."""
    own = StoreUrl.parse(store_url)
    is_open = place.protocol == own.protocol == "s3" and place.endpoint is None
    return own if is_open and own.endpoint is not None else None


def _slash(text: str) -> str:
    """A page of a web server is not the file of the same name."""
    return "/" if text.endswith("/") else ""


def open_place(text: str, storage: Storage | None) -> RepeatingOrigin:
    """Opens the place with the credentials of `storage`, else those of the environment."""
    if is_plain(text):
        if storage is not None:
            raise InvalidInputError("storage= is for stores alone", hint="Leave it out: fsspec finds what it needs.")
        return open_origin(text)
    if storage is None:
        trust.name(place_named(text))
        return open_origin(text)
    stores.name(storage)
    return open_origin(f"{_find_within(parse_place(text), storage)}{_slash(text)}", access=access(storage))


def require_without(place: StoreUrl, store: StoreUrl, excluded: Callable[[bytes], bool], elsewhere: str) -> None:
    """InvalidInputError: the place contains the store without excluding it. elsewhere: an
    alternative for the hint."""
    from cowfs.transfer.upload.upload_plan import is_left_out

    below = path_within(store, place)
    if below is None or (below and is_left_out(excluded, os.fsencode(below) + b"/")):
        return
    raise InvalidInputError(
        f"{place} has the store in it, {store}, which is for cowfs alone",
        hint=f"{elsewhere}, or leave the store out: --exclude '/{below}/' (exclude=)." if below else f"{elsewhere}.",
    )


def _find_within(place: StoreUrl, storage: Storage) -> StoreUrl:
    """The place under `storage`. InvalidInputError: the credentials of `storage` are for another
    place."""
    own = StoreUrl.parse(storage.url)
    if place.endpoint is None:
        place = replace(place, endpoint=own.endpoint, region=place.region or own.region)
    if (place.protocol, place.authority, place.endpoint) != (own.protocol, own.authority, own.endpoint):
        raise InvalidInputError(
            f"storage= is for {storage.url}, not for {place}", hint="Give the Storage of the bucket that is imported."
        )
    return place
