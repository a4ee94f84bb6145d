"""Where scratch mounts keep what is written to them: a directory each, which goes with its mount.

    <state dir>/scratch/<registration>-<volume>/     laid out as a working copy (working_copy.py)

The daemon holds the directory's lock as long as it serves the mount, and deletes the directory at
the end. What a killed daemon leaves behind is of no use to anybody: no mount can resume it. `sweep`
deletes it, and takes the dead mount off its path. `cowfs status`, `cowfs unmount` and every scratch
mount call it. Directories whose holder lives, here, in another container or on another machine that
shares the state directory, are left alone, and so are mounts that another state directory knows.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from cowfs import config
from cowfs.errors import CowfsError
from cowfs.machine import lock, mount_table, mounting, processes
from cowfs.machine.working_copy import WorkingCopy


def locate(registration: str, volume: str, *, meta_dir: Path | None = None) -> WorkingCopy:
    """Where the mount of that registration keeps what is written; meta_dir takes the place of the
    state directory."""
    return WorkingCopy(_root(meta_dir) / f"{registration}-{volume}")


def sweep(meta_dir: Path | None = None) -> list[str]:
    """Removes what scratch mounts have left whose daemons have died; the paths that have no mount
    any more."""
    detached = []
    for path in _directories(meta_dir):
        left = WorkingCopy(path)
        with contextlib.suppress(CowfsError, OSError):  # another process does the same at this moment
            if lock.is_held(left.lock_path) or _may_live(left):
                continue
            last = lock.last_holder(left.lock_path)
            if last is not None and _detach(last.mount_path):
                detached.append(last.mount_path)
            left.delete()
    return detached


def _may_live(left: WorkingCopy) -> bool:
    """Of one whose lock is free. A process of another container cannot be seen, but under this
    kernel, on a local file system, it would have the lock."""
    holder = left.holder()
    if holder is None:
        return False
    return holder.process.boot_id != processes.boot_id() or not lock.excludes_all_at(left.path)


def _detach(path: str) -> bool:
    """Takes a dead scratch mount off the path."""
    mount = mount_table.mount_at(path)
    return mount is not None and mount.is_scratch and mounting.detach_dead(path)


def _root(meta_dir: Path | None) -> Path:
    return (meta_dir or config.state_dir()) / "scratch"


def _directories(meta_dir: Path | None) -> list[Path]:
    return config.listed(_root(meta_dir))
