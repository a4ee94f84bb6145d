"""Restores the contents of an older version, or of another volume's, as a volume's next version:
one path of it, or all (a rollback). No content is transferred, and versions in between stay.

    lease, pin ─▶ the version's manifest ─▶ comparison of its path with the volume's ─▶ publish

If the volume is mounted here, the mount's daemon changes the working copy, and the next commit
publishes it (`session.work_restoring`); a copy cannot be restored into. Otherwise the volume must
not have uncommitted work here, as for a merge. The version is not a parent of the new one: merging
its branch later still brings the changes that the restore reverted.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cowfs.api import sources
from cowfs.api.mounts import folder, work
from cowfs.api.mounts.base import mount_of
from cowfs.api.stores import OpenStore
from cowfs.api.upkeep import copied_stores
from cowfs.api.versions.merge_report import MergedPath
from cowfs.api.versions.writer_turn import with_turn_as_writer
from cowfs.base import clock, config
from cowfs.base.errors import InvalidInputError, InvalidStateError, NotFoundError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.base.short_repr import short_repr
from cowfs.control.messages import Restoration
from cowfs.version.commit import Base, CommitRequest
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.api.transfers.transfer_report import Target
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.index import Index
    from cowfs.machine.registry import MountEntry
    from cowfs.version.ancestry import Ancestry
    from cowfs.version.merge.merge_states import Merged
    from cowfs.writer.publishing import Line


@short_repr
@dataclass(frozen=True)
class RestoreReport:
    """locator: of the volume's last version, None before the first; is_new: whether this call made
    it. source_locator: the restored version. changes: paths of the volume that are added, removed
    or changed; more: the number of further paths, for a mount that has too many to list.
    mount_path: the mount whose working copy has the restored files, for its next commit; None: the
    volume was not mounted here."""

    locator: str | None
    is_new: bool
    source_locator: str
    changes: list[MergedPath]
    mount_path: str | None = None
    more: int = 0


def restore(
    volume: VolumeHandle,
    version: LocatedVersion,
    request: CommitRequest,
    *,
    to: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> RestoreReport:
    """`Store.restore`. A request without a message gets one that names the version."""
    path = version.folder
    place = path if to is None else sources.place(f":{os.fspath(to)}").path
    said = (
        f"Restore /{path.decode(errors='backslashreplace')} of" if path else "Roll back to" if not place else "Restore"
    )
    volume.resolve()
    if (entry := volume.live()) is not None:
        mount_of(entry).require_restorable()
        if request.given:
            raise InvalidInputError(
                f"volume {volume.name!r} is mounted at {entry.mount_path}: nothing is published now",
                hint=f"{request.describe_left_out()}, and give it to the commit.",
            )
        return _restore_in_mount(volume, entry, version, path, place, dry_run)
    if (copy := volume.working_copy().copy) is not None:
        raise folder.no_restore(volume.name, copy.record.mount_path, is_mounted=False)
    request = request.fill_message(f"{said} {version.name}@{version.id[:12]}")
    return _make(volume, version, path, place, request, dry_run)


def rollback(
    volume: VolumeHandle, version: LocatedVersion, request: CommitRequest, *, dry_run: bool = False
) -> RestoreReport:
    """`Store.rollback`."""
    if version.folder:
        raise InvalidInputError(
            f"a volume cannot be rolled back to one folder: {version.locator}",
            hint=f"Roll back to the whole version, or restore the folder ({Command('restore')}, Store().restore()).",
        )
    return restore(volume, version, request, dry_run=dry_run)


def _restore_in_mount(
    volume: VolumeHandle, entry: MountEntry, version: LocatedVersion, path: bytes, to: bytes, is_dry: bool
) -> RestoreReport:
    work.require_same_store(volume.opened, version)
    wanted = Restoration(version.version, os.fsdecode(path), os.fsdecode(to), is_dry)
    done = mount_of(entry).restore(wanted)
    locator = str(volume.place_of(done.version)) if done.version is not None else None
    paths = [MergedPath(each.path, each.kind) for each in done.paths]
    return RestoreReport(locator, False, version.locator, paths, entry.mount_path, done.more)


def _make(
    volume: VolumeHandle, version: LocatedVersion, path: bytes, to: bytes, request: CommitRequest, dry_run: bool
) -> RestoreReport:
    target = volume.to_upload()
    if not copied_stores.is_same(version.open_store(), target.store):
        raise InvalidInputError(
            f"{version.locator} lies in another store",
            hint=f"Copy it instead ({Command('download', version.locator)}, {Command('upload')}).",
        )
    if dry_run:
        base, paths, is_new = _try(target, version, path, to)
    else:
        base, paths, is_new = with_turn_as_writer(volume.to_upload, partial(_publish, version, path, to, request))
    assert base.version_id is not None
    made = volume.record(base.head_number, base.version_id, is_new=is_new)
    return RestoreReport(made.locator, is_new, version.locator, paths)


def _publish(
    version: LocatedVersion, path: bytes, to: bytes, request: CommitRequest, target: Target, line: Line
) -> tuple[Base, list[MergedPath], bool]:
    from cowfs.version.merge.merge_source import MergeSource

    publisher = line.publisher
    wanted = version.version
    publisher.require_kept([wanted])
    with ExitStack() as stack:
        merged = _restore(
            stack, target.store, target.name, publisher.base.version_id, publisher.index, version, path, to
        )
        if not merged.paths:
            return publisher.base, [], False
        paths = _paths(merged)
        source = MergeSource(merged, publisher, (wanted,), are_parents=False)
        return publisher.publish(source, request), paths, True


def _try(target: Target, version: LocatedVersion, path: bytes, to: bytes) -> tuple[Base, list[MergedPath], bool]:
    head = volumes.read_head(target.store.objects, target.name)
    with ExitStack() as stack:
        merged = _restore(stack, target.store, target.name, head.version, None, version, path, to)
        return Base(head.number, head.version, None), _paths(merged), False


def _restore(
    stack: ExitStack,
    store: OpenStore,
    name: str,
    head: VersionId | None,
    index: Index | None,
    version: LocatedVersion,
    path: bytes,
    to: bytes,
) -> Merged:
    from cowfs.version.ancestry import Ancestry
    from cowfs.version.merge.restoring import plan_restore

    if head is None:
        raise InvalidStateError(
            f"volume {name!r} has no version yet",
            hint=f"Fork the version under that name instead ({Command('fork')}, fork()).",
        )
    ancestry = Ancestry(store.objects)
    wanted = version.version
    target = index if index is not None else _open(stack, store, ancestry, head)
    source = _open(stack, store, ancestry, wanted)
    common = ancestry.find_shared_numbering(head, wanted)
    shared = 0
    if common in (head, wanted):
        shared = (target if common == head else source).next_ino
    elif common is not None and ancestry.manifest(common) is not None:
        shared = _open(stack, store, ancestry, common).next_ino
    return plan_restore(target, source, shared=shared, path=path, to=to, now_ns=clock.now_ns())


def _open(stack: ExitStack, store: OpenStore, ancestry: Ancestry, version: VersionId) -> Index:
    from cowfs.index import open_index
    from cowfs.store.packs import PackReader
    from cowfs.version.purged_versions import naming_purged_version

    manifest = ancestry.manifest(version)
    if manifest is None:
        raise NotFoundError(
            f"version {version.hex()[:12]} is gone",
            hint=f"{Command('log')} and history() show which versions are there.",
        )
    with naming_purged_version(store.objects, manifest.volume, version):
        opened = open_index(store.objects, PackReader(store.objects), manifest.index, cache_dir=config.cache_dir())
    return stack.enter_context(opened)


def _paths(merged: Merged) -> list[MergedPath]:
    from cowfs.version.merge.merge_changes import becomes

    return [MergedPath("/" + os.fsdecode(path), what) for path, what in becomes(merged)]
