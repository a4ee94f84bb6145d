"""A volume's working copy on this machine: uncommitted work that outlives mounts, daemons and
reboots.

    <state dir>/working/<first 16 hex of store id>-<volume name>/
        lock             flock held by the daemon for its lifetime (lock.py)
        state.json       what journal and staging stand on (state.py)
        journal/ staging/  the engine's
        ballast          space set aside for leaving a full disk (native/staging/src/ballast.rs)
        uploads          packs uploaded and not yet in a version (version/publish/uploads.py)
        imported         objects that an import under way has read (transfer/imports/import_log.py)
        copy.*           of a mount without FUSE: then the work is in a folder, and there is no journal (folders/folder.py)
        stale            what the kernel may know of paths that a restore is changing (daemon/stale_names.py)
        left             why a daemon ended the mount by itself (left_notes.py)
        daemon.log

Guarantees: at most one process holds the lock; the state changes only through `store_state`, under
the lock, and is on stable storage when that returns; a directory that `delete` has begun to remove
is never used as a working copy again, not even in part: it is renamed first, durably, and `sweep`
removes the rest. If a directory cannot be renamed, its state is deleted first. Refuses: deleting
while another process holds the lock; a first state beside the journal of a deleted one.
Nothing here reads or writes journal or staging; the engine owns both. Threads: state and lock may
be used from several.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from cowfs.base import clock, config, private_directories
from cowfs.base.errors import CowfsError, InvalidStateError, NoSpaceError, NotFoundError
from cowfs.base.failpoints import hit
from cowfs.base.hints import Command
from cowfs.base.ids import StoreId, VersionId
from cowfs.machine import lock, meta_dirs
from cowfs.machine import state as states
from cowfs.machine.folders.folder import Copy
from cowfs.machine.lock import LockHolder
from cowfs.machine.state import State

if TYPE_CHECKING:
    from cowfs.format.heads import Intent


BALLAST_STEP_BYTES = 64 << 10
JOURNAL_HEADER_BYTES = 128
"""Size of an empty journal (docs/format/journal.md)."""
_DELETED = ".deleted-"
"""Prefix of the name of a directory that is being removed."""


class WorkingCopy:
    """The directory of one working copy. Constructing does no I/O."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_path = path / "lock"
        self.state_path = path / "state.json"
        self.journal_dir = path / "journal"
        self.staging_dir = path / "staging"
        self.ballast_path = path / "ballast"
        self.uploads_path = path / "uploads"
        self.imported_path = path / "imported"
        self.log_path = path / "daemon.log"
        self._state: State | None = None
        self._lock_fd: int | None = None
        self._mutex = RLock()
        self.give_up_ballast: Callable[[], bool] = self._give_up_ballast
        """Frees a little space on a full disk; the engine's, once there is one. False: no ballast
        is left."""

    @classmethod
    def locate(
        cls,
        store_id: StoreId,
        volume: str,
        *,
        meta_dir: Path | None = None,
        is_others: Callable[[WorkingCopy], bool] = lambda _: False,
    ) -> WorkingCopy:
        """The working copy of a volume on this machine, whether it exists or not.

        Without meta_dir: of all known places the first with uncommitted work, else the first with a
        working copy. Places for which is_others returns True come last.
        """
        if meta_dir is not None:
            return cls(working_root(meta_dir) / _name(store_id, volume))
        known = cls.list_places(store_id, volume)
        found = [copy for copy in known if (copy.exists or copy.has_remains) and not is_others(copy)]
        if len(found) == 1:
            return found[0]  # looking for work in it takes longer
        return next((copy for copy in found if copy.is_kept), next(iter(found), known[0]))

    @classmethod
    def list_places(cls, store_id: StoreId, volume: str) -> list[WorkingCopy]:
        """Every place where this machine may have work of the volume: the state directory, and
        those of mounts with a meta_dir."""
        name = _name(store_id, volume)
        remembered = [path for path in meta_dirs.list_remembered() if path.name == name]
        return [cls(path) for path in (working_root() / name, *remembered)]

    @property
    def volume(self) -> str:
        return self.path.name.partition("-")[2]

    @property
    def copy(self) -> Copy | None:
        """The folder with the work, if this is the working copy of a copy."""
        found = Copy(self.path)
        return found if found.exists else None

    # -- lock

    @contextmanager
    def lock(self, holder: LockHolder, held: int | None = None) -> Iterator[None]:
        """Holds the working copy for the calling process; makes its directory. held: a descriptor
        with which a process before has held it, and which is taken over.

        LeaseHeldError (details: who, where, since, pid) when another process has it,
        AccessDeniedError when the directory cannot be made or written.
        """
        with self._mutex:
            if self._lock_fd is not None:
                raise InvalidStateError(f"{self.path} is locked by this object already", hint="Release it first.")
            if held is None:
                self._lock_fd = lock.acquire(self.lock_path, holder, volume=self.volume)
            else:
                self._lock_fd = lock.take_over(self.lock_path, held, holder, volume=self.volume)
            self._state = None
        try:
            private_directories.require(self.path.parent)  # the directory itself may be a user's link
            for directory in (self.journal_dir, self.staging_dir):
                lock.make_directory(directory)
            yield
        finally:
            with self._mutex:
                fd, self._lock_fd = self._lock_fd, None
                lock.release(fd)

    def share_lock(self) -> int:
        """The descriptor that holds the lock, for a process that keeps it for the next one."""
        with self._mutex:
            assert self._lock_fd is not None, "lock comes first"
            return self._lock_fd

    def mark_ending(self) -> None:
        """The mount has ended: a process that wants to lock the working copy waits until this
        process has released it, instead of being refused."""
        with self._mutex:
            if self._lock_fd is not None:
                lock.mark_ending(self._lock_fd)

    def mark_ready(self) -> None:
        """As `lock.mark_ready`."""
        with self._mutex:
            if self._lock_fd is not None:
                lock.mark_ready(self._lock_fd)

    def holder(self) -> LockHolder | None:
        """The holder of the lock, determined without touching the lock; None: it is free."""
        return lock.holder(self.lock_path)

    def remember_place(self) -> None:
        """Records the place, so that this machine finds it without a meta_dir. Call it once it
        exists."""
        if self.path.parent != working_root():
            meta_dirs.remember(self.path)

    # -- state

    @property
    def exists(self) -> bool:
        """Whether there is a state to mount from."""
        return config.is_there(self.state_path)

    @property
    def state(self) -> State:
        """The state on disk, read once. NotFoundError: there is none. InvalidStateError: there is
        work without a state. UnsupportedFormatError: a newer cowfs wrote it."""
        with self._mutex:
            if self._state is None:
                if self.has_remains:
                    raise self._remains()
                self._state = states.load(self.state_path).as_moved(self.volume)
            return self._state

    @property
    def base(self) -> tuple[VersionId | None, int]:
        """The version that it stands on, and the number of its head; (None, 0) if it does not
        exist."""
        return (self.state.base_version, self.state.head_number) if self.exists else (None, 0)

    @property
    def left_epoch(self) -> int | None:
        """The epoch of the last lease that was taken with this working copy, if our lock proves
        that its holder is gone. The lock must be held."""
        assert self._lock_fd is not None, "lock comes first"
        return self.state.epoch if lock.excludes_all(self._lock_fd) else None

    @property
    def may_have_uncommitted(self) -> bool:
        """Whether there may be uncommitted work: the journal of an uncommitted layer has records,
        or the folder of a copy differs.

        Never wrongly False. Also True for records without effect, and for a commit whose outcome is
        not known yet.
        """
        if not self.exists:
            return self.has_remains
        copy = self.copy
        is_changed = copy is not None and copy.differs(self.state.base_version)
        return is_changed or self.state.intent is not None or self.has_records

    @property
    def has_records(self) -> bool:
        """Whether the journal of an uncommitted layer has records."""
        return self.exists and any(
            layer > self.state.committed_layer and size_bytes > JOURNAL_HEADER_BYTES
            for layer, size_bytes in self._journals()
        )

    @property
    def has_remains(self) -> bool:
        """Whether a journal has records, and no state names the version that they are based on."""
        if self.exists or not any(size_bytes > JOURNAL_HEADER_BYTES for _, size_bytes in self._journals()):
            return False
        return not self.exists  # a first mount may have made it meanwhile, and then written

    def _remains(self) -> InvalidStateError:
        where: list[str | Path] = [] if self.path.parent == working_root() else ["--meta-dir", self.path.parent.parent]
        return InvalidStateError(
            f"{self.path} has uncommitted work, but its state.json, which says on which version that stands, is gone",
            hint=f"Restore the file, if there is a copy of it. Else move the directory away to keep its work, or drop the work: "
            f"{Command('unmount', self.volume, '--discard', *where)}, discard().",
        )

    def without_base(self, why: NotFoundError) -> NotFoundError:
        """The error if the store no longer has the base version of the work: the place of the work,
        and possible steps."""
        state, copy = self.state, self.copy
        place = copy.record.mount_path if copy is not None else self.path
        name, version = state.volume, f"{state.volume}@{str(state.base_version)[:12]}"
        return NotFoundError(
            f"{why.message}. Uncommitted work of volume {name!r}, which stands on that version, is kept on this machine, in {place}",
            hint="The store may have been put back to an earlier state: make the later one available again, and repeat this. Or it has "
            f"lost something: {Command('verify')}, Store().verify(), shows what. Or "
            "bring the version back from another store that has it "
            f"({Command('push', version, state.store_url, '--as', 'OTHERNAME', '--store', 'OTHERSTORE')}, "
            "Store().push()): then a mount shows the work, to be copied out of it. If the version is gone for "
            f"good, {Command('unmount', name, '--discard')}, discard(), drops the work.",
            details={**why.details, "working_copy": str(self.path)},
        )

    @property
    def is_kept(self) -> bool:
        """Whether to expect work here: uncommitted, unreadable, or in a place that is not
        reachable now."""
        try:
            return self.is_out_of_reach or self.may_have_uncommitted
        except CowfsError:
            return True

    @property
    def is_out_of_reach(self) -> bool:
        """Whether its place is remembered but missing now: its disk is not attached, or the
        directory was removed."""
        return not config.is_there(self.path) and self.path in meta_dirs.list_remembered()

    def _journals(self) -> list[tuple[int, int]]:
        """(layer, size) of each journal and of each checkpoint, which replaces the journals up to
        its layer; the engine removes those of committed layers when it opens."""
        found = []
        for path in (path for path in config.list_directory(self.journal_dir) if path.suffix in (".log", ".ckpt")):
            with contextlib.suppress(FileNotFoundError, ValueError):
                found.append((int(path.stem, 16), path.stat().st_size))
        return found

    def make_room(self) -> None:
        """Frees half of the ballast for a mount on a full disk; the engine takes the space back
        when it can."""
        with contextlib.suppress(FileNotFoundError):
            held_bytes = self.ballast_path.stat().st_size
            found = os.statvfs(self.path)
            if found.f_bavail * found.f_frsize < held_bytes:
                os.truncate(self.ballast_path, held_bytes // 2)

    def _give_up_ballast(self) -> bool:
        """Call it before an engine has the file: while one is open, it does not notice the
        change."""
        try:
            held_bytes = self.ballast_path.stat().st_size
            os.truncate(self.ballast_path, held_bytes - min(held_bytes, BALLAST_STEP_BYTES))
        except OSError:
            return False
        return held_bytes > 0

    def clear_remains(self) -> None:
        """Before the first state, under the lock: durably removes the unused files of an engine.
        Older cowfs left them when a deletion was interrupted. InvalidStateError: they hold work,
        and no state names the version that it is based on.
        """
        if self.has_remains:
            raise self._remains()
        if self.exists:
            return
        for directory in (self.journal_dir, self.staging_dir):
            for path in config.list_directory(directory):
                path.unlink()
            states.sync_directory(directory)

    def create_if_absent(self, state: State) -> None:
        """Makes the first state unless there is one. Needs no lock: of several creators one wins,
        durably.

        The lock must not be taken meanwhile, or racing mounts could refuse each other and none
        would win.
        """
        lock.make_directory(self.path)
        private_directories.require(self.path.parent)
        states.store_if_absent(self.state_path, state)
        states.sync_directory(self.path.parent)

    def store_state(self, state: State) -> None:
        """Replaces the state, durably. The lock must be held."""
        with self._mutex:
            if self._lock_fd is None:
                raise InvalidStateError(f"{self.path} is not locked", hint="Hold lock() while changing the state.")
            while True:
                try:
                    states.store(self.state_path, state)
                    break
                except NoSpaceError:
                    if not self.give_up_ballast():
                        raise
            self._state = state

    def record_lease(self, epoch: int, pin: str | None) -> None:
        with self._mutex:
            self.store_state(replace(self.state, epoch=epoch, pin=pin))

    def record_intent(self, intent: Intent) -> None:
        """Call it before head `intent.number` is put."""
        with self._mutex:
            self.store_state(replace(self.state, intent=intent))

    def record_published(self, intent: Intent) -> None:
        """Moves the base to the intent's version; its layer's journal may be deleted. A version of
        the same tree has layer 0: no layer."""
        with self._mutex:
            self.store_state(
                replace(
                    self.state,
                    head_number=intent.number,
                    base_version=intent.version_id,
                    committed_layer=max(self.state.committed_layer, intent.layer),
                    intent=None,
                )
            )

    def drop_intent(self) -> None:
        """The head at the intent's number is not ours, or does not exist: the layer stays
        uncommitted."""
        with self._mutex:
            self.store_state(replace(self.state, intent=None))

    def drop_work(self) -> None:
        """Drops the work of the journal, in one step: its layers count as committed, and the next
        engine removes them. A commit whose outcome is unknown is still to be settled."""
        with self._mutex:
            last = max((layer for layer, _ in self._journals()), default=0)
            self.store_state(replace(self.state, committed_layer=max(self.state.committed_layer, last)))

    def note_restore(self, name: str) -> None:
        """Call it before the directory of that name is made."""
        with self._mutex:
            self.store_state(replace(self.state, restoring=(*self.state.restoring, name)))

    def forget_restores(self, names: Iterable[str]) -> None:
        """Call it once the directories are durably deleted."""
        with self._mutex:
            gone = frozenset(names)
            left = tuple(name for name in self.state.restoring if name not in gone)
            if left != self.state.restoring:
                self.store_state(replace(self.state, restoring=left))

    def rebase(self, head_number: int, base_version: VersionId | None) -> None:
        """Moves a working copy without uncommitted work to a newer head."""
        with self._mutex:
            moved = replace(self.state, head_number=head_number, base_version=base_version, intent=None)
            self.store_state(moved)

    def sibling(self, volume: str) -> WorkingCopy:
        """The working copy of another volume of the same store, in the same directory."""
        return WorkingCopy(self.path.with_name(f"{self.path.name.partition('-')[0]}-{volume}"))

    def move_to(self, other: WorkingCopy, head_number: int) -> None:
        """Moves this working copy's work to another volume with the same base version. `other` must
        not exist, and must come from `sibling`.

        For work whose own line was taken over. The lock must be free, otherwise LeaseHeldError.
        After a crash the work is complete in one of the two volumes.
        """
        with self.lock(LockHolder.make_brief(f"(moving {self.path})")):
            moving = replace(self.state, moving=(other.volume, head_number))
            states.store(self.state_path, moving)
            other.remember_place()
            hit("work-moving")
            self.path.rename(other.path)
            self._state = None
            hit("work-moved")
            states.sync_directory(other.path.parent)
            states.store(other.state_path, moving.as_moved(other.volume))
            meta_dirs.forget(self.path)

    @property
    def interrupted_move(self) -> tuple[str, str] | None:
        """The old and the new volume of the work, if `move_to` was killed; `volume` shows how far
        it came."""
        state = states.load(self.state_path)
        return (state.volume, state.moving[0]) if state.moving is not None else None

    def end_move(self) -> None:
        """Completes a `move_to` that was killed after everything had moved."""
        with self.lock(LockHolder.make_brief(f"(moving {self.path})")):
            before = self.sibling(states.load(self.state_path).volume)
            states.store(self.state_path, self.state)
            if not config.is_there(before.path):
                meta_dirs.forget(before.path)

    def delete(self) -> None:
        """Drops the working copy and all uncommitted work in it. LeaseHeldError: another process
        holds it."""
        if self._lock_fd is not None:
            self._delete_locked()
        elif self.path.exists():
            with self.lock(LockHolder.make_brief(f"(discarding {self.path})")):
                self._delete_locked()

    def delete_if_committed(self) -> None:
        """Deletes a working copy whose work is all in versions. One that is in use, has uncommitted
        work, or cannot be read stays."""
        if not self.exists:
            return
        with contextlib.suppress(CowfsError, OSError), self.lock(LockHolder.make_brief(f"(tidying {self.path})")):
            if self.copy is None and not self.may_have_uncommitted and self.state.pin is None:
                self._delete_locked()

    def _delete_locked(self) -> None:
        if (copy := self.copy) is not None:
            copy.remove()
        meta_dirs.forget(self.path)
        self._state = None
        deleted = self._rename_away()
        hit("work-deleted")
        _remove(deleted)

    def _rename_away(self) -> Path:
        """The directory to remove, renamed. It keeps its name if it is a user's link, a mount, or
        part of a container's image."""
        deleted = self.path.with_name(f"{_DELETED}{clock.random_bytes(8).hex()}")
        if self.path.is_symlink():
            return self.path
        try:
            self.path.rename(deleted)
        except OSError:
            return self.path
        states.sync_directory(deleted.parent)
        return deleted


def working_root(meta_dir: Path | None = None) -> Path:
    """The directory of all working copies; meta_dir replaces the state directory."""
    return private_directories.require((meta_dir or config.state_dir()) / "working")


def list_working_copies(meta_dir: Path | None = None) -> list[WorkingCopy]:
    """Working copies on this machine, by name, and unreachable ones. Directories with neither a
    state nor work are left out."""
    found = config.list_directory(working_root(meta_dir))
    remembered = meta_dirs.list_remembered()
    elsewhere = sorted({*remembered} - {*found}) if meta_dir is None else []
    copies = [WorkingCopy(path) for path in (*found, *elsewhere) if not path.name.startswith(_DELETED)]
    out_of_reach = {path for path in remembered if not config.is_there(path)}
    return [each for each in copies if each.exists or each.has_remains or each.path in out_of_reach]


def sweep(root: Path) -> None:
    """Removes the remains of interrupted deletions of working copies in that directory."""
    with contextlib.suppress(CowfsError):  # it cannot be listed
        for path in config.list_directory(root):
            if not path.name.startswith(_DELETED) or path.is_symlink() or lock.is_held(path / "lock"):
                continue
            with contextlib.suppress(OSError):
                _remove(path)


def _remove(path: Path) -> None:
    """Removes the state first, durably, and the lock last: an interrupted removal must not look
    like a working copy, and another process must not lock it meanwhile."""
    (path / "state.json").unlink(missing_ok=True)
    states.sync_directory(path)
    for entry in sorted(path.iterdir(), key=lambda entry: entry.name == "lock"):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # made again at this moment, or a link or a mount
        path.rmdir()


def _name(store_id: StoreId, volume: str) -> str:
    return f"{store_id.hex()[:16]}-{volume}"
