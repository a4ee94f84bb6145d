"""The lock of a working copy: flock on its `lock` file, whose text says who holds it.

flock decides, the text is for messages only: it is written after the lock was taken and emptied
before it is let go, and believed only while the process it names lives. A daemon whose mount is
over says so (`mark_ending`): it still has to sync and to leave the store, and whoever wants to
mount again waits for it. He waits for one that is not ready yet (`mark_ready`), too: it goes if its
starter was killed. The file may be deleted together with its directory by the one who holds
it; a lock taken on a deleted file does not count and is taken again.
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

from cowfs import apart, clock, config
from cowfs.errors import CowfsError, LeaseHeldError, unusable
from cowfs.machine import mount_table, processes, registry
from cowfs.machine.processes import ProcessIdentity
from cowfs.values import dataclass

ENDING_S = 90.0
"""More than a daemon takes that lets a commit under way finish."""
NAMELESS_S = 1.0
"""A holder writes its name right after it has the lock, and removes it right before it lets go. Who
only looks (`is_held`) has the lock for a moment, under the name of the last holder."""
PAUSE_S = 0.05
_ATTEMPTS = 100

_locked: set[int] = set()
"""Descriptors that hold a lock of this process."""


@dataclass(frozen=True)
class LockHolder:
    """Who holds a working copy: shown to the next one who wants it. is_opening: its mount is not
    ready yet. is_ending: its mount is over."""

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
    def for_a_moment(cls, purpose: str) -> LockHolder:
        """This process, which gives the lock back soon: others wait for it."""
        return replace(cls.this_process(purpose), is_ending=True)

    def to_json(self) -> bytes:
        names = {"user": self.user, "since_ns": self.since_ns, "mount_path": self.mount_path}
        ending = {"is_ending": True} if self.is_ending else {}
        opening = {"is_opening": True} if self.is_opening else {}
        return json.dumps({**names, "name": self.host, **self.process.to_record(), **ending, **opening}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> LockHolder | None:
        """None for anything that is not a holder: the text may be torn."""
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
    """The descriptor that holds the lock; makes the directory. LeaseHeldError when another process
    has it and is not about to end, or to get ready; of one of another container, after NAMELESS_S.

    A killed process is dead for all to see before its last thread is gone, which closes its files,
    and with them the lock. Each state of the lock has its time: who was waited for is nameless for
    a moment in the end.
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
            # Of a foreign one nothing tells whether he lives: perhaps it is `is_held` that has the lock.
            may_be_nobody = found is None or found.process.is_foreign
            patience_s = ENDING_S if is_going else NAMELESS_S if may_be_nobody else 0.0
            if clock.monotonic_s() >= since_s + patience_s:
                raise _held(volume, found) from None
            apart.require_wanted()
            clock.sleep_s(PAUSE_S)
            continue
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the file was deleted before we locked it


def mark_ending(fd: int) -> None:
    """The lock is about to be let go."""
    _rewrite(fd, lambda found: replace(found, is_ending=True))


def mark_ready(fd: int) -> None:
    """Of a holder that began with is_opening: the lock stays held."""
    _rewrite(fd, lambda found: replace(found, is_opening=False))


def _rewrite(fd: int, change: Callable[[LockHolder], LockHolder]) -> None:
    """Only for messages and for those who wait, so a full disk is no matter."""
    text = os.pread(fd, 65536, 0)
    if (found := LockHolder.from_json(text)) is not None:
        with contextlib.suppress(OSError):
            os.pwrite(fd, change(found).to_json().ljust(len(text)), 0)


