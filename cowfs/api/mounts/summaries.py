"""Reports on mounts, working copies and dead mounts, for `cowfs status`, a web page or a
notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.base.ids import VersionId
from cowfs.base.short_repr import short_repr
from cowfs.control.messages import MountStatus, WriterStatus
from cowfs.machine.folders.folder import Copy
from cowfs.machine.mount_table import MountKind
from cowfs.machine.registry import MountEntry

GONE = "its folder is gone"
ELSEWHERE = "its folder is in another container"

if TYPE_CHECKING:
    from datetime import datetime


class _Folder:
    """What a summary tells about the folder of a copy."""

    problem: str | None

    @property
    def is_gone(self) -> bool:
        """Whether it is a copy whose folder no longer exists."""
        return self.problem == GONE

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is a copy that was made in another container and whose folder is not visible
        here."""
        return self.problem == ELSEWHERE


@short_repr
@dataclass(frozen=True)
class MountSummary(_Folder):
    """One live mount. kind: "fuse"; "folder": a copy, plain files without a daemon, where pid is
    the process that made it; "scratch": its work is lost at the end. is_detached: off its path, but
    served until the last open file is closed.

    has_uncommitted: None if its daemon does not answer, or if a copy's folder is not visible.
    problem: the reason for that. details: the daemon's whole report."""

    mount_path: str
    volume: str
    store_url: str
    version: str | None
    is_read_only: bool
    kind: MountKind
    is_detached: bool
    pid: int
    since_ns: int
    working_copy: str | None
    has_uncommitted: bool | None
    transport: str | None
    problem: str | None
    details: MountStatus | None

    @property
    def since(self) -> datetime:
        """`since_ns` as a time in UTC."""
        return clock.as_datetime(self.since_ns)

    @property
    def writer(self) -> WriterStatus | None:
        """The status of the writer, for a writable mount whose daemon answers."""
        return self.details.writer if self.details is not None else None

    @property
    def is_supervised(self) -> bool | None:
        """Whether it goes on if its daemon is killed; None: not known."""
        return None if self.details is None else self.details.unsupervised is None

    @property
    def state(self) -> str:
        """The state in one word."""
        if self.is_detached:
            return "detached"
        return "read-only" if self.is_read_only else "scratch" if self.kind == "scratch" else "writable"

    @property
    def work(self) -> str:
        """The work in a few words."""
        said = _work(self.has_uncommitted, self.problem)
        if self.problem or self.has_uncommitted is None or self.writer is None:
            return said
        if self.writer.lease_lost is not None:
            return f"{said}, lease lost"
        return f"{said}, overtaken" if self.writer.overtaken_by is not None else said


@short_repr
@dataclass(frozen=True)
class WorkingCopySummary(_Folder):
    """A working copy that no daemon serves. folder: the directory with the files of a copy. pid: of
    a process that nevertheless holds it. problem: it can't be read, is held by a process of another
    container, or its folder is missing or in another container. note: why the daemon of the last
    mount ended it by itself: the process that the mount was bound to was gone."""

    working_copy: str
    folder: str | None
    volume: str
    store_url: str | None
    version: str | None
    has_uncommitted: bool | None
    pid: int | None
    problem: str | None
    note: str | None = None

    @property
    def work(self) -> str:
        """The work in a few words."""
        return _work(self.has_uncommitted, self.problem)


@dataclass(frozen=True)
class DeadMount:
    """A mount whose daemon has died. Its work is in the volume's working copy; that of a scratch is
    lost."""

    mount_path: str
    volume: str
    store_url: str | None
    """None: not known here."""
    is_read_only: bool
    kind: MountKind


def _work(uncommitted: bool | None, error: str | None) -> str:
    if error:
        return f"? ({error})"
    return "-" if uncommitted is None else "uncommitted" if uncommitted else "committed"


def of_folder(
    entry: MountEntry, base: VersionId | None, *, uncommitted: bool | None, error: str | None
) -> MountSummary:
    """base: the version that the folder is based on."""
    version = base.hex() if base is not None else entry.version_id
    return _summary(entry, version, uncommitted=uncommitted, transport="copy", error=error)


def of_daemon(entry: MountEntry, said: MountStatus | None, error: str | None) -> MountSummary:
    """said: the daemon's report; None: it does not answer."""
    if said is None:
        return _summary(entry, entry.version_id, uncommitted=None, transport=None, error=error)
    return _summary(
        entry,
        said.version.hex() if said.version is not None else None,
        uncommitted=said.writer.is_dirty if said.writer is not None else None,
        transport=said.transport,
        error=error,
        details=said,
    )


def _summary(
    entry: MountEntry,
    version: str | None,
    *,
    uncommitted: bool | None,
    transport: str | None,
    error: str | None,
    details: MountStatus | None = None,
) -> MountSummary:
    return MountSummary(
        mount_path=entry.mount_path,
        volume=details.volume if details is not None else entry.written or entry.volume,
        store_url=entry.store_url,
        version=version,
        is_read_only=entry.read_only,
        kind=entry.kind,
        is_detached=entry.is_detached,
        pid=entry.pid,
        since_ns=entry.since_ns,
        working_copy=entry.working_copy,
        has_uncommitted=False if entry.read_only else uncommitted,
        transport=transport,
        problem=error,
        details=details,
    )


def trouble(copy: Copy) -> str | None:
    """Why its folder is not visible; None if it is. Also None while an unmount removes the folder,
    or was killed doing so, since the folder then contains no work."""
    if not copy.exists or copy.is_gone:
        return GONE
    return ELSEWHERE if copy.is_elsewhere else None
