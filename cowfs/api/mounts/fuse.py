"""A mount by FUSE. Its daemon serves it and answers all requests (`control.live_mount`)."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from cowfs.api import names
from cowfs.api.mounts import feeding, mount_paths, prepared, summaries
from cowfs.api.mounts.summaries import MountSummary
from cowfs.base.beneath import Root
from cowfs.base.errors import ConflictError, CowfsError, InvalidStateError, NotFoundError, UnavailableError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.base.short_repr import short_repr
from cowfs.control import MountOptions, live_mount
from cowfs.control.live_mount import Released
from cowfs.control.messages import Committed, Compared, Comparison, Left, Restoration, Restored, Work
from cowfs.machine import dead_mounts, mount_table, mounting, registry
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store import Identity
from cowfs.supervisor import client, wire
from cowfs.version.commit import CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.api.stores import OpenStore
    from cowfs.api.transfers.transfer_report import Target


class FuseMount:
    mode: ClassVar[Literal["fuse", "copy"]] = "fuse"
    way: ClassVar[str] = "by FUSE"
    keeps_work: ClassVar[bool] = True
    tells_names_apart: ClassVar[bool] = True
    ends_off_path: ClassVar[bool] = False

    def __init__(self, entry: MountEntry) -> None:
        self.entry = entry

    # -- state

    def is_there(self) -> bool:
        """A daemon that ends detaches its mount first, and may then take seconds."""
        return mount_paths.is_mounted(self.entry.mount_path)

    def open_root(self) -> Root | None:
        """The mount is checked after the root is opened: if it ends in between, the root is the
        directory below the mount."""
        try:
            root = Root.open(self.entry.mount_path)
        except FileNotFoundError:
            return None
        if self.is_there():
            return root
        root.close()
        return None

    def is_dying(self) -> bool:
        return live_mount.is_dying(self.entry)

    def is_gone(self) -> bool:
        return False

    def settle(self) -> bool:
        return True

    def has_uncommitted(self) -> bool:
        return live_mount.has_uncommitted(self.entry)

    def measure_work(self, store: OpenStore) -> Work | None:
        return live_mount.measure_work(self.entry)

    def has_left_work(self) -> bool:
        return live_mount.has_died(self.entry)

    def summary(self) -> MountSummary:
        try:
            said = live_mount.status(self.entry)
        except CowfsError as error:
            return summaries.of_daemon(self.entry, None, error.message)
        return summaries.of_daemon(self.entry, said, None)

    # -- operations

    def commit(
        self,
        request: CommitRequest,
        progress: ProgressListener | None = None,
        *,
        target: Target | None = None,
        options: MountOptions | None = None,
    ) -> Committed:
        return live_mount.commit(self.entry, request, progress)

    def commit_as(
        self, name: str | None, request: CommitRequest, progress: ProgressListener | None
    ) -> tuple[str, Committed]:
        names.require_none(name)
        return self.entry.written or self.entry.volume, self.commit(request, progress)

    def compare(self, target: Target, options: MountOptions, wanted: Comparison) -> Compared:
        return live_mount.compare(self.entry, wanted)

    def require_restorable(self) -> None: ...

    def restore(self, wanted: Restoration) -> Restored:
        return live_mount.restore(self.entry, wanted)

    def feed(self, identity: Identity) -> None:
        feeding.start(self.entry.id, self.entry.socket, identity)

    def require_work_at(self, place: Path, meta_dir: Path) -> None:
        if self.is_there():
            mount_paths.require_work_at(self.entry, place, meta_dir)

    # -- ending

    def require_nothing_lost(self) -> None: ...

    def unmount(self, *, force: bool = False) -> Left:
        if force and self.end_silent():
            return self._find_left_work()
        return live_mount.unmount(self.entry, force=force)

    def release(self, *, force: bool = False) -> Released:
        return live_mount.release(self.entry, force=force)

    def leave(self) -> None:
        """Files that this process has open stay open. If other processes use the mount, it stays,
        and a warning says so."""
        try:
            self.unmount()
        except ConflictError as error:
            if registry.find_by_id(self.entry.id) is None or error.details.get("pids") != [os.getpid()]:
                mount_paths.warn_that_it_stays(self.entry, error)
            elif trouble := live_mount.release(self.entry).trouble:
                raise UnavailableError(
                    trouble, hint=f"{Command('status')} shows whether it is mounted still."
                ) from error

    def discard(self, *, force: bool = False, store: OpenStore | None = None) -> None:
        live_mount.discard(self.entry, force=force)

    def drop_work(self, store: OpenStore) -> None:
        self.discard(store=store)

    def drop_silent(self) -> bool:
        return False

    def end_silent(self) -> bool:
        """As `live_mount.end_silent`. The caller detaches the mount, as after the death of any
        daemon."""
        if not live_mount.end_silent(self.entry):
            return False
        self._end_mount()
        return True

    def _end_mount(self) -> None:
        """Unmounts after the daemon was killed. Otherwise every use of the mount would block while
        another process, such as its maker, has the device open. UnavailableError: it cannot be
        unmounted."""
        path = self.entry.mount_path
        mount = None if self.entry.is_detached else mount_table.mount_at(path)
        if mount is None or not mount.is_cowfs or registry.find_by_path(path) is not None:
            return
        if mounting.abort(mount) or dead_mounts.find_at(path) is not None:
            return
        if not mounting.may_unmount(mount):
            raise UnavailableError(
                f"process {self.entry.pid} of the mount at {path} was killed, but the mount stays, and every use of it waits: "
                "another process has its /dev/fuse open, and it may not be unmounted from here",
                hint=f"Whoever has mounted it unmounts it: `umount -l {shlex.quote(path)}`, as root. Uncommitted work of a volume "
                "is kept; mount it elsewhere.",
            )
        mounting.unmount(mount, lazy=True)

    def _find_left_work(self) -> Left:
        if not self.entry.written:
            return Left(self._version(), 0, False)
        assert self.entry.working_copy is not None
        working_copy = WorkingCopy(Path(self.entry.working_copy))
        return Left(*working_copy.base, working_copy.may_have_uncommitted)

    def _version(self) -> VersionId | None:
        return VersionId.from_hex(self.entry.version_id) if self.entry.version_id else None

    # -- messages

    def describe_interrupted_commit(self, name: str | None) -> str:
        shows = f"{Command('log', name or self.entry.written or self.entry.volume)} shows it"
        return f"The mount goes on with the commit; {shows} when it is published."

    def describe_interrupted_unmount(self) -> str:
        return f"The mount goes on with what it was told; {Command('status')} shows whether it has ended."

    def describe_late_writes(self) -> str:
        return f"uncommitted work of {self.entry.written or self.entry.volume} on this machine"


@short_repr
@dataclass(frozen=True)
class Restarted:
    """pid: of the daemon that serves the mount now."""

    mount_path: str
    volume: str
    pid: int


def restart(path: str | os.PathLike[str]) -> Restarted:
    """Restarts the daemon of the supervised mount at a path; programs that use the mount wait.
    Returns when the next daemon serves it.

    NotFoundError: there is no mount. InvalidStateError: it is not supervised. ConflictError: the
    cowfs that runs here cannot go on with it; a daemon like the one before serves it again.
    """
    entry = registry.find_by_path(os.fspath(path))
    if entry is None:
        raise NotFoundError(
            f"{os.fspath(path)} is not a mount of yours", hint=f"{Command('status')} shows what is mounted."
        )
    return _restart(entry)


def list_supervised() -> list[str]:
    """The paths of this user's supervised mounts on this machine, oldest first."""
    return [
        each.mount_path for each in registry.list_mounts() if registry.has_supervisor(each) and not each.is_detached
    ]


