"""Scratch objects: `probe/<random>`, written to learn something about the store and deleted at
once.

Nothing reads them later; a crash leaves some bytes that anybody may delete.
"""

from __future__ import annotations

from cowfs import clock
from cowfs.errors import UnavailableError
from cowfs.store.contract import ObjectStore

PREFIX = "probe/"


def new_key() -> str:
    return f"{PREFIX}{clock.random_bytes(16).hex()}"


def store_now_ns(store: ObjectStore) -> int:
    """The time by the store's own clock, as its mtimes tell it (often rounded down to a second).
    Three requests."""
    key = new_key()
    store.put(key, b"")
    try:
        listed = store.list(key, limit=1)
    finally:
        store.delete([key])
    if not listed:
        raise UnavailableError(f"{store.url}: an object just written is not listed", hint="Try again; nothing is lost.")
    return listed[0].mtime_ns
