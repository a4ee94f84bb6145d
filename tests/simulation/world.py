"""One simulated world: a store in memory, machines and a collector that share it, a clock that
jumps, and a seed for everything.

Each actor is a greenlet, and exactly one of them runs at a time: before each of its requests to the
store an actor hands over to the world, which chooses by the seed who goes on. So any actor may
sleep before any request while the others go on, which is what a paused process or a slow network
does. Requests may fail before or after they take effect, long after they were given up, or twice,
and an actor may be killed at any request. Clocks may differ. Threads that the code under test
starts pass their requests through without a turn of their own; the actor waits for them, so a seed
gives the same run again, as far as it does not depend on the order of version ids: the engine takes
times of files from this machine's clock.

`check_store` runs after each head and each deletion, whoever made it; `check_end` at the end.
"""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from greenlet import getcurrent, greenlet

from cowfs.base.ids import StoreId, VersionId
from cowfs.errors import ConflictError, NotFoundError, UnavailableError
from cowfs.format import keys
from cowfs.format.sealing import Sealing
from cowfs.machine.known_stores import Known, Mark
from cowfs.store import scratch_objects
from cowfs.store.contract import Data, ObjectInfo, ObjectStore
from cowfs.store.readonly import ReadOnlyStore
from tests.simulation.conditions import conditions_of
from tests.simulation.memory import MemoryStore, WorldClock
from tests.simulation.promises import LOSING, Promises, Violation
from tests.simulation.vanishing import BEGINS, Vanishing

DAY_S = 24 * 3600.0
JUMPS_S = (1.0, 30.0, 150.0, 2 * 3600.0, 8 * DAY_S)
FAULTS = 0.012
KILLS = 0.003
DOOMED = 0.2
LATE_DELETES = 0.5
DELETED_WITHIN_S = 3600.0
"""No request to delete is on its way for longer: what a copy between stores relies on."""
LATE = 0.5
REPEATED = 0.004
ON_ITS_WAY_S = 3600.0
"""No request arrives later than that after it was sent."""
PAGE_TURNS = (0, 10, 60)
"""Between two pages of a list: the first is stale when the last is read."""
CHANGES = ("put", "create", "delete")
T = TypeVar("T")


class Killed(BaseException):
    """The actor's process ended at this request."""


class Actor:
    """A process of its own. `run` is its life, on its own thread; it returns when the world
    ends."""

    has_outages = True

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = random.Random(f"{world.seed} {name}")
        self.skew_s = self.random.choice(world.conditions.skews_s) * self.random.choice((-1, 1))
        self.store = ActorStore(world, self)
        self.is_dead = False
        self.is_doomed = False  # it is killed at its next request
        self.asleep = 0  # turns
        self.outage_until = 0  # turn
        self.failure: BaseException | None = None
        self.is_done = False
        self._life = greenlet(self._live)

    def live(self) -> None:
        raise NotImplementedError

    @property
    def share(self) -> int:
        """How often it is chosen, beside others."""
        return 1

    def heed_trouble(self) -> None:
        """A head does not get through for a while."""

    def turn(self) -> None:
        """Gives the others a turn; returns when this actor is chosen again."""
        parent = self._life.parent
        assert parent is not None
        parent.switch()

    def resume(self) -> None:
        """Returns when the actor gives the others a turn, or its life is over."""
        self._life.switch()

    @property
    def acts_itself(self) -> bool:
        """Whoever asks is no thread that its code has started."""
        return getcurrent() is self._life

    def _live(self) -> None:
        try:
            while not self.world.is_over:
                self.live()
                self.turn()
        except BaseException as error:
            self.failure = error
        self.is_done = True


