"""Suggests volumes for a name that the store does not have, for the hints of errors.

Listing costs a request a name, so a large store is not read completely: LIMIT names from the
beginning, and as many around names with the same beginning. Best effort: a store that cannot be
listed raises no other error.
"""

from __future__ import annotations

from collections.abc import Callable

from cowfs.base.errors import CowfsError, NotFoundError
from cowfs.store import ObjectStore
from cowfs.version.names import volumes
from cowfs.version.names.volumes import Head

LIMIT = 32
MOST = 3


def find(store: ObjectStore, name: str) -> list[str]:
    """The nearest names first; compared without regard to case."""
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
    """As `volumes.read_head`, for a name given by a user: the hint of its NotFoundError suggests
    similar names."""
    return read_suggesting(store, name, lambda: volumes.read_head(store, name))


def read_suggesting(store: ObjectStore, name: str, read: Callable[[], Head]) -> Head:
    """As `read`, with similar names in the hint of its NotFoundError."""
    try:
        return read()
    except NotFoundError as error:
        found = [repr(each) for each in find(store, name) if each != name]
        if not found or volumes.find_head(store, name) is not None:  # deleted: the name was right
            raise
        raise NotFoundError(error.message, hint=f"Did you mean {' or '.join(found)}? {error.open_hint}") from error
