"""What there is: the volumes of a store, and the mounts and working copies of this machine.

A store is asked five times a volume, several volumes at a time. Mounts are asked through their
daemons; one that does not answer in time is shown as such, and a mount whose daemon has died as
dead. Nothing here touches a mount point.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, TypeVar

from cowfs.api import copies, mounts, scratch, stores
from cowfs.api.copied_stores import are_apart
from cowfs.api.mount_paths import copy_of
from cowfs.api.stores import OpenStore
from cowfs.control import live_mount
from cowfs.control.messages import MountStatus, WriterStatus
from cowfs.errors import (
    AccessDeniedError,
    CorruptError,
    CowfsError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedFormatError,
)
from cowfs.helpers import Helpers
from cowfs.machine import dead_mounts, lock, registry, working_copy
from cowfs.machine.copies import Copy
from cowfs.machine.mount_table import MountInfo
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store import leases
from cowfs.version import described, history, quotas, volumes

__all__ = [
    "DeadMount",
    "MountSummary",
    "Status",
    "VolumeSummary",
    "WorkingCopySummary",
    "WriterStatus",
    "mount_summary",
    "status",
    "volume_summary",
    "volumes_of",
    "working_copy_summary",
]

VOLUMES_AT_ONCE = 16
DAEMONS_AT_ONCE = 32
GONE = "its folder is gone"
ELSEWHERE = "its folder is in another container"
USED_ELSEWHERE = "in use in another container or pid namespace"

T = TypeVar("T")
Unreadable = CorruptError | UnsupportedFormatError


@dataclass(frozen=True)
class VolumeSummary:
    """One volume of a store. version, locator: None before the first version. is_missing: the
    head's version is gone. quota_bytes: None: none. problem: which of its objects cannot be read,
    and why; what they say is then left out. Whether it was deleted is not known either if
    head_number is 0. is_newer: none of them is damaged, a newer cowfs wrote them.

    mounted: "host:path" of its writer, or of a copy on this machine (mount(mode="copy")), which
    holds no lease; "unknown": the record of its lease is damaged; None: neither, or it can't be
    told (the store's clock takes a write to read).
    """

    name: str
    owner: str
    head_number: int
    version: str | None
    locator: str | None
    changed_ns: int
    bytes: int
    files: int
    mounted: str | None
    is_missing: bool
    quota_bytes: int | None
    problem: str | None = None
    is_newer: bool = False


@dataclass(frozen=True)
class MountSummary:
    """One live mount. is_scratch: nothing of it is kept. is_copy: a folder of plain files, which
    nobody serves; pid is who made it. is_detached: off its path, and served until the last open
    file is closed.

    uncommitted: None when its daemon does not say, or a copy's folder is not to be seen; error: why
    it does not. details: all that it says.
    """

    mount_path: str
    volume: str
    store_url: str
    version: str | None
    read_only: bool
    is_scratch: bool
    is_copy: bool
    is_detached: bool
    pid: int
    since_ns: int
    working_copy: str | None
    uncommitted: bool | None
    transport: str | None
    error: str | None
    details: MountStatus | None

    @property
    def is_gone(self) -> bool:
        """Whether it is a copy whose folder is not there any more."""
        return self.error == GONE

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is a copy that was made in another container, and whose folder is not to be
        seen here."""
        return self.error == ELSEWHERE


@dataclass(frozen=True)
class WorkingCopySummary:
    """A working copy that no daemon serves. folder: of a copy, where its files are. pid: of a
    process that holds it all the same. error: it can't be read, is held by a process of another
    container, or the folder is gone, or there."""

    working_copy: str
    folder: str | None
    volume: str
    store_url: str | None
    version: str | None
    uncommitted: bool | None
    pid: int | None
    error: str | None

    @property
    def is_gone(self) -> bool:
        """Whether it is a copy whose folder is not there any more."""
        return self.error == GONE

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is a copy that was made in another container, and whose folder is not to be
        seen here."""
        return self.error == ELSEWHERE


@dataclass(frozen=True)
class DeadMount:
    """A mount whose daemon has died; its work is in the volume's working copy."""

    mount_path: str
    volume: str
    store_url: str | None
    """None: not known here."""
    read_only: bool


@dataclass(frozen=True)
class Status:
    """This machine's mounts and working copies, as far as this user's directories know them."""

    mounts: list[MountSummary]
    working_copies: list[WorkingCopySummary]
    dead_mounts: list[str]
    dead: list[DeadMount]


def volumes_of(store: stores.Named = None, *, deleted: bool = False) -> list[VolumeSummary]:
    """The volumes of a store, by name; or those that were deleted, and can be brought back. One
    that cannot be read says so, and hides no other. NotFoundError: there is no cowfs store."""
    opened = stores.open_store(store)
    copied = _copies_of(opened)
    with Helpers(VOLUMES_AT_ONCE, name="cowfs-volumes") as pool:
        names = sorted(volumes.volume_names(opened.objects))  # in key order "a-b" stands before "a"
        found = pool.map(lambda name: _listed(opened, name, copied, deleted=deleted), names)
        return [summary for summary in found if summary is not None]


def volume_names(store: stores.Named = None, *, start: str = "", limit: int) -> list[str]:
    """The first names of a store's volumes that begin with start; a request for each."""
    found = volumes.volume_names(stores.open_store(store).objects, start=start, limit=limit)
    return sorted(name for name in found if name.startswith(start))


def mount_paths() -> list[str]:
    """Where this user's volumes and versions are mounted; no daemon is asked."""
    return sorted({entry.mount_path for entry in registry.list_mounts() if not entry.is_detached})


def status(store: stores.Named = None, *, meta_dir: Path | None = None) -> Status:
    """Mounts and working copies of this machine; of one store only, if one is named: NotFoundError
    if there is none, and nothing of it here. meta_dir: look there too."""
    scratch.clear(meta_dir)
    copies.sweep()
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
            stores.open_store(store)  # NotFoundError: nothing to be found here, for a reason
    dead = [_dead_mount(mount) for mount in dead_mounts.find()]
    return Status(mounted, kept, [mount.mount_path for mount in dead], dead)


def _dead_mount(mount: MountInfo) -> DeadMount:
    entry = dead_mounts.registration(mount)
    store_url = entry.store_url if entry is not None else None
    return DeadMount(mount.path, mount.volume, store_url, "ro" in mount.options)


def volume_summary(store: OpenStore, name: str) -> VolumeSummary | None:
    """As `volumes_of` has it; None for a volume that is half made, deleted, gone for good, or goes
    away at this moment. CorruptError, UnsupportedFormatError: something of it cannot be read."""

    def refuse(error: Unreadable) -> NoReturn:
        raise error

    return _volume_summary(store, name, _copies_of(store), refuse, deleted=False)


def _listed(store: OpenStore, name: str, copied: Mapping[str, str], *, deleted: bool) -> VolumeSummary | None:
    problems: list[Unreadable] = []
    try:
        found = _volume_summary(store, name, copied, problems.append, deleted=deleted)
    except (CorruptError, UnsupportedFormatError) as error:
        problems.append(error)
        found = VolumeSummary(name, "", 0, None, None, 0, 0, 0, copied.get(name), is_missing=False, quota_bytes=None)
    if found is None or not problems:
        return found
    is_newer = all(isinstance(error, UnsupportedFormatError) for error in problems)
    return replace(found, problem="; ".join(error.message for error in problems), is_newer=is_newer)


def _volume_summary(
    store: OpenStore,
    name: str,
    copied: Mapping[str, str],
    tell: Callable[[Unreadable], None],
    *,
    deleted: bool,
) -> VolumeSummary | None:
    """tell: of what cannot be read beside the head. CorruptError, UnsupportedFormatError: that."""

    def whole(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (CorruptError, UnsupportedFormatError) as error:
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
        mounted=whole(lambda: _writer(store, name)) or copied.get(name),
        is_missing=is_missing,
        quota_bytes=quotas.of(meta) or None,
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
        for entry in registry.list_mounts()
        if entry.is_copy and entry.written and entry.store_id == store_id and not are_apart(entry.store_url, store.url)
    }


def mount_summary(entry: MountEntry) -> MountSummary:
    """What a mount's daemon says; an error says why it does not."""
    said: MountStatus | None = None
    error, is_dirty = None, None
    try:
        if entry.is_copy and (trouble := _trouble(copy_of(entry))) is not None:
            error = trouble
        elif entry.is_copy:
            is_dirty = mounts.has_uncommitted(entry)
        else:
            said = live_mount.status(entry)
    except CowfsError as failure:
        error = failure.message
    return MountSummary(
        mount_path=entry.mount_path,
        volume=(entry.written or entry.volume) if said is None else said.volume,
        store_url=entry.store_url,
        version=_version(entry, said),
        read_only=entry.read_only,
        is_scratch=entry.is_scratch,
        is_copy=entry.is_copy,
        is_detached=entry.is_detached,
        pid=entry.pid,
        since_ns=entry.since_ns,
        working_copy=entry.working_copy,
        uncommitted=False if entry.read_only else is_dirty if entry.is_copy else _is_dirty(said),
        transport=said.transport if said is not None else "copy" if entry.is_copy else None,
        error=error,
        details=said,
    )


def _trouble(copy: Copy) -> str | None:
    """Where its folder is, if it is not to be seen. None also of one that an unmount removes, or
    was killed removing: nothing of value is in it."""
    if not copy.exists or copy.is_gone:
        return GONE
    return ELSEWHERE if copy.is_elsewhere else None


def _version(entry: MountEntry, said: MountStatus | None) -> str | None:
    if said is not None:
        return said.version.hex() if said.version is not None else None
    base = mounts.base_of(entry)[0] if entry.is_copy else None
    return base.hex() if base is not None else entry.version_id


def _is_dirty(said: MountStatus | None) -> bool | None:
    return said.writer.is_dirty if said is not None and said.writer is not None else None


def working_copy_summary(copy: WorkingCopy) -> WorkingCopySummary | None:
    """None when there is none any more."""
    try:
        if copy.is_out_of_reach:
            missing = "its directory is not there: is a disk missing? If it is gone for good, discard it"
            return WorkingCopySummary(str(copy.path), None, copy.volume, None, None, None, None, missing)
        if not copy.exists and not copy.has_remains:
            return None
        state = copy.state
        holder = copy.holder()
        folder = copy.copy.record.mount_path if copy.copy is not None else None
        trouble = _trouble(copy.copy) if copy.copy is not None else None
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
        uncommitted=None if trouble is not None else copy.may_have_uncommitted,
        pid=holder.process.pid if holder is not None and not is_foreign else None,
        error=trouble or (USED_ELSEWHERE if is_used_elsewhere else None),
    )
