"""Carries a purge out: records it, and has a collection take the packs.

    1  look          the store shows everything (`alarms`); what stays of the packs is whole; nobody writes, or has
                     uncommitted work, on a version that goes as a whole
    2  record        `purged/<n>`, durable before any pack goes. From here on the chunks are purged
    3  caches        this machine's caches lose them
    4  collect       a collection of nothing but these packs: the rest is written to new packs, the packs are condemned,
                     every live writer acknowledges that, the packs are deleted. Ages and pins do not count
    5  again         until no such pack is left: a writer may have named a blob of one meanwhile, which then moves, too

Steps 4 and 5 are those of any collection (`collect.planning`, `collect.collecting`), so a
collection finishes a purge that was killed after step 2. A purge that is killed before did nothing.

Crash points are named `purge-*`, and those of collections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from cowfs.base import clock
from cowfs.base.errors import CorruptError, InvalidStateError, LeaseHeldError, NotFoundError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import ChunkHash, PackId, VersionId, WriteId
from cowfs.format.record import Holder
from cowfs.format.records import PurgedRecord
from cowfs.maintain.check.pack_check import check_packs
from cowfs.maintain.collect.collecting import WAIT_S, AskWriters, Collection, require_accepted
from cowfs.maintain.collect.planning import Listing, Survey
from cowfs.maintain.collect.purged_caches import drop_cached
from cowfs.maintain.collect.roots import FoundPin, InUse, RootReader, Roots
from cowfs.maintain.purge.planning import Holding, PurgePlan
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, append_purged, load_purged
from cowfs.store.refs import leases
from cowfs.version.names.volumes import find_head, volume_names

ATTEMPTS = 5
RECORD_HASHES = 100_000
"""Of one record: some 7 MB. A pack's hashes are in one record, with the pack."""


@dataclass
class PurgeOutcome:
    """deleted: key and size. is_done: no pack with a purged chunk is left. waits_for: writers that
    have not acknowledged that; the next purge or collection continues. touched: the versions that
    name purged chunks, of this purge or another. stored_again: how many of the chunks are in packs
    that are newer than the plan, so that it is not done: a writer had the same bytes."""

    deleted: dict[str, int]
    written_bytes: int = 0
    is_done: bool = False
    waits_for: tuple[FoundPin, ...] = ()
    touched: frozenset[VersionId] = frozenset()
    stored_again: int = 0


