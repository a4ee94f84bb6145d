"""Changes on top of a volume's newest version, without a mount: applied to the version, then
published as the next one, all or nothing.

    version the caller has seen (seen) ── changes ──▶ next version
    meanwhile another writer has published (head):
        the touched paths are equal in seen and head    the changes are applied to head instead
        a touched path differs                          ConflictError; nothing is published

A scratch session does the work. It needs no lease while files are written, and leaves nothing
behind if its process is killed. For the commit it adopts the volume and takes the lease until the
commit ends. Machines therefore take turns for the commit alone. The session waits for another
commit without a mount; it does not wait for a mount, which may last.

Each attempt holds the lock of the volume's working copy from its beginning, as an upload does, so
no other process of this machine can open the volume. The attempt checks for uncommitted work before
it starts, and again under the lease, when no new work can begin.

Touched paths are compared by inode, size and times: every change of a file changes one of them. If
a path contains symbolic links, their targets and the links themselves are compared.
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cowfs import store as stores_layer
from cowfs.api import files as blocking_files
from cowfs.api import stores
from cowfs.api.access import file_access, file_session
from cowfs.api.access.file_access import TreeAccess
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.mounts import folder, kept_work
from cowfs.api.provenance import commit_request
from cowfs.api.transfers import tree_publishing
from cowfs.api.transfers.path_errors import NOTHING_THERE
from cowfs.api.transfers.transfer_report import Target
from cowfs.api.twins.one_type import OneType
from cowfs.api.upkeep import copied_stores
from cowfs.api.versions import waiting
from cowfs.api.versions.labels import Labels
from cowfs.base import clock, interruptible, log
from cowfs.base.errors import ConflictError, InvalidStateError, LeaseHeldError, LeaseLostError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.control import MountOptions, SessionSpec
from cowfs.machine import registry, scratch_directories
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version.commit import Base, CommitRequest
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.native import Attr
    from cowfs.session.files import Files
    from cowfs.session.session import Session

_log = log.get("volume")


@dataclass(frozen=True)
class Change:
    """One change. touches: the paths whose content it replaces or removes, with everything below
    them; from the root, without a leading "/"."""

    touches: Sequence[bytes]
    apply: Callable[[blocking_files.RWFiles], None]


class VolumeChanges(metaclass=OneType):
    """Changes of a volume's files that become its next version, all or none, as `Store.changes`
    begins them. They are on top of the version that was newest then. Threads: one."""

    def __init__(self, store: stores.OpenStore, volume: str) -> None:
        self._store = store
        self._volume = volume
        self._seen = seen_now(store, volume)
        self._changes: list[Change] = []

    def add(self, touches: Sequence[bytes], apply: Callable[[blocking_files.RWFiles], None]) -> None:
        """Adds a change; nothing is done before `publish`. touches: the paths whose content it
        replaces or removes, with everything below them; from the root, without a leading "/".
        apply: makes the change in the files that it is given, which are those of the volume with
        the changes before it, and blocking ones. It may be called several times."""
        self._changes.append(Change(touches, apply))

    def publish(self, message: str = "", *, author: str | None = None, labels: Labels | None = None) -> None:
        """Publishes them as one version; without changes, nothing. ConflictError: another writer
        has changed the same paths since. LeaseHeldError: the volume is mounted. InvalidStateError:
        it has uncommitted work on this machine, which would be left behind."""
        if self._changes:
            publish(self._store, self._volume, self._seen, self._changes, commit_request(message, author, None, labels))


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
    """Publishes a version with the changes. ConflictError: another writer has changed the same
    paths since `seen`. LeaseHeldError: the volume is mounted. InvalidStateError: it has uncommitted
    work on this machine, which would be left behind."""
    stores_layer.require_writable(store.record)
    scratch_directories.sweep()
    changes = list(changes)
    key = file_session.key_of(store.record.store_id, volume)
    end_s, pause_s, notice = clock.monotonic_s() + waiting.WAIT_S, waiting.SHORTEST_PAUSE_S, waiting.Notice()
    while True:
        try:
            with file_session.alone(key):  # threads of this process take turns, or each would undo the others' work
                return interruptible.run(partial(_publish, store, volume, seen, changes, request))
        except LeaseHeldError as error:
            if not waiting.ends_soon(error, key) or clock.monotonic_s() > end_s:
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
        pause_s = min(pause_s * 2, waiting.LONGEST_PAUSE_S)


class _HeadMovedError(Exception):
    """The head has moved; nothing is published."""

    def __init__(self, why: ConflictError | LeaseLostError) -> None:
        super().__init__(why)
        self.why = why


def _publish(
    store: stores.OpenStore, volume: str, seen: VersionId | None, changes: Sequence[Change], request: CommitRequest
) -> Base:
    handle = VolumeHandle(store.storage or store.url, volume, "existing")
    _require_no_work(store, volume)
    with _lock(store, volume) as locked:
        head = seen_now(store, volume)
        with _scratch(store, volume, head) as session:
            if head != seen:
                _require_apart(store, volume, seen, session.files, changes)
            files = blocking_files.RWFiles(TreeAccess(session.files), handle)
            for change in changes:
                interruptible.require_wanted()
                change.apply(files)
            try:
                assert session.scratch is not None
                session.scratch.adopt(volume)
                _require_no_work(store, volume, locked)
                return session.commit(request)
            except (ConflictError, LeaseLostError) as error:
                raise _HeadMovedError(error) from error


@contextmanager
def _lock(store: stores.OpenStore, volume: str) -> Iterator[WorkingCopy]:
    """Locks the volume's working copy, so that no other process of this machine can open it during
    the block. LeaseHeldError: another process has it open. A working copy created for this is
    removed at the end."""
    working_copy = copied_stores.locate(store, volume)
    was_there = working_copy.path.exists()
    place = tree_publishing.writing(Target(volume, store, working_copy)).place
    with working_copy.lock(LockHolder.this_process(place)):
        try:
            yield working_copy
        finally:
            if not was_there and not working_copy.exists and not working_copy.has_remains:
                working_copy.delete()


@contextmanager
def _scratch(store: stores.OpenStore, volume: str, version: VersionId | None) -> Iterator[Session]:
    from cowfs.session.opening import open_session

    spec = SessionSpec(
        store_url=store.url,
        volume=volume,
        mode="scratch",
        version=version.hex() if version is not None else None,
        options=replace(MountOptions(), resident=False).resolved(),
        working_copy=str(scratch_directories.locate(registry.new_id(), volume).path),
    )
    with ExitStack() as stack:
        session = open_session(spec, stack, threading.Event(), access=store.access)
        session.wait_patiently()
        yield session


def _require_no_work(store: stores.OpenStore, volume: str, locked: WorkingCopy | None = None) -> None:
    """InvalidStateError: there is uncommitted work. locked: the working copy whose lock this
    process holds. Work that another process has open does not count: that process may still commit
    it."""
    entry = copied_stores.find_mount(store, volume)
    folder.require_unmounted(entry)
    working_copy = copied_stores.locate(store, volume)
    kept_work.require_all(working_copy, store)
    is_open = working_copy.holder() is not None and (locked is None or locked.path != working_copy.path)
    if working_copy.is_kept and not is_open:
        raise InvalidStateError(
            f"volume {volume!r} has uncommitted work on this machine, which could not be committed any more",
            hint=f"Publish it first ({Command('commit', volume)}, commit()), or drop it ({Command('unmount', volume, '--discard')}, "
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
    """A value that stays equal while the path and everything below it are unchanged and its links
    lead to the same place; None: nothing is there."""
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
    """The identity of a link itself, which may lead nowhere."""
    try:
        return [_of(b"", files.stat(path))]
    except (FileNotFoundError, NotADirectoryError):
        return None


def _of(name: bytes, attr: Attr) -> tuple[Any, ...]:
    """The identity of an inode. A directory's time is ignored: it changes with its entries, which
    are compared on their own."""
    content = None if stat.S_ISDIR(attr.mode) else (attr.size, attr.ctime_ns)
    return name, attr.ino, attr.mode, content
