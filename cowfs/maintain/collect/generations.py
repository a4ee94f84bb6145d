"""The records of a collection in the store, which writers heed and with which the next collection
can finish it.

    gc/<g>/begin          its collector; the object's time is when it began
    gc/<g>/shards/<k>     parts of the list of objects to delete; put before the list
    gc/<g>/condemned      the list. From here on no writer may begin to use what it names
    gc/<g>/spared         the objects on it that are needed after all, found when every writer had acknowledged it
    gc/<g>/seen/…         which volumes it found (`sight`)
    gc/<g>/done           everything on the list that is not needed is deleted

All but `done` are create-only, so a paused collector and one that continues in its place write one
list. A collector that finds an existing shard takes what it names for condemned as well (needed
objects are spared later, as always), and deletes only what the list in the store names. Likewise,
the first decision on what to spare holds for all collectors: a later one might find an object
needed that another has already sent a request to delete, because a writer that is about to be
refused has pinned it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from functools import partial

from cowfs.base import clock
from cowfs.base.errors import ConflictError, LeaseHeldError, NotFoundError, UnavailableError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.format import keys
from cowfs.format.record import Holder
from cowfs.format.records import CondemnedRecord, LeaseRecord, SparedRecord
from cowfs.store import ObjectStore
from cowfs.store.refs.holder import is_dead
from cowfs.store.refs.pins import LATE_DELETE_NS, decode_condemned
from cowfs.store.reliability.damaged import read_as
from cowfs.store.reliability.repeating import create

SHARD_IDS = 5000
"""Packs and versions of one object: some 250 KB."""


AT_IT_S = 600.0
"""How long a process that runs on this machine counts as collecting. After that it may have left
the rest to the next collector, since a writer did not answer. Guessed; two at once do no harm."""


@dataclass(frozen=True)
class Generation:
    """begun_ns, listed_ns, done_ns: when, by the store's clock; None: not yet."""

    number: int
    begun_ns: int
    listed_ns: int | None
    has_shards: bool
    has_seen: bool
    done_ns: int | None

    @property
    def has_list(self) -> bool:
        return self.listed_ns is not None

    @property
    def is_done(self) -> bool:
        return self.done_ns is not None


@dataclass(frozen=True)
class Condemned:
    packs: frozenset[PackId] = frozenset()
    versions: frozenset[VersionId] = frozenset()
    moved: frozenset[PackId] = frozenset()
    """Those of the packs whose moved records are deleted with them."""

    def __and__(self, other: Condemned) -> Condemned:
        return Condemned(self.packs & other.packs, self.versions & other.versions, self.moved & other.moved)

    def __sub__(self, other: Condemned) -> Condemned:
        return Condemned(self.packs - other.packs, self.versions - other.versions, self.moved - other.moved)

    def __bool__(self) -> bool:
        return bool(self.packs or self.versions)

    def __or__(self, other: Condemned) -> Condemned:
        return Condemned(self.packs | other.packs, self.versions | other.versions, self.moved | other.moved)


