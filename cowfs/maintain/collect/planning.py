"""Plans what a collection would delete, to the byte. Writes nothing but a scratch object, and not
even that for a dry run: then this machine's clock replaces the store's.

    pins ─▶ how old an object must be (the age rule)
    roots ─▶ Marker ─▶ addresses ─▶ Places ─▶ needed packs ─▶ Repacker: those that are to be written anew
    packs/, versions/, probe/ as listed, without needed and too young ones ─▶ the plan

The age rule: objects that were put since the oldest generation that a live writer has acknowledged,
less an hour, may be about to be named by a head, and so count as needed. A version that young
counts as a root, so that every version that is not condemned is complete: a fork relies on that. If
it is incomplete, no fork can be made of it, and nothing is kept for it.

Packs with purged chunks (`purged_packs`) are written anew or deleted whatever their age, whoever
pins them: so each collection finishes a purge that was interrupted.

`collecting` deletes what a plan names, after looking at all roots again. If the store does not show
everything that it should, the plan has `alarms`, and only a user can have it carried out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from blake3 import blake3

from cowfs.base import clock
from cowfs.base.errors import CorruptError, InvalidStateError, UnavailableError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId, VersionId
from cowfs.format import keys
from cowfs.maintain.collect import alarms
from cowfs.maintain.collect.blob_places import MovedRecords, Places
from cowfs.maintain.collect.generations import Condemned, Generation, Generations
from cowfs.maintain.collect.live_ranges import LiveRanges
from cowfs.maintain.collect.marking import THREADS, InParts, Marker
from cowfs.maintain.collect.purged_caches import drop_cached
from cowfs.maintain.collect.purged_packs import PurgedPacks
from cowfs.maintain.collect.repacking import GAIN_BYTES, Repacker, Sparse
from cowfs.maintain.collect.roots import NOTHING, Foreseen, FoundPin, InUse, RootReader, Roots, drop_gone
from cowfs.maintain.collect.sight import Figures, Sight, last_sight, leave_sight
from cowfs.store import ObjectInfo, ObjectStore, condemned
from cowfs.store import scratch_objects as scratch
from cowfs.store.refs import leases
from cowfs.store.refs.pins import lately_condemned

HOUR_NS = 3600 * 10**9
GRACE_S = 7 * 24 * 3600.0
"""How long a deleted volume can be restored. Chosen: a weekend and a few days."""
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

    def find_moved_numbers(self) -> dict[PackId, int]:
        """The newest moved record of each pack that has one."""
        return {pack: max(keys.parse_number(info.key) or 0 for info in infos) for pack, infos in self.moved.items()}

    def bytes_before(self, young_ns: int) -> int:
        """The size of the versions and packs that were put before."""
        kept = (*self.versions.values(), *self.packs.values())
        return sum(info.size for info in kept if info.mtime_ns < young_ns)

    def objects_of(self, doomed: Condemned, *, put_before_ns: int | None = None) -> dict[str, int]:
        """Key and size: versions, then packs, each before its moved records. put_before_ns: leaves
        out those that were put later."""
        found = [self.versions[version] for version in sorted(doomed.versions) if version in self.versions]
        for pack in sorted(doomed.packs):
            own = [self.packs[pack]] if pack in self.packs else []
            found += own + (self.moved.get(pack, []) if pack in doomed.moved else [])
        return {info.key: info.size for info in found if put_before_ns is None or info.mtime_ns < put_before_ns}


@dataclass(frozen=True)
class Plan:
    """objects: key and size of everything that is deleted. lapsed: volumes that can no longer be
    restored; deleted: other deleted volumes, and until when they can be. versions, live_bytes:
    needed, in whole packs. young_bytes: garbage that is too young to be deleted. sparse: packs of
    which less than half is needed. Those to be written anew are among the objects. waits_for:
    writers that may still rely on old objects. held_bytes: what could be deleted if they
    acknowledged a new collection: that part of young_bytes, and sparse packs. alarms: why it must
    not be carried out unless a user accepts it. strange: objects in the store that are not cowfs's.
    old: keys of versions and packs among the objects that existed when the last collection had
    ended.
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
    held_bytes: int = 0
    alarms: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()
    old: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """Identifies the alarms, and the objects to delete that the last collection left. "": there
        is no alarm."""
        if not self.alarms:
            return ""
        return blake3("\n".join((*sorted(self.alarms), *sorted(self.old))).encode()).hexdigest()[:16]

    @property
    def freed_bytes(self) -> int:
        """The number of bytes by which the store shrinks."""
        return sum(self.objects.values()) - self.sparse.written_bytes


