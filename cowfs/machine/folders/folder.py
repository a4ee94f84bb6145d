"""A mount without FUSE: a folder of plain files, and its record beside the folder.

    of a volume      <working copy>/copy.json, copy.stamps          the work in the folder belongs to that working copy
    of a version     <state dir>/copies/<registration>/             the same files; read-only

    copy.json        where the folder is, and the stage that it is in (copy_record.py)
    copy.stamps      what each file looked like when it was the version's (stamps.py)

    stage   filling    the version is being written into a private directory in the folder
            arriving   all files are there, and are being moved into the folder
            whole      the user works in it
            leaving    files that still match their stamps are being removed (removal.py)

Guarantees: only files that match their stamps are removed, and the folder itself only if cowfs made
it. The folder is opened once and known by its descriptor; every path in it is opened beneath that.
So a user who may write to the folder, or to a directory above it, cannot make cowfs move, write,
chmod or remove anything outside of it. A folder that is missing or was replaced (`is_there`) is
never treated as an empty one. A crash at any moment loses no file of the user: `settle` finishes an
interrupted step, `remove_filling` drops an incomplete copy.

The caller has the copy's turn (`reservation`).
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from cowfs.base import clock, config, failpoints, log
from cowfs.base import private_directories as private
from cowfs.base.beneath import DIRECTORY, Root, rename_new
from cowfs.base.errors import (
    ConflictError,
    CorruptError,
    LeaseHeldError,
    NotFoundError,
    UnsupportedFormatError,
    unreadable,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.base.quantities import format_time
from cowfs.machine import lock, makers, mount_table, syncing, used_paths
from cowfs.machine import state as states
from cowfs.machine.folders import record as copy_record
from cowfs.machine.folders import removal, stamps
from cowfs.machine.folders.record import CopyRecord
from cowfs.machine.folders.stamps import FileStamp, Stamps

_COARSE_NS = 2_000_000_000
"""The coarsest times that a file system keeps (FAT)."""
_log = log.get("copy")


@dataclass(frozen=True)
class Reading:
    """since_ns: earlier changes have no later ctime, and later ones no earlier ctime, where the
    file system keeps times as exactly as still_ns says."""

    since_ns: int
    still_ns: int

    def is_still(self, stamp: FileStamp) -> bool:
        """Whether every later change will show in the stamp. A directory is always still: it has
        only its stamp."""
        if stat.S_ISDIR(stamp.mode):
            return True
        is_exact = stamps.still_ns(stamp.ctime_ns) <= self.still_ns
        return is_exact and stamp.ctime_ns < self.since_ns


class Copy:
    """directory: holds the record and the stamps."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.record_path = directory / "copy.json"
        self.stamps_path = directory / "copy.stamps"

    @property
    def exists(self) -> bool:
        return config.is_there(self.record_path)

    @property
    def record(self) -> CopyRecord:
        """As of `copy_record.load`."""
        return copy_record.load(self.record_path)

    # -- filling

    def begin(self, root: Root, record: CopyRecord) -> Root:
        """Makes the private directory to write the version into. The record is durable before the
        directory is made."""
        private.make_unchecked(self._directory)
        self._store(record)
        failpoints.hit("copy-begun")
        return root.make_private(record.private)

    def end_filling(
        self, root: Root, private: Root, version: VersionId | None, expected: dict[bytes, tuple[int, int]]
    ) -> None:
        """Moves the content of the private directory into the folder. expected: (size, mtime_ns) of
        each path that was written; a path with other values gets no stamp, and counts as changed.
        ConflictError: the folder is no longer empty, or the file system does not show a path as it
        was written."""
        record = self.record
        sync(private)
        if others := [name for name in os.listdir(root.fileno()) if name != record.private]:
            raise ConflictError(
                f"{record.mount_path} was empty, and contains {others[0]!r} now that the copy is ready to be moved in",
                hint="Move its content elsewhere, or choose another mount path; then mount again.",
            )
        clock.sleep_s(stamps.STILL_NS / 1e9)
        found = dict(stamps.walk(private))
        if (missing := next((path for path in expected if path not in found), None)) is not None:
            raise ConflictError(
                f"{os.fsdecode(missing)!r} of the version would not be in the copy at {record.mount_path} by this name: its file "
                "system changes the name, or takes it for that of another file",
                hint="Choose a path on another file system, or mount by FUSE (mode='fuse', --mode fuse), which keeps all names.",
            )
        known = {path: each for path, each in found.items() if _is_as(each, expected.get(path))}
        stamps.store(self.stamps_path, version, known)
        self._store(replace(record, stage="arriving"))
        failpoints.hit("copy-arriving")
        self._arrive(root, private)

    def _arrive(self, root: Root, private: Root | None) -> None:
        """An entry of the same name that another process has made in the folder meanwhile stays,
        and the version's entry counts as changed."""
        record = self.record
        if private is not None:
            for name in map(os.fsencode, os.listdir(private.fileno())):
                with suppress(OSError):  # not a directory
                    removal.open_to_owner(private, name)
                rename_new(name, name, src_dir_fd=private.fileno(), dst_dir_fd=root.fileno())
                failpoints.hit("copy-arriving")
            _remove_private(root, private, record)
        self._take_top(root)
        if record.is_made:
            with suppress(PermissionError):  # a file system that shows one owner for all files
                os.fchmod(root.fileno(), record.root_mode)
                os.utime(root.fileno(), ns=(record.root_mtime_ns, record.root_mtime_ns))
        sync(root)
        failpoints.hit("copy-arrived")
        self._store(replace(record, stage="whole"))

    def _take_top(self, root: Root) -> None:
        """Stamps the moved entries anew: a move sets the time of change. Restores the modes of
        directories that had to be opened to their owner for the move."""
        known, now = stamps.load_any(self.stamps_path), Stamps()
        moved = {each.ino for path, each in known.items() if b"/" not in path and each.ino}
        _stand_still(root)
        for path, each in known.items():
            with suppress(OSError):
                if each.ino in moved:  # includes the other names of hard links
                    if (found := stamps.of_stat(root.stat(path))).is_moved(each):
                        now[path] = found
                elif b"/" not in path:
                    with root.directory(path) as fd:
                        if each.mode != os.fstat(fd).st_mode == each.mode | 0o700:
                            os.fchmod(fd, stat.S_IMODE(each.mode))
        stamps.store_moved(self.stamps_path, now)

    def remove_filling(self) -> None:
        """Removes the part of a version that was not written completely."""
        if not self.exists or self.record.stage != "filling":
            return
        record = self.record
        if (root := self.open()) is not None:
            with root:
                if (private := _open_private(root, record)) is not None:
                    with private:
                        _remove_private(root, private, record)
                _take_off(root, record)
        self.forget()

    # -- committing

    def begin_reading(self, root: Root) -> Reading:
        """Before a commit reads the folder: syncs all data that was written so far.

        The time is taken before the sync. A store through a mapping changes no time while its page
        is waiting to be written back. If a file has not changed since that time, the sync has
        written back all its pages, or they are not mapped writable; the next store changes the
        time."""
        still_ns = _stand_still(root)
        since_ns = clock.now_ns() - still_ns
        sync(root)
        return Reading(since_ns, still_ns)

    def move_base(self, version: VersionId | None, seen: Stamps, reading: Reading) -> None:
        """The content of the folder has become that version. seen: the stamp of each file when it
        was read. Files that were written to meanwhile get no stamp."""
        known = {path: each for path, each in seen.items() if reading.is_still(each)}
        stamps.store(self.stamps_path, version, known)

    # -- looking

    def open(self) -> Root | None:
        """The folder that was filled; None: it is not at its path."""
        record = self.record
        try:
            root = Root.open(record.mount_path)
        except OSError:
            return None
        if record.is_folder(root):
            return root
        root.close()
        return None

    @property
    def is_there(self) -> bool:
        """Whether the folder at the path is the folder that was filled."""
        if (root := self.open()) is None:
            return False
        root.close()
        return True

    @property
    def is_leaving(self) -> bool:
        """Whether the folder holds nothing of value any more: an unmount is deleting it, or was
        killed while deleting it."""
        return self.record.stage == "leaving"

    @property
    def is_gone(self) -> bool:
        """Whether the folder was whole and is missing now: deleted, moved, or on a disk that is not
        attached. Its content is then unknown."""
        return self.is_out_of_sight and not self.is_elsewhere

    @property
    def is_elsewhere(self) -> bool:
        """Whether the folder is not visible here but may exist where it was made: in another
        container, or on another machine."""
        return self.is_out_of_sight and makers.may_be_elsewhere(self.record.process, self.record_path)

    @property
    def is_out_of_sight(self) -> bool:
        """Whether the folder was whole and is not visible here: `is_gone` or `is_elsewhere`."""
        return self.record.stage in ("arriving", "whole") and not self.is_there

    def require_not_elsewhere(self) -> None:
        """LeaseHeldError: `is_elsewhere`, so its work may continue there."""
        if self.is_elsewhere:
            record, user = self.record, _owner(self.record_path)
            since_ns = self.record_path.stat().st_mtime_ns
            raise LeaseHeldError(
                f"volume {record.volume!r} is mounted as a copy, or has work in one, at {record.mount_path}, made by {user} in "
                f"{record.process.where}, at {format_time(since_ns, to_the_second=True)}; that folder is not visible here",
                hint=f"Go on there, or commit and unmount it there ({Command('unmount', record.volume, '--commit')}, finalize()); or "
                f"{lock.advise_fork(record.volume)}. If that container is gone, or its work is not needed, take over by a mount "
                f"here (take_over=True, {Command('mount', '--take-over')}), which begins with the last commit: that folder, if it still "
                "exists, stays as an ordinary folder.",
                details={
                    "who": f"{user} in {record.process.where}",
                    "where": record.mount_path,
                    "since": lock.time_text(since_ns),
                },
            )

    def require_looked_at(self) -> None:
        """AccessDeniedError, UnavailableError: its path cannot be looked at, so the folder may
        exist, with its work."""
        path = self.record.mount_path
        try:
            Root.open(path).close()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise unreadable(
                    error,
                    f"the folder of the copy of volume {self.record.volume}, {path}, cannot be looked at",
                    hint="Correct its permissions, or attach its disk, and mount there again. Or take over "
                    "(Volume.open(NAME).mount(take_over=True), "
                    f"{Command('mount', '--take-over')}): the mount begins with the last commit, and that folder stays as an ordinary one.",
                ) from error

    def differs(self, version: VersionId | None) -> bool:
        """Whether the folder may differ from the version. Never wrongly False; also True for a
        missing folder."""
        if self.record.stage != "whole":
            return False
        known, root = stamps.load(self.stamps_path, version), self.open()
        if root is None:
            return True
        with root:
            return known is None or stamps.first_difference(root, known) is not None

    def count_changes(self, version: VersionId | None) -> tuple[int, int] | None:
        """How many files of the folder may differ from the version, and their bytes. None: nothing
        differs, or the folder cannot be looked at."""
        if self.record.stage != "whole" or (root := self.open()) is None:
            return None
        with root, suppress(OSError):
            return stamps.count_differences(root, stamps.load(self.stamps_path, version) or {})
        return None

    def is_used(self) -> bool:
        """Whether a process has files of the folder open."""
        return self.is_there and bool(used_paths.users(self.record.mount_path))

    def require_unused(self) -> None:
        """ConflictError: a process has files of the folder open."""
        path = self.record.mount_path
        if pids := used_paths.users(path):
            shown = ", ".join(f"{pid} ({mount_table.command(pid)})" for pid in pids[:10])
            raise ConflictError(
                f"{path} is in use; processes: {shown}",
                hint="Close its files and leave its directories, or unmount with force (force=True, --force).",
                details={"pids": pids},
            )

    # -- removing

    def settle(self) -> bool:
        """After a crash, finishes the interrupted step. False: there is no copy any more."""
        if not self.exists:
            return False
        stage = self.record.stage
        if stage == "arriving" and (root := self.open()) is not None:
            with root:
                private = _open_private(root, self.record)
                if private is not None or self._has_arrived(root):
                    with private or nullcontext():
                        self._arrive(root, private)
                    return True
            stage = "leaving"
        if stage == "leaving":
            self._leave()
            return False
        return True

    def _has_arrived(self, root: Root) -> bool:
        """Whether all entries had been moved into the folder before the interruption."""
        return all(root.exists(path) for path in stamps.load_any(self.stamps_path) if b"/" not in path)

    def remove_unchanged(self, version: VersionId | None) -> bool:
        """Removes the folder's files and the record if everything matches the version and no
        process uses it. False: everything stays."""
        if self.is_used() or self.differs(version):
            return False
        try:
            mount_table.require_nothing_inside(os.path.realpath(self.record.mount_path))
        except ConflictError as error:
            _log.warning("the copy %s stays: %s", self.record.mount_path, error)
            return False
        self._leave()
        return True

    def remove_read_only(self, version: VersionId | None) -> None:
        """As `remove_unchanged`, for a copy that is no longer needed. If the folder stays, it is
        the user's, and a warning gives the reason."""
        if self.remove_unchanged(version):
            return
        path = self.record.mount_path
        if stamps.load(self.stamps_path, version) is None:
            _log.warning(
                "the read-only copy %s stays: its stamps are missing, so cowfs cannot tell whether it was written to. Remove it by "
                "hand if it was not",
                path,
            )
        elif self.differs(version):
            _log.warning("the read-only copy %s was written to; it stays, and its changes are in no version", path)
        else:
            _log.warning("the read-only copy %s stays as an ordinary folder", path)
        self.forget()

    def remove(self) -> None:
        """Removes the entries that match their stamps, of any version, and the record. Entries that
        differ stay, and a warning names them; a missing folder is left alone. ConflictError:
        another file system is mounted in it."""
        if self.record.stage == "filling":
            self.remove_filling()
            return
        if self.is_there:
            mount_table.require_nothing_inside(os.path.realpath(self.record.mount_path))
            if self.settle():
                self._leave()
        else:
            self.forget()

    def _leave(self) -> None:
        record = self.record
        self._store(replace(record, stage="leaving"))
        failpoints.hit("copy-leaving")
        if (root := self.open()) is not None:
            with root:
                known, is_resumed = stamps.load_any(self.stamps_path), record.stage == "leaving"
                left = removal.remove_known(root, known, is_resumed=is_resumed)
                _take_off(root, record)
            if left is not None:
                _tell_left(record, left)
        failpoints.hit("copy-left")
        self.forget()

    def forget(self) -> None:
        """Drops the record; the folder, if it exists, is the user's."""
        self.stamps_path.unlink(missing_ok=True)
        self.record_path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty if it belongs to a working copy
            self._directory.rmdir()

    @contextmanager
    def suspend(self, has_successor: Callable[[], bool]) -> Iterator[None]:
        """Forgets the copy while the block makes a replacement, and for good if that succeeds. If
        the block fails, restores the record and stamps. has_successor: whether something other than
        a copy has taken its place."""
        paths = self.stamps_path, self.record_path  # the record last: with it, there is a copy
        known = {path: path.read_bytes() for path in paths if config.is_there(path)}
        self.forget()
        try:
            yield
        except BaseException:
            if not self.exists and not has_successor():  # after an interruption the replacement may exist
                for path, content in known.items():
                    states.replace_durably(path, content)
            raise

    def _store(self, record: CopyRecord) -> None:
        states.replace_durably(self.record_path, record.to_json())


