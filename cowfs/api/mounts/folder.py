"""Mounts without FUSE: a folder of plain files at the mount path, from which commits are made.

    mount       the version is copied to the path (folders/making), and the files' stamps are recorded
    work        any program, on the local file system; no daemon runs, and no process has to stay alive
    commit      files whose stamp differs are read and published, as an upload with delete=True does
                (transfer/upload/tree_upload), if the volume is still at the version that was copied
    compare     the changes of such a commit, without publishing or storing anything (folders/folder_changes)
    unmount     an unchanged folder is removed; one with work stays where it is, for the next mount

The calling process does the work of a daemon. Committing needs the volume's store with the caller's
credentials (`target`); without it the store is opened from its URL. `machine.folders.folder` keeps
the record of a folder, and removes it. docs/decisions/0043-mounts-without-fuse.md has the reasons.
"""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from cowfs.api import names, stores
from cowfs.api.mounts import kept_work, mount_paths, summaries, unmounted
from cowfs.api.mounts.summaries import MountSummary
from cowfs.api.transfers import tree_publishing
from cowfs.api.transfers.path_errors import errors_of_ours
from cowfs.api.transfers.transfer_report import Target
from cowfs.base import interruptible, log
from cowfs.base.beneath import Root
from cowfs.base.errors import (
    ConflictError,
    CowfsError,
    InvalidStateError,
    LeaseHeldError,
    ReadOnlyError,
)
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.control import MountOptions
from cowfs.control.live_mount import Released
from cowfs.control.messages import Committed, Left, Work
from cowfs.folders import lost_folders, mounted_folders
from cowfs.folders.lost_folders import LOST
from cowfs.machine import registry
from cowfs.machine.folders import aside
from cowfs.machine.folders.folder import Copy
from cowfs.machine.lock import LockHolder
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version.commit import Base, CommitRequest, ProgressListener
from cowfs.version.history import open_version
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.stores import OpenStore
    from cowfs.control.messages import Compared, Comparison, Restoration, Restored
    from cowfs.store import Identity
    from cowfs.transfer.upload.upload_plan import Uploaded

_log = log.get("copy")
MAY_BE_REPEATED = "Nothing is lost: commit again. If it was published by then, the same version is told."


