"""Random lines of volumes, copied in random ways to a mirror that prunes and collects: what a push
acknowledges can be read there by the locators that it means, or it says what it left out."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cowfs.api.access import file_session
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import ConflictError, NotFoundError
from cowfs.maintain.copy.push_report import PushReport
from tests.cli.test_gc import age
from tests.maintain.conftest import contents, place

__all__ = ["place"]

CASES = int(os.environ.get("COWFS_MODEL_CASES", "8"))
STEPS = 30


@dataclass
class Case:
    """v and its fork f, and their copies at the mirror. trees: by version id."""

    drawn: random.Random
    store: str
    mirror: Path
    trees: dict[str, dict[str, bytes]] = field(default_factory=dict)
    number: int = 0

    def write(self) -> None:
        name = self.drawn.choice("vf")
        self.number += 1
        work = Volume.open(name, store=self.store)
        work.files.write(f"{name}{self.drawn.randrange(3)}", b"%d" % self.number)
        self._made(work.commit())

    def merge(self) -> None:
        into, source = self.drawn.sample("vf", 2)
        Store(self.store).merge(into, [Volume.version(source, store=self.store)], strategy="theirs")
        self._made(Volume.version(into, store=self.store))

    def roll_back(self) -> None:
        name = self.drawn.choice("vf")
        earlier = self.drawn.choice(list(Volume.version(name, store=self.store).history()))
        Store(self.store).rollback(name, earlier)
        self._made(Volume.version(name, store=self.store))

    def tag(self) -> None:
        with suppress(NotFoundError):  # the version came from f
            self._source("v").tag(self.drawn.choice(["one", "two"]), move=True)

    def push(self) -> None:
        source, all_versions = self._source(self.drawn.choice("vf")), self.drawn.random() < 0.4
        name = self.drawn.choice([source.name, "m"])
        before = {tag.name: tag.version for tag in Store(self.store).tags(source.name)}
        try:
            done = Store(self.store).push(source.locator, self.mirror, name=name, all_versions=all_versions)
        except ConflictError:
            return
        self._check(source, name, before if all_versions else None, done)

    def prune_there(self) -> None:
        name = self.drawn.choice([each.name for each in Store(self.mirror).volumes()])
        file_session._end_all()
        Store(self.mirror).prune(Store(self.mirror).plan_prune(name, last=1))
        if self.drawn.random() < 0.7:
            self._collect_there()

    def _collect_there(self) -> None:
        age(3 * 3600, self.mirror)
        Store(self.mirror).gc()
        age(3 * 3600, self.mirror)  # no request of it is late any more

    def _made(self, version: ROVolume) -> None:
        self.trees[version.id] = contents(version)

    def _source(self, name: str) -> ROVolume:
        earlier = self.drawn.choice([0, 0, 1, 2])
        try:
            return Volume.version(f"{name}@{{{earlier}}}", store=self.store)
        except NotFoundError:
            return Volume.version(name, store=self.store)

    def _check(self, source: ROVolume, name: str, tags: dict[str, str] | None, done: PushReport) -> None:
        wanted = {source.id, *done.version_ids}
        if tags is not None:
            line = [each.id for each in self._line(source)]
            wanted |= set(line) - set(done.left_out_version_ids)
            there = {tag.name: tag.version for tag in Store(self.mirror).tags(name)}
            for tag, version in tags.items():
                assert version not in line or there.get(tag) == version or tag in done.left_out_tag_names
            assert set(done.left_out_version_ids) <= set(line)
        if self.drawn.random() < 0.5:
            self._collect_there()  # what is there is kept, too
        for version in wanted:
            locator = done.locator.replace(source.id, version)
            assert contents(Volume.from_locator(locator)) == self.trees[version]

    def _line(self, source: ROVolume) -> list[ROVolume]:
        """The volume's last versions up to this one, asked for as a user would do it."""
        found: list[ROVolume] = []
        while len(found) < self.number + STEPS:
            try:
                found.append(Volume.version(f"{source.name}@{{{len(found)}}}", store=self.store))
            except NotFoundError:
                break
        ids = [each.id for each in found]
        return found[ids.index(source.id) :] if source.id in ids else [source]


def test_what_a_push_acknowledges_is_there(place: Path) -> None:
    first = int(os.environ.get("COWFS_MODEL_SEED", random.SystemRandom().randrange(1 << 30)))
    for seed in range(first, first + CASES):
        print(f"COWFS_MODEL_SEED={seed} COWFS_MODEL_CASES=1 runs it again")
        case = Case(random.Random(seed), (place / f"store{seed}").as_uri(), place / f"mirror{seed}")
        work = Volume.new("v", store=case.store)
        work.files.write("v0", b"first")
        case._made(work.commit())
        Volume.version("v", store=case.store).fork("f")
        Store(case.store).push("v", case.mirror, name="m")
        actions = [case.write, case.write, case.merge, case.roll_back, case.tag, *[case.push] * 4, case.prune_there]
        for _ in range(STEPS):
            case.drawn.choice(actions)()
        file_session._end_all()
