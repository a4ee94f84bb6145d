"""Which processes of this user share a mount, so that one that is done does not take it from the
others.

Each process that mounts a volume, or finds it mounted, holds a shared flock on the mount's entry in
the runtime directory (`registry`), until it ends the mount or itself ends. Whoever is done asks for
the lock alone: having it means that nobody else is there, and that nobody comes any more. Objects of
one process count as one. A mount made by the command line has no process that shares it.

Threads: any. A forked child holds nothing of its own until it mounts, too.
"""

from __future__ import annotations

import fcntl
import os
from threading import Lock

from cowfs.machine import registry
from cowfs.machine.registry import MountEntry

_lock = Lock()
_held: dict[tuple[int, str], int] = {}


def join(entry: MountEntry) -> bool:
    """This process uses the mount from now on. False: the last one of the others is ending it."""
    with _lock:
        _drop_ended()
        key = (os.getpid(), entry.id)
        if key in _held:
            return True
        try:
            fd = os.open(registry.shared_file(entry), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        _held[key] = fd
        return True


def is_last(entry: MountEntry) -> bool:
    """This process is done with the mount; whether no other one shares it, so that it may end it.

    Then others that want to share it are kept away until `forget`.
    """
    with _lock:
        fd = _held.get((os.getpid(), entry.id))
        if fd is None:
            try:
                fd = os.open(registry.shared_file(entry), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return True
            _held[os.getpid(), entry.id] = fd
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _close(_held.pop((os.getpid(), entry.id)))
            return False
        return True


def forget(entry: MountEntry) -> None:
    """The mount has ended, or this process could not end it."""
    with _lock:
        if (fd := _held.pop((os.getpid(), entry.id), None)) is not None:
            _close(fd)


def _drop_ended() -> None:
    """Of mounts that others have ended: their files are gone."""
    for key, fd in list(_held.items()):
        if os.fstat(fd).st_nlink == 0:
            os.close(fd)
            del _held[key]


def _close(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)  # a child forked meanwhile has a copy of the descriptor
    os.close(fd)
