"""One live mount of this machine, by FUSE or as a copy: asks its daemon (`control.live_mount`), or
does by itself what a daemon would.

Whoever made it, and from whatever process. Committing a copy needs its volume's store, with the
caller's credentials: `target`; without it the store is asked as its URL says.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

from cowfs import log
from cowfs.api import copies, mount_paths, scratch, unmounted
from cowfs.api.stores import OpenStore
from cowfs.api.transfer_report import Target
from cowfs.control import MountOptions, live_mount
from cowfs.control.live_mount import Released
from cowfs.control.messages import Committed, Left
from cowfs.errors import ConflictError, CowfsError, ReadOnlyError, UnavailableError
from cowfs.ids import VersionId
from cowfs.machine import copies as folders
from cowfs.machine import dead_mounts, mount_table, mounting, registry
from cowfs.machine.lock import LockHolder
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version import volumes
from cowfs.version.commit import CommitRequest, ProgressListener

__all__ = [
    "Released",
    "base_of",
    "commit",
    "discard",
    "end_silent",
    "has_died",
    "has_uncommitted",
    "release",
    "unmount",
]

_log = log.get("copy")


def commit(
    entry: MountEntry,
    request: CommitRequest,
    progress: ProgressListener | None = None,
    *,
    target: Target | None = None,
    options: MountOptions | None = None,
) -> Committed:
    """Publishes what was written before the call, of a scratch to the volume that it was found by.
    ReadOnlyError: a version is mounted there."""
    if entry.is_scratch:
        return scratch.commit_to(entry, request, progress)
    if not entry.is_copy:
        return live_mount.commit(entry, request, progress)
    if entry.read_only:
        raise ReadOnlyError(
            f"{entry.mount_path} is a read-only copy of {entry.volume}@{(entry.version_id or '')[:12]}",
            hint="Fork the version and mount the fork.",
        )
    named = copies.target_of(entry) if target is None else target
    assert entry.working_copy is not None
    target = replace(named, working_copy=WorkingCopy(Path(entry.working_copy)))
    base, is_new = copies.commit(target, options or MountOptions(), request, progress)
    assert base.version_id is not None
    assert base.manifest is not None
    locator = volumes.locator(target.store.objects, target.name, base.version_id)
    told = Committed.told(base.manifest, base.version_id)
    return Committed(base.version_id, str(locator), base.head_number, is_new, told)


def has_uncommitted(entry: MountEntry) -> bool:
    """Whether there is work that is in no version; of a copy also True for changes that cancel
    out."""
    if not entry.is_copy:
        return live_mount.has_uncommitted(entry)
    return not entry.read_only and mount_paths.copy_of(entry).differs(base_of(entry)[0])


def unmount(entry: MountEntry, *, force: bool = False) -> Left:
    """Unmounts, keeping uncommitted work: that of a copy stays where it is. ConflictError while it
    is in use. force: also if its daemon does not answer, which is killed then. UnavailableError: it
    cannot be killed, or its mount stays."""
    if not entry.is_copy:
        if force and end_silent(entry):
            return _left_by_killed(entry)
        return live_mount.unmount(entry, force=force)
    with copies.turn(entry):
        copy = mount_paths.copy_of(entry)
        if not force:
            copies.require_mine(copy)
        if not force and copy.exists and copy.is_there:
            copy.require_unused()
        version, head_number = base_of(entry)
        is_kept = _leave(entry, copy, version, force=force)
        registry.unregister(entry)
    return Left(version, head_number, is_kept)


def release(entry: MountEntry, *, force: bool = False) -> Released:
    """Takes away a mount whose work has been published, so that nothing here may fail: what did not
    work is told. A copy that is in use stays as a folder."""
    if not entry.is_copy:
        return live_mount.release(entry, force=force)
    try:
        try:
            unmount(entry, force=force)
        except ConflictError as error:
            registry.unregister(entry)
            return Released(users=error.message)
    except (CowfsError, OSError) as error:
        return Released(trouble=str(error))
    return Released()


def leave(entry: MountEntry, *, force: bool = False) -> None:
    """Takes away a mount at the end of a block that has nothing to publish. Files that this process
    has open stay open; a mount or a copy that other processes use stays, and that is told.
    ConflictError: a scratch is in use. CowfsError: it may be mounted still."""
    try:
        unmount(entry, force=force)
    except ConflictError as error:
        if entry.is_scratch:
            raise
        if registry.find_by_id(entry.id) is None:  # it is off its path, and serves whoever has it open
            _log.warning("%s. %s", error.message, error.hint)
        elif entry.is_copy or error.details.get("pids") != [os.getpid()]:
            path = shlex.quote(entry.mount_path)
            _log.warning("%s. It stays mounted: `cowfs unmount %s` unmounts it", error.message, path)
        elif trouble := live_mount.release(entry).trouble:
            raise UnavailableError(trouble, hint="`cowfs status` shows whether it is mounted still.") from error


def discard(entry: MountEntry, *, force: bool = False, store: OpenStore | None = None) -> None:
    """Unmounts and drops uncommitted work for good. store: the volume's, as for `commit`; a copy
    needs it only if an upload was interrupted."""
    if not entry.is_copy:
        live_mount.discard(entry, force=force)
        return
    with copies.turn(entry):
        copy = mount_paths.copy_of(entry)
        if not force:
            copies.require_mine(copy)
        if not force and copy.exists and copy.is_there:
            copy.require_unused()
        working_copy = WorkingCopy(Path(entry.working_copy)) if entry.working_copy is not None else None
        if working_copy is not None:
            copies.tell_if_gone(working_copy)
        if working_copy is None:
            copy.remove()
        elif working_copy.exists and working_copy.state.pin is not None:
            unmounted.discard(store or copies.target_of(entry).store, working_copy, force=force)
        else:
            working_copy.delete()
        registry.unregister(entry)


def has_died(entry: MountEntry) -> bool:
    """As `live_mount.has_died`; a copy cannot."""
    return not entry.is_copy and live_mount.has_died(entry)


def base_of(entry: MountEntry) -> tuple[VersionId | None, int]:
    """The version that a copy stands on, and the number of its head."""
    if entry.working_copy is None:
        return VersionId.from_hex(entry.version_id or ""), 0
    working_copy = WorkingCopy(Path(entry.working_copy))
    if not working_copy.exists:
        return None, 0
    return working_copy.state.base_version, working_copy.state.head_number


def end_silent(entry: MountEntry) -> bool:
    """As `live_mount.end_silent`, of a mount by FUSE. Whoever calls takes the mount off its path,
    as any one whose daemon has died."""
    if not live_mount.end_silent(entry):
        return False
    _cut_off(entry)
    return True


def _cut_off(entry: MountEntry) -> None:
    """After its daemon was killed: a mount whose device somebody else has open, who made it, say,
    would let every use of it wait for ever. UnavailableError: it stays, and does so."""
    path = entry.mount_path
    mount = None if entry.is_detached else mount_table.mount_at(path)
    if mount is None or not mount.is_cowfs or registry.find_by_path(path) is not None:
        return
    if mount_table.abort(mount) or dead_mounts.find_at(path) is not None:
        return
    if not mounting.may_unmount(mount):
        raise UnavailableError(
            f"process {entry.pid} of the mount at {path} was killed, but the mount stays, and every use of it waits: another "
            "process has its /dev/fuse open, and it may not be unmounted from here",
            hint=f"Whoever has mounted it unmounts it: `umount -l {shlex.quote(path)}`, as root. Uncommitted work of a volume "
            "is kept; mount it elsewhere.",
        )
    mounting.unmount(mount, lazy=True)


def _left_by_killed(entry: MountEntry) -> Left:
    if not entry.written or entry.is_scratch:
        return Left(VersionId.from_hex(entry.version_id) if entry.version_id else None, 0, False)
    assert entry.working_copy is not None
    return Left(*base_of(entry), WorkingCopy(Path(entry.working_copy)).may_have_uncommitted)


def _leave(entry: MountEntry, copy: folders.Copy, version: VersionId | None, *, force: bool) -> bool:
    """Removes the folder, if nothing would be lost. Whether work of a volume is kept."""
    if not copy.exists or not copy.settle():
        return False
    if entry.working_copy is not None and copies.tell_if_gone(WorkingCopy(Path(entry.working_copy))):
        return False  # the next mount looks for it once more
    if entry.working_copy is None:
        if copy.is_out_of_sight:
            copy.forget()
        elif force:
            copy.remove()
        else:
            copy.remove_read_only(version)
        return False
    with WorkingCopy(Path(entry.working_copy)).lock(LockHolder.for_a_moment(f"(unmounting {entry.mount_path})")):
        return not copy.remove_unchanged(version) and copy.differs(version)
