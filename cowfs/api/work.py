"""Work of a volume that is in no version, on this machine: reached wherever it is.

    mounted here               the mount's daemon is asked (`control.live_mount`)
    `files` of this process    its session
    kept, and not mounted      opened in this process for the moment, as for a commit
    none                       there is nothing to ask

A mount that is a copy has no engine that could tell: what differs there is found by committing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from cowfs.api import file_access, file_session, kept_work, stores, tree_publishing
from cowfs.control import live_mount
from cowfs.control.messages import Compared, Comparison
from cowfs.errors import InvalidInputError, InvalidStateError
from cowfs.ids import VersionId

if TYPE_CHECKING:
    from cowfs.api.ro_volume import ROVolume
    from cowfs.api.rw_volume import RWVolume
    from cowfs.api.transfer_report import Target
    from cowfs.machine.registry import MountEntry
    from cowfs.session.session import Session

T = TypeVar("T")


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
    if entry is not None:
        require_engine(entry)
        return live_mount.compare(entry, wanted)

    def of_session(session: Session) -> Compared:
        from cowfs.session import work_comparing

        return work_comparing.compared(session, wanted)

    found = with_kept_work(volume, target, of_session)
    if found is not None:
        return found
    newest = next(iter(volume.history(1)), None)
    if other is None or newest is None:
        return Compared(VersionId.from_hex(newest.id) if newest is not None else None, ())
    found_changes = comparing.changes(other, newest, os.fsdecode(path), times=times, renames=renames)
    return Compared(VersionId.from_hex(other.id), tuple(found_changes))


def with_kept_work(volume: RWVolume, target: Target, ask: Callable[[Session], T]) -> T | None:
    """What `ask` returns of the session that has the volume's uncommitted work; None: there is
    none. For a volume that is not mounted here."""
    key = file_access.key_of(target.store.record.store_id, target.name)
    with file_session.alone(key) as held:
        if held is not None:
            with held.used() as session:
                return ask(session)
        if volume._options.meta_path is None:
            kept_work.require_all(target.working_copy, target.store.record.store_id)
        if target.working_copy.copy is not None:
            raise _is_copy(target.name)
        if not target.working_copy.has_records:
            return None
        from cowfs.session.opening import opened

        options = replace(volume._options, take_over=False)
        with opened(tree_publishing.writing(target, options), access=target.store.access) as session:
            return ask(session)


def require_engine(entry: MountEntry) -> None:
    if entry.is_copy:
        raise _is_copy(entry.volume)


def require_same_store(store: stores.OpenStore, version: ROVolume) -> None:
    if version.to_read().record.store_id != store.record.store_id:
        raise InvalidInputError(
            f"{version.locator} lies in another store",
            hint="Commit, and compare the two versions; or copy what you need (`cowfs download`, `cowfs upload`).",
        )


def _is_copy(volume: str) -> InvalidStateError:
    return InvalidStateError(
        f"volume {volume!r} is mounted as a copy, which does not tell what was changed there",
        hint=f"Commit it first (`cowfs commit {volume}`, commit()), and use the version.",
    )