class FolderMount:
    mode: ClassVar[Literal["fuse", "copy"]] = "copy"
    way: ClassVar[str] = "as a copy"
    keeps_work: ClassVar[bool] = True
    tells_names_apart: ClassVar[bool] = False
    ends_off_path: ClassVar[bool] = True

    def __init__(self, entry: MountEntry) -> None:
        self.entry = entry
        self._copy = mounted_folders.copy_of(entry)

    # -- state

    def is_there(self) -> bool:
        return mounted_folders.is_there(self.entry)

    def open_root(self) -> Root | None:
        return mounted_folders.open_root(self.entry)

    def is_dying(self) -> bool:
        return False

    def is_gone(self) -> bool:
        return not self.is_there()

    def settle(self) -> bool:
        """Undoes an unmount that was killed half way, or completes it if it has begun to delete."""
        with mounted_folders.turn_of(self.entry):
            if self._copy.settle():
                return True
            registry.unregister(self.entry)
            return False

    def has_uncommitted(self) -> bool:
        """Also True for changes that cancel out."""
        return not self.entry.read_only and self._copy.differs(self._base()[0])

    def measure_work(self, store: OpenStore) -> Work | None:
        """Also of changes that cancel out."""
        if self.entry.read_only:
            return None
        version, _ = self._base()
        if (found := self._copy.count_changes(version)) is None:
            return None
        since_ns = open_version(store.objects, version).created_ns if version is not None else None
        return Work(*found, version, since_ns)

    def has_left_work(self) -> bool:
        return False

    def summary(self) -> MountSummary:
        error, is_dirty = None, None
        try:
            error = summaries.trouble(self._copy)
            is_dirty = self.has_uncommitted() if error is None else None
        except CowfsError as failure:
            error = failure.message
        return summaries.of_folder(self.entry, self._base()[0], uncommitted=is_dirty, error=error)

    def _base(self) -> tuple[VersionId | None, int]:
        """The version that the folder is based on, and the number of its head."""
        working_copy = self._working_copy()
        return working_copy.base if working_copy is not None else (VersionId.from_hex(self.entry.version_id or ""), 0)

    def _working_copy(self) -> WorkingCopy | None:
        """None for the folder of a version."""
        return WorkingCopy(Path(self.entry.working_copy)) if self.entry.working_copy is not None else None

    # -- operations

    def commit(
        self,
        request: CommitRequest,
        progress: ProgressListener | None = None,
        *,
        target: Target | None = None,
        options: MountOptions | None = None,
    ) -> Committed:
        entry = self.entry
        if entry.read_only:
            raise ReadOnlyError(
                f"{entry.mount_path} is a read-only copy of {entry.volume}@{(entry.version_id or '')[:12]}",
                hint="Fork the version and mount the fork.",
            )
        target = self._target(target)
        base, is_new = commit(target, options or MountOptions(), request, progress)
        assert base.version_id is not None
        assert base.manifest is not None
        locator = volumes.locator(target.store.objects, target.name, base.version_id)
        manifest = Committed.make_text(base.manifest, base.version_id)
        return Committed(base.version_id, str(locator), base.head_number, is_new, manifest)

    def commit_as(
        self, name: str | None, request: CommitRequest, progress: ProgressListener | None
    ) -> tuple[str, Committed]:
        names.require_none(name)
        return self.entry.volume, self.commit(request, progress)

    def compare(self, target: Target, options: MountOptions, wanted: Comparison) -> Compared:
        return compare(self._target(target), options, wanted)

    def _target(self, named: Target | None) -> Target:
        """The volume, with this process's access to its store."""
        working_copy = self._working_copy()
        assert working_copy is not None
        if named is not None:
            return replace(named, working_copy=working_copy)
        return Target(self.entry.volume, stores.open_located(self.entry.store_url), working_copy)

    def require_restorable(self) -> None:
        raise no_restore(self.entry.volume, self.entry.mount_path, is_mounted=True)

    def restore(self, wanted: Restoration) -> Restored:
        raise no_restore(self.entry.volume, self.entry.mount_path, is_mounted=True)

    def feed(self, identity: Identity) -> None: ...

    def require_work_at(self, place: Path, meta_dir: Path) -> None:
        if self.is_there():
            mount_paths.require_work_at(self.entry, place, meta_dir)

    # -- ending

    def require_nothing_lost(self) -> None: ...

    def unmount(self, *, force: bool = False) -> Left:
        """A folder with work stays where it is."""
        with mounted_folders.turn_of(self.entry):
            self._require_endable(force=force)
            version, head_number = self._base()
            is_kept = self._end(version, force=force)
            registry.unregister(self.entry)
        return Left(version, head_number, is_kept)

    def _require_endable(self, *, force: bool) -> None:
        if force:
            return
        lost_folders.require_mine(self._copy)
        if self._copy.exists and self._copy.is_there:
            self._copy.require_unused()

    def _end(self, version: VersionId | None, *, force: bool) -> bool:
        """Removes the folder unless work would be lost. Returns whether a volume's work is kept."""
        copy, working_copy = self._copy, self._working_copy()
        if not copy.exists or not copy.settle():
            return False
        if working_copy is None:
            if copy.is_out_of_sight:
                copy.forget()
            elif force:
                copy.remove()
            else:
                copy.remove_read_only(version)
            return False
        if lost_folders.tell_if_gone(working_copy):
            return False  # the next mount looks for it again
        with working_copy.lock(LockHolder.make_brief(f"(unmounting {self.entry.mount_path})")):
            return not copy.remove_unchanged(version) and copy.differs(version)

    def release(self, *, force: bool = False) -> Released:
        """A folder in use stays, but is no longer a mount."""
        try:
            try:
                self.unmount(force=force)
            except ConflictError as error:
                registry.unregister(self.entry)
                return Released(users=error.message)
        except (CowfsError, OSError) as error:
            return Released(trouble=str(error))
        return Released()

    def leave(self) -> None:
        """A folder in use stays mounted, with a warning."""
        try:
            self.unmount()
        except ConflictError as error:
            mount_paths.warn_that_it_stays(self.entry, error)

    def discard(self, *, force: bool = False, store: OpenStore | None = None) -> None:
        """store is needed only if an upload was interrupted."""
        with mounted_folders.turn_of(self.entry):
            self._require_endable(force=force)
            working_copy = self._working_copy()
            if working_copy is not None:
                lost_folders.tell_if_gone(working_copy)
            if working_copy is None:
                self._copy.remove()
            elif working_copy.exists and working_copy.state.pin is not None:
                unmounted.discard(store or self._target(None).store, working_copy, force=force)
            else:
                working_copy.delete()
            registry.unregister(self.entry)

    def drop_work(self, store: OpenStore) -> None:
        with mounted_folders.turn_of(self.entry):
            self._require_endable(force=False)
            set_aside(self._copy)
        self.discard(store=store)

    def drop_silent(self) -> bool:
        return False

    # -- messages

    def describe_interrupted_commit(self, name: str | None) -> str:
        return MAY_BE_REPEATED

    def describe_interrupted_unmount(self) -> str:
        return f"{Command('status')} shows whether the copy is there still."

    def describe_late_writes(self) -> str:
        return f"uncommitted work of {self.entry.volume} on this machine"


