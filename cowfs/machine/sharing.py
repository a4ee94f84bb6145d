"""Which processes of this user share a mount, and which objects of a process do, so that one that
is done does not take it from the others.

Each process that mounts a volume or version, or finds it mounted, holds a shared flock on the
mount's entry in the registry (`registry.shared_file`), until it ends the mount or itself ends.
Whoever is done asks for the lock alone: having it means that nobody else is there, and that nobody
comes any more. The lock is the process's; its objects that use the mount are kept beside it, for as
long as anything refers to them. A mount made by the command line has no process that shares it, in
the foreground neither; it stays until it is unmounted by command (`registry.is_lasting`). The file
goes with the mount: a lock on one that is deleted counts for nothing, but to a daemon that has made
it again (`Held`).

Threads: any. A forked child holds nothing of its own until it mounts, too.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from cowfs.fork_locks import ForkLock
from cowfs.machine import registry
from cowfs.machine.registry import MountEntry

_lock = ForkLock()
_held: dict[tuple[int, str], int] = {}
_users: dict[tuple[int, str], WeakSet[object]] = {}
_ending: set[tuple[int, str]] = set()


def join(entry: MountEntry, user: object) -> bool:
    """This process uses the mount from now on, for that object of it. False: it is not ready yet,
    the last one of the others is ending it, or it has ended."""
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
        if (fd := _opened(entry)) is None:
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
    with _lock:
        return set(_users.get((os.getpid(), entry.id), ()))


def is_alone(entry: MountEntry) -> bool:
    """Whether no other process shares the mount, so that this one may end it.

    Then others that want to share it are kept away until `forget` or `keep`. Else this process
    shares it as before, or does not.
    """
    with _lock:
        is_ours = _take_alone(entry)
        if not is_ours:
            _share_again(entry)
        return is_ours


def _take_alone(entry: MountEntry) -> bool:
    """False: the lock is not held at all any more. So of several processes that are done at the
    same moment the last one that asks has it."""
    _hold_restored()
    key = (os.getpid(), entry.id)
    fd = held = _held.get(key)
    if fd is None and (fd := _opened(entry)) is None:
        return True
    if not _try(fd, fcntl.LOCK_EX):  # a shared one is lost then
        if held is None:
            os.close(fd)
        return False
    _held[key] = fd
    _ending.add(key)
    return True


def is_last(entry: MountEntry, user: object) -> bool:
    """As `is_alone`, for an object that is done with the mount: it shares it no more. Never while
    other objects of this process do, and never for a mount that was asked for by command."""
    with _lock:
        left = _users.get((os.getpid(), entry.id), WeakSet())
        left.discard(user)
        if left:
            return False
        # Only with the lock it is sure that nobody joins and asks by command any more.
        if _take_alone(entry) and not registry.is_lasting(entry):
            return True
        forget(entry)
        return False


def keep(entry: MountEntry, user: object | None) -> None:
    """This process, which shared the mount and was alone, did not end it: it shares it as before.
    user: the object that `is_last` took off."""
    with _lock:
        _ending.discard((os.getpid(), entry.id))
        _share_again(entry)
        if user is not None:
            join(entry, user)


def _share_again(entry: MountEntry) -> None:
    """After the lock alone was held, or asked for in vain. Another process may have it by now: it
    ends the mount."""
    fd = _held.get((os.getpid(), entry.id))
    if fd is not None and not _try(fd, fcntl.LOCK_SH):
        forget(entry)


@contextmanager
def starting(entry: MountEntry) -> Iterator[None]:
    """For the daemon: nobody shares its mount until the block ends."""
    fd = _opened(entry)
    assert fd is not None, "it was registered just now"
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        _close(fd)


class Held:
    """For the daemon: the entries of its mount that were removed and made again. Who shared the
    mount before, and has not used it since, holds a lock on one of those."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def follow(self, entry: MountEntry) -> None:
        """The entry that counts from now on."""
        if (fd := _opened(entry)) is not None:
            self._fds.append(fd)

    def forget(self) -> None:
        """Who shared the mount does so no more."""
        while self._fds:
            os.close(self._fds.pop())

    def has_idle_sharers(self) -> bool:
        for fd in self._fds:
            if not _is_deleted(fd):
                continue
            if not _try(fd, fcntl.LOCK_EX):
                return True
            fcntl.flock(fd, fcntl.LOCK_UN)
        return False


@contextmanager
def ending(entry: MountEntry, held: Held) -> Iterator[bool]:
    """For the daemon, which was asked to end its mount: whoever asked has the lock alone, if he
    lives. False: he does not, and others share the mount by now, or do so still. Else nobody comes
    until the block ends."""
    fd = _opened(entry)
    try:
        is_alone = fd is None or _try(fd, fcntl.LOCK_EX) or not _try(fd, fcntl.LOCK_SH)
        yield is_alone and not held.has_idle_sharers()
    finally:
        if fd is not None:
            _close(fd)


def others(entry: MountEntry) -> list[int]:
    """The other processes that share the mount, as far as the kernel shows them: for messages
    only."""
    try:
        found = os.stat(registry.shared_file(entry))
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    locks = [line.split()[1:] for line in lines]  # FLOCK ADVISORY READ 4711 00:1a:523 0 EOF
    pids = {int(lock[3]) for lock in locks if lock[0] == "FLOCK" and lock[4] == place}
    return sorted(pid for pid in pids if pid > 0 and pid != os.getpid())


def forget(entry: MountEntry) -> None:
    """The mount has ended, or this process could not end it."""
    with _lock:
        key = (os.getpid(), entry.id)
        if (fd := _held.pop(key, None)) is not None:
            _close(fd)
        _users.pop(key, None)
        _ending.discard(key)


def _hold_restored() -> None:
    """Of mounts whose entries were removed, and made again by their daemons."""
    for key, fd in list(_held.items()):
        if key[0] != os.getpid() or not _is_deleted(fd):
            continue
        entry = registry.find_by_id(key[1])
        if entry is None or (found := _opened(entry)) is None:
            continue
        if _try(found, fcntl.LOCK_SH) and not _is_deleted(found):
            _held[key] = found
            os.close(fd)
        else:
            os.close(found)


def _drop_ended() -> None:
    """Of mounts that others have ended: their files are gone."""
    for key, fd in list(_held.items()):
        if _is_deleted(fd):
            os.close(fd)
            del _held[key]
            _users.pop(key, None)
            _ending.discard(key)


def _opened(entry: MountEntry) -> int | None:
    """None: the mount has ended."""
    access = (
        os.O_RDWR if entry.is_copy else os.O_RDONLY
    )  # on NFS, where a state may lie, only what may be written is locked
    try:
        return os.open(registry.shared_file(entry), access | os.O_CLOEXEC)
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
