"""Mounts a version read-only or as a scratch, or shares a read-only mount that this user has made
with the same options."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.api.mounts import mount_paths, new_mounts
from cowfs.api.mounts.base import fits, mount_of, require_mode
from cowfs.base import interruptible
from cowfs.base.errors import InvalidInputError, InvalidStateError
from cowfs.base.fast_dataclass import dataclass
from cowfs.machine import registry

if TYPE_CHECKING:
    from cowfs.api.mounts.launch import Started
    from cowfs.api.mounts.used_mount import UsedMount
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.control import MountOptions
    from cowfs.machine.registry import MountEntry


@dataclass(frozen=True)
class VersionMount:
    """started: the daemon that was started for it; None: the mount existed, or is a copy."""

    path: Path
    started: Started | None = None


def join(used: UsedMount, given: new_mounts.Given, options: MountOptions, *, scratch: bool) -> Path | None:
    """Goes on with the mount that the version's object uses; None: it uses none."""
    entry = used.at_its_path()
    if entry is None:
        return None
    if (entry.kind == "scratch") != scratch:
        raise InvalidStateError(
            f"this object is mounted {'read-only' if scratch else 'as a scratch'} at {entry.mount_path}",
            hint="Unmount it first, or use another object of the same version.",
        )
    require_mode(entry, options)
    path = mount_paths.same(entry, given)
    return path if interruptible.run(partial(used.join, entry)) else None


def make(
    version: LocatedVersion, used: UsedMount, given: new_mounts.Given, options: MountOptions, *, scratch: bool
) -> VersionMount:
    """Mounts a version, or shares a mount of it. used: takes the mount."""
    make = _make_scratch if scratch else _share_or_make
    return interruptible.run(partial(make, version, used, given, options))


def require_whole(version: LocatedVersion, done: str) -> None:
    """InvalidInputError: it is one folder, which cannot be `done`."""
    if version.folder:
        raise InvalidInputError(
            f"one folder of a version cannot be {done}: {version.locator}",
            hint=f"Use the whole version: {version.named}",
        )


def require_possible(version: LocatedVersion, options: MountOptions, *, scratch: bool) -> None:
    """InvalidInputError: these options are not for a version."""
    if options.take_over or options.accept_unsafe_store:
        raise InvalidInputError(
            "a read-only or scratch mount takes nothing over, and writes to no store",
            hint="Leave take_over and accept_unsafe_store out.",
        )
    if scratch:
        require_whole(version, "mounted as a scratch")
        if options.mode == "copy":
            raise InvalidInputError("a scratch is no copy", hint="Leave the mode out: a scratch needs FUSE.")
    if options.uncommitted != "resume":
        raise InvalidInputError(
            "a read-only or scratch mount has no uncommitted work to find", hint="Leave uncommitted out."
        )
    if options.meta_dir is not None and not scratch:
        raise InvalidInputError("a read-only mount has no working copy", hint="Leave meta_dir out.")


def _make_scratch(
    version: LocatedVersion, used: UsedMount, given: new_mounts.Given, options: MountOptions
) -> VersionMount:
    made = None
    while made is None or not used.take(made, options):
        made = new_mounts.scratch_of_version(
            version.open_store(), version.named, version.read_manifest(), given, options
        )
    return VersionMount(made.path, made.started)


def _share_or_make(
    version: LocatedVersion, used: UsedMount, given: new_mounts.Given, options: MountOptions
) -> VersionMount:
    if key := options.resolved().sharing_key:
        return _share(version, used, given, options, key)
    while (made := _make(version, used, given, options)) is None:
        pass
    return made


def _share(
    version: LocatedVersion, used: UsedMount, given: new_mounts.Given, options: MountOptions, key: str
) -> VersionMount:
    store, folder = version.open_store(), os.fsdecode(version.folder)
    wanted = (store.record.store_id.hex(), version.name, version.id, folder, key)

    def find() -> MountEntry | None:
        for entry in registry.find_shareable(*wanted):
            if mount_paths.is_same(entry, given) and fits(entry, options) and mount_of(entry).is_there():
                return entry
        return None

    while True:
        with mount_paths.turn("/".join(wanted), find) as may_make:
            if (entry := used.share(find, options, store.access)) is not None:
                return VersionMount(Path(entry.mount_path))
            if may_make and (made := _make(version, used, given, options)) is not None:
                return made


def _make(
    version: LocatedVersion, used: UsedMount, given: new_mounts.Given, options: MountOptions
) -> VersionMount | None:
    """None: another process found and ended the mount before the version's object joined it."""
    made = new_mounts.of_version(
        version.open_store(), version.named, version.folder, version.read_manifest(), given, options
    )
    return VersionMount(made.path, made.started) if used.take(made, options) else None
