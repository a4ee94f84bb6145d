"""Tracks which processes of this user share a mount, and which objects of a process do, so that the
first one to finish does not unmount it for the others.

Each process that mounts a volume or version, or finds it mounted, holds a shared flock on the
mount's entry in the registry (`registry.sharing_file`), until it ends the mount or exits. A process
that is done requests the lock exclusively: if it gets the lock, no other process shares the mount,
and none can join. The lock is the process's. Beside it the process keeps the set of its objects
that use the mount, as long as code can use them: an object that only an exception's traceback
refers to does not count (`ended_calls`). A mount made by the command line has no process that
shares it, even in the foreground; it stays until a command unmounts it (`registry.is_lasting`). The
file is deleted with the mount: a lock on a deleted file does not count, except for a daemon that
has restored the entry (`Held`).

Thread-safe. A forked child holds no lock until it mounts, too: it closes its copies of the
descriptors, which would keep the locks when the parent is killed.
"""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from weakref import WeakSet, ref

from cowfs.base.fork_locks import ForkLock
from cowfs.machine import ended_calls, registry
from cowfs.machine.registry import MountEntry

Sharers = Literal["none", "some", "ending"]

_lock = ForkLock()
_held: dict[tuple[int, str], int] = {}
_users: dict[tuple[int, str], WeakSet[object]] = {}
_ending: set[tuple[int, str]] = set()


def join(entry: MountEntry, user: object) -> bool:
    """This process uses the mount from now on, for that object. False: the mount is not ready yet,
    the last other process is ending it, or it has ended."""
    with _lock:
        _hold_restored()
        _drop_ended()
        key = (os.getpid(), entry.id)
        if key in _ending or not _hold(entry, key):
            return False
        _users.setdefault(key, WeakSet()).add(user)
        return True


def _hold(entry: MountEntry, key: tuple[int, str]) -> bool:
    if key not in _held:
        if (fd := _open_entry(entry)) is None:
            return False
        if not _try(fd, fcntl.LOCK_SH) or _is_deleted(fd):
            os.close(fd)
            return False
        _held[key] = fd
    return True


def holds(entry: MountEntry) -> bool:
    """Whether this process shares the mount."""
    with _lock:
        return (os.getpid(), entry.id) in _held


def users(entry: MountEntry) -> set[object]:
    """The objects of this process that use the mount."""
    _drop_left_over(entry)
    with _lock:
        return set(_users.get((os.getpid(), entry.id), ()))


def is_alone(entry: MountEntry) -> bool:
    """Whether no other process shares the mount, so that this one may end it.

    If so, other processes cannot join until `forget` or `keep`. If not, this process shares it as
    before, or does not.
    """
    with _lock:
        is_ours = _take_alone(entry)
        if not is_ours:
            _share_again(entry)
        return is_ours


def _take_alone(entry: MountEntry) -> bool:
    """False: this process no longer holds the lock at all. So of several processes that are done at
    the same moment, the last to ask gets the lock."""
    _hold_restored()
    key = (os.getpid(), entry.id)
    fd = held = _held.get(key)
    if fd is None and (fd := _open_entry(entry)) is None:
        return True
    if not _try(fd, fcntl.LOCK_EX):  # this loses a shared lock
        if held is None:
            os.close(fd)
        return False
    _held[key] = fd
    _ending.add(key)
    return True


def is_last(entry: MountEntry, user: object) -> bool:
    """As `is_alone`, for an object that is done with the mount and no longer shares it. Never while
    other objects of this process share it, and never for a mount that a command requested."""
    _drop_left_over(entry)
    with _lock:
        left = _users.get((os.getpid(), entry.id), WeakSet())
        left.discard(user)
        if left:
            return False
        # Only the exclusive lock proves that no process joins and no command requests the mount.
        if _take_alone(entry) and not registry.is_lasting(entry):
            return True
        forget(entry)
        return False


def _drop_left_over(entry: MountEntry) -> None:
    """Runs without the lock: finalizers of collected objects may take it."""
    with _lock:
        found = [ref(each) for each in _users.get((os.getpid(), entry.id), ())]
    if len(found) < 2:
        return
    gc.collect()  # an exception, its traceback and a frame often refer to each other
    left_over = [each for each in found if ended_calls.is_left_over(each)]
    with _lock:
        for each in left_over:
            if (user := each()) is not None:
                _users.get((os.getpid(), entry.id), WeakSet()).discard(user)


def keep(entry: MountEntry, user: object | None) -> None:
    """For a process that was alone and did not end the mount: it shares the mount as before. user:
    the object that `is_last` removed."""
    with _lock:
        _ending.discard((os.getpid(), entry.id))
        _share_again(entry)
        if user is not None:
            join(entry, user)


