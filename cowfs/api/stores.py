"""Opened stores of this process: one per URL, checked to be a cowfs store, shared by all volume
objects.

A store stays open while the process lives: connections are reused, and its record is read once.
After a fork the child opens its own, since connections and their threads do not survive one.
Threads: any.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from threading import Lock

from cowfs import config
from cowfs import store as stores
from cowfs.api import arguments
from cowfs.errors import InvalidInputError
from cowfs.format.records import StoreRecord
from cowfs.format.store_url import StoreUrl
from cowfs.store import ObjectStore, trust
from cowfs.store.named import place_named, placed


@dataclass(frozen=True)
class OpenStore:
    """A reachable cowfs store and what it says about itself."""

    objects: ObjectStore
    record: StoreRecord

    @property
    def url(self) -> str:
        return self.objects.url


_lock = Lock()
_open: dict[tuple[int, str], OpenStore] = {}


def open_store(url: str | None = None) -> OpenStore:
    """The store that the user names (None: the default store). NotFoundError when there is no cowfs
    store."""
    return open_located(canonical_url(url))


def open_located(url: str) -> OpenStore:
    """As open_store, for a URL that is whole: a locator's."""
    found = _known(url)
    if found is not None:
        return found
    objects = stores.open_store(url)
    try:
        return _remember(url, OpenStore(objects, stores.load_record(objects)))
    except BaseException:
        objects.close()
        raise


def open_or_initialize(url: str | None = None) -> OpenStore:
    """As open_store, and makes the place a cowfs store if it is none yet."""
    url = canonical_url(url)
    found = _known(url)
    if found is not None:
        return found
    objects = stores.open_store(url, create=True)
    try:
        return _remember(url, OpenStore(objects, stores.initialize(objects)))
    except BaseException:
        objects.close()
        raise


def name(given: str | os.PathLike[str] | None) -> str | None:
    """The user named this store: its server may see the user's credentials (`store.trust`). As
    text; InvalidInputError: no store URL, and no directory."""
    url = arguments.store(given)
    if url is not None:
        trust.name(StoreUrl.parse(canonical_url(url)))
    return url


def trust_server(server: str) -> None:
    """From now on this server may see the user's credentials, whoever names it."""
    trust.remember(server)


def canonical_url(url: str | None = None) -> str:
    """How the store calls itself: what registrations and working copies carry. No request is
    made."""
    return str(place_named(config.default_store() if url is None else url))


def endpoint_note(url: str | None) -> str:
    """What there is to know about a store whose endpoint comes from the environment; "" when it
    does not."""
    given, place = placed(config.default_store() if url is None else url), StoreUrl.parse(canonical_url(url))
    if place.endpoint is None or given.endpoint is not None:
        return ""
    note = f"The endpoint {place.endpoint} comes from your environment; locators name it, and lead there from anywhere."
    if trust.is_loopback(place.endpoint):
        note += " It is this machine: on another one they lead nowhere."
    return note


def refuse_memory(store: OpenStore) -> None:
    """A memory: store lives in one process and a mount is always another one: its daemon would find
    nothing."""
    if store.url.startswith("memory:"):
        raise InvalidInputError(
            f"{store.url} cannot be mounted: it lives in this process, a mount is another one",
            hint="Use a directory (file:///…) or an object store.",
        )


def _known(url: str) -> OpenStore | None:
    with _lock:
        return _open.get((os.getpid(), url))


def _remember(url: str, opened: OpenStore) -> OpenStore:
    with _lock:
        kept = _open.setdefault((os.getpid(), url), opened)
    if kept is not opened:
        opened.objects.close()
    return kept
