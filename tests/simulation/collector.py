"""The collector of the product, as one process of the world. It plans, applies, is killed at any
request, and is started again; what it has in memory is gone then.

Everything but the newest version of each volume counts as pruned: the harshest pruning there can
be. Whatever is sparse is repacked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial

from cowfs.errors import CowfsError
from cowfs.format import keys
from cowfs.format.records import HeadRecord
from cowfs.maintain.collect.collecting import PAUSE_S, Collection
from cowfs.maintain.collect.planning import Survey
from cowfs.maintain.collect.roots import FoundPin
from cowfs.store import ObjectStore
from cowfs.store.refs.holder import current_holder
from tests.simulation.machine import Machine
from tests.simulation.promises import Violation
from tests.simulation.roots import PinRecords, live_pins
from tests.simulation.world import Actor, Killed, World

PATIENCE = 60  # looks at the pins before the collection is left to the next run


def all_but_the_newest(store: ObjectStore, volume: str, line: Sequence[HeadRecord]) -> frozenset[int]:
    """In place of `roots.find_pruned_heads`."""
    return frozenset(range(1, len(line)))


class Collector(Actor):
    has_outages = False  # it would stop at the first fence, for as long

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._holder = current_holder(name)
        self._read: PinRecords = {}

    def live(self) -> None:
        self.is_dead = False
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

    def _say(self, text: str) -> None:
        if not text.startswith("waiting"):
            self.world.note(self, text)

    def _ask(self, volumes: Set[str]) -> bool:
        """Some machines are the collector's own, and act on it when it is their turn."""
        asked = [actor for actor in self.world.actors if isinstance(actor, Machine) and actor.volume in volumes]
        for machine in asked:
            machine.is_asked = self.random.random() < 0.3
        return any(machine.is_asked for machine in asked)

    def _pins(self, look: Callable[[], list[FoundPin]]) -> list[FoundPin]:
        """None is missed that can be seen all the time, and none is older than when the look
        began."""
        objects, began = self.world.objects, self.world.turns
        before = {id: number for id, (number, _, _) in live_pins(objects, self._read).items()}
        firsts = {id: objects.objects.get(keys.pin(id, 1)) for id in before}
        found = look()
        numbers = {pin.id: pin.number for pin in found}
        for id, first in firsts.items():
            is_there = first is not None and objects.objects.get(keys.pin(id, 1)) is first  # removed pins may come back
            is_there = is_there and not self.world.vanishing.was_since(began)
            if is_there and numbers.get(id, 0) < before[id]:
                raise Violation(f"{self.name} sees number {numbers.get(id)} of pin {id}, which had number {before[id]}")
        return found

    def _collect(self) -> None:
        home, grace_s = self.world.home / self.name, self.world.conditions.grace_s
        survey = Survey(self.store, home, grace_s=grace_s, gain_bytes=0, threads=1)
        vars(survey.roots)["pins"] = partial(self._pins, survey.roots.pins)
        plan = survey.plan()
        doomed = len(plan.doomed.packs)
        self.world.note(self, f"is about to condemn {doomed} packs and {len(plan.doomed.versions)} versions")
        wait_s = PATIENCE * PAUSE_S
        done = Collection(survey, self._holder, wait_s=wait_s, ask=self._ask, progress=self._say).apply(plan)
        if done.waits_for:
            self.world.note(self, f"waits for {done.waits_for[0].record.owner} in vain")
            return
        self.world.collections += 1
        self.world.repacked += len(plan.sparse.packs)
        self.world.deleted_packs += sum(key.startswith(keys.PACKS) for key in done.deleted)
        if not self.world.is_in_trouble:
            self.asleep = self.random.randrange(self.world.conditions.collector_rest)
