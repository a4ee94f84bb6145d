"""Pins protect data of writers, readers and kept working copies from garbage collection; condemned
lists name the packs that a collection will delete.

    pins/<pin id>/<n>             create-only: who protects which version and packs, and for how long; the newest n counts
    gc/<generation>/condemned     packs that collection is going to delete; a long list goes on in gc/<generation>/shards/

                     ┌── renew: n + 1 ──┐
    create: n = 1 ──▶│     alive        │── older than its lifetime, by the store's clock ──▶ a collection creates n + 1 = dead
                     └──────────────────┘
                       remove: every n is deleted

The records between the first and the newest are deleted. The first stays until the pin is removed:
a list is no snapshot, and may show none of the records that are created and deleted while it runs.

A record is as old as its object, by the store's clock; local clocks do not count. A pin that is
past its lifetime still lives until a collection has created its dead record. So either its owner
gets n + 1 and the collection sees a live pin, or the collection gets it and renewing raises
NotFoundError: the owner then creates a new pin and checks every pack it uses.

The order that makes a collection safe: a writer creates its pin before its first look-up, then
reads the condemned lists, then looks up (`cowfs.version.publish.protection`). docs/format/refs.md
has the rules of both sides.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from cowfs.base import clock
from cowfs.base.errors import ConflictError, CorruptError, CowfsError, NotFoundError
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.format import keys
from cowfs.format.records import CondemnedRecord, PinKind, PinRecord
from cowfs.store.contract import ObjectStore
from cowfs.store.refs import refs
from cowfs.store.reliability.damaged import read_as

LIFETIME_S = 7 * 24 * 3600
# An unchanged pin is written again only when this part of its time has passed.
_RENEW_PART = 0.05
_LISTED = 16
LATE_DELETE_NS = 3600 * 10**9
"""For so long after a collection has ended, a request of it, or of another collector that was at
the same list, may still delete what the list names. Chosen: as the age below which nothing is
garbage."""


class Pin:
    """Keeps head `number` of a volume, the packs it names, and packs put since gc generation
    `generation` from being collected.

    One process at a time owns a pin; any of its threads may call.
    """

    def __init__(self, store: ObjectStore, id: WriteId, at: int, record: PinRecord, written_s: float | None) -> None:
        self._store = store
        self._id = id
        self._at = at  # the number of `_record` in the pin's sequence; 0: not written yet
        self._record = record
        self._written_s = written_s  # when, by our clock; None: by an earlier process
        self._lock = threading.Lock()  # guards all of these, held while a record is written: the newest state wins

    @property
    def key(self) -> str:
        """What a working copy writes down, to `resume` with."""
        return keys.pin_prefix(self._id)

    @property
    def volume(self) -> str:
        return self._record.volume

    @property
    def number(self) -> int:
        return self._record.number

    @property
    def generation(self) -> int:
        """The newest collection whose list the owner has read."""
        return self._record.gc_generation

    @property
    def packs(self) -> Sequence[PackId]:
        return self._record.packs

    @property
    def owner(self) -> str:
        return self._record.owner

    @property
    def lease(self) -> WriteId | None:
        return self._record.lease

    @classmethod
    def create(
        cls,
        store: ObjectStore,
        *,
        volume: str,
        number: int,
        owner: str,
        packs: Sequence[PackId] = (),
        generation: int | None = None,
        lease: WriteId | None = None,
    ) -> Pin:
        """A writer's pin, durable when it returns. It acknowledges every collection that has
        published its list by now: the owner must read the existing lists before its first
        look-up.

        generation: it acknowledges no later one, and no request is made to find the newest. lease:
        write id of the lease that the owner has, or puts at the same time as the pin: without it,
        others do not wait for the owner.
        """
        record = PinRecord(
            volume=volume,
            number=number,
            gc_generation=newest_condemned(store) if generation is None else generation,
            created_ns=clock.now_ns(),
            lifetime_s=LIFETIME_S,
            write_id=_write_id(),
            owner=owner,
            packs=tuple(packs),
            lease=lease,
        )
        pin = cls(store, record.write_id, 0, record, None)
        pin._append(record)
        return pin

    @classmethod
    def resume(cls, store: ObjectStore, key: str) -> Pin | None:
        """The pin a working copy wrote down; None when it is dead or gone: create a new one and
        check packs.

        It is proven alive by the next `renew`, which writes.
        """
        if not key.endswith("/"):
            return _replace_old(store, key)
        id = WriteId.from_hex(key.split("/")[1])
        found = refs.newest(store, refs.pin(id))
        if found is None or found[1].kind == "dead":
            return None
        return cls(store, id, *found, None)

    def renew(
        self,
        *,
        kind: PinKind = "writer",
        volume: str | None = None,
        number: int | None = None,
        generation: int | None = None,
        packs: Sequence[PackId] | None = None,
        lease: WriteId | None = None,
        is_forced: bool = False,
    ) -> None:
        """Extends the lifetime and updates the given fields. Call it at each heartbeat: it writes
        only when necessary.

        is_forced: writes in any case, so that returning proves the pin alive. NotFoundError: a
        collection has declared the pin dead.
        """
        with self._lock:
            old = self._record
            record = replace(
                old,
                kind=kind,
                lifetime_s=None if kind == "hold" else LIFETIME_S,
                volume=old.volume if volume is None else volume,
                number=old.number if number is None else number,
                gc_generation=old.gc_generation if generation is None else generation,
                packs=old.packs if packs is None else tuple(packs),
                lease=old.lease if lease is None else lease,
            )
            is_young = self._written_s is not None and clock.monotonic_s() - self._written_s < LIFETIME_S * _RENEW_PART
            if record == old and is_young and not is_forced:
                return
            self._append(replace(record, created_ns=clock.now_ns(), write_id=_write_id()))

    def remove(self) -> None:
        """Ends the protection. Removing twice has no effect."""
        with self._lock:
            listed = [info.key for info in self._store.list(self.key)]
            self._store.delete(reversed(listed))  # the newest, which counts, last

    def _append(self, record: PinRecord) -> None:
        """Makes `record` the newest of the sequence. The lock is held, or no other thread knows the
        pin yet."""
        while True:
            try:
                refs.append(self._store, refs.pin(self._id), self._at + 1, record)
            except ConflictError:
                taken = refs.read(self._store, refs.pin(self._id), self._at + 1)
                if taken.kind == "dead":
                    raise NotFoundError(
                        f"the pin of volume {self.volume} expired and a collection went on without it",
                        hint="Create a new pin and check every pack in use.",
                    ) from None
                self._at += 1  # an earlier put of ours whose outcome was not known
                continue
            break
        self._at += 1
        self._record, self._written_s = record, clock.monotonic_s()
        if self._at - 1 > refs.FIRST:
            with contextlib.suppress(CowfsError):  # leftover records have no effect, and `remove` deletes them
                self._store.delete([keys.pin(self._id, self._at - 1)])


def _replace_old(store: ObjectStore, key: str) -> Pin | None:
    """Earlier versions of cowfs replaced one object `pins/<pin id>`; its state moves to a pin of
    records."""
    try:
        record = read_as(store, key, partial(PinRecord.decode, what=f"pin {key}"))
    except NotFoundError:
        return None
    record = replace(record, lifetime_s=LIFETIME_S, write_id=_write_id(), extra={})
    pin = Pin(store, record.write_id, 0, record, None)
    pin._append(record)
    store.delete([key])
    return pin


def condemned(store: ObjectStore, after_generation: int) -> tuple[int, set[PackId], set[VersionId]]:
    """(newest gc generation with a list, packs and versions condemned by generations >
    after_generation). One list request when nothing is new.

    With no collection yet the generation is 0. Lists of collections that have ended are not read:
    their packs are gone, or were spared. The newest list always stays, so that a generation
    before after_generation, which had one, shows that the store was restored to an earlier state.
    """
    packs: set[PackId] = set()
    versions: set[VersionId] = set()
    newest = 0
    for generation, ended_ns in _list_generations(store, after_generation - 1):
        newest = max(newest, generation)
        if generation > after_generation and ended_ns is None:
            for record in _lists(store, generation):
                packs.update(record.packs)
                versions.update(record.versions)
    return newest, packs, versions


def load_condemned_versions(store: ObjectStore) -> set[VersionId]:
    """Versions that no head, tag or pin may begin to protect any more."""
    return condemned(store, 0)[2]


def lately_condemned(store: ObjectStore, now_ns: int) -> tuple[set[PackId], set[VersionId]]:
    """What collections have named that ended not long ago, by the store's clock: its ids must not
    be put again, since a request to delete them may still be on its way."""
    found = [
        record
        for generation, ended_ns in _list_generations(store, 0)
        if ended_ns is not None and ended_ns > now_ns - LATE_DELETE_NS
        for record in _lists(store, generation)
    ]
    packs = {pack for record in found for pack in record.packs}
    return packs, {version for record in found for version in record.versions}


def load_collected_records(store: ObjectStore, now_ns: int) -> set[PackId]:
    """Packs whose moved records a collection deletes or has deleted recently: even if none is left,
    the first record must not be put again."""
    return {
        pack
        for generation, ended_ns in _list_generations(store, 0)
        if ended_ns is None or ended_ns > now_ns - LATE_DELETE_NS
        for record in _lists(store, generation)
        for pack in record.moved
    }


def newest_condemned(store: ObjectStore) -> int:
    """The newest collection that has published its list, 0 if none has. One list request."""
    return next((generation for generation, _ in _list_generations(store, 0)), 0)


def _lists(store: ObjectStore, generation: int) -> list[CondemnedRecord]:
    key = keys.condemnation(generation)
    try:
        what = f"the condemned list of collection {generation}"
        first = read_as(store, key, partial(decode_condemned, generation, what))
        return [first, *(_shard(store, generation, shard) for shard in range(first.shards or 0))]
    except NotFoundError:
        # Only lists of collections that have ended are removed: their packs are gone.
        if store.size(key) is not None:
            raise
    return []


def _list_generations(store: ObjectStore, after_generation: int) -> Iterator[tuple[int, int | None]]:
    """Collections that have published a list, and when they ended; newest first. Lists no further
    than needed."""
    start_after = ""
    newest: tuple[int, int | None] = (0, None)  # the last one seen with a list
    while True:
        page = store.list(keys.GC, start_after=start_after, limit=_LISTED)
        start_after = page[-1].key if page else ""
        for info in page:
            generation = keys.parse_generation(info.key)
            if generation is None:
                continue
            if newest[0] not in (0, generation):
                yield newest
                newest = (0, None)
            if generation <= after_generation:
                return
            if info.key == keys.condemnation(generation):
                newest = (generation, None)
            elif info.key == keys.collection(generation, "done"):
                newest = (newest[0], info.mtime_ns)
            if info.key > keys.collection(generation, "done"):
                start_after = max(start_after, keys.collection(generation, "shards0"))  # behind the shards
        if len(page) < _LISTED:
            break
    if newest[0]:
        yield newest


def _shard(store: ObjectStore, generation: int, shard: int) -> CondemnedRecord:
    what = f"part {shard} of the condemned list of collection {generation}"
    return read_as(store, keys.condemnation_shard(generation, shard), partial(decode_condemned, generation, what))


def decode_condemned(generation: int, what: str, data: bytes) -> CondemnedRecord:
    """CorruptError: it is damaged, or another one."""
    found = CondemnedRecord.decode(data, what=what)
    if found.generation != generation:
        raise CorruptError(f"{what} says it belongs to collection {found.generation}")
    return found


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