def _share_again(entry: MountEntry) -> None:
    """After the lock was held exclusively, or requested in vain. Another process may have it by
    now: it is ending the mount."""
    fd = _held.get((os.getpid(), entry.id))
    if fd is not None and not _try(fd, fcntl.LOCK_SH):
        forget(entry)


@contextmanager
def starting(entry: MountEntry) -> Iterator[None]:
    """For the daemon: no process shares its mount until the block ends."""
    fd = _open_entry(entry)
    assert fd is not None, "it was registered just now"
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        _close(fd)


class Held:
    """For the daemon: the entries of its mount that were deleted and restored. A process that
    shared the mount before, and has not used it since, holds a lock on a deleted one."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def follow(self, entry: MountEntry) -> None:
        """Adds the entry that counts from now on."""
        if (fd := _open_entry(entry)) is not None:
            self._fds.append(fd)

    def forget(self) -> None:
        """Closes all entries: processes that locked them no longer count."""
        while self._fds:
            os.close(self._fds.pop())

    def has_idle_sharers(self) -> bool:
        for fd in self._fds:
            if not _is_deleted(fd):
                continue
            is_shared = not _try(fd, fcntl.LOCK_EX) and _try(fd, fcntl.LOCK_SH)
            fcntl.flock(fd, fcntl.LOCK_UN)
            if is_shared:  # one that is locked exclusively is of a process that is ending the mount
                return True
        return False


@contextmanager
def ending(entry: MountEntry, held: Held) -> Iterator[bool]:
    """For the daemon, when it is asked to end its mount. Yields True if no process shares the
    mount: the asking process holds the exclusive lock, or has died. Then none can join until the
    block ends. False: that process has died, and others share the mount."""
    with excluding(entry, held) as sharers:
        yield sharers != "some"


@contextmanager
def excluding(entry: MountEntry, held: Held) -> Iterator[Sharers]:
    """For the daemon. Yields "none" if no process shares the mount, and "ending" if one that is
    alone is ending it. In both cases no process can join until the block ends, unless that one
    gives up."""
    fd = _open_entry(entry)
    try:
        sharers: Sharers = "none"
        if fd is not None and not _try(fd, fcntl.LOCK_EX):
            sharers = "some" if _try(fd, fcntl.LOCK_SH) else "ending"
        yield "some" if sharers != "some" and held.has_idle_sharers() else sharers
    finally:
        if fd is not None:
            _close(fd)


def others(entry: MountEntry) -> list[int]:
    """The other processes that share the mount, as far as the kernel shows them; for messages
    only."""
    try:
        found = os.stat(registry.sharing_file(entry))
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    locks = [line.split()[1:] for line in lines]  # FLOCK ADVISORY READ 4711 00:1a:523 0 EOF
    pids = {int(lock[3]) for lock in locks if lock[0] == "FLOCK" and lock[4] == place}
    return sorted(pid for pid in pids if pid > 0 and pid != os.getpid())


def forget(entry: MountEntry) -> None:
    """Drops this process's lock: the mount has ended, or this process could not end it."""
    with _lock:
        key = (os.getpid(), entry.id)
        if (fd := _held.pop(key, None)) is not None:
            _close(fd)
        _users.pop(key, None)
        _ending.discard(key)


def _hold_restored() -> None:
    """Locks the new entries of mounts whose daemons have restored them."""
    for key, fd in list(_held.items()):
        if key[0] != os.getpid() or not _is_deleted(fd):
            continue
        entry = registry.find_by_id(key[1])
        if entry is None or (found := _open_entry(entry)) is None:
            continue
        if _try(found, fcntl.LOCK_SH) and not _is_deleted(found):
            _held[key] = found
            os.close(fd)
        else:
            os.close(found)


def _drop_ended() -> None:
    """Drops the locks of mounts that others have ended: their files are gone."""
    for key, fd in list(_held.items()):
        if _is_deleted(fd):
            os.close(fd)
            del _held[key]
            _users.pop(key, None)
            _ending.discard(key)


def _open_entry(entry: MountEntry) -> int | None:
    """None: the mount has ended."""
    # The entry of a folder lies in the state directory. NFS locks only what is open for writing.
    access = os.O_RDONLY if entry.has_daemon else os.O_RDWR
    try:
        return os.open(registry.sharing_file(entry), access | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _try(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_deleted(fd: int) -> bool:
    return os.fstat(fd).st_nlink == 0


def _close(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)  # a child forked meanwhile has a copy of the descriptor
    os.close(fd)


def _close_inherited() -> None:
    """In a forked child."""
    while _held:
        os.close(_held.popitem()[1])
    _users.clear()
    _ending.clear()


os.register_at_fork(after_in_child=_close_inherited)
