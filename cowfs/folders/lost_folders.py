"""Folders that are not at their path: deleted, moved, or visible only in another container.

gone         its work is lost, unless the folder was moved: the next mount warns, and starts from the last version
elsewhere    a process may be working in it: refused, unless the user states that the container has ended
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cowfs.base import log
from cowfs.base.beneath import Root
from cowfs.base.errors import ConflictError, InvalidStateError
from cowfs.base.hints import Command
from cowfs.folders import mounted_folders
from cowfs.machine import processes, registry
from cowfs.machine.folders.folder import Copy
from cowfs.machine.working_copy import WorkingCopy

_log = log.get("copy")

LOST = "The files of a copy are on the local file system: if the folder was moved, look for it there."


def require_not_elsewhere(working_copy: WorkingCopy) -> None:
    """LeaseHeldError: the folder of its copy is not visible here, but may exist with work in
    another container."""
    if (copy := working_copy.copy) is not None:
        copy.require_not_elsewhere()


def require_mine(copy: Copy) -> None:
    """A check before a copy is unmounted or discarded. ConflictError: its folder is not visible
    here, but may exist in another container."""
    if not copy.exists or not copy.is_elsewhere:
        return
    record = copy.record
    forget = f"{Command('unmount', record.volume, '--discard', '--force')}, discard(force=True)"
    if record.read_only:
        forget = f"{Command('unmount', record.mount_path, '--force')}, unmount(force=True)"
    raise ConflictError(
        f"the copy of {record.volume} at {record.mount_path} was made in {record.process.where}, and is not to be seen here: it "
        "may be in use there",
        hint=f"Unmount it there. If that container is gone, or nobody needs what it has: {forget} forgets the copy, and leaves "
        "its folder alone.",
        details={"where": record.mount_path},
    )


def tell_if_gone(working_copy: WorkingCopy) -> bool:
    """Warns if the folder is missing or not visible here, and returns whether it is. Call it before
    a mount ends or its work is discarded."""
    copy = working_copy.copy
    if copy is None or not copy.is_out_of_sight:
        return False
    _log.warning("%s. %s", _loss(copy), LOST)
    return True


def _loss(copy: Copy) -> str:
    record = copy.record
    if copy.is_elsewhere:
        return (
            f"the folder of the copy of volume {record.volume}, {record.mount_path}, was made in {record.process.where}, and is not "
            "to be seen here; what was written there since the last commit is in no version"
        )
    other = " (another one is in its place)" if os.path.lexists(record.mount_path) else ""
    return (
        f"the folder of the copy of volume {record.volume}, {record.mount_path}, is gone{other}, and with it what was written "
        "there since the last commit"
    )


@contextmanager
def replace_gone(working_copy: WorkingCopy, *, take_over: bool) -> Iterator[None]:
    """For a block that mounts the volume anew. A copy whose folder is missing is forgotten only
    once the block has succeeded, since the folder may come back. LeaseHeldError, unless take_over:
    a copy was made in another container since `require_not_elsewhere`."""
    copy = working_copy.copy
    if copy is None or not copy.is_out_of_sight:
        yield
        return
    if not take_over:
        copy.require_not_elsewhere()
        copy.require_looked_at()
    loss, entries = _loss(copy), mounted_folders.list_of(working_copy)

    def is_served() -> bool:
        holder = working_copy.holder()
        return holder is not None and holder.process != processes.this_process()

    with copy.suspend(is_served):
        yield
    _log.warning("%s. The mount begins with what was committed. %s %s publishes it", loss, LOST, Command("upload"))
    for entry in entries:
        registry.unregister(entry)


def open_folder(copy: Copy) -> Root:
    """Opens the folder of the copy. InvalidStateError: it does not exist, so its contents are
    unknown."""
    record = copy.record
    path = record.mount_path
    root = copy.open() if copy.settle() and copy.record.stage == "whole" else None
    if root is None:
        if copy.exists and copy.is_elsewhere:
            raise InvalidStateError(
                f"the copy at {path} was made in {record.process.where}, and is not to be seen here; nothing was published",
                hint=f"Commit it there. If that container is gone: {Command('mount', record.volume, 'PATH', '--take-over')}, "
                "mount() with take_over=True, begins with what was committed.",
            )
        raise InvalidStateError(
            f"the copy at {path} is not there any more, or is another directory; nothing was published",
            hint=f"{LOST} Move it back; or mount the volume again ({Command('mount', record.volume, 'PATH')}, mount()), "
            "which begins with what was committed, and upload the folder to that.",
        )
    return root