class Survey:
    """One look at a store, and its findings, with which a collection continues."""

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
        """gain_bytes: the least gain for which a pack is written anew. in_parts: as for `Marker`.
        in_use: as for `RootReader`."""
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
        self.last: Sight | None = None
        """The findings of the last collection."""
        self._found = Roots()
        self._unread = ""
        self._young_ns = self._live_bytes = 0
        self.purged_packs = PurgedPacks()
        self._known_packs: set[PackId] = set()
        self._lost_packs: set[PackId] = set()

    def plan(self, *, foreseen: Foreseen = NOTHING, is_question: bool = False, is_purge: bool = False) -> Plan:
        """is_purge: plans nothing but what purged packs need. foreseen: for display only; the
        deletion itself is checked against the roots (`needed`). is_question: for display only, and
        nothing is written. InvalidStateError: the clocks differ too much. After any error nothing
        is known."""
        now_ns = clock.now_ns() if is_question else check_now_ns(self.store)
        self.generations.load()
        self.last, self._unread = None, ""
        try:
            self.last = last_sight(self.store, self.generations)
        except CorruptError as error:  # permanent, perhaps: a user can accept it
            self._unread = error.message
        strangers = alarms.strangers_at_root(self.store)
        self.listing = Listing.of(self.store)
        self.marker = Marker(self.store, self._cache_dir, threads=self._threads, in_parts=self._in_parts)
        found = self.roots.read(now_ns=now_ns, grace_s=self._grace_s, foreseen=foreseen)
        drop_gone(self.store, found)
        self.purged_packs = PurgedPacks()
        self.marker.mark(found.versions.keys() - found.pinned)
        durable = self._remember(found)
        self.marker.mark(found.versions)
        purged_places = self._places_of([self.marker.purged])
        self.purged_packs = PurgedPacks.find(self.store, purged_places, self.listing.packs, found.packs)
        self.marker.index_packs |= self.purged_packs.index_packs
        heard = self._drop_silent(found.pins, now_ns, is_question=is_question)
        young_ns = young_since_ns(self.generations, heard, now_ns)
        late = late_pins(self.generations, heard, now_ns)
        garbage = self._dead(found, None)
        old_bytes = self._count_old_bytes(found, now_ns - HOUR_NS) if late else 0
        doomed = self._dead(found, young_ns) if not is_purge else Condemned()
        places = self._places()  # of the young versions too, which count as roots
        purged = self.purged_packs.packs
        sparse = self._repacker(places).plan(found.packs, young_ns if not is_purge else 0, purged)
        condemned_bytes = self._count_condemned_bytes(doomed, sparse)
        old = self._old(doomed)
        young_bytes = sum(self.listing.objects_of(garbage - doomed).values())
        doomed |= Condemned(purged - sparse.packs)
        kept = places.list_needed() - sparse.packs
        objects = self.listing.objects_of(doomed) | self._find_unfinished(found, places)
        objects |= self.listing.objects_of(Condemned(sparse.packs))
        objects |= {info.key: info.size for info in self.listing.scratch if info.mtime_ns < now_ns - HOUR_NS}
        self._weigh(durable, young_ns)
        return Plan(
            alarms=tuple(self._alarms(found, strangers, old, is_foreseen=bool(foreseen))),
            strange=tuple(sorted(found.strange | strangers.others)),
            old=frozenset(old),
            doomed=doomed,
            objects=objects,
            lapsed=found.lapsed if not is_purge else {},
            deleted={volume: since_ns + int(self._grace_s * 1e9) for volume, since_ns in found.deleted.items()},
            versions=len(found.versions),
            live_bytes=sum(self._size(pack) for pack in kept) + sparse.written_bytes,
            young_bytes=young_bytes,
            sparse=sparse,
            waits_for=tuple(late),
            held_bytes=max(old_bytes - condemned_bytes, 0),
        )

    def drop_cached(self) -> None:
        """Takes out of this machine's caches what was purged when the plan was made."""
        drop_cached(self._cache_dir, self.purged_packs.hashes)

    def list_needed(self, listed: Condemned, accepted: Collection[str] = ()) -> Condemned:
        """What all roots need now, deleted volumes included, and what versions need that are not on
        the list, because they can be forked: manifests without a head that were put since the list
        was made. UnavailableError: the store shows less than before, beyond the accepted alarms."""
        found = self.roots.read()
        drop_gone(self.store, found)
        self._require_shown(found, accepted)
        self.marker.mark(found.versions)
        listing = [keys.parse_version(info.key) for info in self.store.list(keys.VERSIONS)]
        there = {version for version in listing if version is not None}
        # A separate marker: this collector's next list may name these versions.
        beside = Marker(self.store, self._cache_dir, threads=self._threads)
        for version in sorted(there - listed.versions - self.marker.versions):
            beside.mark_if_whole(version)
        places = self._places_now(beside.live)
        if hidden := (places.list_lost() & self._known_packs) - self._lost_packs:
            raise self._shows_less([f"{len(hidden)} packs that versions need"])
        return Condemned(
            frozenset(places.list_needed() | found.packs.keys() - self.purged_packs.packs),
            frozenset(self.marker.versions),
            frozenset(places.list_named()),
        )

    def _require_shown(self, found: Roots, accepted: Collection[str]) -> None:
        now = [
            *alarms.of_roots(self.store, found, self.last),
            *alarms.fewer(found.shown, self._found.shown, "this collection"),
        ]
        if missing := [alarm for alarm in now if alarm not in accepted]:
            raise self._shows_less(missing)
        self._found = found

    def _shows_less(self, missing: Sequence[str]) -> UnavailableError:
        return UnavailableError(
            f"{self.store.url} shows less than it did: {alarms.join_alarms(missing)}",
            hint="Nothing more was deleted. Run it again when the whole store is accessible.",
        )

    def _remember(self, found: Roots) -> Condemned:
        """Records the needs of heads and tags, the only roots marked so far, for the next look at
        the roots."""
        places = self._places()
        self._found = found
        self._known_packs = places.list_named()
        self._lost_packs = places.list_lost()
        if self._lost_packs:  # heads put after the list name packs that are not in it
            self._lost_packs -= Listing.of_packs(self.store).packs.keys()
        return Condemned(frozenset(places.list_needed()), frozenset(self.marker.versions))

    def _weigh(self, kept: Condemned, young_ns: int) -> None:
        """Computes the figures for `leave`."""
        self._young_ns, self._live_bytes = young_ns, self._bytes_before(kept, young_ns)

    def _bytes_before(self, some: Condemned, young_ns: int) -> int:
        return sum(self.listing.objects_of(some, put_before_ns=young_ns).values())

    def _old(self, doomed: Condemned) -> dict[str, int]:
        """Key and size of versions and packs to delete that were known when the last collection
        ended. Leaves out packs with moved records: their needed blobs are elsewhere."""
        packs = doomed.packs - self.listing.moved.keys()
        before_ns = self.last.figures.young_ns if self.last is not None else None
        return self.listing.objects_of(Condemned(frozenset(packs), doomed.versions), put_before_ns=before_ns)

    def _alarms(
        self,
        found: Roots,
        strangers: alarms.Strangers,
        old: Mapping[str, int],
        *,
        is_foreseen: bool,
    ) -> Iterator[str]:
        if not found.shown and (self.listing.versions or self.listing.packs):
            yield f"{keys.VOLUMES} shows no head at all, but there are versions or packs"
        for folder in sorted(found.unknown | strangers.unknown):
            yield f"{folder} has records that this cowfs does not know; a newer one may need them"
        if self._unread:
            yield f"the findings of the last collection cannot be read: {self._unread}"
        if self.last is None and self.store.size(keys.COLLECTED) is not None and not self._has_ended:
            yield f"{keys.GC} shows no collection that has ended, although there was one"
        yield from alarms.of_roots(self.store, found, self.last)
        lost = len(self._lost_packs) - (self.last.figures.lost_packs if self.last is not None else 0)
        if lost > 0:
            yield f"{lost} packs that versions need are missing; records of their new places may be hidden"
        if self.last is not None and not is_foreseen:
            there_bytes = self.listing.bytes_before(self.last.figures.young_ns)
            yield from alarms.bytes_gone(self.last, sum(old.values()), there_bytes, found)

    @property
    def _has_ended(self) -> bool:
        return any(each.is_done for each in self.generations.found.values())

    @property
    def has_news(self) -> bool:
        """Whether the next collection should expect more than this one did."""
        return self.last is None or self.last.volumes != self._found.shown

    def leave(self, generation: Generation, deleted: Mapping[str, int]) -> None:
        """Ends the collection. The next one expects these findings, less the deleted objects."""
        deleted_bytes = sum(size for key, size in deleted.items() if key.startswith((keys.VERSIONS, keys.PACKS)))
        other_bytes = self.listing.bytes_before(self._young_ns) - self._live_bytes - deleted_bytes
        figures = Figures(self._young_ns, self._live_bytes, max(other_bytes, 0), len(self._lost_packs))
        leave_sight(self.store, generation, figures, self._found.shown)

    def _places(self) -> Places:
        return self._places_of([self.marker.live, self.purged_packs.kept])

    def _places_of(self, live: Sequence[LiveRanges]) -> Places:
        return Places(live, self.listing.packs, self.listing.find_moved_numbers(), self._records)

    def _places_now(self, beside: LiveRanges) -> Places:
        """Uses the moved records of this moment: a pack is known either by its pin, which was read
        before, or by the record. A new pack that another collector may still delete does not count
        as staying."""
        listing = Listing.of_packs(self.store)
        doubtful = condemned(self.store, 0)[1] | lately_condemned(self.store, scratch.store_now_ns(self.store))[0]
        return Places(
            [self.marker.live, beside], listing.packs, listing.find_moved_numbers(), self._records, doubtful=doubtful
        )

    def repacker(self) -> Repacker:
        """The repacker for the packs of the plan."""
        return self._repacker(self._places())

    def _repacker(self, places: Places) -> Repacker:
        return Repacker(self.store, places, self.listing.packs, self.marker.index_packs, gain_bytes=self._gain_bytes)

    def _drop_silent(self, pins: list[FoundPin], now_ns: int, *, is_question: bool) -> list[FoundPin]:
        """The pins, without those that would be waited for in vain."""
        known_ns = now_ns if is_question else None
        late = late_pins(self.generations, pins, now_ns)
        silent = {pin.id for pin in late if is_silent(self.leases, pin, now_ns=known_ns)}
        return [pin for pin in pins if pin.id not in silent]

    def _dead(self, found: Roots, young_ns: int | None) -> Condemned:
        """The garbage. young_ns None: whatever its age."""
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
        """The newest time of the objects that would be deleted with the pack."""
        own = [self.listing.packs[pack]] if pack in self.listing.packs else []
        records = [] if places.is_named(pack) else self.listing.moved.get(pack, [])
        return max(info.mtime_ns for info in own + records)

    def _count_old_bytes(self, found: Roots, young_ns: int) -> int:
        """What would be condemned if objects put since young_ns, and no older ones, were kept for
        writers. Marks the versions put since then."""
        doomed = self._dead(found, young_ns)
        return self._count_condemned_bytes(doomed, self._repacker(self._places()).plan(found.packs, young_ns))

    def _count_condemned_bytes(self, doomed: Condemned, sparse: Sparse) -> int:
        return sum(self.listing.objects_of(doomed | Condemned(sparse.packs)).values())

    def _find_unfinished(self, found: Roots, places: Places) -> dict[str, int]:
        """The rest of the list of a collection that has not ended."""
        newest = self.generations.newest
        if newest is None or newest.is_done or newest.listed_ns is None:
            return {}
        listed = self.generations.load_condemned(newest.number)
        spared = self.generations.load_spared(newest.number)
        if spared is None:
            needed = frozenset(places.list_needed() | found.packs.keys() - self.purged_packs.packs)
            spared = Condemned(needed, frozenset(self.marker.versions), frozenset(places.list_named()))
        doomed = listed - spared
        return self.listing.objects_of(doomed, put_before_ns=newest.listed_ns)

    def _size(self, pack: PackId) -> int:
        return self.listing.packs[pack].size if pack in self.listing.packs else 0


