"""What a collection writes about itself, so that writers heed it and the next one can finish it.

    gc/<g>/begin          who began it, and by the object's time when
    gc/<g>/shards/<k>     parts of the list of what it is going to delete; before
    gc/<g>/condemned      the list. From here on nobody may begin to use what it names
    gc/<g>/spared         what of it is needed all the same, as found when every writer had acknowledged it
    gc/<g>/done           everything of it that is not needed is deleted

All are create-only, so a collector that was paused and one that goes on in its place write one
list: who finds a shard that is there already takes what it names for condemned too (what is needed
of it is spared later, as of all), and what is deleted is always read from the store. Likewise the
first one's decision what to spare is everybody's: whoever decides later may find needed what
another has sent a request to delete, for somebody who is about to be refused has pinned it
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from functools import partial

from cowfs import clock
from cowfs.errors import ConflictError, LeaseHeldError, NotFoundError
from cowfs.failpoints import hit
from cowfs.format import keys
from cowfs.format.record import Holder
from cowfs.format.records import CondemnedRecord, LeaseRecord, SparedRecord
from cowfs.ids import PackId, VersionId, WriteId
from cowfs.store import ObjectStore
from cowfs.store.damaged import read_as
from cowfs.store.holder import is_dead
from cowfs.store.pins import LATE_DELETE_NS, condemned_of
from cowfs.store.repeating import create
from cowfs.values import dataclass

SHARD_IDS = 5000
"""Packs and versions of one object: some 250 KB."""


AT_IT_S = 600.0
"""For so long a process that runs on this machine counts as collecting. Longer, and it may have
left the rest to whoever comes next, since a writer did not answer. Guessed; two at once do no
harm."""


@dataclass(frozen=True)
class Generation:
    """begun_ns, listed_ns, done_ns: when by the store's clock; None: not yet."""

    number: int
    begun_ns: int
    listed_ns: int | None
    has_shards: bool
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
    """Of the packs, those whose moved records go with them."""

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
    """Those of a store, as one list request shows them."""

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
                some.get("done"),
            )
            for number, some in found.items()
        }
        return self

    @property
    def newest(self) -> Generation | None:
        return self.found[max(self.found)] if self.found else None

    def begun_ns(self, number: int) -> int:
        """0: nobody knows any more."""
        return self.found[number].begun_ns if number in self.found else 0

    def begin(self, holder: Holder) -> Generation:
        """The one that was begun and has not ended, or a new one. LeaseHeldError: a process of this
        machine is about to end it."""
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
            except ConflictError:
                continue  # ours after all, or another's: the list shows it

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
                hint="Wait until it has ended. If it is killed, the next one goes on where it was.",
                details={"pid": found.pid, "generation": number},
            )

    def condemned(self, number: int) -> Condemned:
        """What the published list of a collection names. NotFoundError: none was published."""
        found = Condemned()
        for record in self._records(number):
            found |= Condemned(frozenset(record.packs), frozenset(record.versions), frozenset(record.moved))
        return found

    def _records(self, number: int) -> Iterator[CondemnedRecord]:
        key = keys.condemned(number)
        first = read_as(self.store, key, partial(condemned_of, number, key))
        yield first
        for shard in range(first.shards or 0):
            yield self._shard(number, shard)

    def _shard(self, number: int, shard: int) -> CondemnedRecord:
        key = keys.condemned_shard(number, shard)
        return read_as(self.store, key, partial(condemned_of, number, key))

    def _has_shard(self, number: int, shard: int) -> bool:
        """It is read: the list would count one for good that is not there, and could not be
        read."""
        try:
            self._shard(number, shard)
        except NotFoundError:
            return False
        return True

    def condemn(self, number: int, doomed: Condemned) -> Condemned:
        """Publishes the list; what it names, as it is in the store."""
        shards = 0
        for part in _parts(doomed):
            self._create_shard(number, shards, part)
            hit("gc-after-shard")
            shards += 1
        while self._has_shard(number, shards):
            shards += 1  # of an earlier run
        record = CondemnedRecord(number, (), clock.now_ns(), _write_id(), shards=shards)
        with suppress(ConflictError):  # ours after all, or a collector's that we took for dead
            create(self.store, keys.condemned(number), record.encode())
        return self.condemned(number)

    def _create_shard(self, number: int, shard: int, part: Condemned) -> None:
        """At this place, or behind what an earlier run has written."""
        packs, versions, moved = tuple(sorted(part.packs)), tuple(sorted(part.versions)), tuple(sorted(part.moved))
        record = CondemnedRecord(number, packs, clock.now_ns(), _write_id(), versions=versions, moved=moved)
        while True:
            try:
                create(self.store, keys.condemned_shard(number, shard), record.encode())
                return
            except ConflictError:
                there = self._shard(number, shard)
                is_there = set(packs) <= set(there.packs) and set(moved) <= set(there.moved)
                if is_there and set(versions) <= set(there.versions):
                    return
                shard += 1

    def spared(self, number: int) -> Condemned | None:
        """What was decided; None: nothing yet."""
        key = keys.collection(number, "spared")
        try:
            found = read_as(self.store, key, partial(SparedRecord.decode, what=key))
        except NotFoundError:
            return None
        return Condemned(frozenset(found.packs), frozenset(found.versions), frozenset(found.moved))

    def spare(self, number: int, needed: Condemned) -> Condemned | None:
        """Decides; what was decided, perhaps by another. None: the collection has ended since, and
        what was decided was removed."""
        packs, versions, moved = (
            tuple(sorted(needed.packs)),
            tuple(sorted(needed.versions)),
            tuple(sorted(needed.moved)),
        )
        record = SparedRecord(number, packs, clock.now_ns(), _write_id(), versions=versions, moved=moved)
        with suppress(ConflictError):
            create(self.store, keys.collection(number, "spared"), record.encode())
        return self.spared(number)

    def listed_ns(self, number: int) -> int | None:
        """When the list was published. None: it has served, and was removed."""
        return self.load().found[number].listed_ns

    def end(self, number: int) -> None:
        self.store.put(keys.collection(number, "done"), b"")

    def tidy(self, oldest_acknowledged: int) -> None:
        """Removes the lists of collections that have ended and that every live pin has
        acknowledged: `condemned` first, its shards behind it. The newest list stays: a new pin
        acknowledges it, and so does not have to protect what is older. Others stay for as long as
        copies from other stores heed them."""
        newest = max((each.number for each in self.load().found.values() if each.has_list), default=0)
        now_ns = max((each.done_ns or 0 for each in self.found.values()), default=0)
        for generation in self.found.values():
            if generation.number > oldest_acknowledged or generation.number >= newest:
                continue
            if generation.done_ns is None or generation.done_ns > now_ns - LATE_DELETE_NS:
                continue
            if generation.has_list:
                self.store.delete([keys.condemned(generation.number), keys.collection(generation.number, "spared")])
            if generation.has_shards:
                prefix = keys.collection(generation.number, "shards/")
                self.store.delete([info.key for info in self.store.list(prefix)])


def _parts(doomed: Condemned) -> Iterator[Condemned]:
    packs, versions = sorted(doomed.packs), sorted(doomed.versions)
    for at in range(0, len(packs), SHARD_IDS):
        some = frozenset(packs[at : at + SHARD_IDS])
        yield Condemned(packs=some, moved=some & doomed.moved)
    for at in range(0, len(versions), SHARD_IDS):
        yield Condemned(versions=frozenset(versions[at : at + SHARD_IDS]))


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
