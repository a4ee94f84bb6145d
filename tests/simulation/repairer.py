"""Somebody who finds a pack damaged or gone, for good, and repairs the store from a copy of that
pack: while collections move and delete packs, and writers use what is left of it.

Until the repair is done the pack counts as there. From then on it counts as gone: versions that
need it are read from where the repair has put its blobs. Only if the repair could not know all of
these does the pack come back in the end: what only pruned versions name, or one whose head came
meanwhile.
"""

from __future__ import annotations

from cowfs.base.ids import PackId
from cowfs.errors import CowfsError
from cowfs.format import keys
from cowfs.format.pack import PackKind, parse_pack
from cowfs.maintain.check.verify import Damage, Scope, Verifier
from cowfs.maintain.repairs.blob_sources import BlobSource, NamedBlobs, OwnPack
from cowfs.maintain.repairs.repair import Repair
from cowfs.store import Access, load_record
from cowfs.store.contract import Data
from cowfs.store.packs import read_moved_records
from cowfs.store.sealed import sealing_of
from tests.maintain.damage import KIND_AT
from tests.simulation.memory import MemoryStore
from tests.simulation.promises import Violation
from tests.simulation.world import DAY_S, Actor, Killed, World

REST = 150  # turns
REPAIRS = 6
ATTEMPTS = 40
SHARE = 6
SLEEPS = 0.4
NAPS = 3
SLEPT_S = (3 * 3600.0, 8 * DAY_S)


class Repairer(Actor):
    has_outages = False

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._source = MemoryStore(world.clock.store_now_ns)
        self._source.url = "memory://source"
        self._source.sealing = world.objects.sealing
        self._begun = 0
        put_if_absent = self.store.put_if_absent

        def put_late(key: str, data: Data) -> None:
            if keys.parse_moved(key) is not None:
                self._sleep("before it says where what it has written lies")
            put_if_absent(key, data)

        vars(self.store)["put_if_absent"] = put_late

    @property
    def share(self) -> int:
        """A repair takes more requests than a commit."""
        return SHARE

    def heed_trouble(self) -> None:
        self.asleep = 0

    def live(self) -> None:
        self.is_dead = False
        self.asleep = 0 if self.world.is_over else self.random.randrange(REST)
        self.turn()
        pack = self._any_pack()
        if pack is None or self._begun == REPAIRS or self.world.is_over:
            return
        self._begun += 1
        kept = self.world.objects.objects[keys.pack(pack)]
        self._spoil(pack, kept)
        try:
            is_done = self._repair_at_last(pack)
        finally:
            self.world.repairing.discard(keys.pack(pack))
        self.world.healed = self.world.turns
        if not (is_done and self._is_all_recorded(pack, kept[0])):
            self.world.spoiled.discard(keys.pack(pack))
            self.world.objects.set(keys.pack(pack), kept)
        self.world.check_store(f"{self.name}: pack {pack} is {'repaired' if is_done else 'there again'}")

    def _is_all_recorded(self, pack: PackId, data: bytes) -> bool:
        """Not what only pruned versions name, which may be forked, or versions whose heads came
        while the repair was looking: it could not know of that."""
        objects = self.world.objects
        _, directory = parse_pack(data, what=f"pack {pack}", blobs=sealing_of(objects).pack(pack))
        told = {blob.offset for record in read_moved_records(objects, pack) for blob in record.blobs}
        return {entry.offset for entry in directory} <= told

    def _any_pack(self) -> PackId | None:
        """One that a version needs which is kept."""
        if self.world.is_damaged:
            return None
        objects = self.world.objects.objects
        kind = self.random.choice((PackKind.DATA, PackKind.DATA, PackKind.INDEX))
        found = sorted(self.world.needed_packs() - self.world.spoiled)
        some = [key for key in found if key in objects and objects[key][0][KIND_AT] == kind]
        return keys.parse_pack(self.random.choice(some)) if some else None

    def _spoil(self, pack: PackId, kept: tuple[bytes, int]) -> None:
        key = keys.pack(pack)
        self._source.put(key, kept[0])
        self.world.repairing.add(key)
        self.world.spoiled.add(key)
        data = bytearray(kept[0])
        data[self.random.randrange(len(data))] ^= 0xFF
        is_gone = self.random.random() < 0.5
        self.world.objects.set(key, None if is_gone else (bytes(data), kept[1]))
        self.world.note(self, f"finds pack {pack} {'gone' if is_gone else 'damaged'}")

    def _repair_at_last(self, pack: PackId) -> bool:
        for _ in range(ATTEMPTS):
            try:
                self.is_dead = False
                self._repair(pack)
                self.world.repairs += 1
                self.world.note(self, f"repaired {pack}")
                return True
            except (CowfsError, Killed) as error:
                self.world.note(self, f"does not repair: {error!r}")
            if self.world.is_over:
                break
            self.turn()
        return False

    def _repair(self, pack: PackId) -> None:
        """As `cowfs repair`, of one pack. CowfsError: something is lost. Other packs are looked at,
        too: an answer that was damaged on its way makes none of them a damaged one."""
        verifier = Verifier(self.store, load_record(self.store), cache_dir=self.world.home / self.name, access=Access())
        is_known = False
        while not is_known:
            others = [keys.parse_pack(key) for key in self.world.needed_packs() - self.world.spoiled]
            packs = frozenset({pack, *(other for other in others if other is not None)})
            damage = verifier.find(Scope.of_store(self.store, packs=packs)).damage
            for other, state in damage.packs.items():
                if not state.is_gone and keys.pack(other) not in self.world.spoiled:
                    raise Violation(f"{self.name} calls a pack damaged that is whole: {state.problem}")
            work = self._work(damage)
            self.world.note(self, f"is about to repair {len(work.plan(_deaf)[0])} packs")
            self._sleep("before it applies what it has planned")
            done = work.apply(_deaf)
            if any(each.lost_blobs for each in done):
                raise CowfsError(f"not everything was found of {[each.pack for each in done if each.lost_blobs]}")
            is_known = not any(each.kind == "index" and each.new_pack for each in done)

    def _work(self, damage: Damage) -> Repair:
        sealing = sealing_of(self.store)
        wanted = frozenset(entry.hash for entries in damage.lost.values() for entry in entries.values())
        sources: list[BlobSource] = [
            OwnPack(self._source, "source"),
            NamedBlobs(self._source, "source", wanted, sealing),
        ]
        return Repair(self.store, damage, OwnPack(self.store, "the pack itself"), sources)

    def _sleep(self, where: str) -> None:
        """Until somebody has ended a collection that began meanwhile, if that does not take too
        long."""
        if self.random.random() >= SLEEPS or self.world.is_over:
            return
        self.world.note(self, f"sleeps for long {where}")
        before = self.world.collections
        for _ in range(NAPS):
            self.asleep = self.world.conditions.long_turns
            self.world.kept_until = self.world.turns + self.asleep
            self.world.pass_s(self.random.choice(SLEPT_S))
            for other in self.world.actors:
                other.heed_trouble()
            self.asleep = self.world.conditions.long_turns
            self.turn()
            if self.world.collections > before + 1:
                break


def _deaf(progress: object) -> None:
    pass
