"""The open stores of this process: one per URL and `Storage`, checked to be a cowfs store, and
shared by all volume objects. Volumes of one bucket may be accessed with different identities.

A store opened by URL stays open while the process lives: connections are reused, and its record is
read once. Of the stores opened with a `Storage`, the last MOST_STORAGES stay open. After a fork the
child opens its own stores, since connections and their threads do not survive a fork. Threads: any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from cowfs import store as stores
from cowfs.api import arguments
from cowfs.api.storage.definition import Storage
from cowfs.api.storage.resolving import access
from cowfs.base import config, log
from cowfs.base.errors import InvalidInputError, InvalidStateError, NotFoundError, UnavailableError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.fork_locks import ForkLock
from cowfs.base.hints import Command
from cowfs.format import backends, keys
from cowfs.format.manifest import Manifest, version_id
from cowfs.format.records import StoreRecord
from cowfs.format.sealing import PLAIN
from cowfs.format.store_url import StoreUrl
from cowfs.machine import known_stores
from cowfs.store import Access, ObjectStore, scratch_objects, store_names
from cowfs.store.credentials import trust, unlocking
from cowfs.store.credentials.unlocking import StoreKey, store_key_of
from cowfs.store.initialize import current_id
from cowfs.store.named import parse_place, place_named
from cowfs.store.refs.beside import beside
from cowfs.store.reliability.patience import CLOSING_S
from cowfs.store.sealed import sealing_of

_OF_STORES = (*keys.PREFIXES, scratch_objects.PREFIX)
_NOT_OTHERS = frozenset({"lost+found", keys.STORE, keys.COLLECTED, *(prefix.rstrip("/") for prefix in _OF_STORES)})
"""Entries that are allowed in a directory that becomes a store: those of a file system, and the
remains of a store whose creation was interrupted."""


@dataclass(frozen=True)
class OpenStore:
    """A reachable cowfs store and its record."""

    objects: ObjectStore
    record: StoreRecord
    access: Access
    storage: Storage | None
    """The `Storage` that it was opened with; None if only a URL was given."""

    @property
    def url(self) -> str:
        return self.objects.url

    def known(self, manifest: Manifest | None = None) -> dict[str, bytes]:
        """The objects read from it, by key, for another process, which need not read them again."""
        found = {keys.STORE: self.record.encode()}
        if manifest is not None and sealing_of(self.objects) is PLAIN:
            data = manifest.encode()
            found[keys.version(version_id(data))] = data
        return found


A = TypeVar("A")

_log = log.get("store")
_warned: set[str] = set()
_lock = ForkLock()
_open: dict[tuple[int, str, Storage | None], OpenStore] = {}
MOST_STORAGES = 32
"""The number of stores opened with a `Storage` that are kept for reuse: a program may make one for
each task. The stores opened longest ago are dropped first; each closes with the last volume that
uses it."""

Named = str | Storage | None
"""A store as a user names it: by a name, a URL or a path; None: the default store."""


def open_store(named: Named = None) -> OpenStore:
    """The store that the user names. NotFoundError when there is no cowfs store."""
    return open_located(canonical_url(named), storage_of(named))


def open_asking(named: Named, ask: Callable[[ObjectStore], A]) -> tuple[OpenStore, A]:
    """As open_store. Also returns the result of `ask`, which runs beside the request for the
    store's record if it is not known yet whether records are sealed."""
    return open_located_asking(canonical_url(named), storage_of(named), ask)


def open_located(url: str, storage: Storage | None = None) -> OpenStore:
    """As open_store, for the complete URL of a locator. storage: its credentials."""
    found = _find_known(url, storage)
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


def require_there(store: OpenStore) -> None:
    """UnavailableError: the store itself cannot be reached. Call this after finding nothing in a
    store, to tell an empty result from a missing store. One request."""
    try:
        current_id(store.objects)
    except NotFoundError as error:
        raise UnavailableError(
            f"{store.url} is not there any more",
            hint="Is its disk or share mounted? What is in it cannot be seen until it is there again.",
        ) from error


