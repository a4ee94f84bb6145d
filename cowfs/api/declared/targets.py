"""Resolves a declared volume: which of its candidates is usable, in which store, at which version.

    usable     its store answers, the volume exists, and, if it is mounted read-only, a version has the declared folder.
               If it is mounted as declared, the folder is not checked, since the mount has it
    missing    none is usable, each is "not found" and none "deleted": the first candidate can be created, if writable
    trouble    none is usable: the first error other than "not found", else the first error

A locked volume is at its locked version (`fitting`); of its candidates only those with a line in
the lock are tried.

This module only reads, as a plan writes nothing. It therefore does not check the lease, since
that takes a write. A volume with another writer is passed over when it is mounted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from cowfs.api import hints, sources, stores
from cowfs.api.access import version_folders
from cowfs.api.declared import fitting, host_paths
from cowfs.api.declared.declared_store import storage_of
from cowfs.api.declared.model import Declaration, DeclaredVolume, lock_of
from cowfs.api.sources import Source
from cowfs.api.storage.definition import Storage
from cowfs.api.upkeep import quotas
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base import config
from cowfs.base.errors import (
    AccessDeniedError,
    CorruptError,
    CowfsError,
    NotFoundError,
    UnavailableError,
    UnsupportedFormatError,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.base.thread_pool import Helpers
from cowfs.format.locator import Locator, is_locator
from cowfs.format.lock_file import LockedVolume
from cowfs.format.store_url import StoreUrl
from cowfs.machine import registry
from cowfs.machine.applied import Setting
from cowfs.machine.registry import MountEntry
from cowfs.store.credentials import trust

AT_ONCE = 16


@dataclass(frozen=True)
class Target:
    """source: the chosen candidate. version: None for a target that is mounted writable or is
    missing. trouble: the reason why it cannot be used. For a path of this machine, volume is the
    path and store_url is ""."""

    declared: DeclaredVolume
    source: str
    volume: str
    store_url: str
    version: VersionId | None
    is_missing: bool
    trouble: CowfsError | None
    is_locked: bool = False

    @property
    def path(self) -> str:
        return self.declared.mount_path

    @property
    def is_host_path(self) -> bool:
        return host_paths.is_one(self.source)

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that the record keeps to detect changes. quota: the quota that `apply` sets.
        Other commands have recorded a size without setting a quota."""
        said = self.declared
        return {
            "source": self.source,
            "read_only": said.read_only,
            "subpath": said.folder,
            "optional": said.optional,
            "size": said.size_bytes,
            "quota": self.declared_quota,
            "compress": self.declared_compress,
            "idle_delete_s": said.idle_delete_s,
        }

    @property
    def declared_quota(self) -> int | None:
        said = self.declared
        return None if said.read_only or self.is_host_path else said.size_bytes

    @property
    def declared_compress(self) -> bool | None:
        said = self.declared
        return None if said.read_only or self.is_host_path else said.compress

    @property
    def is_pinned(self) -> bool:
        """Whether the declaration or its lock names a version."""
        is_named = "@" in self.source or is_locator(self.source)
        return self.is_locked or (not self.is_host_path and is_named)


def find(declared: Declaration, mounted: Mapping[str, str]) -> list[Target]:
    """The targets in the order of the declaration, resolved concurrently. mounted: path → source of
    existing mounts. A mounted candidate is tried first."""
    with Helpers(AT_ONCE, name="cowfs-declared") as pool:
        return list(pool.map(lambda each: next(usable(declared, each, mounted)), declared.volumes))


def usable(declared: Declaration, volume: DeclaredVolume, mounted: Mapping[str, str]) -> Iterator[Target]:
    """Every usable candidate, in order; if none is usable, the one with the trouble or the one to
    create."""
    seen = []
    silent: dict[str, CowfsError] = {}
    current = mounted.get(volume.mount_path)
    for source in sorted(volume.candidates, key=lambda each: each != current):
        seen.append(target := _look(declared, volume, source, silent))
        if isinstance(target.trouble, UnavailableError):
            silent[target.store_url] = target.trouble
        if target.trouble is None:
            yield target
    if all(each.trouble is not None for each in seen):
        yield _worst(volume, seen)


def _worst(volume: DeclaredVolume, seen: list[Target]) -> Target:
    others = [each for each in seen if not _is_nowhere(each.trouble)]
    volumes = [each for each in seen if not each.is_host_path]
    first = (others or volumes or seen)[0]
    if others or volume.read_only or not volumes:
        return first
    return Target(volume, first.source, first.volume, first.store_url, None, is_missing=True, trouble=first.trouble)


def _is_nowhere(trouble: CowfsError | None) -> bool:
    return isinstance(trouble, NotFoundError) and not trouble.details.get("is_deleted")


