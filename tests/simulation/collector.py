"""A reference collector: what design and docs/format/refs.md ask of one, step by step, with nothing
saved. For tests only.

It keeps the newest version of each volume, what pins name, and nothing else: the harshest pruning
there can be. It may be killed at any request; the next run finds `begin` without `done` and
repeats.
"""

from __future__ import annotations

from dataclasses import replace

from cowfs import clock
from cowfs.errors import ConflictError, CowfsError, NotFoundError
from cowfs.format import keys
from cowfs.format.records import CondemnedRecord, HeadRecord, PinRecord
from cowfs.ids import WriteId
from cowfs.store import refs
from cowfs.store.scratch import store_now_ns
from cowfs.version.volumes import find_head, volume_names
from tests.simulation.roots import PinRecords, live_pins
from tests.simulation.world import Actor, Killed, World

HOUR_NS = 3600 * 10**9
PATIENCE = 60  # looks at the pins before the collection is left to the next run


class Collector(Actor):
    has_outages = False  # it would stop at the first fence, for as long

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._pins: PinRecords = {}  # what it has read of them: a record never changes

    def live(self) -> None:
        self.is_dead = False
        self._pins.clear()
        try:
            self._collect()
        except (CowfsError, Killed) as error:
            self.world.note(self, f"stops: {error!r}")

    @property
    def share(self) -> int:
        """While a head is on its way there is time for several collections: they find what only the
        version of that head needs."""
        return self.world.conditions.collector_share * (6 if self.world.is_in_trouble else 1)

    def heed_trouble(self) -> None:
        self.asleep = 0

    # -- steps 1 to 10

    def _collect(self) -> None:
        generation, begun_ns = self._begin()
        found = {info.key: info.mtime_ns for prefix in (keys.PACKS, keys.VERSIONS) for info in self.store.list(prefix)}
        doomed = self._condemned(generation)
        if doomed is None:
            doomed = self._dead(found)
            self._condemn(generation, doomed)
        if not self._wait_for_pins(generation, begun_ns):
            return
        doomed -= self._needed()
        self._delete(doomed)
        self.store.put(keys.collection(generation, "done"), b"")
        self.world.collections += 1
        self.world.deleted_packs += sum(key.startswith(keys.PACKS) for key in doomed)
        self._tidy()
        if not self.world.is_in_trouble:
            self.asleep = self.random.randrange(self.world.conditions.collector_rest)

    def _begin(self) -> tuple[int, int]:
        begun = {
            keys.parse_generation(info.key): info for info in self.store.list(keys.GC) if info.key.endswith("/begin")
        }
        newest = max((g for g in begun if g is not None), default=0)
        if newest == 0 or self.store.size(keys.collection(newest, "done")) is not None:
            newest += 1
            self.store.put_if_absent(keys.collection(newest, "begin"), b"")
        (info,) = self.store.list(keys.collection(newest, "begin"))
        return newest, info.mtime_ns

    def _needed(self) -> set[str]:
        """Every key a root needs, read anew."""
        needed: set[str] = set()
        heads = [find_head(self.store, volume) for volume in volume_names(self.store)]  # a deleted volume may come back
        versions = {head.version for head in heads if head is not None}
        for _, pin, _ in live_pins(self.store, self._pins).values():
            if pin.kind == "dead":
                continue
            needed |= {keys.pack(pack) for pack in pin.packs}
            if pin.number > 0:
                versions.add(refs.read(self.store, refs.head(pin.volume), pin.number).version)
        for version in versions - {None}:
            assert version is not None
            needed |= self.world.closure_of(version)
        return needed

    def _dead(self, found: dict[str, int]) -> set[str]:
        now_ns = store_now_ns(self.store)
        acknowledged = [
            pin.gc_generation
            for _, pin, _ in live_pins(self.store, self._pins).values()
            if pin.kind not in ("dead", "hold")
        ]
        young_ns = min([now_ns, *(self._begun_ns(generation) for generation in acknowledged)]) - HOUR_NS
        return {key for key, mtime_ns in found.items() if mtime_ns < young_ns} - self._needed()

    def _begun_ns(self, generation: int) -> int:
        found = self.store.list(keys.collection(generation, "begin")) if generation else []
        return found[0].mtime_ns if found else 0

    def _condemned(self, generation: int) -> set[str] | None:
        """What an earlier run of the same collection has condemned."""
        try:
            record = CondemnedRecord.decode(self.store.get(keys.condemned(generation)), what="the list")
        except NotFoundError:
            return None
        packs = set(record.packs)
        for shard in range(record.shards or 0):
            key = keys.condemned_shard(generation, shard)
            packs |= set(CondemnedRecord.decode(self.store.get(key), what=key).packs)
        return {keys.pack(pack) for pack in packs}

    def _condemn(self, generation: int, doomed: set[str]) -> None:
        packs = sorted(pack for key in doomed if (pack := keys.parse_pack(key)) is not None)
        self.world.note(self, f"condemns {len(packs)} packs in collection {generation}")
        cut = self.random.randrange(len(packs) + 1)
        rest = CondemnedRecord(generation, tuple(packs[cut:]), clock.now_ns(), _write_id())
        self.store.put(keys.condemned_shard(generation, 0), rest.encode())
        first = CondemnedRecord(generation, tuple(packs[:cut]), clock.now_ns(), _write_id(), shards=1)
        self.store.put_if_absent(keys.condemned(generation), first.encode())

    def _wait_for_pins(self, generation: int, begun_ns: int) -> bool:
        for _ in range(PATIENCE):
            now_ns = store_now_ns(self.store)
            waiting = False
            fenced: set[str] = set()
            for id, (number, pin, mtime_ns) in live_pins(self.store, self._pins).items():
                if pin.kind == "hold" or (pin.kind != "dead" and pin.gc_generation >= generation):
                    continue
                if pin.kind != "dead":
                    assert pin.lifetime_s is not None
                    if now_ns < mtime_ns + pin.lifetime_s * 10**9 or not self._declare_dead(id, number, pin):
                        waiting = True
                        continue
                elif mtime_ns < begun_ns:
                    continue  # an earlier collection has fenced
                fenced.add(pin.volume)
            for volume in sorted(fenced):
                self._fence(volume)
            if not waiting:
                return True
            self.turn()
        return False

    def _declare_dead(self, id: WriteId, number: int, pin: PinRecord) -> bool:
        dead = replace(pin, kind="dead", lifetime_s=None, packs=(), owner=self.name, write_id=_write_id())
        try:
            refs.append(self.store, refs.pin(id), number + 1, dead)
        except ConflictError:
            return False
        self.world.note(self, f"declares the pin {id} of {pin.volume} dead")
        return True

    def _fence(self, volume: str) -> None:
        while True:
            head = find_head(self.store, volume)
            if head is None or head.is_deleted:  # nobody can publish there
                return
            record = HeadRecord("fence", head.version, head.epoch, clock.now_ns(), _write_id())
            try:
                refs.append(self.store, refs.head(volume), head.number + 1, record)
            except ConflictError:
                continue
            return

    def _delete(self, doomed: set[str]) -> None:
        for key in sorted(doomed, key=lambda key: (not key.startswith(keys.VERSIONS), key)):
            self.store.delete([key])

    def _tidy(self) -> None:
        """Lists that every live pin has acknowledged: `condemned` first, its shards after it."""
        live = [
            pin.gc_generation
            for _, pin, _ in live_pins(self.store, self._pins).values()
            if pin.kind not in ("dead", "hold")
        ]
        oldest = min(live, default=0)
        for info in self.store.list(keys.GC):
            generation = keys.parse_generation(info.key)
            if generation is None or generation > oldest or info.key != keys.condemned(generation):
                continue
            if self.store.size(keys.collection(generation, "done")) is not None:
                self.store.delete([info.key])
                self.store.delete([keys.condemned_shard(generation, 0)])


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
