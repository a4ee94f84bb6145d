"""Compares places of stores, however their URLs are spelled: objects of one place must not be
written, deleted or read as if another place did not contain them.

The backend says which URLs have one root (`backends.imports.Address`); below one root paths are
compared. The authority of memory: is a part of its path.
"""

from __future__ import annotations

from cowfs.format import backends
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.imports import load_address


def path_within(place: StoreUrl, other: StoreUrl) -> str | None:
    """The path of `place` below `other`, "" for the same place; None: it lies elsewhere."""
    path, above = _parts(place), _parts(other)
    if not _has_same_root(place, other) or path[: len(above)] != above:
        return None
    return "/".join(path[len(above) :])


def is_one(url: str, other: str) -> bool:
    """Whether two URLs of stores lead to one place."""
    return url == other or path_within(StoreUrl.parse(url), StoreUrl.parse(other)) == ""


def _parts(place: StoreUrl) -> list[str]:
    path = f"{place.authority}/{place.path}" if _has_authority_in_path(place) else place.path
    return [part for part in path.split("/") if part]


def _has_same_root(one: StoreUrl, other: StoreUrl) -> bool:
    if backends.find(one.protocol) != backends.find(other.protocol):
        return False
    return _has_authority_in_path(one) or load_address(one).is_same_root(one, other)


def _has_authority_in_path(place: StoreUrl) -> bool:
    return backends.find(place.protocol).authority == "optional"
