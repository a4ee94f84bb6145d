"""Somebody who forks versions, most of which nothing protects any more, and deletes the forks."""

from __future__ import annotations

from cowfs.errors import CowfsError
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.store.refs.holder import current_holder
from cowfs.version.names.deletion import delete_volume
from cowfs.version.names.volumes import fork_volume
from tests.simulation.world import Actor, Killed

REST = 40
FORKS = 12
RECENT = 5  # versions: they are there when they are looked at, and are soon what nothing protects


class Forker(Actor):
    def live(self) -> None:
        self.is_dead = False
        self.asleep = 0 if self.world.is_over else self.random.randrange(REST)
        self.turn()
        told = self.world.told()
        known = [version for version in self.world.trees if version in told]
        if not known or self.world.forks == FORKS:
            return
        version = self.random.choice(known[-RECENT:])
        name = f"fork{self.world.forks}"
        self.world.forks += 1
        try:
            fork_volume(
                self.store, name, Locator(StoreUrl.parse("memory://simulated/store"), "one", version), owner=self.name
            )
            self.world.note(self, f"forked {version.hex()[:8]} as {name}")
            if self.random.random() < 0.8:
                self.asleep = self.random.randrange(REST)
                self.turn()
                delete_volume(self.store, name, current_holder(self.name))
        except (CowfsError, Killed) as error:
            self.world.note(self, f"does not fork: {error!r}")
