"""Repairs a store: finds the damage, searches for lost chunks and shows a plan.
`maintain.repairs.repair` does the work.

Chunks are searched for in this order: this machine's cache, copies of the store's volumes on this
machine (mounts without FUSE), the sources that the user names, other packs of the store.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.api import stores
from cowfs.api.storage.definition import Storage
from cowfs.api.stores import OpenStore
from cowfs.api.upkeep import copied_stores
from cowfs.base import config
from cowfs.base.errors import InvalidInputError, InvalidStateError, NotFoundError
from cowfs.base.ids import ChunkHash, PackId
from cowfs.folders import mounted_folders
from cowfs.format import keys
from cowfs.maintain.check.verify_report import VerifyReport
from cowfs.maintain.repairs.repair_plan import RepairPlan
from cowfs.store import require_writable, store_names
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.maintain.check.verify import Damage, Scope
    from cowfs.maintain.repairs.blob_sources import BlobSource, FilePlaces

Place = str | os.PathLike[str]


def plan(
    named: stores.Named,
    sources: Sequence[Place | Storage],
    *,
    report: VerifyReport | None = None,
    progress: ProgressListener | None = None,
) -> RepairPlan:
    """`Store.plan_repair`."""
    from cowfs.maintain.check.verify import Scope

    store = stores.open_store(named)
    packs = None
    if report is not None:
        if report.store_url != store.url:
            raise InvalidInputError(
                f"the report is about {report.store_url}, not {store.url}",
                hint="Verify this store, and give that report.",
            )
        packs = frozenset(PackId.from_hex(each.pack) for each in report.damaged)
    require_writable(store.record)
    return _Round(store, Scope.of_store(store.objects, packs=packs), sources).plan(progress)


def repair(given: RepairPlan, progress: ProgressListener | None = None) -> RepairPlan:
    """`Store.repair`."""
    if given.is_applied:
        raise InvalidStateError("this plan was applied already", hint="Make a new one: plan_repair().")
    return given.work(progress or _deaf) if given.work is not None else given


class _Round:
    def __init__(self, store: OpenStore, scope: Scope, sources: Sequence[Place | Storage]) -> None:
        self._store = store
        self._scope = scope
        self._sources = sources

    def plan(self, progress: ProgressListener | None) -> RepairPlan:
        from cowfs.maintain.check.verify import Verifier
        from cowfs.maintain.repairs.blob_sources import OwnPack
        from cowfs.maintain.repairs.repair import Repair

        objects = self._store.objects
        verifier = Verifier(
            objects,
            self._store.record,
            cache_dir=config.cache_dir(),
            access=self._store.access,
            progress=progress,
        )
        damage = verifier.find(self._scope).damage
        own = OwnPack(objects, "the pack itself")
        work = Repair(objects, damage, own, self._places(damage))
        packs, found = work.plan(progress or _deaf)
        broken = verifier.broken(self._scope, work.find_left())

        records = list(self._scope.records)

        def apply(hear: ProgressListener) -> RepairPlan:
            done = work.apply(hear)
            if not any(pack.kind == "index" and pack.new_pack for pack in done):
                return RepairPlan(self._store.url, done, found, broken, records, is_applied=True)
            again = self.plan(hear)  # the data that these indexes name is known only now
            more = again.work(hear) if again.work is not None else again
            moved = {pack.pack: pack for pack in done if pack.new_pack}
            packs = [moved.get(pack.pack, pack) for pack in more.packs]
            return RepairPlan(self._store.url, packs, _sum(found, more.found), more.broken, records, is_applied=True)

        is_idle = not any(pack.found_blobs or (pack.kept_blobs and not pack.is_moved) for pack in packs)
        return RepairPlan(self._store.url, packs, found, broken, records, work=None if is_idle else apply)

    def _places(self, damage: Damage) -> list[BlobSource]:
        from cowfs.maintain.repairs.blob_sources import CacheSource, FileSource, NamedBlobs
        from cowfs.maintain.repairs.file_places import ChunkPlaces
        from cowfs.store.sealed import sealing_of

        objects, sealing = self._store.objects, sealing_of(self._store.objects)
        wanted = _list_lost_names(damage)
        places = ChunkPlaces(objects, self._scope.versions, damage.packs, config.cache_dir())
        found: list[BlobSource] = [CacheSource(config.cache_dir(), sealing)]
        found += [FileSource(folder, places, sealing) for folder in _copies(self._store)]
        for source in self._sources:
            found += self._open_source(source, damage, places)
        return [*found, NamedBlobs(objects, "other packs of the store", wanted, sealing)]

    def _open_source(self, source: Place | Storage, damage: Damage, places: FilePlaces) -> list[BlobSource]:
        from cowfs.maintain.repairs.blob_sources import FileSource, NamedBlobs, OwnPack, require_same_names
        from cowfs.store.sealed import sealing_of

        objects = self._store.objects
        if not isinstance(source, Storage) and not _is_store(source):
            directory = Path(os.path.abspath(os.path.expanduser(source)))
            if not directory.is_dir():
                raise NotFoundError(f"there is no directory {directory}", hint="Give a store, or a directory of files.")
            return [FileSource(directory, places, sealing_of(objects))]
        other = stores.open_store(stores.name(source))
        if copied_stores.is_same(other, self._store):
            raise InvalidInputError(
                f"{other.url} is the store that is to be repaired", hint="Name another one, or a directory of files."
            )
        require_same_names(objects, other.objects)
        wanted = _list_lost_names(damage)
        return [OwnPack(other.objects, other.url), NamedBlobs(other.objects, other.url, wanted, sealing_of(objects))]


def _is_store(source: Place) -> bool:
    text = os.fspath(source)
    is_word = isinstance(source, str) and store_names.is_name(source)
    return is_word or "://" in text or (Path(text) / keys.STORE).is_file()


def _copies(store: OpenStore) -> list[Path]:
    """Folders of this machine that hold files of the store's versions."""
    store_id = store.record.store_id.hex()
    return [Path(each.mount_path) for each in mounted_folders.list_mounts() if each.store_id == store_id]


def _list_lost_names(damage: Damage) -> frozenset[ChunkHash]:
    return frozenset(entry.hash for lost in damage.lost.values() for entry in lost.values())


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {title: one.get(title, 0) + other.get(title, 0) for title in one | other}


def _deaf(_: object) -> None:
    pass
