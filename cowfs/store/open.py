"""Opens the store at a URL: its backend (`format.backends` has the table), with retries around it.

A backend's code is imported when one of its stores is opened: a directory store loads neither
fsspec nor obstore, an s3 store no s3fs.
"""

from __future__ import annotations

from cowfs.base.errors import ReadOnlyError
from cowfs.base.hints import Command
from cowfs.format import backends
from cowfs.format.store_url import StoreUrl
from cowfs.machine.known_stores import KnownStore
from cowfs.store import store_names
from cowfs.store.backends.imports import load_store_opener
from cowfs.store.contract import ObjectStore
from cowfs.store.credentials import trust
from cowfs.store.credentials.identity import AMBIENT, Access
from cowfs.store.credentials.unlocking import AMBIENT_KEY
from cowfs.store.named import parse_place
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.reliability.retrying import RetryingStore

NAMED_READ_ONLY = (
    f"It has a name on this machine under which it is read-only ({Command('store', 'ls')}, storage.list_stores()). Pull the version "
    "into a store of yours, or remove the name and add it without --read-only (read_only)."
)


def open_store(url: str, *, create: bool = False, access: Access = AMBIENT, remembers: bool = True) -> RetryingStore:
    """The store at `url` (or a bare path), wrapped with retries of a brief patience. create makes a
    missing directory. access: credentials for this store alone; without them those of the
    environment are used, for servers that may see them (`trust`). remembers: compares the store
    with what this machine has seen of it (`remembering`).

    InvalidInputError: not a URL, or a protocol without its package (the hint names it).
    NotFoundError: no such directory. No request is made to a remote store yet.
    """
    place = parse_place(url)
    is_read_only = store_names.is_read_only(place)
    if is_read_only and create:
        raise ReadOnlyError(f"{place} is named as a read-only store", hint=NAMED_READ_ONLY)
    backend = _open_backend(place, create=create, access=access)
    if is_read_only:
        backend = ReadOnlyStore(backend, hint=NAMED_READ_ONLY)
    is_lasting = backends.find(place.protocol).reach != "process"
    memory = KnownStore(backend.url) if remembers and is_lasting else None
    store = RetryingStore(backend, key_source=access.key or AMBIENT_KEY, known=access.known, memory=memory)
    if access.identity is not None:
        access.identity.wakes(store)
    return store


def _open_backend(place: StoreUrl, *, create: bool, access: Access) -> ObjectStore:
    opener = load_store_opener(place)
    return opener(place, create=create, access=access, untrusted_server=find_untrusted_server(place, access))


def find_untrusted_server(place: StoreUrl, access: Access) -> str | None:
    """The server that may not see credentials of the environment. None: it may, or `access` has
    credentials."""
    return None if access.identity is not None or trust.is_trusted(place) else trust.server_of(place)
