"""One simulated world: a store in memory, machines and a collector that share it, a clock that
jumps, and a seed for everything.

Each actor runs in a thread of its own, and exactly one of them at a time: before each of its
requests to the store an actor hands over to the world, which chooses by the seed who goes on. So
any actor may sleep before any request while the others go on, which is what a paused process or a
slow network does. Requests may fail before or after they take effect, and an actor may be killed at
any request. Threads that the code under test starts pass their requests through without a turn of
their own; the actor waits for them, so a seed gives the same run again.

`check_store` runs after each head and each deletion, whoever made it.
"""

from __future__ import annotations

import builtins
import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from cowfs import clock
from cowfs.errors import ConflictError, NotFoundError, UnavailableError
from cowfs.format import keys
from cowfs.format.heads import UNCHANGED
from cowfs.format.sealing import PLAIN, Sealing
from cowfs.ids import VersionId
from cowfs.store import refs
from cowfs.store.contract import Data, ObjectInfo, ObjectStore
from cowfs.store.readonly import ReadOnlyStore
from cowfs.store.sealed import is_record
from tests.simulation.conditions import conditions_of
from tests.simulation.roots import closure, line_of, live_pins, newest_version
from tests.version.working_volume import ReadingVolume

DAY_S = 24 * 3600.0
JUMPS_S = (1.0, 30.0, 150.0, 2 * 3600.0, 8 * DAY_S)
FAULTS = 0.012
KILLS = 0.003
LATE_DELETES = 0.5
DELETED_WITHIN_S = 3600.0
"""No request to delete is on its way for longer: what a copy between stores relies on."""
T = TypeVar("T")


class Killed(BaseException):
    """The actor's process ended at this request."""


class Violation(AssertionError):
    """A promise was broken."""


class WorldClock(clock.SystemClock):
    def __init__(self, seed: int) -> None:
        self.elapsed_s = 0.0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def now_ns(self) -> int:
        return int((1.8e9 + self.elapsed_s) * 1e9)

    def monotonic_s(self) -> float:
        return self.elapsed_s

    def sleep_s(self, seconds: float) -> None:
        self.elapsed_s += seconds

    def random_bytes(self, length: int) -> bytes:
        with self._lock:
            return self._random.randbytes(length)

    def jitter(self) -> float:
        return 0.5


class MemoryStore:
    """The objects, without faults. Modification times are the world's. sealing: how they are sealed in
    `objects`; packs and manifests come sealed."""

    url = "memory://simulated"

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.sealing = PLAIN

    def get(self, key: str) -> bytes:
        try:
            data = self.objects[key][0]
        except KeyError:
            raise NotFoundError(f"{key} does not exist") from None
        return self.sealing.open_object(key, data, what=key) if is_record(key) else data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self.get(key)[offset : offset + length]

    def size(self, key: str) -> int | None:
        found = self.objects.get(key)
        return None if found is None else len(found[0])

    def put(self, key: str, data: Data) -> None:
        stored = self._stored(key, data)
        with self._lock:
            self.objects[key] = stored, self._now_ns()

    def put_if_absent(self, key: str, data: Data) -> None:
        stored = self._stored(key, data)
        with self._lock:
            if key in self.objects:
                raise ConflictError(f"{key} exists")
            self.objects[key] = stored, self._now_ns()

    def _stored(self, key: str, data: Data) -> bytes:
        return bytes(self.sealing.seal_object(key, data) if is_record(key) else data)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        with self._lock:
            found = sorted(key for key in self.objects if key.startswith(prefix) and key > start_after)[:limit]
            return [ObjectInfo(key, len(self.objects[key][0]), self.objects[key][1]) for key in found]

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass


class Actor:
    """A process of its own. `run` is its life, on its own thread; it returns when the world
    ends."""

    has_outages = True

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = random.Random(f"{world.seed} {name}")
        self.store = ActorStore(world, self)
        self.is_dead = False
        self.asleep = 0  # turns
        self.outage_until = 0  # turn
        self.failure: BaseException | None = None
        self.is_done = False
        self._go = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._live, name=name, daemon=True)

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
        self.world.paused.release()
        self._go.acquire()

    def resume(self) -> None:
        self._go.release()

    def _live(self) -> None:
        self._go.acquire()
        try:
            while not self.world.is_over:
                self.live()
                self.turn()
        except BaseException as error:
            self.failure = error
        self.is_done = True
        self.world.paused.release()