class Seen:
    """What an actor's machine has seen of the store."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], Mark] = {}
        self._known: Known | None = None

    def load(self) -> Known | None:
        return self._known

    def remember(self, store_id: StoreId, cipher: str) -> None:
        self._known = Known(store_id, cipher, 0)

    def forget(self) -> None:
        raise AssertionError("no store is made anew")

    def newest(self, volume: str, series: str) -> Mark | None:
        return self._marks.get((volume, series))

    def marks(self, volume: str) -> dict[str, Mark]:
        return {series: mark for (of, series), mark in self._marks.items() if of == volume}

    def volumes(self) -> list[str]:
        return sorted({volume for volume, _ in self._marks})

    def saw(self, volume: str, series: str, number: int, check: str, before: Mark | None) -> None:
        self._marks[volume, series] = Mark(number, check)


class ActorStore:
    """The store as one actor reaches it."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor
        self._inner = world.objects
        self.url = world.objects.url
        self.memory = None if world.vanishes else Seen()

    @property
    def sealing(self) -> Sealing:
        return self._inner.sealing

    def get(self, key: str) -> bytes:
        return self._arrived(key, self._call("get", key, lambda: self._seen(key, self._inner.get(key))))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        found = self._call("get", key, lambda: self._seen(key, self._inner.get_range(key, offset, length)))
        return self._arrived(key, found)

    def _seen(self, key: str, data: bytes) -> bytes:
        if self._world.vanishing.is_hidden(self._actor, key):
            raise NotFoundError(f"{key} does not exist")
        return data

    def _arrived(self, key: str, data: bytes) -> bytes:
        chance, altered = self._actor.random, self._world.conditions.altered
        if not data or self._world.is_over or not altered or chance.random() >= altered:
            return data
        self._world.note(self._actor, f"gets {key} damaged")
        if chance.random() < 0.5:
            return data[: chance.randrange(len(data))]
        place = chance.randrange(len(data))
        return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]

    def size(self, key: str) -> int | None:
        hidden = self._world.vanishing.is_hidden
        return self._call("size", key, lambda: None if hidden(self._actor, key) else self._inner.size(key))

    def put(self, key: str, data: Data) -> None:
        kept = bytes(data)
        is_slow = self._world.conditions.has_slow_puts and keys.parse_pack(key) is not None
        begun_ns = self._world.put_ns() if is_slow else None
        self._call("put", key, lambda: self._inner.put(key, kept, begun_ns=begun_ns))

    def put_if_absent(self, key: str, data: Data) -> None:
        kept = bytes(data)
        self._call("create", key, lambda: self._inner.put_if_absent(key, kept))

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        is_long = limit is None and self._actor.acts_itself and not self._world.is_over
        if not is_long or self._actor.random.random() >= self._world.conditions.paged:
            return self._page(prefix, start_after, limit)
        length = self._actor.random.randint(1, max(1, len(self._inner.list(prefix, start_after=start_after))))
        page = self._page(prefix, start_after, length)
        if not page:
            return []
        self._actor.asleep = self._actor.random.choice(PAGE_TURNS)
        return page + self._page(prefix, page[-1].key, None)

    def _page(self, prefix: str, start_after: str, limit: int | None) -> builtins.list[ObjectInfo]:
        def look() -> builtins.list[ObjectInfo]:
            if not self._world.vanishing.is_under_way:
                return self._inner.list(prefix, start_after=start_after, limit=limit)
            found = self._inner.list(prefix, start_after=start_after)
            return [info for info in found if not self._world.vanishing.is_hidden(self._actor, info.key)][:limit]

        return self._call("list", prefix, look)

    def delete(self, keys: Iterable[str]) -> None:
        doomed = tuple(keys)
        hidden = self._world.vanishing.is_hidden
        seen = [key for key in doomed if not hidden(self._actor, key)]
        self._call("delete", " ".join(doomed), lambda: self._inner.delete(seen))

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass

    def _call(self, what: str, key: str, action: Callable[[], T]) -> T:
        world, actor = self._world, self._actor
        if actor.is_dead:
            raise UnavailableError("this process is dead")
        if actor.acts_itself:
            self._take_turn(what, key)
        chance = actor.random.random() if not world.is_over else 1.0
        if chance < FAULTS / 2:
            world.note(actor, f"fails {what} {key}")
            if what in CHANGES and actor.random.random() < LATE:
                world.send_late(actor, what, key, action)
            raise UnavailableError(f"injected: {what} {key} does nothing")
        vanishing = world.vanishing
        if what in ("put", "create") and vanishing.is_hidden(actor, key) and not vanishing.takes_puts:
            raise UnavailableError(f"injected: {key} cannot be reached")
        if what == "create" and ("/head/" in key or "/tags/" in key) and not world.is_over:
            self._meet_trouble(key)
        result = action()
        if what == "put":
            world.spoiled.discard(key)
        if what in CHANGES:
            if actor.random.random() < REPEATED and not world.is_over:
                world.send_late(actor, what, key, action)
            if not key.startswith(scratch_objects.PREFIX):
                world.note(actor, f"{what} {key}")
            world.check_after(actor, what, key)
        if chance < FAULTS and what in CHANGES:
            world.note(actor, f"loses the reply of {what} {key}")
            raise UnavailableError(f"injected: the reply of {what} {key} is lost")
        return result

    def _take_turn(self, what: str, key: str) -> None:
        world, actor = self._world, self._actor
        asked_s = world.clock.elapsed_s
        deletes = what == "delete" and key.startswith((keys.PACKS, keys.VERSIONS)) and not world.is_over
        if deletes and world.conditions.has_pusher and actor.random.random() < LATE_DELETES:
            self._delete_late()
        actor.turn()
        world.vanishing.pass_turn(actor)
        if world.deletes_late is actor:
            world.deletes_late = None
        is_too_late = deletes and world.clock.elapsed_s - asked_s > DELETED_WITHIN_S
        is_killed = actor.random.random() < KILLS or actor.is_doomed
        actor.is_doomed = False
        if is_too_late or (is_killed and not world.is_over):
            actor.is_dead = True
            world.note(actor, f"killed before {what} {key}")
            raise Killed

    def _delete_late(self) -> None:
        """While others collect the same, and somebody copies what was deleted back."""
        world, actor = self._world, self._actor
        actor.asleep = world.conditions.long_turns
        world.deletes_late = actor
        world.note(actor, "deletes late")
        for other in world.actors:
            if other is not actor:
                other.heed_trouble()

    def _meet_trouble(self, key: str) -> None:
        """What is rare, and where most can go wrong: a head or a tag that is put late, or whose
        outcome stays unknown, or after which nothing follows."""
        world, actor, conditions = self._world, self._actor, self._world.conditions
        may_fail = actor.outage_until <= world.turns and actor.has_outages
        if may_fail and actor.random.random() < conditions.head_outages:
            actor.outage_until = world.turns + conditions.long_turns
            world.pass_s(3 * 3600.0)  # what is garbage now is no longer too young
            for other in world.actors:
                other.heed_trouble()
        if actor.outage_until > world.turns:
            world.note(actor, f"cannot reach {key}")
            raise UnavailableError(f"injected: {key} cannot be reached")
        if actor.acts_itself and actor.random.random() < conditions.head_sleeps:
            actor.asleep = conditions.long_turns
            world.pass_s(8 * DAY_S)
            world.note(actor, f"sleeps for days before it puts {key}")
            actor.turn()
            actor.is_doomed = actor.random.random() < DOOMED


