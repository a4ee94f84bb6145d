"""What an older version has, or another volume's, brought back into a volume as its next version:
one path of it, or all (a rollback). No content moves, and versions in between stay.

    lease, pin ─▶ the version's manifest ─▶ comparison of its path with the volume's ─▶ publish

Of a volume that is mounted here, the mount's daemon changes the working copy, and the next commit
publishes it (`session.work_restoring`); into a copy nothing is restored. Else the volume must not
have uncommitted work here, as for a merge. The version is no parent of the new one: a branch that
is merged later still brings what was taken back from it.
"""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cowfs import clock, config
from cowfs.api import copied_stores, mount_paths, sources, work
from cowfs.api.merge_report import MergedPath
from cowfs.api.on_line import on_line
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.stores import OpenStore
from cowfs.control import live_mount
from cowfs.control.messages import Restoration
from cowfs.errors import ConflictError, InvalidInputError, InvalidStateError, NotFoundError
from cowfs.ids import VersionId
from cowfs.version import volumes
from cowfs.version.commit import Base, CommitRequest

if TYPE_CHECKING:
    from cowfs.api.transfer_report import Target
    from cowfs.index import Index
    from cowfs.machine.registry import MountEntry
    from cowfs.session.publishing import Line
    from cowfs.version.ancestry import Ancestry
    from cowfs.version.merge_states import Merged


@dataclass(frozen=True)
class RestoreReport:
    """locator: of the volume's last version, None before the first; is_new: whether this made it.
    source: what was brought back. paths: of the volume that are added, removed or changed; more:
    how many others, of a mount that has too many to tell. mount_path: of the mount whose working
    copy has it now, for its next commit; None: the volume was not mounted here."""

    locator: str | None
    is_new: bool
    source: str
    paths: list[MergedPath]
    mount_path: str | None = None
    more: int = 0


def restore(
    volume: RWVolume,
    version: ROVolume,
    *,
    to: str | os.PathLike[str] | None = None,
    message: str = "",
    dry_run: bool = False,
) -> RestoreReport:
    """`Volume.restore`."""
    path = os.fsencode(version.folder)
    place = path if to is None else sources.place(f":{os.fspath(to)}").path
    said = (
        f"Restore /{path.decode(errors='backslashreplace')} of" if path else "Roll back to" if not place else "Restore"
    )
    volume.resolve()
    if (entry := volume.live()) is not None and not entry.is_copy:
        if message:
            raise InvalidInputError(
                f"volume {volume.name!r} is mounted at {entry.mount_path}: nothing is published now",
                hint="Leave the message out, and give it to the commit.",
            )
        return _in_mount(volume, entry, version, path, place, dry_run)
    _require_no_copy(volume, entry)
    return _made(volume, version, path, place, message or f"{said} {version.name}@{version.id[:12]}", dry_run)


def rollback(volume: RWVolume, version: ROVolume, *, message: str = "", dry_run: bool = False) -> RestoreReport:
    """`Volume.rollback`."""
    if version.folder:
        raise InvalidInputError(
            f"a volume cannot be rolled back to one folder: {version.locator}",
            hint="Roll back to the whole version, or restore the folder (`cowfs restore`, Volume.restore()).",
        )
    return restore(volume, version, message=message, dry_run=dry_run)


def _require_no_copy(volume: RWVolume, entry: MountEntry | None) -> None:
    """ConflictError: the volume is mounted as a copy. InvalidStateError: it is not, and a copy has
    work of it."""
    copy = mount_paths.copy_of(entry) if entry is not None else volume._working_copy().copy
    if copy is None or not copy.exists:
        return
    name, path = volume.name, copy.record.mount_path
    is_mounted = entry is not None
    where = f"volume {name!r} is mounted as a copy at" if is_mounted else f"work of volume {name!r} lies in the copy at"
    publishing = f"cowfs unmount {name} --commit" if is_mounted else f"cowfs commit {name}"
    raise (ConflictError if is_mounted else InvalidStateError)(
        f"{where} {path}: nothing is restored into a copy",
        hint=f"Publish its work first (`{publishing}`, finalize()), or drop it (`cowfs unmount {name} --discard`, discard()); then "
        "do this again. Or copy what you need into the folder (`cowfs download`, files.download()).",
        details={"mount_path": path},
    )


