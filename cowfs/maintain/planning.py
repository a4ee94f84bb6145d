"""What a collection would delete, to the byte, without writing anything but a scratch object, and
not even that where it is only a question: then this machine's clock stands for the store's.

    pins ─▶ how old an object must be (the age rule)
    roots ─▶ Marker ─▶ addresses ─▶ Places ─▶ needed packs ─▶ Repacker: those that are to be written anew
    packs/, versions/, probe/ as listed, without what is needed or too young ─▶ the plan

The age rule: what was put since the oldest generation that a live writer has acknowledged, less an
hour, may be about to be named by a head, and so counts as needed. A version that is so young counts
as a root, so that whatever is not condemned is whole: a fork relies on that. If it is not whole,
nothing can be made of it, and nothing is kept for it.

Deleting what a plan names is `collecting`'s business, which looks at all roots again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from cowfs import clock
from cowfs.errors import InvalidStateError
from cowfs.format import keys
from cowfs.ids import PackId, VersionId
from cowfs.maintain.generations import Condemned, Generations
from cowfs.maintain.live_ranges import LiveRanges
from cowfs.maintain.marking import THREADS, InParts, Marker
from cowfs.maintain.places import MovedRecords, Places
from cowfs.maintain.repacking import GAIN_BYTES, Repacker, Sparse
from cowfs.maintain.roots import NOTHING, Foreseen, FoundPin, InUse, RootReader, Roots, drop_gone
from cowfs.store import ObjectInfo, ObjectStore, condemned, leases, scratch
from cowfs.store.pins import lately_condemned
from cowfs.values import dataclass

HOUR_NS = 3600 * 10**9
GRACE_S = 7 * 24 * 3600.0
"""A deleted volume can be brought back for so long. Chosen: a week-end and a few days."""
MAX_SKEW_S = 300.0


@dataclass
class Listing:
    """The objects that a collection may delete, as the store lists them."""

    packs: dict[PackId, ObjectInfo] = field(default_factory=dict)
    moved: dict[PackId, list[ObjectInfo]] = field(default_factory=dict)
    versions: dict[VersionId, ObjectInfo] = field(default_factory=dict)
    scratch: list[ObjectInfo] = field(default_factory=list)

    @classmethod
    def of(cls, store: ObjectStore) -> Listing:
        found = cls.of_kept(store)
        found.scratch = store.list(scratch.PREFIX)
        return found

    @classmethod
    def of_kept(cls, store: ObjectStore) -> Listing:
        """Without scratch objects."""
        found = cls.of_packs(store)
        for info in store.list(keys.VERSIONS):
            if (version := keys.parse_version(info.key)) is not None:
                found.versions[version] = info
        return found

    @classmethod
    def of_packs(cls, store: ObjectStore) -> Listing:
        found = cls()
        for info in store.list(keys.PACKS):
            if (pack := keys.parse_pack(info.key)) is not None:
                found.packs[pack] = info
            elif (pack := keys.parse_moved(info.key)) is not None:
                found.moved.setdefault(pack, []).append(info)
        return found

    def moved_numbers(self) -> dict[PackId, int]:
        """The newest moved record of each pack that has any."""
        return {pack: max(keys.parse_number(info.key) or 0 for info in infos) for pack, infos in self.moved.items()}

    def objects_of(self, doomed: Condemned, *, put_before_ns: int | None = None) -> dict[str, int]:
        """Key and size: versions, then packs, each before its moved records. put_before_ns: without
        those that were put later."""
        found = [self.versions[version] for version in sorted(doomed.versions) if version in self.versions]
        for pack in sorted(doomed.packs):
            own = [self.packs[pack]] if pack in self.packs else []
            found += own + (self.moved.get(pack, []) if pack in doomed.moved else [])
        return {info.key: info.size for info in found if put_before_ns is None or info.mtime_ns < put_before_ns}


@dataclass(frozen=True)
class Plan:
    """objects: key and size of everything that is deleted. lapsed: volumes that nobody can bring
    back any more; deleted: others that were deleted, and until when they can be. versions,
    live_bytes: what is needed, in whole packs. young_bytes: garbage that is too young to be known
    as such. sparse: packs of which less than half is needed. Those to be written anew are among the
    objects. waits_for: writers that keep the past from being known.
    """

    doomed: Condemned
    objects: Mapping[str, int]
    lapsed: Mapping[str, int]
    deleted: Mapping[str, int]
    versions: int
    live_bytes: int
    young_bytes: int
    sparse: Sparse
    waits_for: tuple[FoundPin, ...]

    @property
    def freed_bytes(self) -> int:
        """What the store shrinks by."""
        return sum(self.objects.values()) - self.sparse.written_bytes


class Survey:
    """One look at a store, and what was learnt by it, for a collection to go on from."""

    def __init__(
        self,
        store: ObjectStore,
        cache_dir: Path,
        *,
        grace_s: float = GRACE_S,
        gain_bytes: int = GAIN_BYTES,
        threads: int = THREADS,
        in_parts: InParts | None = None,
        in_use: InUse = dict,
    ) -> None:
        """gain_bytes: what a pack must have to gain to be written anew. in_parts: as of `Marker`.
        in_use: as of `RootReader`."""
        self.store = store
        self.generations = Generations(store)
        self.roots = RootReader(store, threads=threads, in_use=in_use)
        self.leases = leases.Watch(store)
        self._cache_dir = cache_dir
        self._grace_s = grace_s
        self._gain_bytes = gain_bytes
        self._threads = threads
        self._in_parts = in_parts
        self._records = MovedRecords(store)
        self.marker = Marker(store, cache_dir, threads=threads)
        self.listing = Listing()

    def plan(self, *, foreseen: Foreseen = NOTHING, is_question: bool = False) -> Plan:
        """foreseen: only to be shown; what is deleted is checked by what roots say (`needed`).
        is_question: it is only to be shown, and nothing is written. InvalidStateError: the clocks
        differ too much. Any error: nothing is known."""
        now_ns = clock.now_ns() if is_question else checked_now_ns(self.store)
        self.generations.load()
        self.listing = Listing.of(self.store)
        self.marker = Marker(self.store, self._cache_dir, threads=self._threads, in_parts=self._in_parts)
        found = self.roots.read(now_ns=now_ns, grace_s=self._grace_s, foreseen=foreseen)
        self._mark(found)
        heard = self._heard(found.pins, now_ns, is_question=is_question)
        young_ns = young_since_ns(self.generations, heard, now_ns)
        garbage = self._dead(found, None)
        doomed = self._dead(found, young_ns)
        places = self._places()  # of the young versions too, which count as roots
        sparse = self._repacker(places).plan(found.packs, young_ns)
        kept = places.needed() - sparse.packs
        objects = self.listing.objects_of(doomed) | self._unfinished(found, places)
        objects |= self.listing.objects_of(Condemned(sparse.packs))
        objects |= {info.key: info.size for info in self.listing.scratch if info.mtime_ns < now_ns - HOUR_NS}
        return Plan(
            doomed=doomed,
            objects=objects,
            lapsed=found.lapsed,
            deleted={volume: since_ns + int(self._grace_s * 1e9) for volume, since_ns in found.deleted.items()},
            versions=len(found.versions),
            live_bytes=sum(self._size(pack) for pack in kept) + sparse.written_bytes,
            young_bytes=sum(self.listing.objects_of(garbage).values()) - sum(self.listing.objects_of(doomed).values()),
            sparse=sparse,
            waits_for=tuple(late_pins(self.generations, heard, now_ns)),
        )

    def needed(self, listed: Condemned) -> Condemned:
        """What all roots need now, deleted volumes included; and what versions need that are not
        listed, for they can be forked: manifests that were put since the list was made, and have no
        head."""
        found = self.roots.read()
        self._mark(found)
        listing = [keys.parse_version(info.key) for info in self.store.list(keys.VERSIONS)]
        there = {version for version in listing if version is not None}
        # Another marker: a list that this collector makes next may name them.
        beside = Marker(self.store, self._cache_dir, threads=self._threads)
        for version in sorted(there - listed.versions - self.marker.versions):
            beside.mark_if_whole(version)
        places = self._places_now(beside.live)
        return Condemned(
            frozenset(places.needed() | found.packs.keys()),
            frozenset(self.marker.versions),
            frozenset(places.named()),
        )

    def _places(self) -> Places:
        return Places([self.marker.live], self.listing.packs, self.listing.moved_numbers(), self._records)

    def _places_now(self, beside: LiveRanges) -> Places:
        """By the moved records of this moment: a pack is known either by its pin, which was read
        before, or by the record. A new pack that another collector may still delete does not count
        as one that stays."""
        listing = Listing.of_packs(self.store)
        doubtful = condemned(self.store, 0)[1] | lately_condemned(self.store, scratch.store_now_ns(self.store))[0]
        return Places(
            [self.marker.live, beside], listing.packs, listing.moved_numbers(), self._records, doubtful=doubtful
        )

    def repacker(self) -> Repacker:
        """For the packs of the plan."""
        return self._repacker(self._places())

    def _repacker(self, places: Places) -> Repacker:
        return Repacker(self.store, places, self.listing.packs, self.marker.index_packs, gain_bytes=self._gain_bytes)

    def _heard(self, pins: list[FoundPin], now_ns: int, *, is_question: bool) -> list[FoundPin]:
        """Without those that would be waited for in vain."""
        known_ns = now_ns if is_question else None
        late = late_pins(self.generations, pins, now_ns)
        silent = {pin.id for pin in late if is_silent(self.leases, pin, now_ns=known_ns)}
        return [pin for pin in pins if pin.id not in silent]

    def _mark(self, found: Roots) -> None:
        drop_gone(self.store, found)
        self.marker.mark(found.versions)

    def _dead(self, found: Roots, young_ns: int | None) -> Condemned:
        """young_ns None: whatever its age."""
        versions = set()
        for version, info in self.listing.versions.items():
            if version in self.marker.versions:
                continue
            if young_ns is not None and info.mtime_ns >= young_ns:
                self.marker.mark_if_whole(version)
            else:
                versions.add(version)
        places = self._places()
        known = self.listing.packs.keys() | self.listing.moved.keys()
        packs = {
            pack
            for pack in known - found.packs.keys()
            if (pack in self.listing.packs or not places.is_named(pack))
            and not places.is_needed(pack)
            and (young_ns is None or self._mtime_ns(pack, places) < young_ns)
        }
        moved = {pack for pack in packs & self.listing.moved.keys() if not places.is_named(pack)}
        return Condemned(frozenset(packs), frozenset(versions - self.marker.versions), frozenset(moved))

    def _mtime_ns(self, pack: PackId, places: Places) -> int:
        """Of what would be deleted."""
        own = [self.listing.packs[pack]] if pack in self.listing.packs else []
        records = [] if places.is_named(pack) else self.listing.moved.get(pack, [])
        return max(info.mtime_ns for info in own + records)

    def _unfinished(self, found: Roots, places: Places) -> dict[str, int]:
        """What a collection that has not ended has left of its list."""
        newest = self.generations.newest
        if newest is None or newest.is_done or newest.listed_ns is None:
            return {}
        listed = self.generations.condemned(newest.number)
        spared = self.generations.spared(newest.number)
        if spared is None:
            needed = frozenset(places.needed() | found.packs.keys())
            spared = Condemned(needed, frozenset(self.marker.versions), frozenset(places.named()))
        doomed = listed - spared
        return self.listing.objects_of(doomed, put_before_ns=newest.listed_ns)

    def _size(self, pack: PackId) -> int:
        return self.listing.packs[pack].size if pack in self.listing.packs else 0


def checked_now_ns(store: ObjectStore) -> int:
    """The store's time. InvalidStateError: this machine's clock is another one."""
    now_ns = scratch.store_now_ns(store)
    if abs(now_ns - clock.now_ns()) > MAX_SKEW_S * 1e9:
        raise InvalidStateError(
            f"the clocks of this machine and of {store.url} differ by {abs(now_ns - clock.now_ns()) / 1e9:.0f} s",
            hint=f"Nothing was deleted. Set the clock: what is deleted depends on its age, and {MAX_SKEW_S:.0f} s are allowed.",
        )
    return now_ns


def is_silent(watch: leases.Watch, pin: FoundPin, *, now_ns: int | None = None) -> bool:
    """Whether nobody is there to acknowledge: who had the volume's lease has died, or was not heard
    of for two minutes; or the lease is not that of the pin, whose owner was refused, or another
    came after it. What the pin names stays protected, for its work may be kept; but it is not
    waited for: a fence makes its owner prove everything else anew, if it comes back. now_ns: as of
    `leases.read`."""
    if not pin.must_acknowledge:
        return False
    lease = watch.read(pin.record.volume, now_ns=now_ns)
    wanted = pin.record.lease
    if lease is None:
        return wanted is not None
    is_another = lease.write_id is not None and wanted not in (None, lease.write_id)
    return lease.state != "held" or is_another


def young_since_ns(generations: Generations, pins: list[FoundPin], now_ns: int) -> int:
    """What was put since then may be about to be used."""
    begun = [generations.begun_ns(pin.record.gc_generation) for pin in pins if pin.must_acknowledge]
    return min([now_ns, *begun]) - HOUR_NS


def late_pins(generations: Generations, pins: list[FoundPin], now_ns: int) -> list[FoundPin]:
    """Writers that protect what is older than an hour, since they have not heard of a newer
    collection."""
    return [
        pin
        for pin in pins
        if pin.must_acknowledge and generations.begun_ns(pin.record.gc_generation) < now_ns - 2 * HOUR_NS
    ]
