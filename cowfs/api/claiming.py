"""Finding a volume by its name, or taking a name for a new one: the one that was asked for, or one
beside it when it is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cowfs.api import names
from cowfs.api.provenance import author
from cowfs.errors import ConflictError
from cowfs.store import ObjectStore
from cowfs.version import near_names, volumes
from cowfs.version.volumes import Head

Claim = Literal["new", "existing", "either"]

NAME_TRIES = 20


def head(store: ObjectStore, name: str, claim: Claim, *, strict: bool) -> tuple[Head, bool]:
    """The head of the volume that `claim` says: a new one, an existing one (NotFoundError when
    there is none), or either. And whether this call has made the volume."""

    def create(name: str) -> Head:
        return volumes.create_volume(store, name, owner=author())

    if claim == "new":
        return claimed(name, create, strict=strict), True
    if claim == "existing":
        return near_names.read_head(store, name), False
    try:
        if (found := volumes.find_head(store, name)) is None:
            return create(name), True
        return volumes.require_usable(store, name, found), False
    except ConflictError:  # somebody made it between the two
        return volumes.read_head(store, name), False


def claimed(name: str, create: Callable[[str], Head], *, strict: bool) -> Head:
    """Creates `name`, or when it is taken NAME-<6 hex>; strict: ConflictError when it is taken."""
    for candidate in (name, *(names.beside(name) for _ in range(NAME_TRIES))):
        try:
            return create(candidate)
        except ConflictError:
            if strict:
                raise
    raise ConflictError(f"no name beside {name!r} is free", hint="Choose another name.")