class Purge:
    """in_use: as for `Survey`. ask: as for `Collection`."""

    def __init__(
        self,
        store: ObjectStore,
        cache_dir: Path,
        holder: Holder,
        *,
        in_use: InUse = dict,
        wait_s: float = WAIT_S,
        ask: AskWriters = lambda volumes: False,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._store = store
        self._cache_dir = cache_dir
        self._holder = holder
        self._in_use = in_use
        self._wait_s = wait_s
        self._ask = ask
        self._progress = progress

    def apply(self, plan: PurgePlan, *, lose_work: bool = False) -> PurgeOutcome:
        """LeaseHeldError: a process of this machine is collecting, or somebody writes to a volume
        whose last version goes as a whole. InvalidStateError: the store does not show everything,
        or uncommitted work is based on such a version and may not be lost (lose_work).
        CorruptError: what would stay of a pack is damaged. Nothing was purged then."""
        if plan.is_empty:
            self._drop_cached(plan)
            return PurgeOutcome({}, is_done=True)
        survey = self._survey()
        require_accepted(self._store.url, survey.plan(is_purge=True), "")
        self._require_whole(plan.holdings)
        require_no_writer(self._store, plan.versions)
        if plan.versions and not lose_work:
            require_no_work(self._store, RootReader(self._store).read(), plan.versions)
        survey.generations.begin(self._holder)
        hit("purge-before-record")
        append_purged(self._store, list(_records(plan, self._holder)))
        hit("purge-after-record")
        self._drop_cached(plan)
        outcome = self.finish()
        outcome.stored_again = len(self._find_stored_again(plan))
        outcome.is_done = outcome.is_done and not outcome.stored_again
        return outcome

    def finish(self) -> PurgeOutcome:
        """Takes the packs with purged chunks, as the records name them."""
        outcome = PurgeOutcome({})
        for _ in range(ATTEMPTS):
            survey = self._survey()
            plan = survey.plan(is_purge=True)
            outcome.touched = frozenset(survey.marker.touched)
            if not survey.purged_packs.packs:
                outcome.is_done = True
                return outcome
            collection = Collection(survey, self._holder, wait_s=self._wait_s, ask=self._ask, progress=self._progress)
            done = collection.apply(plan)
            outcome.deleted |= done.deleted
            outcome.written_bytes += done.written_bytes
            if done.waits_for:
                outcome.waits_for = done.waits_for
                return outcome
        return outcome

    def _survey(self) -> Survey:
        return Survey(self._store, self._cache_dir, in_use=self._in_use)

    def _find_stored_again(self, plan: PurgePlan) -> set[ChunkHash]:
        reader, found = PackReader(self._store), set[ChunkHash]()
        purged = load_purged(self._store)
        for pack in Listing.of_packs(self._store).packs.keys() - plan.packs - purged.packs:
            with suppress(NotFoundError):  # collected since it was listed
                found.update(entry.hash for entry in reader.own_directory(pack))
        return found & plan.found.chunks

    def _drop_cached(self, plan: PurgePlan) -> None:
        """Also what earlier purges took: they may have been killed, or ran on another machine."""
        found = plan.found
        drop_cached(self._cache_dir, load_purged(self._store).hashes | found.chunks | found.index_blobs)

    def _require_whole(self, holdings: Mapping[PackId, Holding]) -> None:
        packs = sorted(pack for pack, holding in holdings.items() if holding.has_rest)
        for state in check_packs(self._store, [(pack, None) for pack in packs]):
            if state.problem and not state.is_gone:
                raise CorruptError(
                    f"pack {state.pack} of {self._store.url} holds what is to be purged and more, and is damaged: {state.problem}",
                    hint=f"Nothing was purged. {Command('repair')} first, and {Command('gc')} an hour later.",
                    details={"pack": state.pack.hex()},
                )


def require_no_writer(store: ObjectStore, versions: Iterable[VersionId]) -> None:
    """A version on a purged one would share its index, and be lost with it."""
    gone = frozenset(versions)
    watch = leases.Watch(store)
    for name in volume_names(store) if gone else ():
        head = find_head(store, name)
        if head is None or head.version not in gone:
            continue
        lease = watch.read(name)
        if lease is not None and lease.state == "held":
            raise LeaseHeldError(
                f"somebody writes to volume {name!r}, whose last version is to be purged as a whole",
                hint=f"Nothing was purged. End that first: {Command('unmount', name)} on its machine. {Command('status')} shows it.",
                details={"volume": name},
            )


def require_no_work(store: ObjectStore, roots: Roots, versions: Iterable[VersionId]) -> None:
    """Uncommitted work on a purged version could be neither mounted nor committed."""
    pins = [pin.record for version in sorted(versions) for pin in roots.work.get(version, ())]
    if pins:
        named = ", ".join(dict.fromkeys(f"of {pin.owner} in {pin.volume}" for pin in pins))
        raise InvalidStateError(
            f"{store.url} has uncommitted work on a version that is to be purged as a whole, {named}; it would be lost",
            hint=f"Nothing was purged. Commit or discard that work on its machine, where {Command('status')} lists it. If "
            f"that machine is gone: {Command('purge', '--lose-work')}, purge(lose_work=True).",
            details={"volumes": sorted({pin.volume for pin in pins})},
        )


def _records(plan: PurgePlan, holder: Holder) -> Iterator[PurgedRecord]:
    """The first one has the versions: a version whose index is purged in part could not be read by
    a collection."""
    versions = tuple(sorted(plan.versions))
    packs: list[PackId] = []
    hashes: set[ChunkHash] = set()
    for pack, holding in sorted(plan.holdings.items()):
        if packs and len(hashes) + len(holding.hashes) > RECORD_HASHES:
            yield _record(holder, hashes, packs, versions)
            versions, packs, hashes = (), [], set()
        packs.append(pack)
        hashes |= holding.hashes
    if packs or versions:
        yield _record(holder, hashes, packs, versions)


def _record(
    holder: Holder, hashes: set[ChunkHash], packs: list[PackId], versions: tuple[VersionId, ...]
) -> PurgedRecord:
    return PurgedRecord(
        clock.now_ns(),
        WriteId(clock.random_bytes(WriteId.length)),
        f"{holder.user}@{holder.host}",
        tuple(sorted(hashes)),
        tuple(packs),
        versions,
    )
