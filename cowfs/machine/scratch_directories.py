"""The directories of scratch mounts: each holds the data written to one mount, and is deleted with
it.

    <state dir>/scratch/<registration>-<volume>/     laid out as a working copy (working_copy.py)

The daemon holds the directory's lock as long as it serves the mount, and deletes the directory at
the end. The directory of a killed daemon is useless: no mount can resume it. `sweep` deletes it and
detaches the dead mount; `cowfs status`, `cowfs unmount` and every scratch mount call it.
Directories whose holder lives, here, in another container or on another machine that shares the
state directory, are left alone, and so are mounts that another state directory knows.
shares the state directory, are left alone, and so are mounts that another state directory knows.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from cowfs.base import config, private_directories
from cowfs.base.errors import CowfsError
from cowfs.machine import lock, mount_table, mounting, processes
from cowfs.machine.working_copy import WorkingCopy


def locate(registration: str, volume: str, *, meta_dir: Path | None = None) -> WorkingCopy:
    """The directory of the mount with that registration; meta_dir replaces the state directory."""
    return WorkingCopy(_root(meta_dir) / f"{registration}-{volume}")


def sweep(meta_dir: Path | None = None) -> list[str]:
    """Removes the remains of scratch mounts whose daemons have died; returns the paths that were
    detached."""
    detached = []
    for path in _directories(meta_dir):
        left = WorkingCopy(path)
        with contextlib.suppress(CowfsError, OSError):  # another process may do the same now
            if lock.is_held(left.lock_path) or _may_live(left):
                continue
            last = lock.last_holder(left.lock_path)
            if last is not None and _detach(last.mount_path):
                detached.append(last.mount_path)
            left.delete()
    return detached


def _may_live(left: WorkingCopy) -> bool:
    """Whether the holder may live although its lock is free. A process of another container is not
    visible, but under this kernel, on a local file system, it would hold the lock."""
    holder = left.holder()
    if holder is None:
        return False
    return holder.process.boot_id != processes.boot_id() or not lock.excludes_all_at(left.path)


def _detach(path: str) -> bool:
    """Detaches a dead scratch mount from the path."""
    mount = mount_table.mount_at(path)
    return mount is not None and mount.is_cowfs and mount.kind == "scratch" and mounting.detach_dead(path)


def _root(meta_dir: Path | None) -> Path:
    return private_directories.require((meta_dir or config.state_dir()) / "scratch")


def _directories(meta_dir: Path | None) -> list[Path]:
    return config.list_directory(_root(meta_dir))