def _in_mount(
    volume: RWVolume, entry: MountEntry, version: ROVolume, path: bytes, to: bytes, is_dry: bool
) -> RestoreReport:
    work.require_same_store(volume._opened(), version)
    wanted = Restoration(VersionId.from_hex(version.id), os.fsdecode(path), os.fsdecode(to), is_dry)
    done = live_mount.restore(entry, wanted)
    locator = str(volume._locator(done.version)) if done.version is not None else None
    paths = [MergedPath(each.path, each.kind) for each in done.paths]
    return RestoreReport(locator, False, version.locator, paths, entry.mount_path, done.more)


def _made(volume: RWVolume, version: ROVolume, path: bytes, to: bytes, message: str, dry_run: bool) -> RestoreReport:
    target = volume.to_upload()
    if not copied_stores.is_same(version.to_read(), target.store):
        raise InvalidInputError(
            f"{version.locator} lies in another store",
            hint=f"Copy it instead (`cowfs download {shlex.quote(version.locator)}`, `cowfs upload`).",
        )
    if dry_run:
        base, paths, is_new = _tried(target, version, path, to)
    else:
        base, paths, is_new = on_line(volume, partial(_published, version, path, to, commit_request(message)))
    assert base.version_id is not None
    made = volume._committed(base.head_number, base.version_id, is_new=is_new)
    return RestoreReport(made.locator, is_new, version.locator, paths)


def _published(
    version: ROVolume, path: bytes, to: bytes, request: CommitRequest, target: Target, line: Line
) -> tuple[Base, list[MergedPath], bool]:
    from cowfs.version.merge_source import MergeSource

    publisher = line.publisher
    wanted = VersionId.from_hex(version.id)
    publisher.require_kept([wanted])
    with ExitStack() as stack:
        merged = _restored(
            stack, target.store, target.name, publisher.base.version_id, publisher.index, version, path, to
        )
        if not merged.paths:
            return publisher.base, [], False
        paths = _paths(merged)
        source = MergeSource(merged, publisher, (wanted,), are_parents=False)
        return publisher.publish(source, request), paths, True


def _tried(target: Target, version: ROVolume, path: bytes, to: bytes) -> tuple[Base, list[MergedPath], bool]:
    head = volumes.read_head(target.store.objects, target.name)
    with ExitStack() as stack:
        merged = _restored(stack, target.store, target.name, head.version, None, version, path, to)
        return Base(head.number, head.version, None), _paths(merged), False


def _restored(
    stack: ExitStack,
    store: OpenStore,
    name: str,
    head: VersionId | None,
    index: Index | None,
    version: ROVolume,
    path: bytes,
    to: bytes,
) -> Merged:
    from cowfs.version.ancestry import Ancestry
    from cowfs.version.restoring import restored

    if head is None:
        raise InvalidStateError(
            f"volume {name!r} has no version yet",
            hint="Fork the version under that name instead (`cowfs fork`, fork()).",
        )
    ancestry = Ancestry(store.objects)
    wanted = VersionId.from_hex(version.id)
    target = index if index is not None else _opened(stack, store, ancestry, head)
    source = _opened(stack, store, ancestry, wanted)
    common = ancestry.numbered_alike(head, wanted)
    shared = 0
    if common in (head, wanted):
        shared = (target if common == head else source).next_ino
    elif common is not None and ancestry.manifest(common) is not None:
        shared = _opened(stack, store, ancestry, common).next_ino
    return restored(target, source, shared=shared, path=path, to=to, now_ns=clock.now_ns())


def _opened(stack: ExitStack, store: OpenStore, ancestry: Ancestry, version: VersionId) -> Index:
    from cowfs.index import open_index
    from cowfs.store.packs import PackReader

    manifest = ancestry.manifest(version)
    if manifest is None:
        raise NotFoundError(
            f"version {version.hex()[:12]} is gone", hint="`cowfs log` and history() show which versions are there."
        )
    opened = open_index(store.objects, PackReader(store.objects), manifest.index, cache_dir=config.cache_dir())
    return stack.enter_context(opened)


def _paths(merged: Merged) -> list[MergedPath]:
    from cowfs.version.merge_changes import becomes

    return [MergedPath("/" + os.fsdecode(path), what) for path, what in becomes(merged)]
