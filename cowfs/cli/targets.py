"""PATH|NAME: which mount, or which volume, a command is about.

Anything with a slash, and "." and "..", is a path. A bare word is a volume's name, unless a mount of cowfs is at that path
below the current directory; when both are mounted, and differ, the word is refused rather than guessed.
"""

from __future__ import annotations

import os

from cowfs.blocking import RWVolume, Volume
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.machine import registry
from cowfs.machine.registry import MountEntry


def find_mount(target: str, store: str | None, *, inside: bool = False) -> MountEntry | RWVolume:
    """The live mount that target means, else the volume of that name (which exists, and is not mounted here).

    inside: a path (with a slash) below a mount point will do. NotFoundError for a path that is no mount, and for an unknown volume.
    """
    here = registry.find_by_path(target, inside=inside and _is_path(target)) if target else None
    if _is_path(target):
        if here is None:
            raise NotFoundError(f"no volume is mounted at {target}", hint="`cowfs status` lists mounts.")
        return here
    if here is not None and store is None and here.volume == target:
        return here
    volume = _volume(target, store, is_guess=here is not None)
    named = volume.live() if volume is not None else None
    if here is not None and named is not None and here.id != named.id:
        raise InvalidInputError(
            f"{target!r} is a mount point here and a volume mounted at {named.mount_path}",
            hint=f"Write ./{target} for the first, {named.mount_path} for the second.",
        )
    found = here or named or volume
    assert found is not None
    return found


def _volume(name: str, store: str | None, *, is_guess: bool) -> RWVolume | None:
    """The volume of that name; None when there is none and a mount of that path was found already."""
    try:
        volume = Volume.open(name, store=store).resolve()
    except (NotFoundError, InvalidInputError):
        if is_guess:
            return None
        raise
    return volume


def _is_path(target: str) -> bool:
    return os.sep in target or target in ("", os.curdir, os.pardir)
