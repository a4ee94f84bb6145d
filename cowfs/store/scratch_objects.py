"""Scratch objects: `probe/<random>`, written to learn something about the store and deleted at
once.

They are not read later. A crash, or credentials that may not delete, leaves some bytes that any
process may delete, and a collection does.
"""

from __future__ import annotations

from collections.abc import Sequence

from cowfs.base import clock
from cowfs.base.errors import AccessDeniedError, UnavailableError
from cowfs.base.hints import Command
from cowfs.store.contract import ObjectStore

PREFIX = "probe/"


def new_key() -> str:
    return f"{PREFIX}{clock.random_bytes(16).hex()}"


def store_now_ns(store: ObjectStore) -> int:
    """The time by the store's own clock, as its mtimes tell it (often rounded down to a second).
    Three requests."""
    return try_put(store)[0]


def try_put(store: ObjectStore) -> tuple[int, AccessDeniedError | None]:
    """As store_now_ns, and what says that objects of this store may be put and not deleted."""
    key = new_key()
    store.put(key, b"")
    try:
        listed = store.list(key, limit=1)
    finally:
        refused = remove(store, [key])
    if not listed:
        raise UnavailableError(f"{store.url}: an object just written is not listed", hint="Try again; nothing is lost.")
    return listed[0].mtime_ns, refused


def remove(store: ObjectStore, keys: Sequence[str]) -> AccessDeniedError | None:
    """Deletes them. Returns the refusal if the credentials may only put; a collection then deletes
    them."""
    try:
        store.delete(keys)
    except AccessDeniedError as error:
        return AccessDeniedError(
            f"objects cannot be deleted: {error.message}",
            hint=f"{Command('gc')} needs the permission to delete objects (S3: s3:DeleteObject, below the prefix).",
            details=error.details,
        )
    return None