@contextmanager
def hurried(url: str) -> Iterator[ObjectStore]:
    """The store at a complete URL, for a few requests that are allowed to fail: each waits at most
    CLOSING_S for a store that does not answer. The store is closed afterwards."""
    objects = stores.open_store(url, access=access(None))
    objects.patience.limit_s = CLOSING_S
    try:
        stores.load_record(objects)
        yield objects
    finally:
        objects.close()


def open_located_asking(url: str, storage: Storage | None, ask: Callable[[ObjectStore], A]) -> tuple[OpenStore, A]:
    """As open_located and open_asking."""
    found = _find_known(url, storage)
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


def open_or_initialize(
    named: Named = None, *, new_store: bool = False, with_parents: bool = False, store_key: StoreKey | None = None
) -> tuple[OpenStore, bool]:
    """As open_store; makes the place a cowfs store if it is none yet. Also returns whether it did.

    new_store: also where this machine has used a store before. with_parents: create missing parent
    directories. store_key: as for `initialize`. InvalidStateError: a store was used there, and is
    now missing. NotFoundError: the parent directory does not exist.
    """
    url, storage = canonical_url(named), storage_of(named)
    try:
        return open_located(url, storage), False
    except NotFoundError as error:
        if not is_no_store(error):
            raise
    require_place(url, new_store=new_store, with_parents=with_parents)
    chosen = access(storage)
    objects = stores.open_store(url, create=True, access=chosen)
    try:
        record = stores.initialize(objects, access=chosen, store_key=store_key)
        return _remember(url, OpenStore(objects, record, _with_key(chosen, objects), storage)), True
    except BaseException:
        objects.close()
        raise


def was_used(named: Named) -> bool:
    """Whether this machine has used a store there."""
    return known_stores.was_used(canonical_url(named))


def is_no_store(error: NotFoundError) -> bool:
    """Whether the error says that a store could be made there."""
    return error.details.get("code") != "NoSuchBucket" and error.details.get("missing") != keys.KEYS


def require_place(url: str, *, new_store: bool = False, with_parents: bool = False) -> None:
    """Checks that a store may be made there. Errors as for `open_or_initialize`."""
    if not new_store:
        _require_unused(url)
    place = StoreUrl.parse(url)
    _require_own_directory(place)
    if not with_parents:
        _require_parent(place)


def _require_unused(url: str) -> None:
    if backends.of_url(url).reach != "process" and known_stores.was_used(url):
        raise InvalidStateError(
            f"there is no store at {url} now, though this machine has used one there: nothing was made",
            hint="Is its disk or share mounted, and the URL right? If it is gone for good: "
            f"{Command('create', 'NAME', '--new-store')}, or Volume.new(NAME, store=URL).resolve(new_store=True), makes a new one. "
            f"For {Command('push')}, which gives it the source's keys, {Command('store', 'accept')} forgets the one that was there.",
        )


def _require_parent(url: StoreUrl) -> None:
    """A store is created only in an existing directory, unless its creation was requested
    explicitly."""
    root = Path(f"/{url.path}")
    if url.protocol == "file" and not root.parent.exists() and not config.is_in_data_dir(root):
        raise NotFoundError(
            f"there is no store at {url}, nor a directory {root.parent}",
            hint=f"Is its disk mounted, and the path right? {Command('create', 'NAME', '--store', 'URL')}, or "
            "Volume.new(NAME, store=URL), makes the directories above, too.",
        )


def _require_own_directory(url: StoreUrl) -> None:
    """Prevents a mistyped path from putting a store among existing files. InvalidInputError."""
    if url.protocol != "file":
        return
    path = f"/{url.path}"
    try:
        names = os.listdir(path)
    except OSError:  # it does not exist yet, or opening it reports the error
        return
    others = [each for each in names if not each.startswith(".") and each not in _NOT_OTHERS]
    if others and keys.STORE not in names:
        raise InvalidInputError(
            f"{path} is no cowfs store, and not empty: {min(others)!r} lies there",
            hint="Give a store a directory of its own: a new or an empty one.",
        )


