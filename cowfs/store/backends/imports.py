"""Imports the code that a backend's entry in the table names, when it is needed
(`format.backends`).

    StoreOpener    a store at a URL
    OriginOpener   an origin of imports at a URL
    Address        which URLs name one place, and what the environment adds to a URL

The objects that openers return implement `store.contract.ObjectStore` and
`store.origin.contract.Origin`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol, cast

from cowfs.base.errors import InvalidInputError
from cowfs.format import backends
from cowfs.format.store_url import StoreUrl

if TYPE_CHECKING:
    from cowfs.store.contract import ObjectStore
    from cowfs.store.credentials.identity import Access
    from cowfs.store.origin.contract import Origin


class StoreOpener(Protocol):
    def __call__(self, place: StoreUrl, *, create: bool, access: Access, untrusted_server: str | None) -> ObjectStore:
        """The store at `place`. create: makes a missing directory. untrusted_server: the server
        that may not see credentials of the environment. No request is made to a remote store.

        NotFoundError: no such directory. InvalidInputError: a URL that does not fit."""
        ...


class OriginOpener(Protocol):
    def __call__(self, place: StoreUrl, *, is_page: bool, access: Access, untrusted_server: str | None) -> Origin:
        """As `StoreOpener`. is_page: the user's URL ended in '/' or has no path."""
        ...


class Address(Protocol):
    def is_same_root(self, one: StoreUrl, other: StoreUrl) -> bool:
        """Whether equal paths in two URLs of this backend are the same place."""
        ...

    def complete(self, place: StoreUrl) -> StoreUrl:
        """`place` with the endpoint or account that the environment names for it, in canonical
        form. No request is made."""
        ...


class PlainAddress:
    def is_same_root(self, one: StoreUrl, other: StoreUrl) -> bool:
        return (one.protocol, one.authority) == (other.protocol, other.authority)

    def complete(self, place: StoreUrl) -> StoreUrl:
        return place


def load_store_opener(place: StoreUrl) -> StoreOpener:
    """InvalidInputError: the backend's package is not installed."""
    return cast("StoreOpener", _load_client(place, backends.find(place.protocol).store))


def load_origin_opener(place: StoreUrl) -> OriginOpener:
    """InvalidInputError: the backend's package is not installed."""
    return cast("OriginOpener", _load_client(place, backends.find(place.protocol).origin))


def load_address(place: StoreUrl) -> Address:
    return cast("Address", _load(backends.find(place.protocol).address)())


def package_missing(place: StoreUrl, error: ImportError) -> InvalidInputError:
    """The error for a backend whose client is not installed."""
    extra = backends.find(place.protocol).extra
    return InvalidInputError(
        f"{place}: the package for {place.protocol}:// is not installed",
        hint=f"pip install 'cowfs-volumes[{extra}]' ({error})." if extra else f"{error}.",
    )


def _load_client(place: StoreUrl, code: object) -> object:
    try:
        return _load(code)
    except ImportError as error:
        raise package_missing(place, error) from error


def _load(code: object) -> Any:
    if not isinstance(code, str):
        return code
    module, _, name = code.partition(":")
    return getattr(importlib.import_module(module), name)
