"""The volumes of a store, and the mounts and working copies of this machine.

A listing sends five requests per volume, for several volumes at a time. The state of a mount comes
from its daemon. If the daemon does not answer in time, the entry says so. If the daemon has died,
the mount is listed as dead. This module never touches a mount point.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from cowfs.api import stores
from cowfs.api.mounts import scratch
from cowfs.api.mounts.base import mount_of
from cowfs.api.mounts.summaries import DeadMount, MountSummary, WorkingCopySummary, trouble
from cowfs.api.stores import OpenStore
from cowfs.api.upkeep.copied_stores import are_apart
from cowfs.base import clock
from cowfs.base.errors import (
    AccessDeniedError,
    CorruptError,
    CowfsError,
    InvalidStateError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedFormatError,
)
from cowfs.base.ids import VersionId
from cowfs.base.short_repr import ShownList, short_repr
from cowfs.base.thread_pool import Helpers
from cowfs.folders import mounted_folders
from cowfs.machine import dead_mounts, left_notes, lock, registry, working_copy
from cowfs.machine.mount_table import MountInfo
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store import remembering
from cowfs.store.refs import leases
from cowfs.version import history
from cowfs.version.names import described, quotas, volumes
from cowfs.version.publish import settings
from cowfs.version.purged_versions import find_purged_versions

if TYPE_CHECKING:
    from datetime import datetime

    from cowfs.api.mounts.advice import Advice

VOLUMES_AT_ONCE = 16
DAEMONS_AT_ONCE = 32
USED_ELSEWHERE = "in use in another container or pid namespace"

T = TypeVar("T")
Unreadable = CorruptError | UnsupportedFormatError | InvalidStateError
UNREADABLE = (CorruptError, UnsupportedFormatError, InvalidStateError)
"""InvalidStateError: the store shows an earlier state of the volume than this machine has seen."""


@short_repr
@dataclass(frozen=True)
class VolumeSummary:
    """One volume of a store. version, locator: None before the first version. is_missing: the
    head's version does not exist. is_purged: it was purged as a whole. quota_bytes: None: no
    quota. compress: whether new contents are compressed. problem: which of its objects cannot be
    read, and why; their fields are left out.
    With head_number 0 it is also unknown whether the volume was deleted. is_newer: the unreadable
    objects are not damaged but written by a newer cowfs.

    writer: "host:path" of the writer, or of a copy on this machine (mount(mode="copy")), which
    holds no lease; "unknown": the lease record is damaged; None: no writer, or that cannot be
    determined (reading the store's clock takes a write).
    """

    name: str
    owner: str
    head_number: int
    version: str | None
    locator: str | None
    changed_ns: int
    bytes: int
    files: int
    writer: str | None
    is_missing: bool
    quota_bytes: int | None
    problem: str | None = None
    is_newer: bool = False
    is_compressed: bool = True
    is_purged: bool = False

    @property
    def changed(self) -> datetime:
        """`changed_ns` as a time in UTC."""
        return clock.as_datetime(self.changed_ns)


@dataclass(frozen=True)
class Status:
    """This machine's mounts and working copies, as far as this user's directories record them."""

    mounts: list[MountSummary]
    working_copies: list[WorkingCopySummary]
    dead_mounts: list[DeadMount]

    @property
    def advice(self) -> list[Advice]:
        """What needs a decision of the user: mounts first, then folders that are not visible, then
        kept work of processes that are gone, then dead mounts."""
        from cowfs.api.mounts.advice import advise

        return advise(self)


def volumes_of(store: stores.Named = None, *, deleted: bool = False) -> list[VolumeSummary]:
    """The volumes of a store, by name; with `deleted`, its deleted volumes that can be brought
    back. A volume that cannot be read has `problem` set; the others are still listed. A volume that
    this machine has seen before is listed even if the store no longer shows it. NotFoundError:
    there is no cowfs store."""
    opened = stores.open_store(store)
    copied = _copies_of(opened)
    with Helpers(VOLUMES_AT_ONCE, name="cowfs-volumes") as pool:
        known = remembering.volumes(opened.objects)
        names = sorted({*known, *volumes.volume_names(opened.objects)})  # in key order "a-b" stands before "a"
        purged = pool.submit(find_purged_versions, opened.objects)
        found = list(pool.map(lambda name: _list_entry(opened, name, copied, deleted=deleted), names))
        ids = {version.hex() for version in purged.result()}
        return ShownList(replace(each, is_purged=each.version in ids) for each in found if each is not None)


def volume_names(store: stores.Named = None, *, start: str = "", limit: int) -> list[str]:
    """The first names of a store's volumes that begin with start. Costs one request per name."""
    found = volumes.volume_names(stores.open_store(store).objects, start=start, limit=limit)
    return sorted(name for name in found if name.startswith(start))


def mount_paths() -> list[str]:
    """Mount paths of this user's volumes and versions. No daemon is contacted."""
    return sorted({entry.mount_path for entry in registry.list_mounts() if not entry.is_detached})


def status(store: stores.Named = None, *, meta_dir: Path | None = None) -> Status:
    """Mounts and working copies of this machine, or only those of a store, if one is named.
    NotFoundError: there is no such store, and this machine has nothing of it. meta_dir: include
    this directory."""
    scratch.clear(meta_dir)
    mounted_folders.sweep()
    for place in {None, meta_dir}:
        working_copy.sweep(working_copy.working_root(place))
    live = registry.list_mounts()
    with Helpers(DAEMONS_AT_ONCE, name="cowfs-mounts") as pool:
        mounted = list(pool.map(mount_summary, live))
    known = {copy.path: copy for place in {None, meta_dir} for copy in working_copy.list_working_copies(place)}
    served = {entry.working_copy for entry in live}
    unserved = [copy for path, copy in sorted(known.items()) if str(path) not in served]
    kept = [found for copy in unserved if (found := working_copy_summary(copy)) is not None]
    if store is not None:
        url = stores.canonical_url(store)
        mounted = [each for each in mounted if each.store_url == url]
        kept = [each for each in kept if each.store_url == url]
        if not mounted and not kept:
            stores.open_store(store)  # raises NotFoundError if that is why nothing was found
    dead = [_dead_mount(mount) for mount in dead_mounts.find()]
    return Status(mounted, kept, dead)


def _dead_mount(mount: MountInfo) -> DeadMount:
    entry = dead_mounts.registration(mount)
    store_url = entry.store_url if entry is not None else None
    return DeadMount(mount.path, mount.volume, store_url, "ro" in mount.options, mount.kind)


def volume_summary(store: OpenStore, name: str) -> VolumeSummary | None:
    """The entry for `volumes_of`; None for a volume that is incomplete, deleted, removed for good,
    or being removed. One of UNREADABLE: a part of it cannot be read."""

    def refuse(error: Unreadable) -> NoReturn:
        raise error

    found = _volume_summary(store, name, _copies_of(store), refuse, deleted=False)
    if found is None or found.version is None:
        return found
    purged = find_purged_versions(store.objects)
    return replace(found, is_purged=VersionId.from_hex(found.version) in purged)


def _list_entry(store: OpenStore, name: str, copied: Mapping[str, str], *, deleted: bool) -> VolumeSummary | None:
    problems: list[Unreadable] = []
    try:
        found = _volume_summary(store, name, copied, problems.append, deleted=deleted)
    except UNREADABLE as error:
        problems.append(error)
        found = _unknown(name, copied)
    if found is None and not deleted and (missed := volumes.find_loss(store.objects, name)) is not None:
        return replace(_unknown(name, copied), problem=missed.message)
    if found is None or not problems:
        return found
    is_newer = all(isinstance(error, UnsupportedFormatError) for error in problems)
    return replace(found, problem="; ".join(error.message for error in problems), is_newer=is_newer)


def _unknown(name: str, copied: Mapping[str, str]) -> VolumeSummary:
    return VolumeSummary(name, "", 0, None, None, 0, 0, 0, copied.get(name), is_missing=False, quota_bytes=None)


def _volume_summary(
    store: OpenStore,
    name: str,
    copied: Mapping[str, str],
    tell: Callable[[Unreadable], None],
    *,
    deleted: bool,
) -> VolumeSummary | None:
    """tell: called with each unreadable object besides the head. One of UNREADABLE: the head cannot
    be read."""

    def whole(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except UNREADABLE as error:
            tell(error)
            return None

    head = volumes.find_head(store.objects, name)
    if head is None or head.is_void or head.is_deleted != deleted:
        return None
    version = head.version
    meta = whole(lambda: described.read(store.objects, name))
    stats, is_missing = None, False
    if version is not None:
        try:
            stats = whole(lambda: history.open_version(store.objects, version).stats)
        except NotFoundError:
            is_missing = True
    return VolumeSummary(
        name=name,
        owner=meta.owner if meta is not None else "",
        head_number=head.number,
        version=version.hex() if version is not None else None,
        locator=str(volumes.locator(store.objects, name, version)) if version is not None else None,
        changed_ns=head.created_ns,
        bytes=stats.bytes if stats is not None else 0,
        files=stats.files if stats is not None else 0,
        writer=whole(lambda: _writer(store, name)) or copied.get(name),
        is_missing=is_missing,
        quota_bytes=quotas.of(meta) or None,
        is_compressed=settings.of(meta).compress,
    )


def _writer(store: OpenStore, name: str) -> str | None:
    try:
        lease = leases.read(store.objects, name)
    except (ReadOnlyError, AccessDeniedError):
        return None
    if lease is None or lease.state != "held":
        return None
    return f"{lease.holder.host}:{lease.holder.mount_path}" if lease.holder is not None else "unknown"


def _copies_of(store: OpenStore) -> dict[str, str]:
    """ "host:path" of the copies of a store's volumes that are on this machine, by volume."""
    host, store_id = socket.gethostname(), store.record.store_id.hex()
    return {
        entry.volume: f"{host}:{entry.mount_path}"
        for entry in mounted_folders.list_mounts()
        if entry.written and entry.store_id == store_id and not are_apart(entry.store_url, store.url)
    }


def mount_summary(entry: MountEntry) -> MountSummary:
    """The report of a mount's daemon, or an error that explains its absence."""
    return mount_of(entry).summary()


def working_copy_summary(copy: WorkingCopy) -> WorkingCopySummary | None:
    """None when the working copy has been removed."""
    try:
        if copy.is_out_of_reach:
            missing = "its directory is not there: is a disk missing? If it is gone for good, discard it"
            return WorkingCopySummary(str(copy.path), None, copy.volume, None, None, None, None, missing)
        if not copy.exists and not copy.has_remains:
            return None
        state = copy.state
        holder = copy.holder()
        folder = copy.copy.record.mount_path if copy.copy is not None else None
        problem = trouble(copy.copy) if copy.copy is not None else None
        is_foreign = holder is not None and holder.process.is_foreign
        is_used_elsewhere = is_foreign and lock.is_held(copy.lock_path)
    except CowfsError as error:
        return WorkingCopySummary(str(copy.path), None, copy.volume, None, None, None, None, error.message)
    return WorkingCopySummary(
        working_copy=str(copy.path),
        folder=folder,
        volume=state.volume,
        store_url=state.store_url,
        version=state.base_version.hex() if state.base_version is not None else None,
        has_uncommitted=None if problem is not None else copy.may_have_uncommitted,
        pid=holder.process.pid if holder is not None and not is_foreign else None,
        problem=problem or (USED_ELSEWHERE if is_used_elsewhere else None),
        note=left_notes.read(copy.path),
    )