def of_version(registration: str) -> Copy:
    """The read-only copy of a mount, by the mount's id."""
    return Copy(_root() / registration)


def sweep(live: set[str]) -> None:
    """Removes the remains of read-only copies that have no mount (`live`: ids of mounts) and no
    maker any more: after a reboot, or when the maker was killed. A copy that was written to stays,
    and is the user's."""
    for directory in config.list_directory(_root()):
        copy = Copy(directory)
        with suppress(NotFoundError, CorruptError, UnsupportedFormatError, ConflictError, OSError):
            record = copy.record
            is_live = directory.name in live and record.stage != "leaving"
            # Its maker may still be filling it.
            is_used = record.process.is_alive and not makers.is_of_the_past(record.process, copy.record_path)
            if is_live or is_used or copy.is_used():
                continue
            if not copy.is_there:
                copy.forget()
            elif record.stage == "filling":
                copy.remove_filling()
            elif copy.settle():
                copy.remove_read_only(VersionId.from_hex(record.version or ""))


def sync(root: Root) -> None:
    """Puts the content of the folder on stable storage. Otherwise untouched files could be empty
    after a power loss, and count as changed."""
    with root.directory() as fd:
        syncing.sync_file_system(fd, os.fsdecode(root.path))


def _stand_still(root: Root) -> int:
    """Waits until later writes get later times than all writes so far, and returns the wait that
    this file system needs: see `stamps.still_ns`."""
    still_ns = stamps.still_ns(os.fstat(root.fileno()).st_ctime_ns)
    clock.sleep_s(1.1 * still_ns / 1e9)
    return still_ns