def _look(declared: Declaration, volume: DeclaredVolume, source: str, silent: Mapping[str, CowfsError]) -> Target:
    """silent: stores that timed out before. They are not tried again."""
    if host_paths.is_one(source):
        path, trouble = host_paths.expanded(source), host_paths.trouble(source)
        return Target(volume, source, path, "", None, is_missing=False, trouble=trouble)
    name, url = source.partition("@")[0], ""
    try:
        store = store_of(declared, volume)
        if is_locator(source):
            locator = Locator.parse(source)
            name, url = locator.volume, locator.store_url
        else:
            url = stores.canonical_url(store)
        if url in silent:
            raise silent[url]
        with hints.of_store(url):
            locked = _require_line(declared, volume, source)
            found = find_locked(declared, locked, store) if locked is not None else sources.find(source, store)
            version = found.locator().version if volume.read_only else None
            target = Target(
                volume, source, found.volume, found.store.url, version, False, None, is_locked=locked is not None
            )
            if version is not None and volume.folder and not_mounted(target) is not None:
                version_folders.require(found.store, found.volume, version, volume.folder, config.cache_dir())
    except CowfsError as error:
        return Target(volume, source, name, url, None, is_missing=False, trouble=error)
    return target


def _require_line(declared: Declaration, volume: DeclaredVolume, source: str) -> LockedVolume | None:
    """None: the volume is not locked. NotFoundError: it is, and not this candidate."""
    locked = fitting.find_locked(declared, volume, source)
    if locked is None and lock_of(declared) is not None and fitting.is_lockable(volume):
        raise NotFoundError(f"{source} is not locked", hint=f"{fitting.lock_command(declared)} adds it.")
    return locked


def find_locked(declared: Declaration, locked: LockedVolume, store: Storage | None) -> Source:
    """The locked version, in the store that is declared now."""
    version = locked.version.hex()
    is_there = is_locator(locked.name)
    try:
        found = sources.find(locked.name if is_there else f"{locked.locator.volume}@{version}", store)
        found.located().resolve()
    except NotFoundError as error:
        update = fitting.lock_command(declared, "--update", locked.name)
        raise NotFoundError(
            f"{locked.name} is locked to version {version[:12]}, which cannot be found: {error.message}",
            hint=f"Push that version into the store from one that has it, or lock the last one: {update}.",
            details=error.details,
        ) from error
    return found


def not_mounted(target: Target) -> str | None:
    """None if it is mounted as declared; else a description of the mount found instead ("" if there
    is no mount)."""
    if target.is_host_path and host_paths.is_linked(target.source, target.path):
        return None
    entry = registry.find_by_path(target.path)
    if entry is None:
        return ""
    if not _is_mount_of(entry, target):
        return f"{entry.volume} is mounted there{' otherwise' if entry.volume == target.volume else ''}"
    is_other_version = target.is_pinned and (entry.version_id or "") != (target.version.hex() if target.version else "")
    return f"another version of {entry.volume} is mounted there" if is_other_version else None


def _is_mount_of(entry: MountEntry, target: Target) -> bool:
    of = (entry.store_url, entry.volume, entry.folder, entry.read_only)
    wanted = (target.store_url, target.volume, target.declared.folder, target.declared.read_only)
    return of == wanted and entry.kind != "scratch"


def locate(declared: Declaration, target: Target) -> LocatedVersion:
    """The version of a read-only target, or its declared folder. Errors as for `resolve`."""
    assert target.version is not None
    locator = Locator(StoreUrl.parse(target.store_url), target.volume, target.version)
    storage = stores.storage_of(store_of(declared, target.declared))
    return LocatedVersion(locator, os.fsencode(target.declared.folder), storage=storage).resolve()


def quota_now(declared: Declaration, target: Target) -> int | None:
    """The quota in the store. If it cannot be read, because of corruption or an unsupported format,
    the declared quota, so that the other steps can go on."""
    try:
        return quotas.quota(target.volume, store_of(declared, target.declared))
    except (CorruptError, UnsupportedFormatError):
        return target.declared_quota


def store_of(declared: Declaration, volume: DeclaredVolume) -> Storage | None:
    """The store with its credentials; None for the default store, or the store in the locator."""
    return None if volume.store is None else storage_named(declared, volume.store)


def storage_named(declared: Declaration, name: str) -> Storage:
    """AccessDeniedError: a secret is missing from its place, or a file that was merely found
    requests a right reserved to files that the user names."""
    store = declared.stores[name]
    if declared.is_named(name):
        stores.name(found := storage_of(store))
        return found
    _require_harmless(store if isinstance(store, Storage) else store.without_secrets(), declared, name)
    return storage_of(store)


def _require_harmless(store: Storage, declared: Declaration, name: str) -> None:
    """A store in a file that was merely found must not run a command, and may send credentials only
    to servers that the user trusts: another user may have written that file."""
    file = str(declared.file)
    hint = (
        f"If you trust that file, allow it: {Command('allow', file)}. Or name it: {Command('apply', '-f', file)}, "
        f"{Command('up', file)}, Declared.load({file!r})."
    )
    if store.credential_process is not None:
        raise AccessDeniedError(f"the store {name} runs a command, and its file was merely found", hint=hint)
    place = StoreUrl.parse(stores.canonical_url(store))
    if store.has_credentials and not trust.is_trusted(place):
        server = trust.server_of(place)
        raise AccessDeniedError(
            f"the store {name} sends credentials to {server}, and its file was merely found",
            hint=f"{hint} Or trust the server: COWFS_TRUSTED_ENDPOINTS={server}.",
            details={"untrusted_server": server},
        )
