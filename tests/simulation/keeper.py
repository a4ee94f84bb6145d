"""Somebody who looks after a volume's versions: prunes those that nothing holds, tags some, moves
and removes tags, rolls the volume back, and restores single files. Where there is one, only what is
pruned is a collection's to delete.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from cowfs.base import clock
from cowfs.base.ids import VersionId
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import CorruptError, CowfsError, NotFoundError
from cowfs.format import keys
from cowfs.format.heads import Intent
from cowfs.index import Index, open_index
from cowfs.maintain import pruning
from cowfs.store.packs import PackReader
from cowfs.store.refs.holder import current_holder
from cowfs.version.ancestry import Ancestry
from cowfs.version.commit import CommitRequest
from cowfs.version.merge.merge_source import MergeSource
from cowfs.version.merge.restoring import plan_restore
from cowfs.version.names import head_line, tags
from cowfs.version.names.volumes import find_head, read_head
from cowfs.version.retention.retention import Rules
from cowfs.writer.publishing import Line, publishing
from tests.simulation.promises import Violation
from tests.simulation.world import DAY_S, Actor, Killed, World
from tests.version.working_volume import ReadingVolume

TAGS = 3
KEPT = (1, 1, 1, 2, 4)  # how many versions a pruning keeps
REST = 8  # turns
SHARE = 6
SLEEPS = 0.1
SLEPT_S = (3 * 3600.0, 8 * DAY_S)
"""Its lease is not held any more then; or its pin is dead, too."""


class Keeper(Actor):
    def __init__(self, world: World, name: str, volumes: list[str]) -> None:
        super().__init__(world, name)
        self._volumes = volumes
        self._volume = volumes[0]
        self._checks = 0

    @property
    def share(self) -> int:
        return SHARE

    def live(self) -> None:
        self.is_dead = False
        self._volume = self.random.choice(self._volumes)
        act = self.random.choices((self._prune, self._tag, self._untag, self._bring_back), (3, 3, 1, 4))[0]
        try:
            act()
        except (CowfsError, Killed) as error:
            self.world.note(self, f"{act.__name__}: {error!r}")
        self.asleep = 0 if self.world.is_over else self.random.randrange(REST)

    # -- pruning and tags

    def _prune(self) -> None:
        rules = Rules(last=self.random.choice(KEPT))
        going = {each.step.version for each in pruning.plan(self.store, self._volume, rules) if not each.is_kept}
        self._sleep("in the middle of a pruning")
        pruned = pruning.prune(self.store, self._volume, going, current_holder(self.name))
        self.world.prunes += bool(pruned)
        self.world.note(self, f"pruned {' '.join(step.version.hex()[:8] for step in pruned)} of {self._volume}")

    def _tag(self) -> None:
        """From the moment the tag is known to be there it protects its version."""
        name, version = self._tag_name(), self._any_version()
        if version is None:
            return
        self.world.tagged.pop((self._volume, name), None)
        self._sleep("before it sets a tag")
        tag = tags.set_tag(self.store, self._volume, name, version, holder=current_holder(self.name), may_move=True)
        self.world.tagged[self._volume, name] = tag.version
        self.world.tags += 1
        self.world.note(self, f"tagged {tag.version.hex()[:8]} as {name} of {self._volume}")

    def _untag(self) -> None:
        name = self._tag_name()
        self.world.tagged.pop((self._volume, name), None)
        tags.remove_tag(self.store, self._volume, name)
        self.world.note(self, f"removed {name} of {self._volume}")

    def _tag_name(self) -> str:
        """Others have tags of their own: so it is known what is tagged."""
        return f"{self.name}{self.random.randrange(TAGS)}"

    def _any_version(self) -> VersionId | None:
        """Of the volume's, whether it is pruned or not."""
        head = read_head(self.store, self._volume)
        steps = [step.version for step in head_line.steps(self.store, self._volume, head.number)]
        return self.random.choice(steps[:6]) if steps else None

    # -- rolling back and restoring

    def _bring_back(self) -> None:
        home = self.world.home / self.name
        version = self._tagged() if self.random.random() < 0.5 else self._any_version()
        if version is None:
            return
        spec = SessionSpec(
            store_url="memory://simulated",
            volume=self._volume,
            mode="rw",
            working_copy=str(home / f"working in {self._volume}"),
            options=MountOptions(
                cache_dir=home / "cache", max_uploads=1, take_over=self.random.random() < 0.8
            ).resolved(),
        )
        with publishing(spec) as line, ExitStack() as stack:
            if line.publisher.base.version_id is not None:
                try:
                    self._publish(line, line.publisher.base.version_id, version, stack)
                except (CorruptError, NotFoundError) as error:
                    self._explain(error, version)

    def _tagged(self) -> VersionId | None:
        tag = tags.find_tag(self.store, self._volume, self._tag_name())
        return tag.version if tag is not None else None

    def _publish(self, line: Line, ours: VersionId, version: VersionId, stack: ExitStack) -> None:
        publisher, trees = line.publisher, self.world.trees
        files = sorted(trees[version])
        path = self.random.choice(files) if files and self.random.random() < 0.5 else b""
        ancestry = Ancestry(self.store)
        source = self._opened(stack, ancestry, version)
        common = ancestry.find_shared_numbering(ours, version)
        shared = 0
        if common in (ours, version):
            shared = (publisher.index if common == ours else source).next_ino
        elif common is not None and ancestry.manifest(common) is not None:
            shared = self._opened(stack, ancestry, common).next_ino
        found = plan_restore(publisher.index, source, shared=shared, path=path, to=path, now_ns=clock.now_ns())
        if not found.paths:
            return
        expected = trees[ours] | {path: trees[version][path]} if path else trees[version]
        record = publisher._record_intent

        def remember(intent: Intent) -> None:
            self.world.remember(intent.version_id, expected)
            record(intent)

        publisher._record_intent = remember
        self._sleep("in the middle of a restore")
        base = publisher.publish(MergeSource(found, publisher, (version,), are_parents=False), CommitRequest())
        self.world.brought_back += 1
        self.world.note(self, f"brought {version.hex()[:8]} back into {self._volume} as head {base.head_number}")
        if not self.world.is_damaged and base.version_id is not None:
            self._check(base.version_id, expected)

    def _opened(self, stack: ExitStack, ancestry: Ancestry, version: VersionId) -> Index:
        manifest = ancestry.manifest(version)
        if manifest is None:
            raise NotFoundError(f"version {version.hex()[:12]} is gone")
        cache = self.world.home / self.name / "restoring"
        return stack.enter_context(open_index(self.store, PackReader(self.store), manifest.index, cache_dir=cache))

    def _check(self, version: VersionId, expected: dict[bytes, bytes]) -> None:
        self._checks += 1
        home: Path = self.world.home / self.name / f"check{self._checks}"
        with ReadingVolume(self.world.objects, version, home) as reader:
            if reader.tree() != expected:
                raise Violation(f"{self.name} restored something else in {version}")

    def _explain(self, error: CowfsError, version: VersionId) -> None:
        """What nothing but a pin protected may be gone; what is tagged is not. While a list names
        it, it is refused all the same: whether its collection spares it is not known yet."""
        self.world.note(self, f"cannot bring {version.hex()[:8]} back: {error!r}")
        is_listed = isinstance(error, NotFoundError) and self.world.objects.size(keys.version(version)) is not None
        if self._is_tagged(version) and not self.world.is_damaged and not is_listed:
            raise Violation(f"{self.name}: {error!r}") from error

    def _is_tagged(self, version: VersionId) -> bool:
        """In a volume that is there, or can be brought back: tags of one that is gone for good,
        perhaps while this keeper slept, keep nothing."""
        heads = [find_head(self.world.objects, of) for (of, _), each in self.world.tagged.items() if each == version]
        return any(head is not None and not head.is_void for head in heads)

    def _sleep(self, where: str) -> None:
        if self.random.random() < SLEEPS and not self.world.is_over:
            self.asleep = self.world.conditions.long_turns
            self.world.pass_s(self.random.choice(SLEPT_S))
            self.world.note(self, f"sleeps for long {where}")
            for other in self.world.actors:
                other.heed_trouble()
            self.turn()