def _open_private(root: Root, record: CopyRecord) -> Root | None:
    """The caller closes it. None: it is missing, or another entry has its name."""
    try:
        private = Root(root.open_fd(record.private, DIRECTORY), record.private)
    except OSError:
        return None
    if os.fstat(private.fileno()).st_uid == os.geteuid():
        return private
    private.close()
    return None


def _remove_private(root: Root, private: Root, record: CopyRecord) -> None:
    try:
        removal.remove_all(private)
        root.remove_directory(record.private)
    except OSError as error:
        _log.warning(
            "%s could not be removed (%s); it is not needed: remove it by hand",
            os.path.join(record.mount_path, record.private),
            error.strerror,
        )


def _take_off(root: Root, record: CopyRecord) -> None:
    """Removes the folder itself if it was made for the copy and is empty. The removal goes through
    its parent directory, wherever its path leads by now."""
    with suppress(OSError):
        os.removexattr(root.fileno(), copy_record.MARK)
    if not record.is_made:
        return
    with suppress(OSError):  # not empty, or moved at this moment
        above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root.fileno())
        try:
            name = os.path.basename(record.mount_path)
            if os.path.samestat(os.stat(name, dir_fd=above, follow_symlinks=False), os.fstat(root.fileno())):
                os.rmdir(name, dir_fd=above)
        finally:
            os.close(above)


def _tell_left(record: CopyRecord, left: removal.Left) -> None:
    path = os.path.join(record.mount_path, os.fsdecode(left.path))
    others = f" and {left.count - 1} more" if left.count > 1 else ""
    why = f" (a removal failed: {left.why})" if left.why else ""
    _log.warning(
        "%s%s stay%s: not as committed in %s, or not put there by cowfs%s. The folder is an ordinary one now; remove it by hand "
        "if it is not needed: rm -r %s",
        path,
        others,
        "" if others else "s",
        record.volume,
        why,
        shlex.quote(record.mount_path),
    )


def _owner(path: Path) -> str:
    uid = path.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _is_as(found: FileStamp, expected: tuple[int, int] | None) -> bool:
    if expected is None:
        return False
    size, mtime_ns = expected
    is_size = stat.S_ISDIR(found.mode) or found.size == size
    return is_size and abs(found.mtime_ns - mtime_ns) < _COARSE_NS


def _root() -> Path:
    return config.state_subdirectory("copies")
