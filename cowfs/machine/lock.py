"""The lock of a working copy: flock on its `lock` file, whose text names the holder.

Only flock decides. The text is for messages: it is written after the lock was taken, emptied before
the lock is released, and believed only while the process that it names lives. A daemon whose mount
has ended says so (`mark_ending`): it still has to sync and to leave the store, and a process that
wants to mount again waits for it. Such a process also waits for a daemon that is not ready yet
(`mark_ready`), which exits if its starter was killed. The holder may delete the file together with
its directory; a lock taken on a deleted file does not count and is taken again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cowfs.base import clock, config, interruptible, private_directories
from cowfs.base.errors import CowfsError, LeaseHeldError, unusable
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.quantities import format_time
from cowfs.machine import mount_table, processes, registry
from cowfs.machine.processes import ProcessIdentity

ENDING_S = 90.0
"""More than a daemon takes to end, including a commit that is under way."""
NAMELESS_S = 1.0
"""A holder writes its name right after taking the lock, and removes it right before releasing it.
`is_held` takes the lock for a moment, under the name of the last holder."""
PAUSE_S = 0.05
_ATTEMPTS = 100

_locked: set[int] = set()
"""Descriptors with which this process holds locks."""


@dataclass(frozen=True)
class LockHolder:
    """The holder of a working copy, shown to the next process that wants it. is_opening: its mount
    is not ready yet. is_ending: its mount has ended."""

    user: str
    host: str
    since_ns: int
    mount_path: str
    process: ProcessIdentity
    is_ending: bool = False
    is_opening: bool = False

    @classmethod
    def this_process(cls, mount_path: str) -> LockHolder:
        return cls(user_name(), socket.gethostname(), clock.now_ns(), mount_path, processes.this_process())

    @classmethod
    def make_brief(cls, purpose: str) -> LockHolder:
        """This process, which releases the lock soon: others wait for it."""
        return replace(cls.this_process(purpose), is_ending=True)

    def to_json(self) -> bytes:
        names = {"user": self.user, "since_ns": self.since_ns, "mount_path": self.mount_path}
        ending = {"is_ending": True} if self.is_ending else {}
        opening = {"is_opening": True} if self.is_opening else {}
        return json.dumps({**names, "name": self.host, **self.process.to_record(), **ending, **opening}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> LockHolder | None:
        """None for any text that does not describe a holder: it may be torn."""
        try:
            record: dict[str, Any] = json.loads(data)
            process = ProcessIdentity.from_record(record)
            return cls(
                record["user"],
                record["name"],
                int(record["since_ns"]),
                record["mount_path"],
                process,
                is_ending=bool(record.get("is_ending", False)),
                is_opening=bool(record.get("is_opening", False)),
            )
        except (ValueError, KeyError, TypeError):
            return None


def acquire(path: Path, holder: LockHolder, *, volume: str) -> int:
    """Takes the lock and returns the descriptor that holds it; makes the directory. LeaseHeldError:
    another process has the lock and is neither ending nor about to get ready; for a process in
    another container it is raised after NAMELESS_S.

    A killed process counts as dead before its last thread has exited, which closes its files and
    releases the lock. The patience begins anew with each change of the holder's text: near its end,
    a holder that was waited for is unnamed for a moment.
    """
    seen: LockHolder | None = None
    since_s = clock.monotonic_s()
    while True:
        try:
            make_directory(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # deleted between the two calls
        except OSError as error:
            raise _unusable(path.parent, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(fd, path):
                _write_text(fd, holder.to_json())
                _locked.add(fd)
                return fd
        except BlockingIOError:
            found = LockHolder.from_json(os.pread(fd, 65536, 0))
            os.close(fd)
            if found != seen:
                seen, since_s = found, clock.monotonic_s()
            is_going = found is not None and (found.is_ending or found.is_opening or not found.process.is_alive)
            # Nothing tells whether a foreign process lives: `is_held` may have the lock for a
            # moment.
            may_be_nobody = found is None or found.process.is_foreign
            patience_s = ENDING_S if is_going else NAMELESS_S if may_be_nobody else 0.0
            if clock.monotonic_s() >= since_s + patience_s:
                raise _error_of_holder(volume, found) from None
            interruptible.require_wanted()
            clock.sleep_s(PAUSE_S)
            continue
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the file was deleted before we locked it


def take_over(path: Path, fd: int, holder: LockHolder, *, volume: str) -> int:
    """As `acquire`, with a descriptor that holds the lock already: that of a process before.
    LeaseHeldError: another process has taken the lock since."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _error_of_holder(volume, last_holder(path)) from None
    if not _is_same_file(fd, path):
        raise _error_of_holder(volume, last_holder(path))
    _write_text(fd, holder.to_json())
    _locked.add(fd)
    return fd


def mark_ending(fd: int) -> None:
    """Says that the lock is about to be released."""
    _rewrite(fd, lambda found: replace(found, is_ending=True))


def mark_ready(fd: int) -> None:
    """Says that a holder which began with is_opening is ready; the lock stays held."""
    _rewrite(fd, lambda found: replace(found, is_opening=False))


def _rewrite(fd: int, change: Callable[[LockHolder], LockHolder]) -> None:
    """The text serves only messages and waiting processes, so a full disk does not matter."""
    text = os.pread(fd, 65536, 0)
    if (found := LockHolder.from_json(text)) is not None:
        with contextlib.suppress(OSError):
            os.pwrite(fd, change(found).to_json().ljust(len(text)), 0)


