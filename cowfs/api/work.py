"""Work of a volume that is in no version, on this machine: reached wherever it is.

    mounted here               the mount's daemon is asked (`control.live_mount`)
    a copy, mounted or not     its folder is read (`copies`), by this process
    `files` of this process    its session
    kept, and not mounted      opened in this process for the moment, as for a commit
    none                       there is nothing to ask

Asking publishes nothing, and stores nothing.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.api import copied_stores, copies, file_access, file_session, kept_work, stores, tree_publishing
from cowfs.control import live_mount
from cowfs.control.messages import Compared, Comparison
from cowfs.errors import InvalidInputError
from cowfs.ids import VersionId
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.api.ro_volume import ROVolume
    from cowfs.api.rw_volume import RWVolume
    from cowfs.api.transfer_report import Target


def compared(
    volume: RWVolume, other: ROVolume | None, path: bytes, *, times: bool = False, renames: bool = True
) -> Compared:
    """`RWVolume.diff`. path: without slashes at its ends."""
    from cowfs.api import comparing

    volume.resolve()
    target, entry = volume._target(), volume.live()
    if other is not None:
        require_same_store(target.store, other)
    wanted = Comparison(
        VersionId.from_hex(other.id) if other is not None else None,
        other.folder if other is not None else "",
        os.fsdecode(path),
        times,
        renames,
    )
    if entry is not None and entry.working_copy is not None and entry.is_copy:
        mounted = replace(target, working_copy=WorkingCopy(Path(entry.working_copy)))
        return copies.compared(mounted, volume._options, wanted)
    if entry is not None:
        return live_mount.compare(entry, wanted)
    if (found := _of_kept(volume, target, wanted)) is not None:
        return found
    newest = next(iter(volume.history(1)), None)
    if newest is None:
        if other is None and path:
            from cowfs.version.differences import neither_has

            raise neither_has(path)
        return Compared(None, ())
    old = other if other is not None else newest
    found_changes = comparing.changes(old, newest, os.fsdecode(path), times=times, renames=renames)
    return Compared(VersionId.from_hex(old.id), tuple(found_changes))


def read(volume: RWVolume, path: str) -> bytes:
    """A file of the volume as it is now."""
    if volume.live() is None and (working_copy := volume.resolve()._working_copy()).copy is not None:
        return copies.read(working_copy, path.strip("/"))
    return volume.files.read(path)


def _of_kept(volume: RWVolume, target: Target, wanted: Comparison) -> Compared | None:
    """None: there is no uncommitted work. For a volume that is not mounted here."""
    from cowfs.session import work_comparing

    key = file_access.key_of(target.store.record.store_id, target.name)
    with file_session.alone(key) as held:
        if held is not None:
            copied_stores.require_session_of(target.store, held, target.name)
            with held.used() as session:
                return work_comparing.compared(session, wanted)
        if volume._options.meta_path is None:
            kept_work.require_all(target.working_copy, target.store)
        if target.working_copy.copy is not None:
            return copies.compared(target, volume._options, wanted)
        if not target.working_copy.has_records:
            return None
        from cowfs.session.opening import opened

        options = replace(volume._options, take_over=False)
        with opened(tree_publishing.writing(target, options), access=target.store.access) as session:
            return work_comparing.compared(session, wanted)


def require_same_store(store: stores.OpenStore, version: ROVolume) -> None:
    if not copied_stores.is_same(version.to_read(), store):
        raise InvalidInputError(
            f"{version.locator} lies in another store",
            hint="Commit, and compare the two versions; or copy what you need "
            f"(`cowfs download {shlex.quote(version.locator)}`, `cowfs upload`).",
        )
