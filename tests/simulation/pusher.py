"""Somebody who copies versions of "one" to a mirror, and long afterwards back again, where nothing
protects them any more: while a collection condemns or deletes what the copy finds there.

The mirror has no faults and is never collected: what becomes of the world's store is looked at. It
takes every version of "one", whatever was collected since the last one that it got. An answer that
was damaged on its way ends no copy, and what it puts at the mirror is whole.
"""

from __future__ import annotations

from cowfs.base.ids import VersionId
from cowfs.errors import ConflictError, CorruptError, CowfsError, NotFoundError
from cowfs.maintain.copy.pushing import Push
from cowfs.store import ObjectStore
from cowfs.store.refs.holder import current_holder
from cowfs.version.history import open_version
from cowfs.version.names.deletion import delete_volume
from cowfs.version.names.volumes import find_head
from tests.simulation.memory import MemoryStore
from tests.simulation.promises import Violation
from tests.simulation.world import Actor, Killed, World
from tests.version.working_volume import ReadingVolume

REST = 60  # turns
COPIES = 12
SHARE = 4
RECENT = 6


class Pusher(Actor):
    has_outages = False

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.mirror = MemoryStore(world.clock.store_now_ns)
        self.mirror.url = "memory://mirror"
        self.mirror.sealing = world.objects.sealing
        self._mirrored: list[VersionId] = []
        self._copies: dict[str, VersionId] = {}  # volumes with what came back from the mirror
        self._checks = 0

    @property
    def share(self) -> int:
        """A copy takes more requests than a commit."""
        return SHARE

    def heed_trouble(self) -> None:
        self.asleep = 0

    def live(self) -> None:
        self.is_dead = False
        try:
            if self.random.random() < 0.4 or not self._mirrored:
                self._pull()
            else:
                self._push_back()
        except (CorruptError, NotFoundError) as error:
            self.world.note(self, f"cannot copy: {error!r}")
        except (CowfsError, Killed) as error:
            self.world.note(self, f"does not copy: {error!r}")
        self.asleep = 0 if self.world.is_over else self.random.randrange(REST)

    def _pull(self) -> None:
        """What was deleted while it was copied is an error, and never half a version."""
        if self.world.is_damaged:
            return  # somebody is about to restore what this might read
        began = self.world.turns
        head = find_head(self.store, "one")
        if head is None or head.version is None or head.version in self._mirrored:
            return
        try:
            self._copy(self.store, self.mirror, "one", [head.version])
        except ConflictError as error:
            if self.world.vanishing.was_since(began):
                raise  # it could not see what the version came from
            raise Violation(
                f"{self.name}: the mirror, where nobody writes, is refused {head.version}: {error}"
            ) from error
        self._mirrored.append(head.version)
        self.world.pulls += 1
        self._check(self.mirror, head.version)

    def _push_back(self) -> None:
        """Under a new name, or as the next version of a copy that is there."""
        name, version = f"back{len(self._copies) + 1}", self.random.choice(self._mirrored[-RECENT:])
        following = [(name, each) for name, last in self._copies.items() for each in self._after(last)]
        if following and (self.random.random() < 0.5 or len(self._copies) == COPIES):
            name, version = self.random.choice(following)
        elif len(self._copies) == COPIES:
            return
        self._copies[name] = version
        self._copy(self.mirror, self.store, name, [version])
        self.world.pushes += 1
        self.world.note(self, f"pushed {version.hex()[:8]} as {name}")
        if self.random.random() < 0.7:
            self.asleep = 0 if self.world.is_over else self.random.randrange(REST)
            self.turn()
            delete_volume(self.store, name, current_holder(self.name))
            self.world.note(self, f"deleted {name}")

    def _after(self, version: VersionId) -> list[VersionId]:
        return [each for each in self._mirrored if version in open_version(self.mirror, each).parents]

    def _copy(self, source: ObjectStore, target: ObjectStore, name: str, versions: list[VersionId]) -> None:
        began = self.world.turns
        push = Push(
            source,
            target,
            "one",
            name,
            versions,
            holder=current_holder(self.name),
            owner=self.name,
            cache_dir=self.world.home / self.name,
            progress=lambda progress: None,
        )
        try:
            push.run(with_tags=False)
        except CorruptError as error:
            objects = self.mirror if source is self.mirror else self.world.objects
            if not self.world.was_damaged_since(began) and self._is_whole(objects, versions[-1]):
                raise Violation(f"{self.name} calls damaged what is whole: {error}") from error
            raise

    def _is_whole(self, objects: MemoryStore, version: VersionId) -> bool:
        """It can be read now: then it could be all the time."""
        self._checks += 1
        try:
            with ReadingVolume(objects, version, self.world.home / self.name / f"check{self._checks}") as reader:
                reader.tree()
        except (CorruptError, NotFoundError):
            return False
        return True

    def _check(self, store: ObjectStore, version: VersionId) -> None:
        self._checks += 1
        try:
            with ReadingVolume(store, version, self.world.home / self.name / f"check{self._checks}") as reader:
                found = reader.tree()
        except (CorruptError, NotFoundError) as error:
            raise Violation(f"{self.name} copied {version}, which is not whole at the mirror: {error}") from error
        if found != self.world.trees[version]:
            raise Violation(f"{self.name} copied {version}, and got something else")
