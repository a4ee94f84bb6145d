"""Finds a volume by its name, or takes a name for a new one: the requested name, or a variant of it
if it is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cowfs.api import names
from cowfs.api.provenance import author
from cowfs.base.errors import ConflictError, CowfsError, report_done
from cowfs.base.hints import Command
from cowfs.store import ObjectStore
from cowfs.version.names import near_names, volumes
from cowfs.version.names.volumes import Head
from cowfs.version.publish import settings

Claim = Literal["new", "existing", "either"]

NAME_TRIES = 20


def head(
    store: ObjectStore, name: str, claim: Claim, *, strict: bool, compress: bool = True, owner: str | None = None
) -> tuple[Head, bool]:
    """The head of the volume according to `claim`: a new one, an existing one (NotFoundError: no
    such volume), or either; and whether this call made the volume. compress, owner: of a new
    one."""

    def create(name: str) -> Head:
        made = volumes.create_volume(store, name, owner=author(owner))
        if not compress:
            try:
                settings.save_compress(store, name, False)
            except CowfsError as error:
                raise report_done(
                    error,
                    f"volume {name!r} was made, and would compress contents",
                    hint=f"Delete it ({Command('delete', name)}, Store().delete({name!r})), and make another one, under another name.",
                ) from error
        return made

    if claim == "new":
        return claimed(name, create, strict=strict), True
    if claim == "existing":
        return near_names.read_head(store, name), False
    try:
        if (found := volumes.find_head(store, name)) is None:
            return create(name), True
        return volumes.require_usable(store, name, found), False
    except ConflictError:  # another process made it between the two
        return volumes.read_head(store, name), False


def claimed(name: str, create: Callable[[str], Head], *, strict: bool) -> Head:
    """Creates `name`, or NAME-<6 hex> if it is taken; strict: ConflictError if it is taken."""
    for candidate in (name, *(names.beside(name) for _ in range(NAME_TRIES))):
        try:
            return create(candidate)
        except ConflictError:
            if strict:
                raise
    raise ConflictError(f"no name beside {name!r} is free", hint="Choose another name.")