def _restart(entry: MountEntry) -> Restarted:
    if not registry.has_supervisor(entry):
        raise InvalidStateError(
            f"{entry.mount_path} is not supervised, so its daemon cannot be restarted under programs that use it",
            hint=f"Unmount it ({Command('unmount', entry.mount_path)}) and mount it again; "
            f"{Command('mount', entry.volume, entry.mount_path, '--supervise')} makes a mount that can be.",
        )
    words = [sys.executable, "-P", "-m", "cowfs.daemon", wire.GO_ON]
    variables = {"PYTHONPATH": prepared.environment()["PYTHONPATH"]}
    try:
        reason = client.restart(os.path.dirname(entry.socket), entry.id, words, variables)
    except OSError as error:
        raise UnavailableError(
            f"the supervisor of {entry.mount_path} does not answer: {error.strerror or error}",
            hint=f"Try again; {Command('status')} shows whether the mount is supervised.",
        ) from error
    if reason:
        raise ConflictError(
            f"the daemon of {entry.mount_path} was not replaced: {reason}",
            hint="Programs go on with one like before. Unmount it and mount it again to use this cowfs.",
        )
    found = registry.find_by_id(entry.id)
    if found is None:
        raise UnavailableError(f"{entry.mount_path} was unmounted meanwhile", hint="Its work is kept: mount it again.")
    return Restarted(entry.mount_path, entry.volume, live_mount.status(found).pid)
