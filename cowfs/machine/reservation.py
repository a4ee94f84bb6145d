"""Keeps a mount point for the process that is about to mount there, until the mount is there.

The mount table is read before a daemon is started, and the daemon mounts: two processes that mount
at the same moment would choose the same path. A lock on a file in the runtime directory, named
after the path, keeps the second one away, and keeps whoever tidies up after an earlier mount from
removing the directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cowfs import config
from cowfs.machine import dead_mounts, mount_table


@contextmanager
def first_free(candidates: Iterable[str]) -> Iterator[str | None]:
    """The first path that carries no live mount and that no other process reserves. It is reserved
    until the block ends.

    None: every one is taken.
    """
    for path in candidates:
        with reserved(path) as is_ours:
            if is_ours and (mount_table.mount_at(path) is None or dead_mounts.find_at(path) is not None):
                yield path
                return
    yield None


@contextmanager
def reserved(path: str) -> Iterator[bool]:
    """Reserves the path until the block ends. False: another block has it."""
    lock = _try_lock(_file(path))
    try:
        yield lock is not None
    finally:
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)  # a child forked meanwhile has a copy of the descriptor
            os.close(lock)


def _file(path: str) -> Path:
    return config.runtime_dir() / f"path-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.lock"


def _try_lock(file: Path) -> int | None:
    """A descriptor that holds the lock; None when another process has it. The file stays: it is
    empty, and one a path."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
