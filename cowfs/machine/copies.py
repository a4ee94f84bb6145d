"""A mount without FUSE: a folder of plain files, and what is remembered of it beside.

    of a volume      <working copy>/copy.json, copy.stamps          the work in the folder belongs to that working copy
    of a version     <state dir>/copies/<registration>/             the same files; read-only

    copy.json        {"format": 2, "mount_path", "root_ino", "root_device", "is_made", "aside", "stage", "store_url",
                      "store_id", "volume", "version" | null, "read_only", "process"}
    copy.stamps      what each file looked like when it was the version's (stamps.py)
    copy.made        {"aside", "root_made", "root_identity"}: tells the folder from a later one with its inode number
                     (births.made), and names it when it has got another number (births.identity)
    copy.opened      a directory whose mode is another one while it is moved (aside.py)

    stage   filling    the version is being written into a directory of its own in the folder, `aside`
            arriving   it is whole there, and is being moved into the folder
            whole      a user's; if something is aside, it belongs into the folder
            leaving    nothing of value is in it: it was set aside again, and is deleted as far as it can be

Guarantees: nothing in the folder is deleted that is not as its stamp says, unless that is asked
for, and nothing that came into it while it was filled. What comes or goes is moved by renames, so
that nobody who comes by its path writes to what is not whole yet, or about to go. A folder that is
not there any more, or is another one (`is_there`), is never taken for an empty one. A crash at any
moment leaves the folder whole, or one that `settle` makes whole, or finishes deleting.

Who calls holds the copy's turn (`reservation`).
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from cowfs import clock, config, log
from cowfs.errors import ConflictError, CorruptError, LeaseHeldError, NotFoundError, UnsupportedFormatError
from cowfs.ids import VersionId
from cowfs.machine import (
    aside,
    births,
    lock,
    makers,
    mapped_stores,
    mount_table,
    open_writers,
    processes,
    stamps,
    syncing,
    used_paths,
)
from cowfs.machine import state as states
from cowfs.machine.processes import ProcessIdentity
from cowfs.machine.stamps import FileStamp
from cowfs.values import dataclass

FORMAT = 2
_COARSE_NS = 2_000_000_000
"""How coarse a file system may keep times (FAT does)."""
_log = log.get("copy")

Stage = Literal["filling", "arriving", "whole", "leaving"]


@dataclass(frozen=True)
class CopyRecord:
    """is_made: the folder was made for the copy, and goes with it. aside: name of the directory in
    the folder that is cowfs' own; "" in records of format 1: any that looks like one. version: of
    a read-only copy; that of a volume stands on its working copy's base."""

    mount_path: str
    root_ino: int
    root_device: int
    is_made: bool
    aside: str
    stage: Stage
    store_url: str
    store_id: str
    volume: str
    version: str | None
    read_only: bool
    process: ProcessIdentity

    def to_json(self) -> bytes:
        record = {"format": FORMAT, **asdict(self), "process": self.process.to_record()}
        return json.dumps(record, indent=1).encode() + b"\n"


@dataclass(frozen=True)
class Reading:
    """since_ns: no change before has a later ctime, and none after an earlier one, where times are
    kept as exactly as still_ns says."""

    since_ns: int
    still_ns: int

    def is_still(self, stamp: FileStamp) -> bool:
        """Whether every change from now on shows in it. Of a directory nothing but its stamp
        counts."""
        if stat.S_ISDIR(stamp.mode):
            return True
        is_exact = stamps.still_ns(stamp.ctime_ns) <= self.still_ns
        return is_exact and stamp.ctime_ns < self.since_ns


