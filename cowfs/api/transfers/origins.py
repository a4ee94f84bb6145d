"""Places that files are imported from and exported to, as a user names them: a URL of any store, or
a path of this machine.

The user names the URL, so its server may see the user's credentials (`store.credentials.trust`).
With a `Storage`, it sees only the credentials of that `Storage`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from cowfs.api import stores
from cowfs.api.storage.definition import Storage
from cowfs.api.storage.resolving import access
from cowfs.base.errors import InvalidInputError
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


def open_place(text: str, storage: Storage | None) -> RepeatingOrigin:
    """Opens the place with the credentials of `storage`, else those of the environment."""
    if is_plain(text):
        if storage is not None:
            raise InvalidInputError("storage= is for stores alone", hint="Leave it out: fsspec finds what it needs.")
        return open_origin(text)
    if storage is None:
        trust.name(place_named(text))
        return open_origin(text)
    slash = "/" if text.endswith("/") else ""
    stores.name(storage)
    return open_origin(f"{_find_within(parse_place(text), storage)}{slash}", access=access(storage))


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
