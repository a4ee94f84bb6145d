"""Taking a name for a new volume: the name that was asked for, or one beside it when it is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cowfs.api import names
from cowfs.errors import ConflictError
from cowfs.version.volumes import Head

Claim = Literal["new", "existing", "either"]

NAME_TRIES = 20


def claimed(name: str, create: Callable[[str], Head], *, strict: bool) -> Head:
    """Creates `name`, or when it is taken NAME-<6 hex>; strict: ConflictError when it is taken."""
    for candidate in (name, *(names.beside(name) for _ in range(NAME_TRIES))):
        try:
            return create(candidate)
        except ConflictError:
            if strict:
                raise
    raise ConflictError(f"no name beside {name!r} is free", hint="Choose another name.")