def check_now_ns(store: ObjectStore) -> int:
    """The store's time, checked before a deletion. InvalidStateError: this machine's clock differs.
    AccessDeniedError: nothing may be deleted."""
    now_ns, refused = scratch.try_put(store)
    if refused is not None:
        raise refused
    if abs(now_ns - clock.now_ns()) > MAX_SKEW_S * 1e9:
        raise InvalidStateError(
            f"the clocks of this machine and of {store.url} differ by {abs(now_ns - clock.now_ns()) / 1e9:.0f} s",
            hint=f"Nothing was deleted. Set the clock: deletion depends on the age of objects, and {MAX_SKEW_S:.0f} s are allowed.",
        )
    return now_ns


def is_silent(watch: leases.Watch, pin: FoundPin, *, now_ns: int | None = None) -> bool:
    """Whether no owner is there to acknowledge. The holder of the volume's lease has died, or has
    sent no heartbeat for two minutes; or the lease is not the pin's, because its owner was refused,
    or another lease came after it. What the pin names stays protected, since its work may be kept.
    But it is not waited for: a fence makes its owner prove everything else anew, if it comes back.
    now_ns: as for `leases.read`."""
    if not pin.must_acknowledge:
        return False
    lease = watch.read(pin.record.volume, now_ns=now_ns)
    wanted = pin.record.lease
    if lease is None:
        return wanted is not None
    is_another = lease.write_id is not None and wanted not in (None, lease.write_id)
    return lease.state != "held" or is_another


def young_since_ns(generations: Generations, pins: list[FoundPin], now_ns: int) -> int:
    """Objects put since then may be about to be used."""
    begun = [generations.find_begin_ns(pin.record.gc_generation) for pin in pins if pin.must_acknowledge]
    return min([now_ns, *begun]) - HOUR_NS


def late_pins(generations: Generations, pins: list[FoundPin], now_ns: int) -> list[FoundPin]:
    """Writers that protect objects older than an hour, because they have not seen a newer
    collection."""
    return [
        pin
        for pin in pins
        if pin.must_acknowledge and generations.find_begin_ns(pin.record.gc_generation) < now_ns - 2 * HOUR_NS
    ]
