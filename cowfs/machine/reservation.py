"""Reserves a mount point, or a volume, for the process that is about to mount, until the mount
exists.

The mount table is read before a daemon is started, and the daemon mounts: two processes that mount
at the same moment would choose the same path. A lock on a file in the runtime directory, named
after the path, excludes the second one, and also keeps a process that tidies up after an earlier
mount from removing the directory. A process that mounts the same volume waits for its turn: a mount
in the making is shared, not refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from cowfs.base import clock, config, interruptible, log
from cowfs.base.errors import from_local_disk
from cowfs.base.fork_locks import ForkLock
from cowfs.machine import dead_mounts, mount_table

_logger = log.get("mount")

PAUSE_S = 0.05
PATIENCE_S = 5.0
"""Shorter waits are not reported."""
TURN_S = 600.0
"""Twice the time that a mount may take without a sign of progress."""

_lock = ForkLock()
_told: dict[Path, bytes] = {}
"""The holder that was last reported to waiting threads of this process, by the file of the turn."""


@contextmanager
def first_free(candidates: Iterable[str]) -> Iterator[str | None]:
    """The first path that has no live mount and that no other process reserves. It is reserved
    until the block ends.

    None: every one is taken.
    """
    for path in candidates:
        with reserve(path) as is_ours:
            if is_ours and (mount_table.mount_at(path) is None or dead_mounts.find_at(path) is not None):
                yield path
                return
    yield None


@contextmanager
def reserve(path: str) -> Iterator[bool]:
    """Reserves the path until the block ends. False: another block has it."""
    lock = _try_lock(_file(path))
    try:
        yield lock is not None
    finally:
        if lock is not None:
            _unlock(lock)


@contextmanager
def turn(what: str, is_needless: Callable[[], bool], *, doing: str) -> Iterator[bool]:
    """Waits until no other block has the turn. A turn ends when its process is killed. doing: the
    action of the other block, for the message to waiting users.

    The wait also ends once is_needless returns True; the block then runs without the turn, and the
    value is False. A stopped process does not release its turn: once the same block has had it for
    TURN_S, the wait ends in any case, and the working copy's lock decides.
    """
    file, holder, since_s, is_ours = _file(what, "turn"), b"", clock.monotonic_s(), True
    while (lock := _try_lock(file)) is None:
        if is_needless():
            is_ours = False
            break
        if (found := file.read_bytes()) != holder:
            holder, since_s = found, clock.monotonic_s()
        if (waited_s := clock.monotonic_s() - since_s) > TURN_S:
            break
        if waited_s > PATIENCE_S:
            _tell(file, holder, doing)
        interruptible.require_wanted()
        clock.sleep_s(PAUSE_S)
    try:
        if lock is not None:
            _sign(lock, file)
        yield is_ours
    finally:
        if lock is not None:
            _unlock(lock)


def _sign(lock: FileIO, file: Path) -> None:
    """Writes this block's name, which always has the same length."""
    try:
        os.pwrite(lock.fileno(), b"%010d %s" % (os.getpid(), clock.random_bytes(8).hex().encode()), 0)
    except OSError as error:
        raise from_local_disk(error, f"{file} cannot be written") from error


def _tell(file: Path, holder: bytes, doing: str) -> None:
    """Reports each holder once, however many threads wait for it."""
    with _lock:
        if _told.get(file) == holder:
            return
        _told[file] = holder
    pid = int(holder.partition(b" ")[0] or 0)
    who = "another thread of this process" if pid == os.getpid() else f"process {pid} of yours"
    _logger.warning("%s %s; waiting for it", who if pid else "another process of yours", doing)


def _file(what: str, kind: str = "path") -> Path:
    return config.runtime_dir() / f"{kind}-{hashlib.sha256(os.fsencode(what)).hexdigest()[:16]}.lock"


def _unlock(lock: FileIO) -> None:
    fcntl.flock(lock, fcntl.LOCK_UN)  # a child forked meanwhile has a copy of the descriptor
    lock.close()


def _try_lock(file: Path) -> FileIO | None:
    """An open file that holds the lock; None: another process has it. The lock is released when the
    object is freed, since Ctrl-C may come before any statement. The file stays: there is one for
    each path or volume, and it is empty or names the last turn."""
    try:
        lock = FileIO(file, "r+", opener=_create_file)
    except OSError as error:
        raise from_local_disk(error, f"{file} cannot be opened") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _create_file(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)
