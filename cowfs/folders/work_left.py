"""The folder of a volume after its mount: removed if it has no work, reused by the next mount if it
has."""

from __future__ import annotations

from cowfs.base.errors import InvalidStateError
from cowfs.base.hints import Command
from cowfs.folders import mounted_folders
from cowfs.machine.folders.folder import Copy
from cowfs.machine.lock import LockHolder
from cowfs.machine.working_copy import WorkingCopy


def tidy(working_copy: WorkingCopy) -> bool:
    """After a mount has ended: removes the folder if it has no work. Returns whether there is one
    with work."""
    copy = working_copy.copy
    if copy is None:
        return False
    with mounted_folders.turn(working_copy.path):
        is_whole = _settle(copy, working_copy) and copy.record.stage == "whole" and copy.is_there
        return is_whole and not remove_unchanged(copy, working_copy)


def _settle(copy: Copy, working_copy: WorkingCopy) -> bool:
    """As `Copy.settle`. If there is no copy left, its registration is removed."""
    if copy.settle():
        return True
    mounted_folders.unregister(working_copy)
    return False


def remove_unchanged(copy: Copy, working_copy: WorkingCopy) -> bool:
    """Removes a folder without work, and its registration. Returns whether it was removed."""
    base = WorkingCopy(working_copy.path).state.base_version  # the present one: a commit may have changed it
    if not copy.remove_unchanged(base):
        return False
    mounted_folders.unregister(working_copy)
    return True


def find_folder(working_copy: WorkingCopy, path: str | None) -> Copy | None:
    """The copy with the volume's work, for the next mount at its path. A copy without work at
    another path is removed, and so is an incomplete copy. `replace_gone` handles a copy whose
    folder is missing. InvalidStateError: the copy has work, and `path` is another path."""
    copy = working_copy.copy
    if copy is None or not _settle(copy, working_copy):
        return None
    record = copy.record
    if record.stage == "filling":
        # The process that fills it holds the lock. For a process of another container, the lock
        # alone tells whether it has ended.
        with working_copy.lock(LockHolder.make_brief(f"(tidying {record.mount_path})")):
            copy.remove_filling()
        return None
    if not copy.is_there:
        return None
    if path is None or path == record.mount_path:
        return copy
    if remove_unchanged(copy, working_copy):
        return None
    raise InvalidStateError(
        f"uncommitted work of volume {working_copy.volume!r} is in the copy at {record.mount_path}",
        hint=f"Mount it there ({Command('mount', working_copy.volume, record.mount_path)}, mount()), and commit it; "
        f"or drop it ({Command('unmount', working_copy.volume, '--discard')}, discard()).",
    )
