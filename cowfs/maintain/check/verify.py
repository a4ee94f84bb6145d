"""Reads packs again, checks every byte, and reports which paths of which versions cannot be read.

    versions ─▶ packs they name ─┐
    list of packs/ ──────────────┴▶ read and hashed whole (`pack_check`) ─▶ packs that are damaged or gone
        ─▶ blobs that versions name there (`references`) ─▶ each is tried as readers do, moved records too
        ─▶ those that fail ─▶ paths (`broken_paths`)

A damaged pack costs nothing if all blobs that versions name in it can be read through moved records
(`repair` writes them), or if no version names it. A sample reads some packs, chosen at random each
time; the list shows whether the others exist.

The index of each version, or of a share of them, is read as well, to check that it is a tree
(`index.tree`).

Purged chunks (`store.packs.purged`) are no damage: what they leave unreadable is reported apart.

Linked files are not read: origins are asked whether the objects are in the state that was linked.

A damaged head, tag, pruned record, newest lease or newest volume record of a store is reported, as
is a missing head followed by later ones; the rest is verified.

Nothing is written to the store. Packs are read by threads (`pack_check`), or elsewhere by
`in_parts`.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from cowfs.base import clock, config
from cowfs.base.errors import CorruptError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId, VersionId
from cowfs.base.thread_pool import Helpers
from cowfs.format import keys
from cowfs.format.manifest import LINKS, Manifest
from cowfs.format.pack import PackEntry
from cowfs.format.records import StoreRecord
from cowfs.index import open_index, tree_problems
from cowfs.index.blocks import enter
from cowfs.index.cache import BlockCache
from cowfs.maintain.check.broken_paths import PURGED, PURGED_WHOLE, broken_files, files_with, walk_damaged
from cowfs.maintain.check.linked_objects import LinkCheck
from cowfs.maintain.check.pack_check import Expected, PackState, check_packs
from cowfs.maintain.check.references import References, find_references, index_packs, is_needed, one_of_each
from cowfs.maintain.check.verify_log import VerifyLog
from cowfs.maintain.check.verify_report import BrokenPath, DamagedPack, DamagedRecord, VerifyReport
from cowfs.maintain.collect.marking import AT_ONCE, THREADS
from cowfs.maintain.kept_versions import KeptVersion, find_kept_versions
from cowfs.store import Access, ObjectStore, remembering
from cowfs.store.packs import PackReader, Purged, load_purged
from cowfs.store.refs import leases, refs
from cowfs.version.commit import Progress, ProgressListener
from cowfs.version.names import described
from cowfs.version.names.volumes import find_loss, volume_names

AnyId = TypeVar("AnyId", PackId, VersionId)
NotRight = dict[PackId, PackState]
InParts = Callable[[Sequence[Expected]], Iterator[list[PackState]]]


@dataclass(frozen=True)
class Scope:
    """The scope of a verification. packs: only these are read (by a repair); None: all packs of the
    versions and, for a whole store, all of its packs. Missing packs are noticed in any case.
    records: damaged ones that name no version."""

    versions: Sequence[KeptVersion]
    is_store: bool = False
    packs: frozenset[PackId] | None = None
    share: float = 1.0
    records: Sequence[DamagedRecord] = ()

    @classmethod
    def of_store(cls, store: ObjectStore, *, packs: frozenset[PackId] | None = None, share: float = 1.0) -> Scope:
        """The whole store."""
        damaged: list[CorruptError] = []
        versions = find_kept_versions(store, tell=damaged.append)
        with Helpers(THREADS, name="cowfs-records") as threads:
            names = volume_names(store)
            for found_there in threads.map(partial(_check_records, store), names):
                damaged += found_there
        damaged += _missing_volumes(store, names)
        found = [(error.details["key"], error.message) for error in damaged]
        records = [DamagedRecord(key, keys.parse_volume(key) or "", problem) for key, problem in sorted(found)]
        return cls(versions, is_store=True, packs=packs, share=share, records=records)


def _missing_volumes(store: ObjectStore, listed: Sequence[str]) -> Iterator[CorruptError]:
    """Volumes whose heads this machine has seen, and that are not listed."""
    for name in sorted(set(remembering.volumes(store)).difference(listed)):
        ref = refs.head(name)
        if (error := find_loss(store, name)) is not None:
            yield remembering.as_damage(error, ref, remembering.read_mark(store, ref))


@dataclass
class Damage:
    """The damage in packs. named: the blobs that versions name there; lost: those that cannot be
    read from anywhere; moved: packs whose blobs have a new place in a moved record. purged: as the
    store's records say; in none of the others."""

    packs: NotRight
    named: References
    lost: References
    moved: frozenset[PackId] = frozenset()
    purged: Purged = field(default_factory=Purged)


