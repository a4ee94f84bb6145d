"""Which volumes may have been meant by a name that the store has not: for hints of errors.

Listing costs a request a name, so a large store is not read to its end: LIMIT names from the
beginning, and as many around what begins like the name. Best effort: a store that cannot be listed
is no other error.
"""

from __future__ import annotations

from collections.abc import Callable

from cowfs.errors import CowfsError, NotFoundError
from cowfs.store import ObjectStore
from cowfs.version import seen, volumes
from cowfs.version.volumes import Head

LIMIT = 32
MOST = 3


def find(store: ObjectStore, name: str) -> list[str]:
    """The nearest first; compared without regard to case."""
    import difflib

    try:
        names = volumes.volume_names(store, limit=LIMIT)
        if len(names) == LIMIT:
            names += volumes.volume_names(store, limit=LIMIT, start=name[:2])
    except CowfsError:
        return []
    by_lower = {each.lower(): each for each in names}
    return [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, MOST)]


def read_head(store: ObjectStore, name: str) -> Head:
    """As `volumes.read_head`, for a name that somebody gave: the hint of its NotFoundError names
    near ones."""
    return _read(store, name, lambda: volumes.read_head(store, name))


def read_seen(store: ObjectStore, name: str, page: seen.Shown) -> Head:
    """As `seen.read_seen`, likewise."""
    return _read(store, name, lambda: seen.read_seen(store, name, page))


def _read(store: ObjectStore, name: str, read: Callable[[], Head]) -> Head:
    try:
        return read()
    except NotFoundError as error:
        found = [repr(each) for each in find(store, name) if each != name]
        if not found or volumes.find_head(store, name) is not None:  # deleted: it is the one that was meant
            raise
        raise NotFoundError(error.message, hint=f"Did you mean {' or '.join(found)}? {error.hint}") from error
