"""Opened stores of this process: one per URL and `Storage`, checked to be a cowfs store, shared by
all volume objects. Volumes of one bucket may be asked for by different identities.

A store that a URL names stays open while the process lives: connections are reused, and its record
is read once. Of those with a `Storage`, the last MOST_STORAGES do.
After a fork the child opens its own, since connections and their threads do not survive one.
Threads: any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from cowfs import config
from cowfs import store as stores
from cowfs.api import arguments
from cowfs.api.storage.resolving import access
from cowfs.api.storage.storage import Storage
from cowfs.errors import InvalidInputError
from cowfs.fork_locks import ForkLock
from cowfs.format import keys
from cowfs.format.manifest import Manifest, version_id
from cowfs.format.records import StoreRecord
from cowfs.format.sealing import PLAIN
from cowfs.format.store_url import StoreUrl
from cowfs.store import Access, ObjectStore, scratch, trust
from cowfs.store.beside import beside
from cowfs.store.named import place_named, placed
from cowfs.store.patience import CLOSING_S
from cowfs.store.sealed import sealing_of
from cowfs.store.unlocking import store_key_of
from cowfs.values import dataclass

_OF_STORES = (*keys.PREFIXES, scratch.PREFIX)
_NOT_OTHERS = frozenset({"lost+found", keys.STORE, *(prefix.rstrip("/") for prefix in _OF_STORES)})
"""What may lie in a directory that becomes a store: a file system's own, and what was left of a
store that was not made to its end."""


@dataclass(frozen=True)
class OpenStore:
    """A reachable cowfs store and what it says about itself."""

    objects: ObjectStore
    record: StoreRecord
    access: Access
    storage: Storage | None
    """What it was opened with, unless that was a URL alone."""

    @property
    def url(self) -> str:
        return self.objects.url

    def known(self, manifest: Manifest | None = None) -> dict[str, bytes]:
        """What was read of it, as objects by key: for another process, which need not read it
        again."""
        found = {keys.STORE: self.record.encode()}
        if manifest is not None and sealing_of(self.objects) is PLAIN:
            data = manifest.encode()
            found[keys.version(version_id(data))] = data
        return found


A = TypeVar("A")

_lock = ForkLock()
_open: dict[tuple[int, str, Storage | None], OpenStore] = {}
MOST_STORAGES = 32
"""Stores that a `Storage` opened and that are found again: a program may make one for each task.
Those that were opened longest ago are left to the volumes that use them, and close with the
last."""

Named = str | Storage | None
"""A store as a user names it; None: the default store."""


def open_store(named: Named = None) -> OpenStore:
    """The store that the user names. NotFoundError when there is no cowfs store."""
    return open_located(canonical_url(named), storage_of(named))


def open_asking(named: Named, ask: Callable[[ObjectStore], A]) -> tuple[OpenStore, A]:
    """As open_store, and what `ask` asks beside its record, when it is not known yet whether
    records are sealed."""
    return open_located_asking(canonical_url(named), storage_of(named), ask)


def open_located(url: str, storage: Storage | None = None) -> OpenStore:
    """As open_store, for a URL that is whole: a locator's. storage: how it is asked."""
    found = _known(url, storage)
    if found is not None:
        return found
    chosen = access(storage)
    objects = stores.open_store(url, access=chosen)
    try:
        record = stores.load_record(objects)
        return _remember(url, OpenStore(objects, record, _with_key(chosen, objects), storage))
    except BaseException:
        objects.close()
        raise


@contextmanager
def hurried(url: str) -> Iterator[ObjectStore]:
    """The store at a whole URL, for a few requests that may as well fail: each waits CLOSING_S at
    most for a store that does not answer. It is closed afterwards."""
    objects = stores.open_store(url, access=access(None))
    objects.patience.limit_s = CLOSING_S
    try:
        stores.load_record(objects)
        yield objects
    finally:
        objects.close()


def open_located_asking(url: str, storage: Storage | None, ask: Callable[[ObjectStore], A]) -> tuple[OpenStore, A]:
    """As open_located and open_asking."""
    found = _known(url, storage)
    if found is not None:
        return found, ask(found.objects)
    chosen = access(storage)
    objects = stores.open_store(url, access=chosen)
    try:
        record, answer = beside(partial(stores.load_record, objects), partial(ask, objects))
        return _remember(url, OpenStore(objects, record, _with_key(chosen, objects), storage)), answer
    except BaseException:
        objects.close()
        raise


def open_or_initialize(named: Named = None) -> OpenStore:
    """As open_store, and makes the place a cowfs store if it is none yet."""
    url, storage = canonical_url(named), storage_of(named)
    found = _known(url, storage)
    if found is not None:
        return found
    _require_own_directory(StoreUrl.parse(url))
    chosen = access(storage)
    objects = stores.open_store(url, create=True, access=chosen)
    try:
        record = stores.initialize(objects, access=chosen)
        return _remember(url, OpenStore(objects, record, _with_key(chosen, objects), storage))
    except BaseException:
        objects.close()
        raise


def _require_own_directory(url: StoreUrl) -> None:
    """A mistyped path must not put a store between the files that are there. InvalidInputError."""
    if url.protocol != "file":
        return
    path = f"/{url.path}"
    try:
        names = os.listdir(path)
    except OSError:  # there is none yet, or opening it says what is wrong
        return
    others = [each for each in names if not each.startswith(".") and each not in _NOT_OTHERS]
    if others and keys.STORE not in names:
        raise InvalidInputError(
            f"{path} is no cowfs store, and not empty: {min(others)!r} lies there",
            hint="Give a store a directory of its own: a new or an empty one.",
        )


def name(given: str | os.PathLike[str] | Storage | None) -> Named:
    """The user named this store: its server may see the user's credentials (`store.trust`), unless
    the user gave some for it: then those are all that it sees. InvalidInputError: no store URL, and
    no directory."""
    named = given if isinstance(given, Storage) else arguments.store(given)
    if named is not None and not (isinstance(named, Storage) and named.has_credentials):
        trust.name(StoreUrl.parse(canonical_url(named)))
    return named


def storage_of(named: Named) -> Storage | None:
    """What the URL alone does not say; None: nothing."""
    if isinstance(named, Storage) and (
        named.has_credentials or named.path_style is not None or named.encryption_key is not None
    ):
        return named
    return None


def trust_server(server: str) -> None:
    """From now on this server may see the user's credentials, whoever names it."""
    trust.remember(server)


def canonical_url(named: Named = None) -> str:
    """How the store calls itself: what registrations and working copies carry. No request is
    made."""
    if named is None:
        named = config.default_store()
    return str(place_named(named.url if isinstance(named, Storage) else named))


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


def _with_key(access: Access, objects: ObjectStore) -> Access:
    """For other clients of an encrypted store that was just opened: they need not find its key once
    more."""
    key = store_key_of(objects)
    return access if key is None else replace(access, key=key)


def _known(url: str, storage: Storage | None) -> OpenStore | None:
    with _lock:
        return _open.get((os.getpid(), url, storage))


def _remember(url: str, opened: OpenStore) -> OpenStore:
    with _lock:
        kept = _open.setdefault((os.getpid(), url, opened.storage), opened)
        given = [key for key in _open if key[2] is not None]
        for key in given[:-MOST_STORAGES]:
            del _open[key]
    if kept is not opened:
        opened.objects.close()
    return kept
