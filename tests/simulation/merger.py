"""Somebody who works in forks of a volume, and merges what they have into it: perhaps a version
that is not the fork's last one any more, so that nobody but the merge needs it.

The work in the forks is done in one moment, without faults: that of machines is.
"""

from __future__ import annotations

from contextlib import ExitStack

from cowfs.base.ids import VersionId
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import CorruptError, CowfsError, NotFoundError
from cowfs.format.heads import Intent
from cowfs.format.manifest import IndexSection
from cowfs.index import Index, open_index
from cowfs.store.packs import PackReader
from cowfs.version.commit import CommitRequest
from cowfs.version.history import open_version
from cowfs.version.merge.conflicts import How
from cowfs.version.merge.merge_source import MergeSource
from cowfs.version.merge.merge_states import Branch
from cowfs.version.merge.merge_steps import merge_all
from cowfs.version.names.volumes import find_head, fork_volume, locator
from cowfs.version.publish.prefixes import Prefixes
from cowfs.writer.publishing import Line, publishing
from tests.simulation.machine import NAMES, content
from tests.simulation.promises import Violation
from tests.simulation.world import DAY_S, Actor, Killed, World
from tests.version.working_volume import ReadingVolume, WorkingVolume

FORKS = 2
RECENT = (1, 2, 2, 2, 3)  # which version of a fork, from the last one on
REST = 20  # turns
SHARE = 4
SLEEPS = 0.3
SLEPT_S = (3 * 3600.0, 8 * DAY_S)
"""Its lease is not held any more then; or its pin is dead, too."""

Tree = dict[bytes, bytes]


