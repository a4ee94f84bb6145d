"""One live mount as other processes see it: asks its daemon, through the registry, from whatever process.

Nothing here touches the mount point. A daemon that died between look-up and call is an UnavailableError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cowfs.control import Client, wait_gone
from cowfs.errors import ConflictError, UnavailableError
from cowfs.ids import VersionId
from cowfs.machine.registry import MountEntry

if TYPE_CHECKING:
    from cowfs.version.commit import CommitRequest, ProgressListener


STATUS_TIMEOUT_S = 10.0
END_TIMEOUT_S = 60.0


def status(entry: MountEntry) -> dict[str, Any]:
    """What the daemon says about itself."""
    found: dict[str, Any] = Client(entry.socket, timeout_s=STATUS_TIMEOUT_S).call("status")
    return found


def commit(entry: MountEntry, request: CommitRequest, progress: ProgressListener | None = None) -> VersionId:
    """Publishes what was written before the call; the version it is in."""
    result = Client(entry.socket).call("commit", on_progress=progress, **_arguments(request))
    return VersionId.from_hex(result["version"])


def unmount(entry: MountEntry, *, force: bool = False) -> None:
    """Unmounts, keeping uncommitted work, and waits until the daemon has ended. ConflictError while it is in use."""
    Client(entry.socket).call("unmount", force=force)
    _wait_ended(entry)


def unmount_or_detach(entry: MountEntry) -> None:
    """Unmounts. While files are open: takes the mount off its path; its daemon serves them until the last one is closed."""
    try:
        unmount(entry)
    except ConflictError:
        Client(entry.socket).call("detach")


def commit_and_unmount(
    entry: MountEntry, request: CommitRequest, progress: ProgressListener | None = None
) -> VersionId:
    """As commit, then unmount. ConflictError while it is in use: then the version stands, and the mount too."""
    result = Client(entry.socket).call("unmount", on_progress=progress, commit=True, **_arguments(request))
    _wait_ended(entry)
    return VersionId.from_hex(result["version"])


def discard(entry: MountEntry, *, force: bool = False) -> None:
    """Unmounts and drops uncommitted work for good."""
    Client(entry.socket).call("discard", force=force)
    _wait_ended(entry)


def _arguments(request: CommitRequest) -> dict[str, Any]:
    return {
        "message": request.message,
        "author": request.author,
        "labels": dict(request.labels),
        "produced_by": dict(request.produced_by),
    }


def _wait_ended(entry: MountEntry) -> None:
    if entry.process.is_alive and not wait_gone(entry.pid, END_TIMEOUT_S):
        raise UnavailableError(
            f"the mount daemon {entry.pid} of {entry.mount_path} has unmounted but does not end",
            hint="`cowfs status` shows it; its log says what it waits for.",
        )