@dataclass
class Generations:
    """The generations of a store, as one list request shows them."""

    store: ObjectStore
    found: dict[int, Generation] = field(default_factory=dict)

    def load(self) -> Generations:
        found: dict[int, dict[str, int]] = {}
        for info in self.store.list(keys.GC):
            number = keys.parse_generation(info.key)
            if number is None:
                continue
            found.setdefault(number, {})[info.key.removeprefix(keys.collection(number, ""))] = info.mtime_ns
        self.found = {
            number: Generation(
                number,
                some.get("begin", 0),
                some.get("condemned"),
                any(name.startswith("shards/") for name in some),
                any(name.startswith("seen/") for name in some),
                some.get("done"),
            )
            for number, some in found.items()
        }
        return self

    @property
    def newest(self) -> Generation | None:
        return self.found[max(self.found)] if self.found else None

    def find_begin_ns(self, number: int) -> int:
        """0 if it is no longer known."""
        return self.found[number].begun_ns if number in self.found else 0

    def begin(self, holder: Holder) -> Generation:
        """Returns the generation that was begun and has not ended, or a new one. LeaseHeldError: a
        process of this machine is working on it."""
        while True:
            newest = self.load().newest
            if newest is not None and not newest.is_done:
                if clock.now_ns() - newest.begun_ns < AT_IT_S * 1e9:
                    self._require_abandoned(newest.number, holder)
                return newest
            number = newest.number + 1 if newest is not None else 1
            record = LeaseRecord(number, holder, clock.now_ns(), _write_id())
            try:
                create(self.store, keys.collection(number, "begin"), record.encode())
            except ConflictError:  # our own put after all, or another collector's
                if number in self.load().found:
                    continue
                raise UnavailableError(
                    f"{self.store.url} has collection {number} but does not list it",
                    hint="Try again; nothing was deleted.",
                ) from None

    def _require_abandoned(self, number: int, holder: Holder) -> None:
        key = keys.collection(number, "begin")
        try:
            found = read_as(self.store, key, partial(LeaseRecord.decode, what=key)).holder
        except NotFoundError:
            return
        is_seen = (found.machine_id, found.boot_id) == (holder.machine_id, holder.boot_id)
        if is_seen and not is_dead(found) and (found.pid, found.start_time) != (holder.pid, holder.start_time):
            raise LeaseHeldError(
                f"process {found.pid} is collecting {self.store.url}",
                hint="Wait until it has ended. If it is killed, the next collection continues its work.",
                details={"pid": found.pid, "generation": number},
            )

    def load_condemned(self, number: int) -> Condemned:
        """The published list of a collection. NotFoundError: none was published."""
        found = Condemned()
        for record in self._records(number):
            found |= Condemned(frozenset(record.packs), frozenset(record.versions), frozenset(record.moved))
        return found

    def _records(self, number: int) -> Iterator[CondemnedRecord]:
        key = keys.condemnation(number)
        first = read_as(self.store, key, partial(decode_condemned, number, key))
        yield first
        for shard in range(first.shards or 0):
            yield self._shard(number, shard)

    def _shard(self, number: int, shard: int) -> CondemnedRecord:
        key = keys.condemnation_shard(number, shard)
        return read_as(self.store, key, partial(decode_condemned, number, key))

    def _has_shard(self, number: int, shard: int) -> bool:
        """Reads the shard to check that it exists: a list that counts a missing shard could never
        be read."""
        try:
            self._shard(number, shard)
        except NotFoundError:
            return False
        return True

    def condemn(self, number: int, doomed: Condemned) -> Condemned:
        """Publishes the list, and returns it as stored."""
        shards = 0
        for part in _parts(doomed):
            self._create_shard(number, shards, part)
            hit("gc-after-shard")
            shards += 1
        while self._has_shard(number, shards):
            shards += 1  # of an earlier run
        record = CondemnedRecord(number, (), clock.now_ns(), _write_id(), shards=shards)
        with suppress(ConflictError):  # our own put after all, or by a collector that seemed dead
            create(self.store, keys.condemnation(number), record.encode())
        return self.load_condemned(number)

    def _create_shard(self, number: int, shard: int, part: Condemned) -> None:
        """Puts the part at this place, or after the shards of an earlier run."""
        packs, versions, moved = tuple(sorted(part.packs)), tuple(sorted(part.versions)), tuple(sorted(part.moved))
        record = CondemnedRecord(number, packs, clock.now_ns(), _write_id(), versions=versions, moved=moved)
        while True:
            try:
                create(self.store, keys.condemnation_shard(number, shard), record.encode())
                return
            except ConflictError:
                there = self._shard(number, shard)
                is_there = set(packs) <= set(there.packs) and set(moved) <= set(there.moved)
                if is_there and set(versions) <= set(there.versions):
                    return
                shard += 1

    def load_spared(self, number: int) -> Condemned | None:
        """The decision on what to spare; None: not made yet."""
        key = keys.collection(number, "spared")
        try:
            found = read_as(self.store, key, partial(SparedRecord.decode, what=key))
        except NotFoundError:
            return None
        return Condemned(frozenset(found.packs), frozenset(found.versions), frozenset(found.moved))

    def spare(self, number: int, needed: Condemned) -> Condemned | None:
        """Decides what to spare. Returns the decision, perhaps another collector's. None: the
        collection has ended since, and the decision was removed."""
        packs, versions, moved = (
            tuple(sorted(needed.packs)),
            tuple(sorted(needed.versions)),
            tuple(sorted(needed.moved)),
        )
        record = SparedRecord(number, packs, clock.now_ns(), _write_id(), versions=versions, moved=moved)
        with suppress(ConflictError):
            create(self.store, keys.collection(number, "spared"), record.encode())
        return self.load_spared(number)

    def load_listed_ns(self, number: int) -> int | None:
        """When the list was published. None: the collection has ended and its list was removed.
        UnavailableError: the store does not show the collection."""
        found = self.load().found.get(number)
        if found is None:
            raise UnavailableError(
                f"{self.store.url} does not show collection {number}, which is running",
                hint="Nothing more was deleted. Run it again when the whole store is accessible.",
            )
        return found.listed_ns

    def tidy(self, oldest_acknowledged: int) -> None:
        """Removes the lists of collections that have ended and that every live pin has
        acknowledged: `condemned` first, its shards after it. The newest list stays: a new pin
        acknowledges it, and so does not have to protect older objects. The others stay for as long
        as copies from other stores heed them."""
        newest = max((each.number for each in self.load().found.values() if each.has_list), default=0)
        now_ns = max((each.done_ns or 0 for each in self.found.values()), default=0)
        for generation in self.found.values():
            if generation.number > oldest_acknowledged or generation.number >= newest:
                continue
            if generation.done_ns is None or generation.done_ns > now_ns - LATE_DELETE_NS:
                continue
            if generation.has_list:
                self.store.delete([keys.condemnation(generation.number), keys.collection(generation.number, "spared")])
            if generation.has_shards:
                self._delete_below(generation.number, "shards/")
        ended = [each for each in self.found.values() if each.is_done]
        for generation in ended:
            if generation.has_seen and generation is not max(ended, key=lambda each: each.number):
                self._delete_below(generation.number, "seen/")

    def _delete_below(self, number: int, folder: str) -> None:
        self.store.delete([info.key for info in self.store.list(keys.collection(number, folder))])


def _parts(doomed: Condemned) -> Iterator[Condemned]:
    packs, versions = sorted(doomed.packs), sorted(doomed.versions)
    for at in range(0, len(packs), SHARD_IDS):
        some = frozenset(packs[at : at + SHARD_IDS])
        yield Condemned(packs=some, moved=some & doomed.moved)
    for at in range(0, len(versions), SHARD_IDS):
        yield Condemned(versions=frozenset(versions[at : at + SHARD_IDS]))


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
