"""One live mount of this machine, of any kind. Any process finds it in the registry.

    kind (`MountEntry.kind`)   class           its files are served by    its work
    "fuse"                     `FuseMount`     a daemon                   in the working copy, which outlives the mount
    "folder"                   `FolderMount`   the local file system      in the folder, which outlives the mount
    "scratch"                  `ScratchMount`  a daemon                   gone at the end, unless committed as a volume

`mount_of` chooses the class, once, from the registry entry. Differences between the kinds are
methods or properties of the class: callers never check the kind. `new_mounts` makes mounts;
`used_mount` records which object of this process uses one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from cowfs.api.mounts.folder import FolderMount
from cowfs.api.mounts.fuse import FuseMount
from cowfs.api.mounts.scratch import ScratchMount
from cowfs.base.errors import InvalidStateError
from cowfs.control.live_mount import Released
from cowfs.machine.registry import MountEntry

if TYPE_CHECKING:
    from cowfs.api.mounts.summaries import MountSummary
    from cowfs.api.stores import OpenStore
    from cowfs.api.transfers.transfer_report import Target
    from cowfs.base.beneath import Root
    from cowfs.control import MountOptions
    from cowfs.control.messages import Committed, Compared, Comparison, Left, Restoration, Restored, Work
    from cowfs.store import Identity
    from cowfs.version.commit import CommitRequest, ProgressListener

__all__ = ["Mount", "Released", "fits", "mount_of", "require_mode"]


class Mount(Protocol):
    """The operations on a mount. Methods that send a request to a daemon raise UnavailableError if
    it does not answer."""

    entry: MountEntry

    # -- properties of the kind

    @property
    def mode(self) -> Literal["fuse", "copy"]:
        """The value of `MountOptions.mode` that requests this kind."""

    @property
    def way(self) -> str:
        """The name of this kind in messages."""

    @property
    def keeps_work(self) -> bool:
        """Whether uncommitted work outlives the mount."""

    @property
    def tells_names_apart(self) -> bool:
        """Whether names are known to be distinct. A local file system may treat two as one."""

    @property
    def ends_off_path(self) -> bool:
        """Whether it can still be unmounted after its directory was moved away."""

    # -- state

    def is_there(self) -> bool:
        """Whether the mount is still at its path."""

    def open_root(self) -> Root | None:
        """The root of the mount, which the caller closes. None: the mount is not at its path."""

    def is_dying(self) -> bool:
        """As `live_mount.is_dying`."""

    def is_gone(self) -> bool:
        """Whether its directory is missing, so that its work may be lost."""

    def settle(self) -> bool:
        """Completes an interrupted unmount. Call it before using the mount. False: the mount has
        ended."""

    def has_uncommitted(self) -> bool:
        """Whether there is work that is in no version."""

    def measure_work(self, store: OpenStore) -> Work | None:
        """How much work is in no version; None: none is. store: the volume's."""

    def has_left_work(self) -> bool:
        """Whether the daemon has died, so that the calling process may open the working copy."""

    def summary(self) -> MountSummary:
        """As `overview.mount_summary`."""

    # -- operations

    def commit(
        self,
        request: CommitRequest,
        progress: ProgressListener | None = None,
        *,
        target: Target | None = None,
        options: MountOptions | None = None,
    ) -> Committed:
        """Publishes the writes made before the call. A scratch publishes to the volume that it was
        found by. target: the volume and its store, with the caller's credentials; None: the store
        is opened from its URL. ReadOnlyError: the mount shows a version."""

    def commit_as(
        self, name: str | None, request: CommitRequest, progress: ProgressListener | None
    ) -> tuple[str, Committed]:
        """As `commit`. A scratch is committed as a new volume of that name (`scratch.commit`).
        Returns the volume. InvalidInputError: a name was given and the mount is no scratch."""

    def compare(self, target: Target, options: MountOptions, wanted: Comparison) -> Compared:
        """Compares a version with the mounted volume, including uncommitted changes."""

    def require_restorable(self) -> None:
        """ConflictError: nothing can be restored into this mount."""

    def restore(self, wanted: Restoration) -> Restored:
        """Restores files of a version into the working copy of the mounted volume."""

    def feed(self, identity: Identity) -> None:
        """Supplies the mount with credentials as long as this process lives."""

    def require_work_at(self, place: Path, meta_dir: Path) -> None:
        """A check before the mount of a volume is shared. InvalidStateError: its work is not at
        `place`, below meta_dir."""

    # -- ending

    def require_nothing_lost(self) -> None:
        """InvalidStateError: unmounting would drop uncommitted work."""

    def unmount(self, *, force: bool = False) -> Left:
        """Unmounts and keeps uncommitted work. ConflictError while it is in use. force: unmount
        also while in use, and kill a daemon that does not answer. UnavailableError: the daemon
        cannot be killed, or its mount stays."""

    def release(self, *, force: bool = False) -> Released:
        """Ends a mount whose work has been published. It does not raise: the result reports
        errors."""

    def leave(self) -> None:
        """Ends a mount at the end of a block that has nothing to publish. ConflictError: it is in
        use and keeps no work. CowfsError: it may still be mounted."""

    def discard(self, *, force: bool = False, store: OpenStore | None = None) -> None:
        """Unmounts and drops uncommitted work for good. store: the volume's, as for `commit`."""

    def drop_work(self, store: OpenStore) -> None:
        """As `discard`, for a mount that is made anew at the same path."""

    def drop_silent(self) -> bool:
        """Kills a daemon that does not answer, if no work outlives the mount. Returns whether it
        was killed; the caller then detaches the mount from its path."""

    # -- messages

    def describe_interrupted_commit(self, name: str | None) -> str:
        """The outcome, in words, of a commit under that name whose caller was interrupted."""

    def describe_interrupted_unmount(self) -> str: ...

    def describe_late_writes(self) -> str:
        """What happens, in words, to late writes by programs that still have files open after a
        commit has unmounted."""


_KINDS: dict[str, type[FuseMount | FolderMount]] = {
    "fuse": FuseMount,
    "folder": FolderMount,
    "scratch": ScratchMount,
}


def mount_of(entry: MountEntry) -> Mount:
    return _KINDS[entry.kind](entry)


def fits(entry: MountEntry, options: MountOptions) -> bool:
    """Whether the mount is of a kind that the mode allows."""
    return options.mode in ("auto", mount_of(entry).mode)


def require_mode(entry: MountEntry, options: MountOptions) -> None:
    """InvalidStateError: the existing mount is of another kind than the requested one."""
    if not fits(entry, options):
        raise InvalidStateError(
            f"volume {entry.volume!r} is mounted {mount_of(entry).way} at {entry.mount_path}",
            hint="Unmount it first, or leave the mode out.",
        )
