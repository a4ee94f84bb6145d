"""Scratch mounts: writes on top of a version, without becoming the writer of its volume.

Committing a scratch makes a volume: a fork of the base version under a new name, with one more
version. From then on the scratch writes to that volume. Uncommitted work is still lost when the
mount ends.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cowfs import store as stores_layer
from cowfs.api import names, stores
from cowfs.api.claiming import claimed
from cowfs.api.mounts import mount_paths
from cowfs.api.mounts.fuse import FuseMount
from cowfs.api.provenance import author
from cowfs.api.storage.definition import Storage
from cowfs.base import log
from cowfs.base.errors import ConflictError, InvalidStateError, LeaseHeldError, LeaseLostError, UnavailableError
from cowfs.base.hints import Command
from cowfs.control import MountOptions, live_mount
from cowfs.control.messages import Committed, Left, MountStatus
from cowfs.machine import reservation, scratch_directories
from cowfs.machine.registry import MountEntry
from cowfs.version.commit import CommitRequest, ProgressListener
from cowfs.version.names import volumes
from cowfs.version.names.volumes import Head

if TYPE_CHECKING:
    from cowfs.api.transfers.transfer_report import Target

_log = log.get("volume")


class ScratchMount(FuseMount):
    keeps_work: ClassVar[bool] = False

    def has_left_work(self) -> bool:
        return False

    def commit(
        self,
        request: CommitRequest,
        progress: ProgressListener | None = None,
        *,
        target: Target | None = None,
        options: MountOptions | None = None,
    ) -> Committed:
        return commit_to(self.entry, request, progress)

    def commit_as(
        self, name: str | None, request: CommitRequest, progress: ProgressListener | None
    ) -> tuple[str, Committed]:
        return commit(self.entry, name, request, progress, strict=name is not None)

    def require_work_at(self, place: Path, meta_dir: Path) -> None: ...

    def require_nothing_lost(self) -> None:
        if self.has_uncommitted():
            raise InvalidStateError(
                f"volume {self.entry.written!r} is written to by the scratch at {self.entry.mount_path}, which would drop what is "
                "not committed",
                hint=f"Commit it first ({Command('commit')}, commit()), or drop it: discard(), force=True.",
            )

    def leave(self) -> None:
        self.unmount()

    def drop_silent(self) -> bool:
        return self.end_silent()

    def _find_left_work(self) -> Left:
        return Left(self._version(), 0, False)

    def describe_interrupted_commit(self, name: str | None) -> str:
        shows = f"{Command('log', name)} shows it" if name is not None else f"{Command('status')} names the volume"
        return f"The mount goes on with the commit; {shows} when it is published."

    def describe_late_writes(self) -> str:
        return "gone then"


def explain_lease(entry: MountEntry | None, error: LeaseHeldError, volume: str) -> None:
    """Explains in the hint what to do if the scratch `entry` is the writer that the error names."""
    if entry is not None and entry.kind == "scratch" and error.details.get("where") == entry.mount_path:
        error.set_hint(
            f"It is a scratch of this machine. Work at {entry.mount_path}; or commit it, and unmount it, which drops "
            f"what is not committed ({Command('unmount', volume, '--commit')}, commit()); or fork the volume."
        )


def commit(
    entry: MountEntry,
    name: str | None,
    request: CommitRequest,
    progress: ProgressListener | None,
    *,
    storage: Storage | None = None,
    strict: bool,
) -> tuple[str, Committed]:
    """Publishes the writes to the scratch made before the call. Returns the volume and the version.

    storage: the access to the store. name: of the volume; None: the volume of an earlier commit, or
    else a new one with a generated name. Another name than before makes another volume, based on
    the last version. Concurrent calls run one after another, since a commit takes three requests to
    the daemon: read its target, change it, commit.
    """
    with _turn(entry):
        return _commit(entry, name, request, progress, storage, strict=strict)


def commit_to(entry: MountEntry, request: CommitRequest, progress: ProgressListener | None) -> Committed:
    """As `commit`, to the volume that the scratch was found by. ConflictError: it now writes to
    another volume, and its work belongs there."""
    with _turn(entry):
        if (now := live_mount.status(entry).volume) != entry.adopted:
            raise ConflictError(
                f"the scratch at {entry.mount_path} does not write to {entry.adopted} any more, but to {now}",
                hint=f"What it has uncommitted belongs to {now}: {Command('commit', now)}, or commit() of that volume.",
            )
        return _committed(entry, entry.adopted, request, progress)


def _turn(entry: MountEntry) -> AbstractContextManager[bool]:
    return reservation.turn(f"commit of {entry.id}", lambda: False, doing="commits this scratch")


def _commit(
    entry: MountEntry,
    name: str | None,
    request: CommitRequest,
    progress: ProgressListener | None,
    storage: Storage | None,
    *,
    strict: bool,
) -> tuple[str, Committed]:
    said = live_mount.status(entry)
    volume = said.volume
    if said.writer is None or (name is not None and names.checked(name) != volume):
        volume = _fork(said, name, storage, strict=strict)
        live_mount.adopt(entry, volume)
    return volume, _committed(entry, volume, request, progress)


def _committed(entry: MountEntry, volume: str, request: CommitRequest, progress: ProgressListener | None) -> Committed:
    try:
        return live_mount.commit(entry, request, progress)
    except LeaseLostError as error:
        raise LeaseLostError(
            error.message,
            hint=f"Commit it under another name: {Command('commit', entry.mount_path, '--name', 'NAME')}, or commit_scratch() with a name.",
            details=error.details,
        ) from error
    except UnavailableError as error:
        if not live_mount.has_died(entry):
            raise
        raise UnavailableError(
            error.message,
            hint=f"{Command('log', volume)}, or history(), shows whether the commit was published. What is not published is gone: "
            "a scratch ends with its daemon. Mount the version again.",
            details=error.details,
        ) from error


def _fork(said: MountStatus, name: str | None, storage: Storage | None, *, strict: bool) -> str:
    """A new volume with the same base version as the scratch."""
    assert said.version is not None
    store = stores.open_located(said.store_url, storage)
    stores_layer.require_writable(store.record)
    base = volumes.locator(store.objects, said.volume, said.version)

    def fork(new_name: str) -> Head:
        return volumes.fork_volume(store.objects, new_name, base, owner=author())

    wanted = names.checked(name) if name is not None else names.beside(said.volume)
    return claimed(wanted, fork, strict=strict).volume


def clear(meta_dir: Path | None = None) -> list[str]:
    """Removes the remains of scratch mounts whose daemons were killed. They cannot be used again.
    Returns the paths from which mounts were detached."""
    detached = scratch_directories.sweep(meta_dir)
    for path in detached:
        _log.warning("the daemon of the scratch mount %s has died; what was not committed there is gone", path)
    mount_paths.leave(*detached)
    return detached