@dataclass(frozen=True)
class Late:
    """A request that its sender has given up, or a copy of one. arrives: after so many turns."""

    actor: Actor
    what: str
    key: str
    action: Callable[[], object]
    sent_s: float
    arrives: int


class World:
    def __init__(self, seed: int, home: Path, *, vanishes: bool = False) -> None:
        self.seed = seed
        self.home = home
        self.conditions = conditions_of(seed)
        self.random = random.Random(f"{seed} world")
        self.clock = WorldClock(seed)
        self.objects = MemoryStore(self.put_ns)
        self._times = random.Random(f"{seed} times")
        self.actors: list[Actor] = []
        self.is_over = False
        self.acting: Actor  # whose turn it is
        self.violation: Violation | None = None
        self.history: list[str] = []
        self.turns = 0
        self.damaged: set[str] = set()  # objects that are not as they were put, for the moment
        self.spoiled: set[str] = set()  # packs that are not, for good
        self.repairing: set[str] = set()  # those of them of which that is not mended yet
        self.healed = -1  # turn: when there was one last
        self.trees: dict[VersionId, dict[bytes, bytes]] = {}  # what each version that was asked for must hold
        self.collections = 0
        self.deleted_packs = 0
        self.repacked = 0
        self.commits = 0
        self.restored = 0
        self.deletions = 0
        self.forks = 0
        self.merges = 0
        self.pulls = 0
        self.pushes = 0
        self.repairs = 0
        self.arrived = 0  # requests that were late, or came twice
        self.prunes = 0
        self.tags = 0
        self.brought_back = 0  # restored, or rolled back
        self.kept_until = 0  # turn
        self.deletes_late: Actor | None = None  # then time does not jump
        self.tagged: dict[tuple[str, str], VersionId] = {}  # volume and tag: what nobody but a tag need protect
        self.opened: dict[str, dict[int, int]] = {}  # volume: epochs of its writers, and the heads they found
        self.vanishes = vanishes
        self.vanishing = Vanishing(self, begins=BEGINS if vanishes else 0.0)
        self._promises = Promises(self, home)
        self._on_their_way: list[Late] = []

    def note(self, actor: Actor, what: str) -> None:
        self.history.append(f"{self.clock.elapsed_s:12.1f} {actor.name:10} {what}")

    def put_ns(self) -> int:
        """The time of an object that is put now."""
        off_s = self.conditions.times_off_s
        return self.clock.store_now_ns() + int(self._times.uniform(-off_s, off_s) * 1e9)

    def pass_s(self, seconds: float) -> None:
        if self.deletes_late is None:
            self.clock.elapsed_s += seconds

    def run(self, turns: int) -> None:
        """Lets the actors take so many turns, then ends them. Raises the first failure, with the
        seed and the last events."""
        for _ in range(turns):
            with suppress(Violation):  # it is remembered
                self._deliver()
            self._turn(self._choose())
            if self.violation or any(actor.failure for actor in self.actors):
                break
        self.is_over = True
        while any(not actor.is_done for actor in self.actors):
            self._turn(next(actor for actor in self.actors if not actor.is_done))
        for failure in (self.violation, *(actor.failure for actor in self.actors)):
            if failure is not None:
                recent = "\n".join(self.history[-60:])
                raise AssertionError(f"seed {self.seed}: {failure!r}\n{recent}") from failure

    def send_late(self, actor: Actor, what: str, key: str, action: Callable[[], object]) -> None:
        """It arrives once more, or at last."""
        arrives = self.turns + actor.random.choice((1, 10, 100))
        self._on_their_way.append(Late(actor, what, key, action, self.clock.elapsed_s, arrives))

    def _deliver(self) -> None:
        due = [late for late in self._on_their_way if late.arrives <= self.turns]
        self._on_their_way = [late for late in self._on_their_way if late.arrives > self.turns]
        for late in due:
            is_lost = self.clock.elapsed_s - late.sent_s > ON_ITS_WAY_S
            if is_lost or any(key in self.damaged or key in self.spoiled for key in late.key.split()):
                continue
            self.note(late.actor, f"sent {late.what} {late.key}, which arrives now")
            self.arrived += 1
            with suppress(ConflictError):
                late.action()
                self.check_after(late.actor, late.what, late.key)

    def _choose(self) -> Actor:
        if self.random.random() < 0.03 and self.deletes_late is None:
            jump_s = self.random.choices(JUMPS_S, (15, 15, 10, 30, 4))[0]
            self.clock.elapsed_s += jump_s
            self.history.append(f"{self.clock.elapsed_s:12.1f} {'world':10} {jump_s:.0f} s pass")
        for actor in self.actors:
            if actor.asleep:
                actor.asleep -= 1
        ready = [actor for actor in self.actors if not actor.asleep and not actor.is_done]
        if not ready:
            ready = [actor for actor in self.actors if not actor.is_done]
        actor = self.random.choices(ready, [actor.share for actor in ready])[0]
        if self.random.random() < 0.01:
            actor.asleep = self.random.choice((20, 100, 400))
            self.note(actor, f"sleeps for {actor.asleep} turns")
        return actor

    def _turn(self, actor: Actor) -> None:
        self.acting = actor
        self.clock.skew_s = actor.skew_s
        self.turns += 1
        actor.resume()

    @property
    def is_in_trouble(self) -> bool:
        """Somebody's heads do not get through, or work is kept where nothing is mounted."""
        return self.turns < self.kept_until or any(actor.outage_until > self.turns for actor in self.actors)

    @property
    def is_damaged(self) -> bool:
        return bool(self.damaged or self.repairing or self.vanishing.is_under_way)

    def was_damaged_since(self, turn: int) -> bool:
        return self.is_damaged or self.healed >= turn

    # -- what must hold at any time

    def check_after(self, actor: Actor, what: str, key: str) -> None:
        if "/head/" in key or (what == "delete" and key.startswith(LOSING)):
            self.check_store(f"{actor.name}: {what} {key}")

    def check_store(self, when: str) -> None:
        """Raises Violation; whoever swallows it, `run` raises it again."""
        if self.damaged:
            return  # it is checked when that is over
        try:
            self._promises.check(when)
        except Violation as violation:
            self.violation = self.violation or violation
            raise

    def check_end(self) -> None:
        """A collection long afterwards leaves what is kept, and nothing else."""
        self._promises.check("at the end")
        self._promises.check_swept()

    def note_opened(self, volume: str, epoch: int) -> None:
        self.opened.setdefault(volume, {})[epoch] = len(self.objects.list(keys.head_prefix(volume)))

    def told(self) -> set[VersionId]:
        """Versions that a head names: their makers, and whoever lists them, know their ids."""
        return self._promises.named()

    def needed_packs(self) -> set[str]:
        """By versions that are kept, if they have been looked at."""
        return self._promises.needed_packs()

    def remember(self, version: VersionId, tree: dict[bytes, bytes]) -> None:
        self.trees[version] = dict(tree)
