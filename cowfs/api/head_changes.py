"""Changes on top of a volume's newest version, without a mount: applied to the version, then
published as the next one, all or nothing.

    version the caller has seen (seen) ── changes ──▶ next version
    meanwhile somebody else has published (head):
        nothing that the changes touch differs between seen and head    they are applied to head instead
        something does                                                  ConflictError; nothing is published

A scratch session does the work: it needs no lease while files are written, and leaves nothing when
its process is killed. It adopts the volume for the commit, which takes the lease for as long as
that lasts. So machines take turns for the commit alone. Another commit without a mount is waited
for; a mount is not, since it may last.

Each attempt has the lock of the volume's working copy from its beginning, as an upload does: no
process of this machine opens the volume beside it. Whether one has left work there is asked before,
and again behind the lease, when nobody can begin any.

What the changes touch is compared by inode, size and times: every change of a file changes one. Of
a path that symbolic links are on, it is where they lead, and that they lead there.
"""

from __future__ import annotations

import math
import os
import socket
import stat
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cowfs import apart, clock, log
from cowfs import store as stores_layer
from cowfs.api import copied_stores, file_access, file_session, kept_work, stores, tree_publishing
from cowfs.api.file_access import SessionAccess
from cowfs.api.file_session import FileSession
from cowfs.api.files import RWFiles
from cowfs.api.path_errors import NOTHING_THERE
from cowfs.api.rw_volume import RWVolume
from cowfs.api.transfer_report import Target
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import ConflictError, InvalidStateError, LeaseHeldError, LeaseLostError
from cowfs.ids import VersionId
from cowfs.machine import registry, scratch
from cowfs.machine.lock import LockHolder
from cowfs.machine.reservation import PATIENCE_S
from cowfs.machine.working_copy import WorkingCopy
from cowfs.values import dataclass
from cowfs.version import volumes
from cowfs.version.commit import Base, CommitRequest

if TYPE_CHECKING:
    from cowfs.native import Attr
    from cowfs.session.files import Files
    from cowfs.session.opened_file import FileTree, OpenedFile
    from cowfs.session.session import Session

WAIT_S = 150.0
"""For other commits without a mount: each ends by itself, or its lease expires after 120 s."""
SHORTEST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5

_log = log.get("volume")


@dataclass(frozen=True)
class Change:
    """One change. touches: the paths whose content it replaces or removes, from the root on without
    a leading "/"; with everything below."""

    touches: Sequence[bytes]
    apply: Callable[[RWFiles], None]


def seen_now(store: stores.OpenStore, volume: str) -> VersionId | None:
    """The volume's newest version. NotFoundError: no such volume."""
    return volumes.read_head(store.objects, volume).version


def publish(
    store: stores.OpenStore,
    volume: str,
    seen: VersionId | None,
    changes: Iterable[Change],
    request: CommitRequest,
) -> Base:
    """The version that has the changes. ConflictError: somebody has changed the same paths since
    `seen`. LeaseHeldError: the volume is mounted. InvalidStateError: it has uncommitted work on
    this machine, which would be left behind."""
    stores_layer.require_writable(store.record)
    scratch.sweep()
    changes = list(changes)
    key = file_access.key_of(store.record.store_id, volume)
    end_s, pause_s, notice = clock.monotonic_s() + WAIT_S, SHORTEST_PAUSE_S, Notice()
    while True:
        try:
            with file_session.alone(key):  # threads of this process take turns, or each would undo the others' work
                return apart.run(partial(_published, store, volume, seen, changes, request))
        except LeaseHeldError as error:
            if not ends_soon(error, key) or clock.monotonic_s() > end_s:
                entry = copied_stores.find_mount(store, volume)
                if entry is not None:
                    error.set_hint(f"It is mounted here: write to {entry.mount_path}, or commit and unmount it first.")
                raise
            notice.give(error)
        except _HeadMovedError as error:
            if clock.monotonic_s() > end_s:
                if isinstance(error.why, LeaseLostError):
                    error.why.set_hint("Nothing was changed. Do it again.")
                raise error.why from None
        clock.sleep_s(pause_s * (0.5 + clock.random_bytes(1)[0] / 256))
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


class _HeadMovedError(Exception):
    """Nothing is published."""

    def __init__(self, why: ConflictError | LeaseLostError) -> None:
        super().__init__(why)
        self.why = why


def _published(
    store: stores.OpenStore, volume: str, seen: VersionId | None, changes: Sequence[Change], request: CommitRequest
) -> Base:
    named = RWVolume(store.storage or store.url, volume, "existing")
    _require_no_work(store, volume)
    with _locked(store, volume) as locked:
        head = seen_now(store, volume)
        with _scratch(store, volume, head) as session:
            if head != seen:
                _require_apart(store, volume, seen, session.files, changes)
            files = RWFiles(_Within(session), named._committed_version, named)
            for change in changes:
                apart.require_wanted()
                change.apply(files)
            try:
                assert session.scratch is not None
                session.scratch.adopt(volume)
                _require_no_work(store, volume, locked)
                return session.commit(request)
            except (ConflictError, LeaseLostError) as error:
                raise _HeadMovedError(error) from error