class Merger(Actor):
    """source: what it forks, three times at once. The first fork is worked in; its versions are
    merged into the second, which nobody else writes to, and into the source. The third is never
    written to, and keeps the version for merges to start from."""

    def __init__(self, world: World, name: str, source: str) -> None:
        super().__init__(world, name)
        self._source = self._into = source
        self._forks = 0
        self._merges = 0
        self._base: VersionId | None = None
        self._made: list[VersionId] = []

    @property
    def share(self) -> int:
        """A merge takes more requests than a commit, and is refused while somebody else writes."""
        return SHARE

    def live(self) -> None:
        self.is_dead = False
        if self._base is None or (self._forks < FORKS and self.random.random() < 0.1):
            self._fork()
        if self._base is None:
            return
        for _ in range(self.random.randrange(3)):
            self._go_on()
        if self._made:
            self._into = self.random.choice((self._source, f"trunk{self._forks}"))
            try:
                self._merge(self._made[-min(self.random.choice(RECENT), len(self._made))])
            except (CowfsError, Killed) as error:
                self.world.note(self, f"does not merge: {error!r}")
        self.asleep = 0 if self.world.is_over else self.random.randrange(REST)

    def _fork(self) -> None:
        """A collection that deletes the version meanwhile would have to make the fork void: not
        here."""
        objects = self.world.objects
        head = find_head(objects, self._source)
        if head is None or head.is_deleted or head.version is None:
            return
        self._forks += 1
        try:
            for name in ("work", "trunk", "base"):
                fork_volume(objects, f"{name}{self._forks}", locator(objects, self._source, head.version))
        except NotFoundError as error:  # condemned before its head came, and not spared yet
            self.world.note(self, f"does not fork: {error!r}")
            return
        self._base, self._made = head.version, []
        self.world.note(self, f"forks {head.version.hex()[:8]}")

    def _go_on(self) -> None:
        if self.world.is_damaged:
            return  # somebody is about to restore what this might read
        home = self.world.home / self.name / f"{self._forks}-{len(self._made)}"
        with WorkingVolume(self.world.objects, f"work{self._forks}", home, max_uploads=1) as volume:
            tree = {path: data for path, data in volume.tree().items() if data is not None}
            for _ in range(self.random.randrange(3)):
                path = b"f%d" % self.random.randrange(NAMES)
                if path in tree and self.random.random() < 0.3:
                    volume.unlink(path)
                    del tree[path]
                else:
                    tree[path] = content(self.random.randrange(self.world.conditions.contents))
                    volume.write(path, tree[path])
            tree[b"own"] = b"of version %d of fork %d" % (len(self._made), self._forks) * 1000
            volume.write(b"own", tree[b"own"])
            version = volume.commit().version_id
            volume.publisher._protection.pin.remove()
        assert version is not None
        self.world.remember(version, tree)
        self._made.append(version)

    # -- merging

    def _merge(self, version: VersionId) -> None:
        home = self.world.home / self.name
        spec = SessionSpec(
            store_url="memory://simulated",
            volume=self._into,
            mode="rw",
            working_copy=str(home / f"working in {self._into}"),
            options=MountOptions(
                cache_dir=home / "cache", max_uploads=1, take_over=self.random.random() < 0.8
            ).resolved(),
        )
        began = self.world.turns
        with publishing(spec) as line, ExitStack() as stack:
            if line.publisher.base.version_id is None:
                return
            line.publisher.require_kept([version])
            branch = open_version(self.store, version)  # NotFoundError: it was collected
            assert self._base is not None
            try:
                before = self._open(stack, open_version(self.store, self._base).index)
                theirs = self._open(stack, branch.index)
                self._publish(stack, line, version, Branch("fork", theirs, before, before.next_ino, before.next_ino))
            except (CorruptError, NotFoundError) as error:
                self._explain(error, line, began)

    def _open(self, stack: ExitStack, section: IndexSection) -> Index:
        cache = self.world.home / self.name / "merging"
        return stack.enter_context(open_index(self.store, PackReader(self.store), section, cache_dir=cache))

    def _publish(self, stack: ExitStack, line: Line, version: VersionId, branch: Branch) -> None:
        publisher, trees = line.publisher, self.world.trees
        how: How = self.random.choice(("ours", "theirs"))
        begins_with = Prefixes(PackReader(self.store)).begins_with
        found = merge_all(self._into, publisher.index, [branch], lambda conflict: how, begins_with, stack)
        ours = publisher.base.version_id
        assert self._base is not None
        assert ours is not None
        expected = merged(trees[self._base], trees[ours], trees[version], how)
        record = publisher._record_intent

        def remember(intent: Intent) -> None:
            self.world.remember(intent.version_id, expected)
            record(intent)

        publisher._record_intent = remember
        self._sleep()
        base = publisher.publish(MergeSource(found, publisher, (version,), are_parents=True), CommitRequest())
        self.world.merges += 1
        self._merges += 1
        self.world.note(self, f"merged {version.hex()[:8]} into {self._into} as head {base.head_number}")
        if not self.world.is_damaged and base.version_id is not None:
            home = self.world.home / self.name / f"check{self._merges}"
            with ReadingVolume(self.world.objects, base.version_id, home) as reader:
                if reader.tree() != expected:
                    raise Violation(f"{self.name} merged {version}, and got something else")

    def _sleep(self) -> None:
        """For long, once it is decided what the merge comes to."""
        if self.random.random() < SLEEPS and not self.world.is_over:
            self.asleep = self.world.conditions.long_turns
            self.world.pass_s(self.random.choice(SLEPT_S))
            self.world.note(self, "sleeps for long in the middle of a merge")
            for other in self.world.actors:
                other.heed_trouble()
            self.turn()

    def _explain(self, error: CowfsError, line: Line, began: int) -> None:
        """What was there when a merge began is deleted only if its pin was taken for dead, or if
        its lease was not its own any more: a collection does not wait then, and fences the
        volume."""
        self.world.note(self, f"cannot merge: {error!r}")
        is_dead = any("dead" in event and f" of {self._into} " in event for event in self.world.history)
        head = find_head(self.world.objects, self._into)
        is_fenced = head is not None and head.number > line.publisher.base.head_number
        is_damaged = self.world.was_damaged_since(began)
        is_told = any(text in error.message for text in ("was deleted", "is being deleted"))
        if not (is_dead or is_fenced or is_damaged or is_told):
            raise Violation(f"{self.name}: {error!r}") from error


def merged(base: Tree, ours: Tree, theirs: Tree, how: How) -> Tree:
    found: Tree = {}
    for path in base.keys() | ours.keys() | theirs.keys():
        before, mine, other = base.get(path), ours.get(path), theirs.get(path)
        if mine == before or (other not in (before, mine) and how == "theirs"):
            mine = other
        if mine is not None:
            found[path] = mine
    return found