class ActorStore:
    """The store as one actor reaches it."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor
        self._inner = world.objects
        self.url = world.objects.url

    @property
    def sealing(self) -> Sealing:
        return self._inner.sealing

    def get(self, key: str) -> bytes:
        return self._call("get", key, lambda: self._inner.get(key))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._call("get", key, lambda: self._inner.get_range(key, offset, length))

    def size(self, key: str) -> int | None:
        return self._call("size", key, lambda: self._inner.size(key))

    def put(self, key: str, data: Data) -> None:
        self._call("put", key, lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: Data) -> None:
        self._call("create", key, lambda: self._inner.put_if_absent(key, data))

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        return self._call("list", prefix, lambda: self._inner.list(prefix, start_after=start_after, limit=limit))

    def delete(self, keys: Iterable[str]) -> None:
        doomed = tuple(keys)
        self._call("delete", " ".join(doomed), lambda: self._inner.delete(doomed))

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        pass

    def _call(self, what: str, key: str, action: Callable[[], T]) -> T:
        world, actor = self._world, self._actor
        if actor.is_dead:
            raise UnavailableError("this process is dead")
        if threading.current_thread() is actor.thread:
            self._take_turn(what, key)
        chance = actor.random.random() if not world.is_over else 1.0
        if chance < FAULTS / 2:
            world.note(actor, f"fails {what} {key}")
            raise UnavailableError(f"injected: {what} {key} does nothing")
        if what == "create" and "/head/" in key and not world.is_over:
            self._meet_trouble(key)
        result = action()
        if what in ("put", "create", "delete"):
            if not key.startswith("probe/"):
                world.note(actor, f"{what} {key}")
            if what == "delete" or "/head/" in key:
                world.check_store(f"{actor.name}: {what} {key}")
        if chance < FAULTS and what in ("put", "create", "delete"):
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
        if world.deletes_late is actor:
            world.deletes_late = None
        is_too_late = deletes and world.clock.elapsed_s - asked_s > DELETED_WITHIN_S
        if is_too_late or (actor.random.random() < KILLS and not world.is_over):
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
        """What is rare, and where most can go wrong: a head that is put late, or whose outcome
        stays unknown."""
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
        if threading.current_thread() is actor.thread and actor.random.random() < conditions.head_sleeps:
            actor.asleep = conditions.long_turns
            world.pass_s(8 * DAY_S)
            world.note(actor, f"sleeps for days before it puts {key}")
            actor.turn()


class World:
    def __init__(self, seed: int, home: Path) -> None:
        self.seed = seed
        self.home = home
        self.conditions = conditions_of(seed)
        self.random = random.Random(f"{seed} world")
        self.clock = WorldClock(seed)
        self.objects = MemoryStore(self.clock.now_ns)
        self.paused = threading.Semaphore(0)
        self.actors: list[Actor] = []
        self.is_over = False
        self.acting: Actor  # whose turn it is
        self.violation: Violation | None = None
        self.history: list[str] = []
        self.turns = 0
        self.damaged: set[str] = set()  # objects that are not as they were put, for the moment
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
        self.kept_until = 0  # turn
        self.deletes_late: Actor | None = None  # then time does not jump
        self._closures: dict[VersionId, frozenset[str]] = {}
        self._moved: dict[tuple[object, ...], bool] = {}

    def note(self, actor: Actor, what: str) -> None:
        self.history.append(f"{self.clock.elapsed_s:12.1f} {actor.name:10} {what}")

    def pass_s(self, seconds: float) -> None:
        if self.deletes_late is None:
            self.clock.elapsed_s += seconds

    def run(self, turns: int) -> None:
        """Lets the actors take so many turns, then ends them. Raises the first failure, with the
        seed and the last events."""
        for actor in self.actors:
            actor.thread.start()
        for _ in range(turns):
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
        self.turns += 1
        actor.resume()
        if not self.paused.acquire(timeout=120):
            raise AssertionError(f"seed {self.seed}: {actor.name} hangs")

    @property
    def is_in_trouble(self) -> bool:
        """Somebody's heads do not get through, or work is kept where nothing is mounted."""
        return self.turns < self.kept_until or any(actor.outage_until > self.turns for actor in self.actors)

    # -- what must hold at any time

    def closure_of(self, version: VersionId) -> frozenset[str]:
        if version not in self._closures:
            self._closures[version] = closure(self.objects, version, self.home / "closures")
        return self._closures[version]

    def check_store(self, when: str) -> None:
        """Raises Violation; whoever swallows it, `run` raises it again."""
        try:
            self._check_store(when)
        except Violation as violation:
            self.violation = self.violation or violation
            raise

    def _check_store(self, when: str) -> None:
        """Each volume's line is one line, and all of its newest version is there."""
        if self.damaged:
            return  # it is checked again soon
        for volume in {keys.parse_volume(key) for key in list(self.objects.objects) if "/head/" in key} - {None}:
            assert volume is not None
            self._check_line(volume, when)
            version = newest_version(self.objects, volume)
            if version is None:
                continue
            try:
                if self._is_late_fork(volume):
                    continue
                missing = [key for key in self.closure_of(version) if key not in self.objects.objects]
                if missing and self._is_moved(version, missing):
                    continue
            except Exception as error:
                raise Violation(f"{when}: version {version} of {volume} cannot be read: {error}") from error
            if missing:
                raise Violation(f"{when}: version {version} of {volume} has lost {missing}")
            if version not in self.trees:
                raise Violation(f"{when}: nobody has asked for version {version} of {volume}")

    def _is_moved(self, version: VersionId, missing: list[str]) -> bool:
        """Whether the version can be read without these packs, whose blobs lie elsewhere: a pack that was
        condemned is copied under another id."""
        homes: set[str] = set()
        for key in missing:
            pack = keys.parse_pack(key)
            found = refs.newest(self.objects, refs.moved(pack)) if pack is not None else None
            if found is None:
                return False
            homes |= {keys.pack(blob.new_pack) for blob in found[1].blobs}
        known = (version, *missing, *sorted(homes & self.objects.objects.keys()))
        if known not in self._moved:
            home = self.home / f"moved{len(self._moved)}"
            with ReadingVolume(self.objects, version, home) as reader:
                self._moved[known] = reader.tree() == self.trees.get(version)
        return self._moved[known]

    def _is_late_fork(self, volume: str) -> bool:
        """Its maker slept until its pin was dead: it is about to take the fork back, or a collection
        does."""
        (_, first), *rest = line_of(self.objects, volume)
        if first.kind != "fork" or any(head.kind not in UNCHANGED for _, head in rest):
            return False
        pins = live_pins(self.objects, {}).values()
        return any(pin.kind == "dead" and pin.version == first.version for _, pin, _ in pins)

    def _check_line(self, volume: str, when: str) -> None:
        line = line_of(self.objects, volume)
        if [number for number, _ in line] != list(range(1, len(line) + 1)):
            raise Violation(f"{when}: the line of {volume} has gaps")
        version: VersionId | None = None
        epoch, is_deleted = 0, False
        for number, head in line:
            if head.epoch < epoch:
                raise Violation(f"{when}: head {number} of {volume} was put by epoch {head.epoch}, after {epoch}")
            if head.kind in UNCHANGED and head.version != version:
                raise Violation(f"{when}: the {head.kind} {number} of {volume} changes the version")
            if is_deleted and head.kind not in ("undelete", "void"):
                raise Violation(f"{when}: the {head.kind} {number} of {volume} comes behind its deletion")
            version, epoch, is_deleted = head.version, head.epoch, head.kind == "delete"

    def remember(self, version: VersionId, tree: dict[bytes, bytes]) -> None:
        self.trees[version] = dict(tree)
