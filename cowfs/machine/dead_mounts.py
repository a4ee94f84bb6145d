"""Finds mounts whose daemon has died: they fail every use until they are unmounted or mounted
again.

The kernel's table lists the mounts, the registry the living daemons. A mount that is only in the
table may be dead, or its daemon may be missing in this user's registry (another user's daemon, or
one with other directories). Only a request tells: a dead mount answers ENOTCONN at once. The
request is made in a thread, since a mount that hangs would hang its caller.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import Future
from threading import Thread

from cowfs.machine import mount_table, registry
from cowfs.machine.mount_table import MountInfo
from cowfs.machine.registry import MountEntry

PATIENCE_S = 2.0


def find() -> list[MountInfo]:
    """This user's dead mounts of cowfs that this process can see, by path."""
    live = {entry.mount_path for entry in registry.list_mounts()}
    unknown = {mount.path for mount in mount_table.mounts() if mount.is_ours} - live
    return [found for path in sorted(unknown) if (found := find_at(path)) is not None]


def find_at(path: str) -> MountInfo | None:
    """The mount at this canonical path, if it is a mount of cowfs without a daemon. A mount that
    hangs counts as alive, unless its daemon is known to be dead."""
    mount = mount_table.mount_at(path)
    if mount is None or not mount.is_cowfs or registry.find_by_path(path) is not None:
        return None
    return mount if _is_disconnected(path) or _is_stuck(mount) else None


def find_around(path: str) -> MountInfo | None:
    """As `find_at`, for the mount that contains this canonical path or is mounted on it."""
    inside = [mount.path for mount in mount_table.mounts() if f"{path}/".startswith(f"{mount.path.rstrip('/')}/")]
    return find_at(max(inside, key=len)) if inside else None


def registration(mount: MountInfo) -> MountEntry | None:
    """The registry entry of a dead mount; None: no registry in this user's directories has one."""
    entry = registry.find_dead(mount.path)
    return entry if entry is not None and entry.volume == mount.volume else None


def _is_stuck(mount: MountInfo) -> bool:
    """Whether its daemon was killed while a thread of it waited for the mount itself, which nobody
    answers any more."""
    entry = registration(mount)
    return entry is not None and entry.process.is_there


def _is_disconnected(path: str) -> bool:
    answer: Future[int] = Future()
    Thread(target=lambda: answer.set_result(_error_of(path)), daemon=True).start()
    try:
        return answer.result(PATIENCE_S) in (errno.ENOTCONN, errno.ECONNABORTED)
    except TimeoutError:
        return False


def _error_of(path: str) -> int:
    try:
        os.statvfs(path)  # the kernel may answer stat from its cache
    except OSError as error:
        return error.errno or 0
    return 0