def _write_text(fd: int, text: bytes) -> None:
    """On a full disk the holder stays unnamed: the lock is held all the same."""
    os.ftruncate(fd, 0)
    try:
        os.pwrite(fd, text, 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def make_directory(path: Path) -> None:
    """The directory of a working copy, for its owner alone; AccessDeniedError, ReadOnlyError
    or NoSpaceError where it cannot be made."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            return
        except OSError as error:
            if not (isinstance(error, FileExistsError) and left):  # else it may have been deleted between two looks
                raise _unusable(path, error) from error


def release(fd: int) -> None:
    if fd not in _locked:
        return  # a forked child, which has closed its copy: the lock is its parent's
    _locked.discard(fd)
    os.ftruncate(fd, 0)
    fcntl.flock(fd, fcntl.LOCK_UN)  # a child forked meanwhile has a copy of the descriptor, which would keep the lock
    os.close(fd)


def excludes_all(fd: int) -> bool:
    """Whether the lock held by `fd` keeps out every process under this kernel, in whatever
    container.

    True of local file systems. One of a network, of FUSE or an overlay can be mounted twice, and
    each mount then have locks of its own.
    """
    return mount_table.is_local(fd)


def excludes_all_at(directory: Path) -> bool:
    """The same of locks of files in a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return excludes_all(fd)
    finally:
        os.close(fd)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock, named or not; as far as the file may be opened."""
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
        fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the file, too
    finally:
        os.close(fd)
    return False


def holder(path: Path) -> LockHolder | None:
    """Who holds the lock, as far as can be told without touching it; None: nobody."""
    found = last_holder(path)
    return found if found is not None and found.process.is_alive else None


def last_holder(path: Path) -> LockHolder | None:
    """Who holds the lock, or has died with it; None: nobody, it was released."""
    try:
        return LockHolder.from_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise config.inaccessible(path, error) from error


def user_name() -> str:
    """The login name, or the numeric user id where there is none (containers)."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def time_text(time_ns: int) -> str:
    """A time as people read it: UTC, to the second."""
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


def beside(volume: str) -> str:
    """A fork of the volume itself has what is not committed, too, and that is the other's."""
    return f"work beside it in a fork of its last version (`cowfs fork '{volume}@{{0}}' NEW`, Volume.version({volume!r}).fork())"


def _held(volume: str, found: LockHolder | None) -> LeaseHeldError:
    if found is None:
        return LeaseHeldError(
            f"volume {volume!r} is being mounted writable by another process on this machine",
            hint=f"Wait a moment, or {beside(volume)}.",
        )
    since = time_text(found.since_ns)
    details: dict[str, object] = {"who": f"{found.user}@{found.host}", "where": found.mount_path, "since": since}
    if not found.process.is_foreign:
        details["pid"] = found.process.pid
    if not found.mount_path.startswith("/"):
        return LeaseHeldError(
            f"volume {volume!r} is being written to by {found.user} on {found.host}, {found.mount_path}, since {since}",
            hint="A copy, a commit or a program that uses vol.files is at work. Wait until it ends and try again, or "
            f"{beside(volume)}.",
            details=details,
        )
    if any(entry.is_detached and entry.process == found.process for entry in registry.list_mounts()):
        return LeaseHeldError(
            f"volume {volume!r} was mounted writable by {found.user} at {found.mount_path}, is not any more, but programs still "
            f"have files of it open, or use it elsewhere; process {found.process.pid} serves them",
            hint="Let them close their files (lsof shows them), unmount it where else it is, or end that process "
            f"(`cowfs unmount {volume} --force`, or os.kill(); they get errors, and what was written is kept); or "
            f"{beside(volume)}.",
            details=details,
        )
    return LeaseHeldError(
        f"volume {volume!r} is mounted writable by {found.user} on {found.host} at {found.mount_path} since {since}",
        hint=f"{_way_on(volume, found)} or {beside(volume)}.",
        details=details,
    )


def _way_on(volume: str, found: LockHolder) -> str:
    """What can be done about who has it mounted."""
    mount = mount_table.mount_at(found.mount_path)
    if found.process.is_foreign:
        at = f"Work at {found.mount_path}; or u" if mount is not None and mount.volume == volume else "U"
        return (
            f"{at}nmount it where it was mounted (`cowfs unmount {volume}`), or end that container: its process runs in "
            f"{found.process.where}, and nothing here can end it;"
        )
    if mount is not None:
        return f"Work at {found.mount_path}, unmount it first,"
    return (
        "No mount is to be seen there: programs may have files of it open still, or it is in another mount namespace. "
        f"End process {found.process.pid},"
    )