@contextmanager
def _locked(store: stores.OpenStore, volume: str) -> Iterator[WorkingCopy]:
    """The volume's working copy, which nobody else on this machine can open during the block.
    LeaseHeldError: somebody has. One that was made for this goes at the end."""
    working_copy = copied_stores.locate(store, volume)
    was_there = working_copy.path.exists()
    place = tree_publishing.writing(Target(volume, store, working_copy)).place
    with working_copy.lock(LockHolder.this_process(place)):
        try:
            yield working_copy
        finally:
            if not was_there and not working_copy.exists and not working_copy.has_remains:
                working_copy.delete()


class _Within(SessionAccess):
    """The files of a session that outlives every call."""

    def __init__(self, session: Session) -> None:
        self._files = session.files

    @contextmanager
    def tree(self) -> Iterator[FileTree]:
        yield self._files

    def open(self, opens: Callable[[FileTree], OpenedFile]) -> tuple[OpenedFile, FileSession | None]:
        return opens(self._files), None


@contextmanager
def _scratch(store: stores.OpenStore, volume: str, version: VersionId | None) -> Iterator[Session]:
    from cowfs.session.opening import open_session

    spec = SessionSpec(
        store_url=store.url,
        volume=volume,
        mode="scratch",
        version=version.hex() if version is not None else None,
        options=replace(MountOptions(), resident=False).resolved(),
        working_copy=str(scratch.locate(registry.new_id(), volume).path),
    )
    with ExitStack() as stack:
        session = open_session(spec, stack, threading.Event(), access=store.access)
        session.wait_patiently()
        yield session


class Notice:
    """Says once that another writer is waited for, if it takes long."""

    def __init__(self) -> None:
        self._from_s = clock.monotonic_s() + PATIENCE_S

    def give(self, error: LeaseHeldError) -> None:
        if clock.monotonic_s() >= self._from_s:
            self._from_s = math.inf
            _log.warning("%s; waiting until that ends, at most %.0f s", error.message, WAIT_S)


def ends_soon(error: LeaseHeldError, key: Hashable) -> bool:
    """Not a mount, and not what this process itself has open by `files`, under that key."""
    is_mount = str(error.details.get("where", "/")).startswith("/")
    host = error.details.get("host", socket.gethostname())  # of a lock it is not told
    is_ours = error.details.get("pid") == os.getpid() and host == socket.gethostname()
    return not is_mount and not (is_ours and file_session.find(key) is not None)


def _require_no_work(store: stores.OpenStore, volume: str, locked: WorkingCopy | None = None) -> None:
    """locked: whose lock this process has. What another one has open is not kept yet: it may still
    commit that."""
    entry = copied_stores.find_mount(store, volume)
    if entry is not None and entry.is_copy:  # which has no lease: its commit would come too late
        raise LeaseHeldError(
            f"volume {volume!r} is mounted as a copy at {entry.mount_path}",
            hint="Write there, or commit and unmount it first.",
            details={"where": entry.mount_path},
        )
    working_copy = copied_stores.locate(store, volume)
    kept_work.require_all(working_copy, store)
    is_open = working_copy.holder() is not None and (locked is None or locked.path != working_copy.path)
    if working_copy.is_kept and not is_open:
        raise InvalidStateError(
            f"volume {volume!r} has uncommitted work on this machine, which could not be committed any more",
            hint=f"Publish it first (`cowfs commit {volume}`, commit()), or drop it (`cowfs unmount {volume} --discard`, "
            "discard()).",
        )


def _require_apart(
    store: stores.OpenStore, volume: str, seen: VersionId | None, now: Files, changes: Sequence[Change]
) -> None:
    touched = {path for change in changes for path in change.touches}
    if seen is None:
        before = dict.fromkeys(touched)
    else:
        held = file_access.of_version(store, volume, seen.hex(), b"")
        with held.used() as session:
            before = {path: _identity(session.files, path) for path in touched}
    for path in sorted(touched):
        if _identity(now, path) != before[path]:
            raise ConflictError(
                f"somebody else has changed {path.decode(errors='backslashreplace')!r} in volume {volume!r} meanwhile",
                hint="Nothing was published. Look at the newest version, and write again.",
                details={"path": path.decode(errors="backslashreplace")},
            )


def _identity(files: Files, path: bytes) -> list[Any] | None:
    """Equal as long as nobody has changed anything at or below the path, and it leads to the same;
    None: nothing is there."""
    try:
        at = files.follow(path)
        attr = files.stat(at)
    except OSError as error:
        if error.errno not in NOTHING_THERE:
            raise
        return _of_name(files, path)
    below = files.walk(at) if stat.S_ISDIR(attr.mode) else iter(())
    return [at, _of_name(files, path), _of(b"", attr), *(_of(name, each) for name, each in below)]


def _of_name(files: Files, path: bytes) -> list[Any] | None:
    """Of a link itself, which may lead nowhere."""
    try:
        return [_of(b"", files.stat(path))]
    except (FileNotFoundError, NotADirectoryError):
        return None


def _of(name: bytes, attr: Attr) -> tuple[Any, ...]:
    """The time of a directory changes with what is in it, which counts by itself."""
    content = None if stat.S_ISDIR(attr.mode) else (attr.size, attr.ctime_ns)
    return name, attr.ino, attr.mode, content
