"""Parts of a world's store that cannot be seen for a while, by everybody or by one actor: a disk
that is not mounted, a prefix that a server lists as empty. Lists show nothing there, reads find
nothing; what is put there fails, or arrives unseen. When it is back nothing may be gone.

One volume alone vanishes only if the last collection has seen it: of one that was made since,
nobody could tell.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cowfs.format import keys
from cowfs.maintain.collect.generations import Generations
from cowfs.maintain.collect.sight import last_sight

if TYPE_CHECKING:
    from tests.simulation.world import Actor, World

BEGINS = 0.004
"""At each request."""
TURNS = (2, 20, 100, 400)
EVERYTHING = ""


@dataclass(frozen=True)
class Outage:
    """of: whom it concerns; None: everybody. until: turn."""

    prefixes: frozenset[str]
    of: Actor | None
    until: int
    takes_puts: bool


class Vanishing:
    """begins: how likely, at each request."""

    def __init__(self, world: World, *, begins: float) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed} vanishing")
        self._begins = begins
        self._outage: Outage | None = None
        self._over = -1  # turn: when one was last
        self.count = 0

    def pass_turn(self, actor: Actor) -> None:
        world = self._world
        if self._outage is not None and (world.is_over or world.turns >= self._outage.until):
            self._outage = None
            world.healed = self._over = world.turns
            world.note(actor, "sees all again")
        if self._outage is None and not world.is_over and self._random.random() < self._begins:
            self._begin(actor)

    def _begin(self, actor: Actor) -> None:
        known = self._known()
        prefixes = frozenset(self._random.sample(known, self._random.randint(1, min(3, len(known)))))
        of = actor if self._random.random() < 0.3 else None
        until = self._world.turns + self._random.choice(TURNS)
        self._outage = Outage(prefixes, of, until, self._random.random() < 0.5)
        self.count += 1
        who = actor.name if of is not None else "nobody"
        self._world.note(actor, f"{sorted(prefixes)} vanish until turn {until} ({who})")

    def _known(self) -> list[str]:
        objects = self._world.objects
        last = last_sight(objects, Generations(objects).load())
        volumes = sorted(last.volumes) if last is not None else []
        packs = sorted({info.key[: len("packs/xx/")] for info in objects.list(keys.PACKS)})
        return [
            EVERYTHING,
            *(keys.VOLUMES, keys.PINS, keys.GC, keys.VERSIONS, keys.PACKS, keys.STORE),
            *(keys.volume(name) for name in self._random.sample(volumes, min(2, len(volumes)))),
            *self._random.sample(packs, min(3, len(packs))),
        ]

    @property
    def is_under_way(self) -> bool:
        return self._outage is not None

    def was_since(self, turn: int) -> bool:
        return self.is_under_way or self._over >= turn

    def is_hidden(self, actor: Actor, key: str) -> bool:
        outage = self._outage
        if outage is None or self._world.is_over or outage.of not in (None, actor):
            return False
        return any(key.startswith(prefix) for prefix in outage.prefixes)

    @property
    def takes_puts(self) -> bool:
        return self._outage is not None and self._outage.takes_puts