class Copy:
    """directory: where its files lie."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.record_path = directory / "copy.json"
        self.stamps_path = directory / "copy.stamps"
        self._made_path = directory / "copy.made"
        self._opened = aside.OpenDirectory(directory / "copy.opened")

    @property
    def exists(self) -> bool:
        return config.is_there(self.record_path)

    @property
    def has_remains(self) -> bool:
        """Whether an older cowfs has forgotten the copy, and left what it does not know of. Such a
        file is written after the record, and removed before it."""
        return config.is_there(self._made_path) and not self.exists

    @property
    def record(self) -> CopyRecord:
        """NotFoundError: there is no copy."""
        try:
            record: dict[str, Any] = json.loads(self.record_path.read_bytes())
            if (version := record.pop("format")) == 1:
                record["aside"] = ""
            elif version != FORMAT:
                raise UnsupportedFormatError(
                    f"{self.record_path} has a format that this cowfs does not know",
                    hint="Use the cowfs that used this copy last, or a newer one; nothing was changed.",
                )
            if not isinstance(name := record["aside"], str) or (name and not aside.is_name(name)):
                raise ValueError(f"{name!r} is no name of a directory of ours")
            return CopyRecord(**{**record, "process": ProcessIdentity.from_record(record["process"])})
        except FileNotFoundError as error:
            raise NotFoundError(f"{self._directory} has no copy", hint="Mount the volume to make one.") from error
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptError(
                f"{self.record_path} is no record of a copy",
                hint="Keep the copy's folder: upload it, then discard this.",
            ) from error
        except OSError as error:
            raise config.inaccessible(self.record_path, error) from error

    def begin(self, record: CopyRecord) -> bytes:
        """The directory to write the version into. What was begun is durable before it is made."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._store(record)
        os.mkdir(path := _aside(record), 0o700)
        self._learn_when_made()  # an overlay has made the folder anew for what was written to it
        return path

    def end_filling(self, version: VersionId | None, expected: dict[bytes, tuple[int, int]]) -> None:
        """Everything is in the directory that `begin` made, and comes into the folder now.
        expected: (size, mtime_ns) of each path that was written; one that is not so gets no stamp,
        and counts as changed. ConflictError: somebody has put something into the folder
        meanwhile, or the file system does not show a path as it was written."""
        record = self.record
        root = os.fsencode(record.mount_path)
        self.sync()
        if others := [name for name in os.listdir(root) if name != os.fsencode(record.aside)]:
            raise ConflictError(
                f"{record.mount_path} was empty, and has {os.fsdecode(others[0])!r} now that the copy was to come into it",
                hint="Move what is there elsewhere, or choose another mount path; then mount again.",
            )
        clock.sleep_s(stamps.STILL_NS / 1e9)
        away = _aside(record)
        found = {path: stamps.of(each) for path, each in stamps.walk(away)}
        if (missing := next((path for path in expected if path not in found), None)) is not None:
            raise ConflictError(
                f"{os.fsdecode(missing)!r} of the version would not be in the copy at {record.mount_path} by this name: its file "
                "system changes the name, or takes it for that of another file",
                hint="Choose a path on another file system, or mount by FUSE (mode='fuse', --mode fuse), which keeps all names.",
            )
        known = {path: each for path, each in found.items() if _is_as(each, expected.get(path))}
        if not mapped_stores.are_noted(os.fsdecode(away)):
            known = {path: _with_digest(os.path.join(away, path), each) for path, each in known.items()}
        stamps.store(self.stamps_path, version, known)
        self._store(replace(record, stage="arriving"))
        self._arrive()

    def _arrive(self) -> None:
        self._come_back()
        self._store(replace(self.record, stage="whole"))

    def _come_back(self) -> None:
        """What was set aside; moving it is no change."""
        record = self.record
        _bring_back(record, self._opened)
        self.sync()
        _stand_still(record.mount_path)
        root = os.fsencode(record.mount_path)
        stamps.take_again(self.stamps_path, root, _moved(root))

    def sync(self) -> None:
        """What is in the folder is on stable storage when this returns. Without it files that
        nobody has written to could be empty after a power loss, and be taken for changed."""
        fd = os.open(self.record.mount_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            syncing.sync_file_system(fd, self.record.mount_path)
        finally:
            os.close(fd)

    def begin_reading(self) -> Reading:
        """Before a commit reads the folder; what was written by now is on stable storage.

        The time comes before the sync. A store through a mapping changes no time while its page is
        still to be written back: only of what has not changed since, every page was written by the
        sync, or is not mapped writable, and the next store to it changes the time."""
        path = self.record.mount_path
        still_ns = _stand_still(path)
        since_ns = clock.now_ns() - still_ns
        self.sync()
        return Reading(since_ns, still_ns)

    def move_base(self, version: VersionId | None, seen: stamps.Stamps, reading: Reading) -> None:
        """The folder's content has become that version; seen: what each file looked like when it
        was read. What was written to meanwhile gets no stamp."""
        root = os.fsencode(self.record.mount_path)
        known = {
            path: each
            for path, each in seen.items()
            if reading.is_still(each) and (not each.digest or _has_content(os.path.join(root, path), each))
        }
        stamps.store(self.stamps_path, version, known)

    @property
    def is_there(self) -> bool:
        """Whether the folder at the path is the one that was filled. Where the file system does not
        keep when it was made, its inode and device, or a file that it had, speak for it: another
        folder may have got the number. An overlay may give the folder itself another number, and
        folders that were made within one tick have one birth: then its identity, or something of
        the copy that is in it, has to tell."""
        record = self.record
        try:
            found = os.lstat(record.mount_path)
        except OSError:
            return False
        if not stat.S_ISDIR(found.st_mode):
            return False
        is_number = found.st_ino == record.root_ino
        made = births.made(os.fsencode(record.mount_path), found.st_ino)
        if births.is_birth(made) and births.is_birth(before := self._root_made or ""):
            return made == before and (is_number or self._is_named)
        if not is_number:
            return False
        # File systems number their roots alike, and devices anew when they are mounted again.
        return found.st_dev == record.root_device or self._has_its_own() is not False

    @property
    def _is_named(self) -> bool:
        """Whether the folder is the copy's, whatever its number."""
        identity = births.identity(os.fsencode(self.record.mount_path))
        return (identity != "" and identity == self._learnt("root_identity")) or self._has_its_own() is True

    @property
    def _may_be_another(self) -> bool:
        """Of a folder that `is_there`: whether it has something, and neither that nor when it was
        made tells that it is the copy."""
        record = self.record
        root = os.fsencode(record.mount_path)
        found = os.lstat(root)
        made, is_same_device = births.made(root, found.st_ino), found.st_dev == record.root_device
        is_told = made == self._root_made and (births.is_birth(made) or (made != "" and is_same_device))
        return not is_told and not self._has_its_own() and bool(os.listdir(root))

    def _has_its_own(self) -> bool | None:
        """Whether something is in the folder that was in the copy; None: no stamp of a file says
        what was."""
        record = self.record
        if record.aside and _asides(record):
            return True
        return stamps.has_known(self.stamps_path, os.fsencode(record.mount_path))

    @property
    def is_leaving(self) -> bool:
        """Whether nothing of value is in the folder any more: an unmount deletes it, or was killed
        doing so."""
        return self.record.stage == "leaving"

    @property
    def is_gone(self) -> bool:
        """Whether the folder was whole and is not there any more: deleted or moved, or its disk is
        not attached. What it has is not known then."""
        return self.is_out_of_sight and not self.is_elsewhere

    @property
    def is_elsewhere(self) -> bool:
        """Whether the folder is not to be seen here, and may be where it was made: in another
        container, or on another machine."""
        return self.is_out_of_sight and makers.may_be_elsewhere(self.record.process, self.record_path)

    @property
    def is_out_of_sight(self) -> bool:
        """Whether the folder was whole and is not to be seen here: `is_gone`, or `is_elsewhere`."""
        return self.record.stage in ("arriving", "whole") and not self.is_there

    def require_not_elsewhere(self) -> None:
        """LeaseHeldError: `is_elsewhere`, so its work may be under way there."""
        if self.is_elsewhere:
            record, user = self.record, _owner(self.record_path)
            since = lock.time_text(self.record_path.stat().st_mtime_ns)
            raise LeaseHeldError(
                f"volume {record.volume!r} is mounted as a copy, or has work in one, at {record.mount_path}, made by {user} in "
                f"{record.process.where}, at {since}; that folder is not to be seen here",
                hint=f"Go on there, or commit and unmount it there (`cowfs unmount {record.volume} --commit`, finalize()); or "
                f"{lock.beside(record.volume)}. If that container is gone, or its work is not needed, take over by a mount here "
                "(take_over=True, `cowfs mount --take-over`), which begins with what was committed: that folder, if it is "
                "there, stays, and is no copy any more.",
                details={"who": f"{user} in {record.process.where}", "where": record.mount_path, "since": since},
            )

    def differs(self, version: VersionId | None) -> bool:
        """Whether there may be something in the folder that is not in the version. Never wrongly
        False; True, too, for a folder that is not there."""
        record = self.record
        if record.stage != "whole":
            return False
        known = stamps.load(self.stamps_path, version)
        if known is None or not self.is_there:
            return True
        return stamps.first_difference(os.fsencode(record.mount_path), known) is not None

    def is_used(self) -> bool:
        """Whether a process has files of it open."""
        return self.is_there and bool(used_paths.users(self.record.mount_path))

    def require_unused(self) -> None:
        """ConflictError while a process has files of it open."""
        path = self.record.mount_path
        if pids := used_paths.users(path):
            shown = ", ".join(f"{pid} ({mount_table.command(pid)})" for pid in pids[:10])
            raise ConflictError(
                f"{path} is in use; processes: {shown}",
                hint="Close its files and leave its directories, or unmount with force (force=True, --force).",
                details={"pids": pids},
            )

    def settle(self) -> bool:
        """After a crash: finishes what was begun. False: there is no copy any more."""
        if not self.exists:
            return False
        record = self.record
        if self.is_leaving:
            self._delete("All that it had was committed, or was to be dropped")
            return False
        if self.is_there:
            self._opened.close_again()
            if self._root_made is None:  # an older cowfs has made it
                self._learn_when_made()
            if record.stage == "arriving":
                self._arrive()
            elif record.stage == "whole" and _asides(record):
                self._come_back()
        return True

    def remove_unchanged(self, version: VersionId | None) -> bool:
        """Deletes folder and record if everything is as in the version, and nobody uses it; what
        cannot be deleted stays, and that is told. False: all stays."""
        if self.is_used() or self.differs(version):
            return False
        root = os.fsencode(self.record.mount_path)
        known = stamps.load(self.stamps_path, version) or {}
        away = _aside(self.record)
        try:
            mount_table.require_nothing_inside(os.path.realpath(self.record.mount_path))
            stuck = aside.set_aside(root, os.path.basename(away), self._opened)
        except (ConflictError, OSError) as error:
            if _asides(self.record):
                self._come_back()
            _log.warning("the copy %s stays: %s", self.record.mount_path, error)
            return False
        is_unchanged = False
        try:
            is_unchanged = self._is_unchanged_aside(away, known, stuck)
        finally:
            if not is_unchanged:
                self._come_back()
        if is_unchanged:
            self._delete("All that it had is in the version that it stood on", stuck)
        return is_unchanged

    def remove_read_only(self, version: VersionId | None) -> None:
        """As `remove_unchanged`, of a copy that nobody needs any more: a folder that stays is the
        user's, and why it stays is told."""
        if self.remove_unchanged(version):
            return
        path = self.record.mount_path
        if stamps.load(self.stamps_path, version) is None:
            _log.warning(
                "the read-only copy %s stays: there is no record of what it looked like, or one of an older cowfs, so nothing tells "
                "whether it was written to. Remove it by hand if it was not",
                path,
            )
        elif self.differs(version):
            _log.warning("the read-only copy %s was written to; it stays, and is in no version", path)
        else:
            _log.warning("the read-only copy %s stays, and is a folder like any other", path)
        self.forget()

    def _is_unchanged_aside(self, away: bytes, known: stamps.Stamps, stuck: Collection[bytes]) -> bool:
        """Of what was set aside, but for the names that are stuck in the folder; nobody uses it,
        and nothing else is in the folder."""
        root = os.path.dirname(away)
        is_same = _moved(away)
        known_in_place = {path: each for path, each in known.items() if path.partition(b"/")[0] in stuck}
        known_away = {path: each for path, each in known.items() if path not in known_in_place}

        def changed(*, reads: bool = True) -> bool:
            differing = stamps.first_difference(away, known_away, is_same=is_same, reads=reads)
            if differing is None:  # what is stuck was not moved: it has its stamps still
                differing = stamps.first_difference(root, known_in_place, names=stuck, reads=reads)
            return differing is not None

        is_changed = changed()
        # Whoever has come to use it since the first look writes to what would be deleted; who has
        # been there and gone has changed a time.
        if (used := open_writers.first_written(root if stuck else away)) is not None:
            _log.warning(
                "the copy %s stays: somebody has %r open for writing, perhaps another user or in a container",
                self.record.mount_path,
                os.fsdecode(used),
            )
        is_free = used is None and not self.is_used()
        if not is_changed and is_free:
            is_changed = changed(reads=False)
        return is_free and not is_changed and {*os.listdir(root)} - {os.path.basename(away)} == {*stuck}

    def remove(self) -> None:
        """Deletes folder and record, whatever is in the folder, but for what cannot be deleted; one
        that is not there is left alone, and so is, and that is told, one that may be another one.
        ConflictError: another file system is mounted in it, whose files are not the copy's to
        delete."""
        if self.is_out_of_sight:
            self.forget()
            return
        mount_table.require_nothing_inside(os.path.realpath(self.record.mount_path))
        if self.record.stage in ("arriving", "whole") and self._may_be_another:
            _log.warning(
                "%s stays, with what is in it: nothing tells it from another folder that has got its inode number, since none of "
                "its files was in a version, and its file system does not keep when it was made. Remove it by hand",
                self.record.mount_path,
            )
            self.forget()
            return
        stuck = {}
        if self.record.stage in ("arriving", "whole"):
            _bring_back(self.record, self._opened)
            away = _aside(self.record)
            stuck = aside.set_aside(os.path.dirname(away), os.path.basename(away), self._opened)
        self._delete("Its work was to be dropped", stuck)

    def remove_filling(self) -> None:
        """After a version was not written whole: what there is of it goes."""
        if self.exists and self.record.stage == "filling":
            self._delete("It was not whole yet")

    def _delete(self, fate: str, stuck: Mapping[bytes, OSError] | None = None) -> None:
        """fate: what has become of the content. stuck: names in the folder that could not be set
        aside, and why. What cannot be deleted stays in the folder, which is the user's then:
        nothing of value is in it, so nobody has to wait until it can be."""
        record = self.record
        if record.stage != "filling":
            self._store(replace(record, stage="leaving"))
        if self.is_there:
            mount_table.require_nothing_inside(os.path.realpath(record.mount_path))
            root = os.fsencode(record.mount_path)
            remains = aside.Remains()
            for name in _asides(record):
                aside.delete_tree(os.path.join(root, name), remains)
            for name, error in (stuck or {}).items():
                aside.remove_empty(os.path.join(root, name), error, remains)
            if record.is_made:
                with contextlib.suppress(OSError):  # somebody has put something there
                    os.rmdir(root)
            if remains.count:
                _tell_remains(record, remains, fate)
        self.forget()

    def forget(self) -> None:
        """The folder, if there is one, is the user's."""
        self._opened.clear()
        self.stamps_path.unlink(missing_ok=True)
        self._made_path.unlink(missing_ok=True)
        self.record_path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a working copy's has more in it
            self._directory.rmdir()

    @contextlib.contextmanager
    def given_up(self, has_successor: Callable[[], bool]) -> Iterator[None]:
        """Forgotten for the length of a block that takes its place, and for good if that succeeds;
        else what was known of it is known again. has_successor: whether something else than a copy
        has taken its place."""
        paths = self.stamps_path, self._made_path, self.record_path  # the record last: with it, there is a copy
        known = {path: path.read_bytes() for path in paths if config.is_there(path)}
        self.forget()
        try:
            yield
        except BaseException:
            if not self.exists and not has_successor():  # an interruption may come when it stands already
                for path, content in known.items():
                    states.replace_durably(path, content)
            raise

    @property
    def _root_made(self) -> str | None:
        """What `births.made` said of the folder; None: nobody has asked."""
        return self._learnt("root_made")

    def _learnt(self, what: str) -> str | None:
        """Of the folder. Beside the record, which an older cowfs reads, too: it may have made
        another copy since."""
        try:
            found = json.loads(self._made_path.read_bytes())
            return str(found[what]) if found["aside"] == self.record.aside else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _learn_when_made(self) -> None:
        record = self.record
        if record.aside:  # nothing else tells what was learnt of one copy from that of the next
            root = os.fsencode(record.mount_path)
            made, identity = births.made(root, record.root_ino), births.identity(root)
            learnt = {"aside": record.aside, "root_made": made, "root_identity": identity}
            states.replace_durably(self._made_path, json.dumps(learnt).encode() + b"\n")

    def _store(self, record: CopyRecord) -> None:
        states.replace_durably(self.record_path, record.to_json())


def of_version(registration: str) -> Copy:
    """A read-only copy, by the id of its mount."""
    return Copy(_root() / registration)


def sweep(live: set[str]) -> None:
    """Removes what read-only copies have left that no mount (`live`: ids) stands for any more, nor
    their maker: after a reboot, or when that was killed. One that was written to stays, and is the
    user's."""
    for directory in config.listed(_root()):
        copy = Copy(directory)
        with contextlib.suppress(NotFoundError, CorruptError, UnsupportedFormatError, ConflictError, OSError):
            if copy.has_remains:
                copy.forget()
                continue
            record = copy.record
            # It may just be being made.
            is_used = record.process.is_alive and not makers.is_of_the_past(record.process, copy.record_path)
            if directory.name in live or is_used or copy.is_used():
                continue
            if not copy.is_there:
                copy.forget()
            elif record.stage == "filling":
                copy.remove_filling()
            elif copy.settle():
                copy.remove_read_only(VersionId.from_hex(record.version or ""))


def new_record(path: str, *, is_made: bool, version: VersionId | None, read_only: bool, **store: str) -> CopyRecord:
    """Of a folder that is about to be filled. store: store_url, store_id, volume."""
    found = os.lstat(path)
    return CopyRecord(
        mount_path=path,
        root_ino=found.st_ino,
        root_device=found.st_dev,
        is_made=is_made,
        aside=aside.new_name(),
        stage="filling",
        version=version.hex() if version is not None else None,
        read_only=read_only,
        process=processes.this_process(),
        **store,
    )


def _stand_still(path: str) -> int:
    """Waits until what is written from now on has later times than what was written before, and
    says what for: see `stamps.still_ns`."""
    still_ns = stamps.still_ns(os.lstat(path).st_ctime_ns)
    clock.sleep_s(1.1 * still_ns / 1e9)
    return still_ns


def _owner(path: Path) -> str:
    uid = path.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _aside(record: CopyRecord) -> bytes:
    return os.path.join(os.fsencode(record.mount_path), os.fsencode(record.aside or aside.new_name()))


def _asides(record: CopyRecord) -> list[bytes]:
    """Names of those that are in the folder."""
    return aside.those_in(os.fsencode(record.mount_path), os.fsencode(record.aside))


def _bring_back(record: CopyRecord, opened: aside.OpenDirectory) -> None:
    root = os.fsencode(record.mount_path)
    for name in _asides(record):
        for path, beside in aside.bring_back(root, name, opened, sets_attributes=record.is_made):
            _log.warning(
                "%s: somebody made %r anew while the copy was moved; what was there before is %r now",
                record.mount_path,
                os.fsdecode(path),
                os.fsdecode(beside),
            )


def _tell_remains(record: CopyRecord, remains: aside.Remains, fate: str) -> None:
    others = f" and {remains.count - 1} more" if remains.count > 1 else ""
    _log.warning(
        "%s%s of the copy of %s could not be removed (%s). %s; nobody needs what is left. Remove it by hand, as root, say: "
        "%s is no copy any more",
        os.fsdecode(remains.path),
        others,
        record.volume,
        remains.why,
        fate,
        record.mount_path,
    )


def _moved(directory: bytes) -> Callable[[bytes, FileStamp, FileStamp], bool]:
    """Tells whether what was moved into the directory, if that could be made, is as before: moving
    changes a file's ctime, under all its names."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    moved = {os.lstat(os.path.join(directory, name)).st_ino for name in names}
    return lambda path, now, known: (b"/" not in path or now.ino in moved) and now[:4] == known[:4]


def _with_digest(path: bytes, stamp: FileStamp) -> FileStamp:
    return stamp._replace(digest=stamps.digest(path)) if stat.S_ISREG(stamp.mode) else stamp


def _has_content(path: bytes, stamp: FileStamp) -> bool:
    """Whether a file is what it was before it was read, too, and nobody may have changed it to and
    fro meanwhile."""
    return stamps.digest(path) == stamp.digest and not open_writers.is_written(path)


def _is_as(found: FileStamp, expected: tuple[int, int] | None) -> bool:
    if expected is None:
        return False
    size, mtime_ns = expected
    is_size = stat.S_ISDIR(found.mode) or found.size == size
    return is_size and abs(found.mtime_ns - mtime_ns) < _COARSE_NS


def _root() -> Path:
    return config.state_dir() / "copies"
