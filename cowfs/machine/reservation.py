"""Keeps a mount point, or a volume, for the process that is about to mount, until the mount is
there.

The mount table is read before a daemon is started, and the daemon mounts: two processes that mount
at the same moment would choose the same path. A lock on a file in the runtime directory, named
after the path, keeps the second one away, and keeps whoever tidies up after an earlier mount from
removing the directory. Whoever mounts the same volume waits for its turn: a mount that is being
made is shared, not refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cowfs import clock, config, log
from cowfs.machine import dead_mounts, mount_table

_logger = log.get("mount")

PAUSE_S = 0.05
PATIENCE_S = 5.0
TURN_S = 600.0
"""Twice what a mount may take without a sign of progress."""


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
            _unlock(lock)


@contextmanager
def turn(what: str, is_needless: Callable[[], bool], *, doing: str) -> Iterator[None]:
    """Waits until no other block has it. One whose process is killed gives it back. doing: what
    whoever waits is told that the other one does.

    One whose process is stopped does not: after PATIENCE_S the wait also ends when is_needless says
    so, after TURN_S in any case. The working copy's lock decides then.
    """
    file, began_s, is_told = _file(what, "turn"), clock.monotonic_s(), False
    while (lock := _try_lock(file)) is None:
        waited_s = clock.monotonic_s() - began_s
        if waited_s > TURN_S or (waited_s > PATIENCE_S and is_needless()):
            break
        if waited_s > PATIENCE_S and not is_told:
            is_told = True
            _logger.warning("another process of yours %s; waiting for it", doing)
        clock.sleep_s(PAUSE_S)
    try:
        yield
    finally:
        if lock is not None:
            _unlock(lock)


def _file(what: str, kind: str = "path") -> Path:
    return config.runtime_dir() / f"{kind}-{hashlib.sha256(os.fsencode(what)).hexdigest()[:16]}.lock"


def _unlock(lock: int) -> None:
    fcntl.flock(lock, fcntl.LOCK_UN)  # a child forked meanwhile has a copy of the descriptor
    os.close(lock)


def _try_lock(file: Path) -> int | None:
    """A descriptor that holds the lock; None when another process has it. The file stays: it is
    empty, and one a path or a volume."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
