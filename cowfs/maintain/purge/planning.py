"""Plans a purge: which blobs go, where they lie, and which versions lose them. Writes nothing.

    target ─▶ hashes (`target`) ─┬▶ directories of all packs ─▶ packs that hold them ─▶ addresses that moved records lead there
                                 └▶ indexes of all versions  ─▶ versions that name them ─▶ their files

Whatever its age and whoever needs it, each pack of the store is looked at: also garbage, and packs
that were uploaded and are in no version yet. Something that cannot be read is an error: it may name
the chunks, or hold them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from cowfs.base.errors import CorruptError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import ChunkHash, PackId, VersionId
from cowfs.base.thread_pool import Helpers
from cowfs.format.pack import PackEntry
from cowfs.maintain.check.broken_paths import files_with
from cowfs.maintain.collect.blob_places import MovedRecords
from cowfs.maintain.collect.marking import Marker
from cowfs.maintain.collect.planning import Listing
from cowfs.maintain.collect.roots import InUse, RootReader, Roots, drop_gone
from cowfs.maintain.purge.target import Finder, Found, Target, find_versions
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, Purged, load_purged
from cowfs.version.commit import Progress, ProgressListener
from cowfs.version.history import open_version

THREADS = 16
SHOWN_PATHS = 10


@dataclass(frozen=True)
class Loss:
    """What one version loses. kept_by: heads, tags and pins, in words; empty: nothing keeps it any
    more. volumes: by whose heads and tags. paths: the first of `files`. is_whole: everything."""

    version: VersionId
    volume: str
    kept_by: tuple[str, ...]
    files: int
    paths: tuple[bytes, ...]
    is_whole: bool


@dataclass(frozen=True)
class Holding:
    """The purged blobs in one pack. size 0: the pack itself is gone, and they lie in others.
    has_rest: it holds other blobs as well."""

    hashes: frozenset[ChunkHash]
    stored_bytes: int = 0
    size: int = 0
    has_rest: bool = False


@dataclass(frozen=True)
class PurgePlan:
    """holdings: what has to be recorded. versions: those that go as a whole and are not recorded as
    that yet. packs: all of the store. is_unfinished: a recorded purge has to be finished."""

    target: Target
    found: Found
    versions: frozenset[VersionId]
    holdings: Mapping[PackId, Holding]
    losses: tuple[Loss, ...]
    roots: Roots = field(repr=False)
    packs: frozenset[PackId] = field(repr=False)
    is_unfinished: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.holdings or self.versions or self.is_unfinished)


@dataclass(frozen=True)
class _Sought:
    """What the purge adds to the purged records."""

    hashes: frozenset[ChunkHash]
    versions: frozenset[VersionId]
    before: Purged

    def __bool__(self) -> bool:
        return True

    def has(self, pack: PackId, hash: ChunkHash) -> bool:
        return hash in self.hashes and not self.before.has(pack, hash)


@dataclass(frozen=True)
class _Now:
    """What of the purge is in the records."""

    hashes: frozenset[ChunkHash]
    purged: Purged

    def has(self, pack: PackId, hash: ChunkHash) -> bool:
        return hash in self.hashes and self.purged.has(pack, hash)


class Planner:
    """in_use: as for `RootReader`."""

    def __init__(self, store: ObjectStore, cache_dir: Path, *, in_use: InUse = dict) -> None:
        self._store = store
        self._cache_dir = cache_dir
        self._reader = PackReader(store)
        self._roots = RootReader(store, in_use=in_use)

    def plan(self, target: Target, progress: ProgressListener = lambda _: None) -> PurgePlan:
        roots = self._roots.read()
        drop_gone(self._store, roots)
        listing = Listing.of_kept(self._store)
        purged = load_purged(self._store)
        versions = find_versions(self._store, target, listing.versions.keys() | roots.versions.keys())
        progress(Progress("versions", 0, len(versions)))
        every = listing.versions.keys() | roots.versions.keys()
        whole = target.path is None
        found = Finder(self._store, self._cache_dir, purged.versions).find(target, versions, sorted(every))
        gone = found.versions if whole else frozenset[VersionId]()
        sought = _Sought(found.chunks | found.index_blobs, purged.versions | gone, purged)
        marker = Marker(self._store, self._cache_dir, dropped=sought)
        marker.mark(roots.versions)
        for version in sorted(listing.versions.keys() - marker.versions):
            marker.mark_if_whole(version)
        holdings = self._find_holdings(sought, listing, progress)
        losses = [self._whole(version, roots) for version in sorted(gone)]
        losses += [self._loss(version, sought, holdings.keys(), roots) for version in sorted(marker.touched)]
        return PurgePlan(
            target,
            found,
            gone - purged.versions,
            holdings,
            tuple(losses),
            roots,
            frozenset(listing.packs),
            is_unfinished=not purged.packs.isdisjoint(listing.packs),
        )

    def find_late(self, plan: PurgePlan, touched: Collection[VersionId]) -> list[Loss]:
        """What versions lose that were committed after the plan was made, when it has been carried
        out. touched: as of its outcome."""
        roots, purged = self._roots.read(), load_purged(self._store)
        late = sorted(set(touched) - {loss.version for loss in plan.losses})
        sought = _Now(plan.found.chunks, purged)
        losses = [self._loss(version, sought, purged.packs, roots) for version in late]
        return [loss for loss in losses if loss.files]

    # -- where it lies

    def _find_holdings(self, sought: _Sought, listing: Listing, progress: ProgressListener) -> dict[PackId, Holding]:
        if not sought.hashes:
            return {}
        held: dict[PackId, dict[int, ChunkHash]] = {}
        holdings: dict[PackId, Holding] = {}
        packs = sorted(listing.packs)
        with Helpers(THREADS, name="cowfs-purge") as threads:
            for done, (pack, found) in enumerate(threads.map(partial(self._look_into, sought), packs)):
                progress(Progress("packs", done, len(packs)))
                entries = [entry for entry in found if entry is not None]
                if entries:
                    held[pack] = {entry.offset: entry.hash for entry in entries}
                    stored_bytes = sum(entry.stored_length for entry in entries)
                    hashes, size = frozenset(held[pack].values()), listing.packs[pack].size
                    holdings[pack] = Holding(hashes, stored_bytes, size, has_rest=None in found)
        for name, moved in self._find_moved_into(held, listing):
            before = holdings.get(name, Holding(frozenset()))
            new = before.hashes.union(hash for hash in moved if not sought.before.has(name, hash))
            if new:
                holdings[name] = replace(before, hashes=new)
        return holdings

    def _look_into(self, sought: _Sought, pack: PackId) -> tuple[PackId, list[PackEntry | None]]:
        """The blobs of the pack that are purged; None: it has another one, too."""
        try:
            directory = self._reader.own_directory(pack)
        except NotFoundError:  # collected since it was listed
            return pack, []
        except CorruptError as error:
            raise CorruptError(
                f"{error.message}; it may hold what is to be purged",
                hint=f"Nothing was purged. {Command('repair')} first; a damaged pack that nothing needs goes with {Command('gc')}.",
                details={"pack": pack.hex()},
            ) from error
        found: list[PackEntry | None] = [entry for entry in directory if sought.has(pack, entry.hash)]
        return pack, found if len(found) == len(directory) else [*found, None]

    def _find_moved_into(
        self, held: Mapping[PackId, Mapping[int, ChunkHash]], listing: Listing
    ) -> Iterator[tuple[PackId, set[ChunkHash]]]:
        """The packs whose moved records lead to one of the blobs, named by a version or not."""
        records = MovedRecords(self._store)
        for name, number in listing.find_moved_numbers().items():
            hashes = {
                held[blob.new_pack][blob.new_offset]
                for record in records.backwards(name, number)
                for blob in record.blobs
                if blob.new_offset in held.get(blob.new_pack, {})
            }
            if hashes:
                yield name, hashes

    # -- who loses it

    def _whole(self, version: VersionId, roots: Roots) -> Loss:
        manifest = open_version(self._store, version)
        kept_by = tuple(roots.versions.get(version, ()))
        return Loss(version, manifest.volume, kept_by, manifest.stats.files, (), is_whole=True)

    def _loss(self, version: VersionId, sought: _Sought | _Now, packs: Collection[PackId], roots: Roots) -> Loss:
        manifest = open_version(self._store, version)
        files, paths = files_with(self._store, self._reader, manifest, packs, sought.has, self._cache_dir)
        kept_by = tuple(roots.versions.get(version, ()))
        return Loss(version, manifest.volume, kept_by, files, tuple(paths[:SHOWN_PATHS]), is_whole=False)
