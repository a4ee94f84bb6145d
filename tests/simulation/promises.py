"""What must hold in a world at any time, and what must be left at its end.

At any time: a volume's line is one line; who has opened it for writing has shut out whoever wrote
before; who has deleted a volume can bring it back as long as is promised; and everything is there
of each version that is kept: of a volume's newest, or where
somebody prunes, of all that are not pruned; and of those that a tag was set on. At the end, when
everybody's time is over: a collection leaves what is kept, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.base.ids import VersionId
from cowfs.errors import CowfsError
from cowfs.format import keys
from cowfs.format.heads import UNCHANGED
from cowfs.format.records import HeadRecord
from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.planning import Survey
from cowfs.store.packs import places_now, read_moved_records
from cowfs.store.refs import refs
from cowfs.store.refs.holder import current_holder
from cowfs.version.retention import pruned
from tests.simulation.roots import PinRecords, closure, live_pins
from tests.version.working_volume import ReadingVolume

if TYPE_CHECKING:
    from tests.simulation.world import World

Line = list[tuple[int, HeadRecord]]
SWEEPS = 4
LONG_S = 30 * 24 * 3600.0
"""All pins have expired then, and what was deleted cannot be brought back."""
CLOCKS_S = 600.0
"""Two clocks, of a collector and a server of the store, and what each of them may be off by."""
LOSING = (keys.PACKS, keys.VERSIONS, keys.VOLUMES)


class Violation(AssertionError):
    """A promise was broken."""


class Promises:
    def __init__(self, world: World, home: Path) -> None:
        self._world = world
        self._home = home
        self._closures: dict[VersionId, frozenset[str]] = {}
        self._moved: dict[tuple[object, ...], bool] = {}
        self._heads: dict[str, tuple[bytes, HeadRecord]] = {}
        self._pins: PinRecords = {}

    # -- at any time

    def check(self, when: str) -> None:
        """Violation, where one is broken."""
        lines = self._lines()
        for volume, line in lines.items():
            _check_line(volume, line, when)
            _check_takeovers(volume, line, self._world.opened.get(volume, {}), when)
            self._check_closing(volume, line, when)
        try:
            kept = self._kept_in(lines)
        except Exception as error:
            raise Violation(f"{when}: it cannot be read what is kept: {error!r}") from error
        kept |= {
            version: f"tagged {name} in {volume}"
            for (volume, name), version in self._world.tagged.items()
            if lines[volume][-1][1].kind != "void"
        }
        for version, what in kept.items():
            try:
                is_whole = not (missing := self._missing(version)) or self._is_moved(version, missing)
            except Exception as error:
                if self._world.repairing:
                    continue
                raise Violation(f"{when}: version {version} {what} cannot be read: {error}") from error
            if not is_whole:
                raise Violation(f"{when}: version {version} {what} has lost {missing}")
            if version not in self._world.trees:
                raise Violation(f"{when}: nobody has asked for version {version} {what}")

    def _check_closing(self, volume: str, line: Line, when: str) -> None:
        """A fork of a version that is gone is closed at any time."""
        if line[-1][1].kind != "void" or line[0][1].kind == "fork":
            return
        deleted_ns, closed_ns = (self._world.objects.objects[keys.head(volume, number)][1] for number, _ in line[-2:])
        if closed_ns - deleted_ns < (self._world.conditions.grace_s - CLOCKS_S) * 1e9:
            raise Violation(f"{when}: {volume} was closed {(closed_ns - deleted_ns) / 1e9:.0f} s after it was deleted")

    def _missing(self, version: VersionId) -> list[str]:
        """Of what the version names."""
        objects, spoiled, repairing = self._world.objects.objects, self._world.spoiled, self._world.repairing
        return [key for key in self._closure(version) - repairing if key not in objects or key in spoiled]

    def needed_packs(self) -> set[str]:
        kept = self._kept_in(self._lines())
        known = [self._closures[version] for version in kept if version in self._closures]
        return {key for closure in known for key in closure if key.startswith(keys.PACKS)}

    def named(self) -> set[VersionId]:
        """By any head."""
        heads = (head for line in self._lines().values() for _, head in line)
        return {head.version for head in heads if head.version is not None}

    def _lines(self) -> dict[str, Line]:
        found: dict[str, Line] = {}
        for info in self._world.objects.list(keys.VOLUMES):
            volume, number = keys.parse_volume(info.key), keys.parse_number(info.key)
            if volume is not None and number is not None and info.key == keys.head(volume, number):
                found.setdefault(volume, []).append((number, self._head(volume, number)))
        return {volume: sorted(line, key=lambda head: head[0]) for volume, line in found.items()}

    def _head(self, volume: str, number: int) -> HeadRecord:
        key = keys.head(volume, number)
        data = self._world.objects.objects[key][0]
        if key not in self._heads or self._heads[key][0] is not data:
            self._heads[key] = data, refs.read(self._world.objects, refs.head(volume), number)
        return self._heads[key][1]

    def _kept(self, volume: str, line: Line) -> Iterator[VersionId]:
        newest = line[-1][1]
        if newest.version is None:
            return
        yield newest.version
        if self._world.conditions.has_keeper:
            hidden = pruned.read(self._world.objects, volume)
            for number, head in line:
                if head.version is not None and not hidden.has(number):
                    yield head.version

    def _kept_in(self, lines: dict[str, Line]) -> dict[VersionId, str]:
        """And whose they are."""
        return {
            version: f"of {volume}"
            for volume, line in lines.items()
            if not self._is_late_fork(line)
            for version in self._kept(volume, line)
        }

    def _is_void(self, volume: str) -> bool:
        return self._lines()[volume][-1][1].kind == "void"

    def _is_late_fork(self, line: Line) -> bool:
        """Its maker slept until its pin was dead: it is about to take the fork back, or a
        collection does."""
        (_, first), *rest = line
        if first.kind != "fork" or any(head.kind not in UNCHANGED for _, head in rest):
            return False
        pins = live_pins(self._world.objects, self._pins).values()
        return any(pin.kind == "dead" and pin.version == first.version for _, pin, _ in pins)

    def _closure(self, version: VersionId) -> frozenset[str]:
        if version not in self._closures:
            self._closures[version] = closure(self._world.objects, version, self._home / "closures")
        return self._closures[version]

    def _is_moved(self, version: VersionId, missing: list[str]) -> bool:
        """Whether the version can be read without these packs, whose blobs lie elsewhere: a pack
        that was condemned is copied under another id."""
        objects = self._world.objects
        homes: set[str] = set()
        for key in missing:
            pack = keys.parse_pack(key)
            records = list(read_moved_records(objects, pack)) if pack is not None else []
            if not records:
                return False
            homes |= {keys.pack(blob.new_pack) for record in records for blob in record.blobs}
        if self._world.repairing & self._closure(version):
            return True  # it cannot be read as a whole before that is mended
        known = (version, *missing, *sorted(homes & objects.objects.keys()))
        if known not in self._moved:
            with ReadingVolume(objects, version, self._home / f"moved{len(self._moved)}") as reader:
                self._moved[known] = reader.tree() == self._world.trees.get(version)
        return self._moved[known]

    # -- at the end

    def check_swept(self) -> None:
        """Collects until there is nothing to collect, long after everything has happened."""
        world = self._world
        world.clock.skew_s = 0.0
        for sweep in range(SWEEPS):
            world.clock.elapsed_s += LONG_S
            survey = Survey(
                world.objects, self._home / "sweeper", grace_s=world.conditions.grace_s, gain_bytes=0, threads=1
            )
            try:
                plan = survey.plan()
                done = Collection(survey, current_holder("sweeper")).apply(plan)
            except CowfsError as error:
                raise Violation(f"long after the end nothing can be collected: {error!r}") from error
            if done.waits_for:
                raise Violation(f"long after the end a collection waits for {done.waits_for[0]}")
            if sweep > 0 and not plan.doomed:  # the first has found pins that are dead now
                break
        self.check("after the last collection")
        there = {key for key in world.objects.objects if key.startswith((keys.PACKS, keys.VERSIONS))}
        if left := there - self._reachable():
            raise Violation(f"nothing needs these, and no collection takes them: {sorted(left)}")

    def _reachable(self) -> set[str]:
        """Names of everything in `packs/` and `versions/` that something keeps."""
        objects = self._world.objects
        found: set[str] = set()
        versions = {version for volume, line in self._lines().items() for version in self._kept(volume, line)}
        for info in objects.list(keys.VOLUMES):
            volume, tag = keys.parse_volume(info.key), keys.parse_tag(info.key)
            if volume is not None and tag is not None and not self._is_void(volume):
                newest = refs.newest(objects, refs.tag(volume, tag))
                if newest is not None and newest[1].version is not None:
                    versions.add(newest[1].version)
        for _, pin, _ in live_pins(objects, self._pins).values():
            if pin.kind == "dead":
                continue
            found |= {keys.pack(pack) for pack in pin.packs}
            head = refs.read(objects, refs.head(pin.volume), pin.number).version if pin.number else None
            versions |= {version for version in (head, pin.version) if version is not None}
        for version in versions:
            if keys.version(version) in objects.objects:  # what a pin names that came back too late may be gone
                found |= self._closure(version)
        for pack in [keys.parse_pack(key) for key in found]:
            if pack is not None:
                found |= {info.key for info in objects.list(refs.moved(pack).prefix)}
                places = places_now(read_moved_records(objects, pack), lambda home: keys.pack(home) in objects.objects)
                found |= {keys.pack(blob.new_pack) for blob in places.values()}
        return found


def _check_line(volume: str, line: Line, when: str) -> None:
    if [number for number, _ in line] != list(range(1, len(line) + 1)):
        raise Violation(f"{when}: the line of {volume} has gaps")
    version: VersionId | None = None
    epoch, is_deleted, check = 0, False, None
    for number, head in line:
        if head.prev != check:
            raise Violation(f"{when}: the {head.kind} {number} of {volume} names another head before it: {head.prev}")
        if head.epoch < epoch:
            raise Violation(f"{when}: head {number} of {volume} was put by epoch {head.epoch}, after {epoch}")
        if head.kind in UNCHANGED and head.version != version:
            raise Violation(f"{when}: the {head.kind} {number} of {volume} changes the version")
        if is_deleted and head.kind not in ("undelete", "void"):
            raise Violation(f"{when}: the {head.kind} {number} of {volume} comes behind its deletion")
        version, epoch, is_deleted, check = head.version, head.epoch, head.kind == "delete", head.check


def _check_takeovers(volume: str, line: Line, opened: dict[int, int], when: str) -> None:
    """opened: by epoch of a writer, the head that it found when the volume was open."""
    for epoch, found in opened.items():
        for number, head in line[found:]:
            if head.kind == "commit" and head.epoch < epoch:
                raise Violation(
                    f"{when}: head {number} of {volume} was put by epoch {head.epoch}, though {epoch} had begun behind {found}"
                )