@dataclass
class Found:
    """packs: their number; checked: those that were checked."""

    packs: int
    checked: Set[PackId]
    read_bytes: int
    damage: Damage


class Verifier:
    """cache_dir: of this machine, for indexes that are right. in_parts: checks packs elsewhere, in
    any order; None: threads of this process do."""

    def __init__(
        self,
        store: ObjectStore,
        record: StoreRecord,
        *,
        cache_dir: Path,
        access: Access,
        progress: ProgressListener | None = None,
        in_parts: InParts | None = None,
    ) -> None:
        self._store = store
        self._in_parts = in_parts
        self._record = record
        self._cache_dir = cache_dir
        self._access = access
        self._progress = progress or (lambda _: None)
        self._reader = PackReader(store)
        self._purged = load_purged(store)

    def run(self, scope: Scope, log: VerifyLog | None = None) -> VerifyReport:
        found = self.find(scope, log)
        if scope.is_store and found.damage.packs:  # versions may have been pruned and collected meanwhile
            kept = {version.id for version in Scope.of_store(self._store).versions}
            scope = replace(scope, versions=[version for version in scope.versions if version.id in kept])
            found.damage = self.damage(scope.versions, found.damage.packs)
        links = LinkCheck(self._store.url, self._access)
        trees = _drawn({version.id for version in scope.versions}, scope.share, len(scope.versions))
        broken = self.broken(scope, found.damage, links, set(trees))
        return VerifyReport(
            store_url=self._store.url,
            checked_versions=len(scope.versions),
            packs=found.packs,
            checked_packs=len(found.checked),
            read_bytes=found.read_bytes,
            links=links.count,
            damaged=[
                self._describe_damage(pack, found.damage)
                for pack in sorted(found.damage.packs)
                if _matters(pack, found.damage)
            ],
            broken=broken,
            notes=links.notes,
            records=list(scope.records),
            purged=_group(scope.versions, self._find_purged),
        )

    def find(self, scope: Scope, log: VerifyLog | None = None) -> Found:
        """Reads packs, and tries the blobs that versions name in damaged ones."""
        named = self._list_named(scope.versions)
        sizes = {pack: info.size for info in self._store.list(keys.PACKS) if (pack := keys.parse_pack(info.key))}
        every = named.keys() | (sizes.keys() if scope.is_store else set())
        read = every if scope.packs is None else every & scope.packs
        earlier = every & log.done if log is not None else set()
        chosen = _drawn((read - earlier) & sizes.keys(), scope.share, len(read))
        checked = self._check([(pack, named.get(pack)) for pack in chosen], sizes, log)
        gone = {pack: PackState(pack, 0, "it is gone", is_gone=True) for pack in every - sizes.keys()}
        damage = self.damage(scope.versions, gone | {pack: state for pack, state in checked.items() if state.problem})
        seen = checked.keys() | gone.keys() | earlier
        return Found(len(every), seen, sum(sizes.get(pack, 0) for pack in seen), damage)

    def damage(self, versions: Sequence[KeptVersion], packs: NotRight) -> Damage:
        """The effect of damaged packs on these versions."""
        if not packs:
            return Damage(packs, {}, {}, purged=self._purged)
        manifests = self._manifests(versions)
        references = find_references(self._store, self._reader, manifests, packs, self._cache_dir)
        named = {
            pack: left
            for pack, entries in references.items()
            if (left := {at: entry for at, entry in entries.items() if not self._purged.has(pack, entry.hash)})
        }
        lost: References = defaultdict(dict)
        for pack, entries in named.items():
            for entry in entries.values():
                if is_needed(entry) and not packs[pack].has_whole(entry) and not self._is_readable(pack, entry):
                    lost[pack][entry.offset] = entry
        moved = frozenset(pack for pack in named if refs.newest(self._store, refs.moved(pack)) is not None)
        return Damage(packs, named, dict(lost), moved, self._purged)

    # -- packs

    def _list_named(self, versions: Iterable[KeptVersion]) -> dict[PackId, PackEntry | None]:
        """The packs that the versions name, each with one blob named there if there is one."""
        found: dict[PackId, PackEntry | None] = {}
        for done, manifest in enumerate(self._read_ahead(versions)):
            self._progress(Progress("versions", done))
            known = {pack for pack, entry in found.items() if entry is not None}
            more = one_of_each(self._store, self._reader, manifest.index, self._cache_dir, known)
            found |= {pack: entry for pack, entry in more.items() if pack not in known}
        return found

    def _manifests(self, versions: Iterable[KeptVersion]) -> list[Manifest]:
        """Those that can be read, of versions that were not purged as a whole."""
        gone = self._purged.versions
        return [each.manifest for each in versions if each.manifest is not None and each.id not in gone]

    def _read_ahead(self, versions: Iterable[KeptVersion]) -> Iterator[Manifest]:
        """Yields the manifests that can be read. The beginnings of their indexes are read ahead,
        AT_ONCE at a time."""
        manifests = self._manifests(versions)
        cache = BlockCache(self._cache_dir, name=self._reader.sealing.name)
        with Helpers(THREADS, name="cowfs-indexes") as threads:
            for at in range(0, len(manifests), AT_ONCE):
                batch = manifests[at : at + AT_ONCE]
                list(threads.map(lambda manifest: enter(self._reader, manifest.index, cache), batch))
                yield from batch

    def _check(self, packs: Sequence[Expected], sizes: dict[PackId, int], log: VerifyLog | None) -> NotRight:
        whole_bytes = sum(sizes[pack] for pack, _ in packs)
        lock = threading.Lock()
        done = done_bytes = 0

        def hear(state: PackState) -> None:
            nonlocal done, done_bytes
            if log is not None and not state.problem:
                log.add(state.pack)
            with lock:
                done, done_bytes = done + 1, done_bytes + sizes[state.pack]
                self._progress(Progress("packs", done, len(packs), done_bytes, whole_bytes))

        if self._in_parts is None:
            return {state.pack: state for state in check_packs(self._store, packs, hear)}
        checked: NotRight = {}
        for states in self._in_parts(packs):
            for state in states:
                hear(state)
                checked[state.pack] = state
        return checked

    def _is_readable(self, pack: PackId, entry: PackEntry) -> bool:
        try:
            self._reader.read(pack, entry.offset, entry.stored_length, entry.raw_length, entry.codec, entry.hash)
        except (CorruptError, NotFoundError):
            return False
        return True

    def _describe_damage(self, pack: PackId, damage: Damage) -> DamagedPack:
        state, lost = damage.packs[pack], damage.lost.get(pack, {})
        return DamagedPack(
            pack=pack.hex(),
            key=keys.pack(pack),
            kind=_kind(state, damage.named.get(pack, {}).values()),
            problem=state.problem,
            lost_blobs=len(lost),
            lost_bytes=sum(entry.raw_length for entry in lost.values()),
            is_repaired=pack in damage.moved and not lost,
        )

    # -- versions

    def broken(
        self, scope: Scope, damage: Damage, links: LinkCheck | None = None, trees: Set[VersionId] = frozenset()
    ) -> list[BrokenPath]:
        """trees: the versions whose index is read whole, to check that it is a tree."""
        done = 0
        with TemporaryDirectory(prefix="cowfs-verify-", dir=config.temporary_dir()) as cold:

            def broken_of(version: KeptVersion) -> list[tuple[bytes | None, str]]:
                nonlocal done
                self._progress(Progress("paths", done, len(scope.versions)))
                done += 1
                with_tree = version.id in trees
                return self._broken_of(version, damage, links, Path(cold), scope.share, with_tree=with_tree)

            return _group(scope.versions, broken_of)

    def _find_purged(self, version: KeptVersion) -> list[tuple[bytes | None, str]]:
        if version.id in self._purged.versions:
            return [(None, PURGED_WHOLE)]
        if version.manifest is None or not self._purged.packs:
            return []
        with suppress(CorruptError):  # reported as broken
            packs, meant = self._purged.packs, self._purged.has
            _, paths = files_with(self._store, self._reader, version.manifest, packs, meant, self._cache_dir)
            return [(path, PURGED) for path in paths]
        return []

    def _broken_of(
        self,
        version: KeptVersion,
        damage: Damage,
        links: LinkCheck | None,
        cold: Path,
        share: float,
        *,
        with_tree: bool,
    ) -> list[tuple[bytes | None, str]]:
        if version.manifest is None:
            return [(None, version.problem)]
        if version.id in self._purged.versions:
            return []
        store, reader, manifest = self._store, self._reader, version.manifest
        broken = {pack: entries.keys() for pack, entries in damage.lost.items()}
        found: dict[bytes, str] = {}
        if self._has_lost_index(version, damage):
            found = walk_damaged(store, PackReader(store), manifest, broken, cold)
        else:
            try:
                found = broken_files(store, reader, manifest, broken, self._cache_dir) if broken else {}
                if with_tree:
                    with open_index(store, reader, manifest.index, cache_dir=self._cache_dir) as index:
                        found |= tree_problems(index)
                if links is not None and LINKS in manifest.requires:
                    found |= links.find_changed(store, reader, manifest, self._cache_dir, share)
            except CorruptError:  # its rows are invalid
                found = walk_damaged(store, PackReader(store), manifest, broken, cold)
        return [*found.items()]

    def _has_lost_index(self, version: KeptVersion, damage: Damage) -> bool:
        """Whether the index may have lost a blob: it names a pack with lost blobs, which is enough
        to walk it."""
        assert version.manifest is not None
        return not index_packs(version.manifest.index).isdisjoint(damage.lost)