def name(given: str | os.PathLike[str] | Storage | None) -> Named:
    """Records that the user named this store: its server may see the user's credentials
    (`store.credentials.trust`). If the user gave credentials for it, the server sees only those.
    InvalidInputError: neither a store URL nor a directory."""
    named = given if isinstance(given, Storage) else arguments.store(given)
    if named is None:
        return None
    found = _place_of(named)
    if not (isinstance(found, Storage) and found.has_credentials):
        trust.name(StoreUrl.parse(canonical_url(found)))
    return found


def _place_of(named: str | Storage) -> str | Storage:
    """The place that a store's name refers to; anything else is returned unchanged.
    InvalidInputError: no store has that name."""
    if isinstance(named, Storage) or not store_names.is_name(named):
        return named
    found = store_names.find_store(named)
    if found.is_url:
        return found.url
    from cowfs.api.declared.declared_store import DeclaredStore

    settings = dict(found.settings)
    if "url" in settings:
        settings["url"] = found.url
    return DeclaredStore.model_validate(settings).storage()


def storage_of(named: Named) -> Storage | None:
    """The storage settings that the URL alone does not contain; None: it has none."""
    named = _place_of(config.default_store() if named is None else named)
    if isinstance(named, Storage) and (
        named.has_credentials or named.path_style is not None or named.encryption_key is not None
    ):
        return named
    return None


def trust_server(server: str) -> None:
    """Allows this server to see the user's credentials from now on, also if only a locator names
    it."""
    trust.remember(server)


def canonical_url(named: Named = None) -> str:
    """The canonical URL of a store, as registrations and working copies record it. No request is
    made."""
    found = _place_of(config.default_store() if named is None else named)
    return str(place_named(found.url if isinstance(found, Storage) else found))


def endpoint_note(named: Named) -> str:
    """`Store.endpoint_note`."""
    found = _place_of(config.default_store() if named is None else named)
    given, place = parse_place(found.url if isinstance(found, Storage) else found), StoreUrl.parse(canonical_url(named))
    if place.endpoint is None or given.endpoint is not None:
        return ""
    note = f"The endpoint {place.endpoint} comes from your environment; locators name it, and lead there from anywhere."
    if trust.is_loopback(place.endpoint):
        note += " It is this machine: on another one they lead nowhere."
    return note


def refuse_memory(store: OpenStore) -> None:
    """Rejects a memory: store. It lives in one process and a mount is always another one: its
    daemon would find nothing."""
    if backends.of_url(store.url).reach == "process":
        raise InvalidInputError(
            f"{store.url} cannot be mounted: it lives in this process, a mount is another one",
            hint="Use a directory (file:///…) or an object store.",
        )


def _with_key(access: Access, objects: ObjectStore) -> Access:
    """Passes the key on to other clients of an encrypted store that was just opened, so that they
    need not fetch it again."""
    key = store_key_of(objects)
    return access if key is None else replace(access, key=key)


def _find_known(url: str, storage: Storage | None) -> OpenStore | None:
    with _lock:
        return _open.get((os.getpid(), url, storage))


def _remember(url: str, opened: OpenStore) -> OpenStore:
    if opened.record.cipher is None and unlocking.has_ambient_secret() and url not in _warned:
        _warned.add(url)
        _log.warning(
            "%s is not encrypted, though there is a passphrase or key: what is put there can be read by whoever sees it. "
            "%s=required refuses such a store.",
            url,
            unlocking.REQUIRED,
        )
    with _lock:
        kept = _open.setdefault((os.getpid(), url, opened.storage), opened)
        given = [key for key in _open if key[2] is not None]
        for key in given[:-MOST_STORAGES]:
            del _open[key]
    if kept is not opened:
        opened.objects.close()
    return kept
