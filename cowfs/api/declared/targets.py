"""What a declared volume means now: which of its candidates is usable, in which store, at which
version.

    usable     its store answers, the volume is there, and, if it is mounted read-only, has a version with the declared folder;
               one that is mounted as declared need not have the folder any more: what is mounted has it
    missing    none is usable, and each says "not found", none "deleted": a writable one can be created, the first candidate
    trouble    none is usable: the first error that is not "not found", else the first

Only reads: a plan writes nothing. So nobody asks who holds a lease, which takes a write; a volume
that somebody else writes to is passed over when it is mounted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cowfs import config
from cowfs.api import folders, hints, quotas, sources, stores
from cowfs.api.declared import host_paths
from cowfs.api.declared.model import Declared, DeclaredVolume
from cowfs.api.declared.store import storage_of
from cowfs.api.storage.storage import Storage
from cowfs.errors import (
    AccessDeniedError,
    CorruptError,
    CowfsError,
    NotFoundError,
    UnavailableError,
    UnsupportedFormatError,
)
from cowfs.format.locator import Locator, is_locator
from cowfs.format.store_url import StoreUrl
from cowfs.helpers import Helpers
from cowfs.ids import VersionId
from cowfs.machine import registry
from cowfs.machine.applied import Setting
from cowfs.machine.registry import MountEntry
from cowfs.store import trust
from cowfs.values import dataclass

AT_ONCE = 16


@dataclass(frozen=True)
class Target:
    """source: the candidate that was chosen. version: None for one that is mounted to write, or is
    missing. trouble: why it cannot be used. Of a path of this machine volume is the path, store_url
    ""."""

    declared: DeclaredVolume
    source: str
    volume: str
    store_url: str
    version: VersionId | None
    is_missing: bool
    trouble: CowfsError | None

    @property
    def path(self) -> str:
        return self.declared.mount_path

    @property
    def is_host_path(self) -> bool:
        return host_paths.is_one(self.source)

    @property
    def settings(self) -> dict[str, Setting]:
        """What a record keeps of it, to notice changes. quota: what `apply` sets; others have kept
        a size without setting it."""
        said = self.declared
        return {
            "source": self.source,
            "read_only": said.read_only,
            "subpath": said.folder,
            "optional": said.optional,
            "size": said.size_bytes,
            "quota": self.declared_quota,
            "idle_delete_s": said.idle_delete_s,
        }

    @property
    def declared_quota(self) -> int | None:
        said = self.declared
        return None if said.read_only or self.is_host_path else said.size_bytes

    @property
    def is_pinned(self) -> bool:
        """Whether the declaration names a version."""
        return not self.is_host_path and ("@" in self.source or is_locator(self.source))


def find(declared: Declared, mounted: Mapping[str, str]) -> list[Target]:
    """In the order of the declaration; several at a time. mounted: path → source of what is
    mounted: a candidate that is mounted is the first one."""
    with Helpers(AT_ONCE, name="cowfs-declared") as pool:
        return list(pool.map(lambda each: next(usable(declared, each, mounted)), declared.volumes))


def usable(declared: Declared, volume: DeclaredVolume, mounted: Mapping[str, str]) -> Iterator[Target]:
    """Every usable candidate, in order; else one with the trouble, or the one to create."""
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


def _look(declared: Declared, volume: DeclaredVolume, source: str, silent: Mapping[str, CowfsError]) -> Target:
    """silent: stores that were waited for, and have not answered; they are not waited for again."""
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
            found = sources.find(source, store)
            version = found.locator().version if volume.read_only else None
            target = Target(volume, source, found.volume, found.store.url, version, is_missing=False, trouble=None)
            if version is not None and volume.folder and not_mounted(target) is not None:
                folders.require(found.store, found.volume, version, volume.folder, config.cache_dir())
    except CowfsError as error:
        return Target(volume, source, name, url, None, is_missing=False, trouble=error)
    return target


def not_mounted(target: Target) -> str | None:
    """None when it is mounted as declared; else what is there instead ("" for nothing)."""
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
    of = (entry.store_url, entry.volume, entry.folder, entry.read_only, entry.is_scratch)
    return of == (target.store_url, target.volume, target.declared.folder, target.declared.read_only, False)


def quota_now(declared: Declared, target: Target) -> int | None:
    """What it is in the store, whoever has set it. As declared where that cannot be made out: it
    keeps nobody from the rest."""
    try:
        return quotas.quota(target.volume, store_of(declared, target.declared))
    except (CorruptError, UnsupportedFormatError):
        return target.declared_quota


def store_of(declared: Declared, volume: DeclaredVolume) -> Storage | None:
    """With its credentials; None: the default store, or the locator's own."""
    return None if volume.store is None else storage_named(declared, volume.store)


def storage_named(declared: Declared, name: str) -> Storage:
    """AccessDeniedError: a secret is not where it should be, or a file that was merely found wants
    what only one that the user names may have."""
    store = declared.stores[name]
    if declared.is_named(name):
        stores.name(found := storage_of(store))
        return found
    _require_harmless(store if isinstance(store, Storage) else store.without_secrets(), declared, name)
    return storage_of(store)


def _require_harmless(store: Storage, declared: Declared, name: str) -> None:
    """What a found file says runs no command, and sends credentials only to servers that the user
    trusts: somebody else may have written it."""
    hint = (
        f"If you trust that file, name it: `cowfs apply -f {declared.file}`, `cowfs up {declared.file}`, "
        f"Declared.load({str(declared.file)!r})."
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