def _group(
    versions: Iterable[KeptVersion], problems_of: Callable[[KeptVersion], Iterable[tuple[bytes | None, str]]]
) -> list[BrokenPath]:
    """One entry for each path and problem, whatever versions have it."""
    found: dict[tuple[str | None, str], tuple[dict[str, None], list[str]]] = {}
    for version in versions:
        for path, problem in problems_of(version):
            shown = "/" + os.fsdecode(path) if path is not None else None
            volumes, ids = found.setdefault((shown, problem), ({}, []))
            volumes.update(dict.fromkeys(version.volumes))
            ids.append(version.id.hex())
    return [
        BrokenPath(path, problem, list(volumes), ids)
        for (path, problem), (volumes, ids) in sorted(found.items(), key=lambda each: (each[0][0] or "", each[0][1]))
    ]


def _drawn(there: Set[AnyId], share: float, count: int) -> list[AnyId]:
    """A random share of `count`, among those that exist."""
    present = sorted(there)
    if share >= 1:
        return present
    drawn = sorted(present, key=lambda _: clock.random_bytes(8))
    return sorted(drawn[: max(1, round(count * share))])


def _check_records(store: ObjectStore, volume: str) -> list[CorruptError]:
    """Damaged records that name no version: the lease, and the volume's record."""
    found: list[CorruptError] = []
    for check in (leases.check, described.check):
        try:
            check(store, volume)
        except CorruptError as error:
            found.append(error)
    return found


def _matters(pack: PackId, damage: Damage) -> bool:
    """Whether to report the pack. One that is gone was collected if nothing names it, or was moved
    before."""
    if not damage.packs[pack].is_gone:
        return True
    return pack in damage.named and (pack not in damage.moved or bool(damage.lost.get(pack)))


def _kind(state: PackState, named: Iterable[PackEntry]) -> str:
    if state.kind is not None:
        return state.kind.name.lower()
    return next(("data" if entry.blob_kind == 1 else "index" for entry in named), "unknown")
