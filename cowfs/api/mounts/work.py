"""Work of a volume that is in no version, wherever it is on this machine.

    mounted here               the mount's daemon answers (`control.live_mount`)
    a copy, mounted or not     this process reads its folder (`folder`)
    `files` of this process    their session answers
    kept, and not mounted      opened briefly in this process, as for a commit
    no work                    nothing to read

Reading publishes nothing, and stores nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from cowfs.api import stores
from cowfs.api.access import file_session
from cowfs.api.access.used_files import UsedFiles
from cowfs.api.files import RWFiles
from cowfs.api.mounts import folder, kept_work
from cowfs.api.mounts.base import mount_of
from cowfs.api.transfers import tree_publishing
from cowfs.api.upkeep import copied_stores
from cowfs.base import log
from cowfs.base.errors import CowfsError, InvalidInputError
from cowfs.base.hints import Command
from cowfs.control.messages import Compared, Comparison
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.api.transfers.transfer_report import Target
    from cowfs.api.versions.located_version import LocatedVersion

_log = log.get("volume")


def compared(
    volume: VolumeHandle, other: LocatedVersion | None, path: bytes, *, times: bool = False, renames: bool = True
) -> Compared:
    """`RWVolume.diff`. path: without slashes at its ends."""
    from cowfs.api.versions import comparing

    volume.resolve()
    target, entry = volume.target(), volume.live()
    if other is not None:
        require_same_store(target.store, other)
    wanted = Comparison(
        other.version if other is not None else None,
        os.fsdecode(other.folder) if other is not None else "",
        os.fsdecode(path),
        times,
        renames,
    )
    if entry is not None:
        return mount_of(entry).compare(target, volume.options, wanted)
    if (found := _of_kept(volume, target, wanted)) is not None:
        return found
    newest = volume.last_version()
    if newest is None:
        if other is None and path:
            from cowfs.version.differences import neither_has

            raise neither_has(path)
        return Compared(None, ())
    old = other if other is not None else newest
    found_changes = comparing.changes(old, newest, os.fsdecode(path), times=times, renames=renames)
    return Compared(old.version, tuple(found_changes))


def read(volume: VolumeHandle, path: str) -> bytes:
    """A file of the volume as it is now."""
    if (working_copy := _find_kept_folder(volume)) is not None:
        from cowfs.folders import folder_files

        return folder_files.read_file(working_copy, path.strip("/"))
    return RWFiles(volume.access(), volume).read(path)


def mode_and_target(volume: VolumeHandle, path: str) -> tuple[int, str | None]:
    """st_mode of an entry of the volume as it is now, and the target if it is a link."""
    if (working_copy := _find_kept_folder(volume)) is not None:
        from cowfs.folders import folder_files

        return folder_files.mode_and_target(working_copy, path.strip("/"))
    found = RWFiles(volume.access(), volume).stat(path, follow=False)
    return found.mode, found.target


def _find_kept_folder(volume: VolumeHandle) -> WorkingCopy | None:
    """The working copy of a copy that is not mounted."""
    if volume.live() is not None:
        return None
    volume.resolve()
    working_copy = volume.working_copy()
    return working_copy if working_copy.copy is not None else None


def _of_kept(volume: VolumeHandle, target: Target, wanted: Comparison) -> Compared | None:
    """None: there is no uncommitted work. For a volume that is not mounted here."""
    from cowfs.session import work_comparing

    key = file_session.key_of(target.store.record.store_id, target.name)
    with file_session.alone(key) as held:
        if held is not None:
            copied_stores.require_session_of(target.store, held, target.name)
            with held.used() as session:
                return work_comparing.compare_working(session, wanted)
        if volume.options.meta_path is None:
            kept_work.require_all(target.working_copy, target.store)
        if target.working_copy.copy is not None:
            return folder.compare(target, volume.options, wanted)
        if not target.working_copy.has_records:
            return None
        from cowfs.session.opening import enter_session

        options = replace(volume.options, take_over=False)
        with enter_session(tree_publishing.writing(target, options), access=target.store.access) as session:
            return work_comparing.compare_working(session, wanted)


def require_same_store(store: stores.OpenStore, version: LocatedVersion) -> None:
    if not copied_stores.is_same(version.open_store(), store):
        raise InvalidInputError(
            f"{version.locator} lies in another store",
            hint="Commit, and compare the two versions; or copy what you need "
            f"({Command('download', version.locator)}, {Command('upload')}).",
        )


def has_changes(store: stores.OpenStore, volume: str) -> bool:
    """Whether this machine has work of the volume that is in no version."""
    used = UsedFiles()
    if used.found(store, volume) is not None and (is_dirty := used.is_dirty()) is not None:
        return is_dirty
    if (entry := copied_stores.find_mount(store, volume)) is not None:
        return mount_of(entry).has_uncommitted()
    working_copy = copied_stores.locate(store, volume)
    return working_copy.may_have_uncommitted or bool(kept_work.elsewhere(working_copy, store))


def warn_of_changes(store: stores.OpenStore, volume: str, omitted: str) -> None:
    """Warns that an operation on the volume's version leaves out uncommitted work. omitted: how."""
    with suppress(CowfsError):  # a daemon that does not answer must not prevent the operation
        if has_changes(store, volume):
            _log.warning(
                "volume %s has uncommitted work on this machine, which is not %s; commit it first to have it there",
                volume,
                omitted,
            )