def commit(
    target: Target, options: MountOptions, request: CommitRequest, progress: ProgressListener | None
) -> tuple[Base, bool]:
    """Publishes the contents of the folder. Returns the version that the volume is now at, and
    whether this call made it. ConflictError: the volume has a newer version, or a file kept
    changing."""
    from cowfs.folders import folder_changes
    from cowfs.transfer.local_files import LocalFiles
    from cowfs.writer.publishing import publishing

    working_copy = target.working_copy

    def publish(progress: ProgressListener | None) -> tuple[str, Uploaded, Base, bool]:
        with mounted_folders.turn(working_copy.path):
            copy = Copy(working_copy.path)
            path = copy.record.mount_path
            kept_work.require_all(working_copy, target.store)
            spec = tree_publishing.writing(target, replace(options, take_over=False))
            with errors_of_ours(path, LOST), ExitStack() as stack:
                root = stack.enter_context(lost_folders.open_folder(copy))
                reading = copy.begin_reading(root)
                tree = stack.enter_context(LocalFiles(root.path, root.fileno()))
                line = stack.enter_context(publishing(spec, access=target.store.access, from_folder=True))
                plan = folder_changes.plan_commit(copy, root, line.publisher.base.version_id, line.owner)
                done, base, is_new = tree_publishing.publish_tree(line, tree, plan, request, progress)
                assert plan.stamps is not None
                copy.move_base(base.version_id, plan.stamps.seen, reading)
            return path, done, base, is_new

    if progress is None:
        path, done, base, is_new = interruptible.run(partial(publish, None))
    else:
        path, done, base, is_new = interruptible.run_with_listener(publish, progress)
    if done.skipped:
        _log.warning(
            "%d devices, pipes or sockets in %s are in no version: a copy cannot keep them (%s%s)",
            done.skipped,
            path,
            ", ".join(map(repr, done.skipped_paths)),
            ", …" if done.skipped > len(done.skipped_paths) else "",
        )
    return base, is_new


def compare(target: Target, options: MountOptions, wanted: Comparison) -> Compared:
    """Compares a version with the folder as it is now. For the volume's base version, the result is
    the set of changes that a commit would publish. Neither the store nor the record of the folder
    changes. ConflictError: a file kept changing."""
    from cowfs.folders import folder_changes

    with mounted_folders.turn(target.working_copy.path):
        copy = Copy(target.working_copy.path)
        spec = tree_publishing.writing(target, replace(options, take_over=False))
        with lost_folders.open_folder(copy) as root, errors_of_ours(os.fsdecode(root.path), LOST):
            return folder_changes.compare(spec, copy, root, wanted, access=target.store.access)


def set_aside(copy: Copy) -> None:
    """Moves the folder away, with its work, which no mount brings back any more."""
    volume = copy.record.volume
    if (moved := aside.move_aside(copy)) is not None:
        _log.warning(
            "uncommitted work of volume %s is dropped; the files of its copy lie in %s. Remove that folder by hand if they are "
            "not needed: rm -r %s",
            volume,
            moved,
            shlex.quote(moved),
        )


def no_restore(name: str, path: str, *, is_mounted: bool) -> ConflictError | InvalidStateError:
    """The error for a restore into a volume whose folder is mounted or has work left from a mount.
    A folder cannot be the target of a restore."""
    where = f"volume {name!r} is mounted as a copy at" if is_mounted else f"work of volume {name!r} lies in the copy at"
    publishing = Command("unmount", name, "--commit") if is_mounted else Command("commit", name)
    return (ConflictError if is_mounted else InvalidStateError)(
        f"{where} {path}: nothing is restored into a copy",
        hint=f"Publish its work first ({publishing}, finalize()), or drop it "
        f"({Command('unmount', name, '--discard')}, discard()); then do this again. Or copy what you need into the "
        f"folder ({Command('download')}, files.download()).",
        details={"mount_path": path},
    )


def require_unmounted(entry: MountEntry | None) -> None:
    """LeaseHeldError: the volume is mounted as a folder. A folder has no lease, so its commit would
    come too late. entry: its mount."""
    if entry is not None and entry.kind == "folder":
        raise LeaseHeldError(
            f"volume {entry.volume!r} is mounted as a copy at {entry.mount_path}",
            hint="Write there, or commit and unmount it first.",
            details={"where": entry.mount_path},
        )