def _write_text(fd: int, text: bytes) -> None:
    """On a full disk the holder stays unnamed, but still holds the lock."""
    os.ftruncate(fd, 0)
    try:
        os.pwrite(fd, text, 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def make_directory(path: Path) -> None:
    """Makes the directory of a working copy, for its owner alone. AccessDeniedError, ReadOnlyError,
    NoSpaceError: it cannot be made."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            private_directories.make_unchecked(path)
            return
        except OSError as error:
            if not (isinstance(error, FileExistsError) and left):  # it may be deleted between two attempts
                raise _unusable(path, error) from error


def release(fd: int) -> None:
    if fd not in _locked:
        return  # a forked child, which has closed its copy: the lock is its parent's
    _locked.discard(fd)
    os.ftruncate(fd, 0)
    fcntl.flock(fd, fcntl.LOCK_UN)  # the copy of the descriptor in a forked child would keep the lock
    os.close(fd)


def excludes_all(fd: int) -> bool:
    """Whether the lock held by `fd` excludes every process under this kernel, in any container.

    True for local file systems. A network file system, FUSE or an overlay can be mounted twice, and
    each mount then has its own locks.
    """
    return mount_table.is_local(fd)


def excludes_all_at(directory: Path) -> bool:
    """As `excludes_all`, for locks of files in a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return excludes_all(fd)
    finally:
        os.close(fd)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock, named or not; True if the file cannot be opened."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)  # a forked child has a copy of the descriptor
    finally:
        os.close(fd)
    return False


def holder(path: Path) -> LockHolder | None:
    """The holder of the lock, determined without touching the lock; None: it is free."""
    found = last_holder(path)
    return found if found is not None and found.process.is_alive else None


def last_holder(path: Path) -> LockHolder | None:
    """The holder of the lock, or the one that died with it; None: it was released."""
    try:
        return LockHolder.from_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise config.inaccessible(path, error) from error


def user_name() -> str:
    """The login name, or the numeric user id if there is none, as in containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def time_text(time_ns: int) -> str:
    """A time for programs: UTC, to the second."""
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _close_inherited() -> None:
    """In a forked child: its copy of a descriptor would keep the lock when the parent is killed."""
    while _locked:
        os.close(_locked.pop())


os.register_at_fork(after_in_child=_close_inherited)


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _unusable(path: Path, error: OSError) -> CowfsError:
    how = "COWFS_STATE_DIR" if path.is_relative_to(config.state_dir()) else "meta_dir (--meta-dir)"
    return unusable(error, f"{path} cannot be used for a working copy", elsewhere=f"choose another place with {how}.")


def advise_fork(volume: str) -> str:
    """The fork is of the last version, since a fork of the volume would include uncommitted work of
    its writer."""
    fork = Command("fork", f"{volume}@{{0}}", "NEW")
    return f"work beside it in a fork of its last version ({fork}, Volume.version({volume!r}).fork())"


def _error_of_holder(volume: str, found: LockHolder | None) -> LeaseHeldError:
    if found is None:
        return LeaseHeldError(
            f"volume {volume!r} is being mounted writable by another process on this machine",
            hint=f"Wait a moment, or {advise_fork(volume)}.",
        )
    since = format_time(found.since_ns, to_the_second=True)
    utc = time_text(found.since_ns)
    details: dict[str, object] = {"who": f"{found.user}@{found.host}", "where": found.mount_path, "since": utc}
    if not found.process.is_foreign:
        details["pid"] = found.process.pid
    if not found.mount_path.startswith("/"):
        return LeaseHeldError(
            f"volume {volume!r} is being written to by {found.user} on {found.host}, {found.mount_path}, since {since}",
            hint="A copy, a commit or a program that uses vol.files is at work. Wait until it ends and try again, or "
            f"{advise_fork(volume)}.",
            details=details,
        )
    if any(entry.is_detached and entry.process == found.process for entry in registry.list_mounts()):
        return LeaseHeldError(
            f"volume {volume!r} was mounted writable by {found.user} at {found.mount_path} and is unmounted, but programs still "
            f"have files of it open, or use it elsewhere; process {found.process.pid} serves them",
            hint="Let them close their files (lsof shows them), unmount it in the other places, or end that process "
            f"({Command('unmount', volume, '--force')}, or os.kill(); they get errors, and the data written is kept); or "
            f"{advise_fork(volume)}.",
            details=details,
        )
    return LeaseHeldError(
        f"volume {volume!r} is mounted writable by {found.user} on {found.host} at {found.mount_path} since {since}",
        hint=f"{_way_on(volume, found)} or {advise_fork(volume)}.",
        details=details,
    )


def _way_on(volume: str, found: LockHolder) -> str:
    """The next step to take about a mounted volume."""
    mount = mount_table.mount_at(found.mount_path)
    if found.process.is_foreign:
        at = f"Work at {found.mount_path}; or u" if mount is not None and mount.volume == volume else "U"
        return (
            f"{at}nmount it where it was mounted ({Command('unmount', volume)}), or end that container: its process runs in "
            f"{found.process.where}, and nothing here can end it;"
        )
    if mount is not None:
        return f"Work at {found.mount_path}, unmount it first,"
    return (
        "No mount is visible there: programs may still have files of it open, or it is in another mount namespace. "
        f"End process {found.process.pid},"
    )
