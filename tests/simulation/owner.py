"""Somebody who deletes volumes, whoever writes to them, and brings them back; now and then to
delete them again at once."""

from __future__ import annotations

from cowfs.errors import CowfsError
from cowfs.store.refs.holder import current_holder
from cowfs.version.names.deletion import delete_volume, undelete_volume
from tests.simulation.world import Actor, Killed

REST = 200
AWAY = 60  # turns


class Owner(Actor):
    def live(self) -> None:
        self.is_dead = False
        try:
            self._rest(self.random.choice((1, REST)))
            delete_volume(self.store, "one", current_holder(self.name), take_over=self.random.random() < 0.8)
            self.world.deletions += 1
            self.world.note(self, "deleted one")
            self._rest(AWAY)
        except (CowfsError, Killed) as error:
            self.world.note(self, f"does not delete: {error!r}")
        try:
            undelete_volume(self.store, "one")
        except (CowfsError, Killed) as error:
            self.world.note(self, f"does not bring it back: {error!r}")

    def _rest(self, turns: int) -> None:
        self.asleep = 0 if self.world.is_over else self.random.randrange(turns)
        self.turn()
