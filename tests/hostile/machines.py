"""Machines that use a malicious store, and what each has been told of it.

Every content of a file names the one that it was written behind, as its writer saw it. So whatever
a machine reads later must be what it has seen before, or have come from that: nothing older, and no
other line. `World.run` is one command of one machine, which ends with the right content or with an
error of cowfs.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from cowfs import storage
from cowfs.api import stores
from cowfs.api.access import file_session
from cowfs.api.store import store_of
from cowfs.base import clock
from cowfs.blocking import RWVolume, Volume
from cowfs.errors import CowfsError
from cowfs.store.credentials import unlocking
from tests.hostile.malicious_store import Objects, View, Violation, Watched

VOLUMES = ("a", "b")
TAGS = ("good", "best")
SIZES = (10, 3000, 3000, 150_000)


class WorldClock(clock.SystemClock):
    """Waits for nothing, and draws ids by the seed."""

    def __init__(self, seed: int) -> None:
        self.ahead_s = 0.0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def now_ns(self) -> int:
        return super().now_ns() + int(self.ahead_s * 1e9)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s

    def sleep_s(self, seconds: float) -> None:
        super().sleep_s(min(seconds, 0.0005))
        self.ahead_s += seconds

    def random_bytes(self, length: int) -> bytes:
        with self._lock:
            return self._random.randbytes(length)

    def jitter(self) -> float:
        return 0.5


@dataclass
class Line:
    """One of the stores that the machines are shown. tags: what was ever put there, per volume and
    tag; slots: the ids of each record of keys."""

    objects: Objects
    tags: dict[tuple[str, str], list[int | None]] = field(default_factory=dict)
    slots: list[set[str]] = field(default_factory=list)

    def copy(self) -> Line:
        tags = {name: list(values) for name, values in self.tags.items()}
        return Line(self.objects.copy(), tags, [set(ids) for ids in self.slots])


class Machine(Watched):
    """A state directory. seen: of each volume the last content; tags, slots: how far they had
    come."""

    def __init__(self, place: Path, line: Line, named: str | storage.Storage) -> None:
        super().__init__()
        self.place = place
        self.line = line
        self.named = named
        self.seen: dict[str, int] = {}
        self.tags: dict[tuple[str, str], int] = {}
        self.slots = 0
        self.opened: dict[object, stores.OpenStore] = {}
        place.mkdir(mode=0o700)


@dataclass
class Content:
    parent: int | None
    data: bytes
    volumes: set[str]


class World:
    """root: holds an empty directory `store`, which gives the store its URL. env: how the machines'
    secret is set."""

    def __init__(self, root: Path, name: str, choice: random.Random, *, env: dict[str, str], in_storage: bool) -> None:
        self.choice = choice
        self.place = root / name
        self.place.mkdir()
        self.url = (root / "store").as_uri()
        self.line = Line(Objects())
        key: storage.EncryptionKey | None = None
        if in_storage:
            key = storage.KeyFile(env[unlocking.KEY_FILE]) if unlocking.KEY_FILE in env else env[unlocking.PASSPHRASE]
        named = storage.Storage(self.url, encryption_key=key) if key is not None else self.url
        self.machines = [Machine(self.place / f"m{number}", self.line, named) for number in (1, 2)]
        self.contents: dict[int, Content] = {}
        self.acknowledged: dict[str, set[int]] = {}
        self.locators: dict[str, tuple[int, Machine]] = {}
        self.removed_slots: set[str] = set()
        self.labels = {""}  # that a slot was to be made with
        self.label_of: dict[str, str] = {}
        self.is_split = False
        self.unseen: set[int] = set()  # which a collection under a lie may have taken
        self.current = self.machines[0]
        self.done: dict[str, list[int]] = {}
        self.log: list[str] = []

    def begin_as(self, other: World) -> None:
        """With what the other one has, whose machines are at rest."""
        self.line, self.label_of = other.line.copy(), dict(other.label_of)
        self.contents, self.acknowledged = (
            {serial: replace(each, volumes=set(each.volumes)) for serial, each in other.contents.items()},
            {name: set(of) for name, of in other.acknowledged.items()},
        )
        for machine, before in zip(self.machines, other.machines, strict=True):
            machine.place.rmdir()
            shutil.copytree(before.place, machine.place)
            machine.line, machine.slots, machine.knows_encrypted = self.line, before.slots, before.knows_encrypted
            machine.seen, machine.tags = dict(before.seen), dict(before.tags)
            self.locators |= {name: (serial, machine) for name, (serial, by) in other.locators.items() if by is before}
        self.log = ["as begun"]

    # -- commands

    def run(self, machine: Machine, name: str, command: Callable[[Machine], object], *, must: bool = False) -> bool:
        """Whether it succeeded. Violation: it has ended otherwise than it may."""
        self._enter(machine)
        counts = self.done.setdefault(name, [0, 0])
        lie = machine.lie.name if machine.lie is not None else "honest"
        self.log.append(f"{machine.place.name} {name} ({lie})")
        try:
            try:
                command(machine)
            finally:
                file_session._end_all()
            said, is_done = "", True
        except Violation:
            raise
        except CowfsError as error:
            is_done, said = False, f"{type(error).__name__}: {error.message}"
            if error.kind == "internal" or not error.message:
                raise Violation(f"an error that says nothing: {said}") from error
            if must:
                raise Violation(f"{name} fails though the store is honest: {said} {error.hint}") from error
        except OSError as error:  # as of a file that the version has not got
            is_done, said = False, f"{type(error).__name__}: {error}"
            if must or not isinstance(error, FileNotFoundError):
                raise Violation(f"another error: {said}") from error
        except BaseException as error:
            raise Violation(f"another error: {type(error).__name__}: {error}") from error
        self.log[-1] += f": {said or 'done'}"
        if machine.violations:
            raise Violation("; ".join(machine.violations))
        if machine.has_deleted:
            machine.has_deleted = False
            kept = set().union(*(self.ancestors(serial) for serial in machine.seen.values()))
            self.unseen |= self.contents.keys() - kept
        counts[not is_done] += 1
        return is_done

    def _enter(self, machine: Machine) -> None:
        self.current = machine
        machine.requests = 0
        os.environ["COWFS_STATE_DIR"] = str(machine.place / "state")
        os.environ["COWFS_CACHE_DIR"] = str(machine.place / "cache")
        if self.choice.random() < 0.7:  # another process
            machine.opened = {}
        stores._open = machine.opened  # type: ignore[assignment]

    def backend(self, *_: object, **__: object) -> View:
        """Instead of what stands at the URL."""
        machine = self.current
        return View(self.url, lambda: machine.line.objects, machine)

    def create(self, machine: Machine, volume: str) -> None:
        Volume.new(volume, store=machine.named, strict=True).resolve()
        machine.knows_encrypted = True

    def commit(self, machine: Machine, volume: str, *, how: str) -> None:
        opened: RWVolume = Volume.open(volume, store=machine.named)
        base = machine.seen.get(volume)
        serial = len(self.contents) + 1
        try:
            if how == "files":
                opened.files.mkdir("/d", exist_ok=True)
                with suppress(FileNotFoundError):
                    base = self.content(opened.files.read("/f"), volume)
                opened.files.write("/f", self._new(serial, base, volume))
                version = opened.commit(f"content {serial}")
            else:
                with suppress(FileNotFoundError):
                    base = self.content(Volume.version(volume, store=machine.named).files.read("/f"), volume)
                (machine.place / "f").write_bytes(self._new(serial, base, volume))
                opened.files.upload(machine.place / "f", "/", message=f"content {serial}")
                version = Volume.version(volume, store=machine.named)
                self.saw(machine, volume, self.content(version.files.read("/f"), volume))
                return
        except BaseException:
            if self.choice.random() < 0.7:
                file_session._end_all()
                with suppress(CowfsError):
                    opened.discard()
            raise
        self.saw(machine, volume, serial)
        self.acknowledged.setdefault(volume, set()).add(serial)
        self.locators[version.locator] = serial, machine

    def _new(self, serial: int, parent: int | None, volume: str) -> bytes:
        head = json.dumps({"serial": serial, "parent": parent, "volume": volume}).encode()
        data = head + b"\n" + self.choice.randbytes(self.choice.choice(SIZES))
        self.contents[serial] = Content(parent, data, {volume})
        return data

    def read(self, machine: Machine, volume: str) -> None:
        self.saw(machine, volume, self.content(Volume.version(volume, store=machine.named).files.read("/f"), volume))

    def download(self, machine: Machine, volume: str) -> None:
        target = machine.place / "download"
        shutil.rmtree(target, ignore_errors=True)
        try:
            Volume.version(volume, store=machine.named).files.download("/", target)
            self.saw(machine, volume, self.content((target / "f").read_bytes(), volume))
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def read_locator(self, machine: Machine, locator: str) -> None:
        named = machine.named if isinstance(machine.named, storage.Storage) else None
        found = Volume.from_locator(locator, store=named).files.read("/f")
        if found != self.contents[self.locators[locator][0]].data:
            raise Violation("a locator has another content")

    def log_of(self, machine: Machine, volume: str) -> None:
        found = [version.locator for version in Volume.open(volume, store=machine.named).history()]
        serials = [self.locators[locator][0] for locator in found if locator in self.locators]
        for later, earlier in pairwise(serials):
            if earlier not in self.ancestors(later):
                raise Violation(f"the log shows {earlier} before {later}")
        if found and found[0] in self.locators:
            self.saw(machine, volume, serials[0])

    def ls(self, machine: Machine) -> None:
        found = {summary.name: summary for summary in store_of(machine.named).volumes()}
        if missing := machine.seen.keys() - found.keys():
            raise Violation(f"a list has not the volumes {missing}, which this machine has seen")

    def fork(self, machine: Machine, volume: str, name: str) -> None:
        base = Volume.version(volume, store=machine.named)
        serial = self.content(base.files.read("/f"), volume)
        self.saw(machine, volume, serial)
        for each in self.ancestors(serial):
            self.contents[each].volumes.add(name)
        base.fork(name, strict=True)
        self.saw(machine, name, serial)
        self.acknowledged.setdefault(name, set()).add(serial)

    def tag(self, machine: Machine, volume: str, tag: str, *, is_removed: bool) -> None:
        events = machine.line.tags.setdefault((volume, tag), [])
        if is_removed:
            events.append(None)
            store_of(machine.named).untag(volume, tag)
        else:
            version = Volume.version(volume, store=machine.named)
            serial = self.content(version.files.read("/f"), volume)
            self.saw(machine, volume, serial)
            events.append(serial)
            version.tag(tag, move=True)
        machine.tags[volume, tag] = len(events) - 1

    def read_tag(self, machine: Machine, volume: str, tag: str) -> None:
        try:
            data = Volume.version(f"{volume}@{tag}", store=machine.named).files.read("/f")
        except FileNotFoundError:
            return
        self.saw_tag(machine, volume, tag, self.content(data, volume))

    def tags(self, machine: Machine, volume: str) -> None:
        found = {tag.name for tag in store_of(machine.named).tags(volume)}
        for (of, tag), event in machine.tags.items():
            if of == volume and not self.is_split:
                later = machine.line.tags[of, tag][event:]
                if tag not in found and None not in later:
                    raise Violation(f"tag {tag} is missing")

    def key_list(self, machine: Machine) -> None:
        self.listed_slots(machine)

    def key_add(self, machine: Machine, file: Path) -> None:
        file.write_bytes(self.choice.randbytes(32))
        file.chmod(0o600)
        self.listed_slots(machine)
        label = f"key {len(self.labels)}"
        self.labels.add(label)
        added = storage.add_key(storage.KeyFile(file), machine.named, label=label)
        self.label_of[added.id] = label
        machine.line.slots.append({*machine.line.slots[-1], added.id})
        machine.slots = len(machine.line.slots) - 1

    def key_remove(self, machine: Machine) -> None:
        found = self.listed_slots(machine)
        if others := [each.id for each in found[1:]]:
            gone = self.choice.choice(others)
            self.removed_slots.add(gone)
            storage.remove_key(gone, machine.named)
            machine.line.slots.append(machine.line.slots[-1] - {gone})
            machine.slots = len(machine.line.slots) - 1

    def gc(self, machine: Machine) -> None:
        store_of(machine.named).gc()

    def verify(self, machine: Machine) -> None:
        store_of(machine.named).verify()

    # -- what is right

    def content(self, data: bytes, volume: str) -> int:
        """Its number. Violation: nobody has put it there."""
        try:
            serial = int(json.loads(data.partition(b"\n")[0])["serial"])
        except (ValueError, KeyError, TypeError):
            raise Violation(f"a content that nobody has written: {data[:60]!r}") from None
        found = self.contents.get(serial)
        if found is None or found.data != data or volume not in found.volumes:
            raise Violation(f"not the content of {volume}: {data[:60]!r}")
        return serial

    def ancestors(self, serial: int | None) -> set[int]:
        """And itself."""
        found: set[int] = set()
        while serial is not None:
            found.add(serial)
            serial = self.contents[serial].parent
        return found

    def saw(self, machine: Machine, volume: str, serial: int) -> None:
        before = machine.seen.get(volume)
        if before is not None and before not in self.ancestors(serial):
            raise Violation(f"{volume}: was shown content {serial}, which did not come from {before}, seen before")
        machine.seen[volume] = serial
        machine.knows_encrypted = True

    def saw_tag(self, machine: Machine, volume: str, tag: str, serial: int | None) -> None:
        if self.is_split:  # a tag's record does not name the one before
            return
        before, events = machine.tags.get((volume, tag), 0), machine.line.tags.get((volume, tag), [])
        later = [event for event in range(before, len(events)) if events[event] == serial]
        if not later:
            raise Violation(f"tag {tag} of {volume} is {serial}, of {events}, and event {before} was seen")
        machine.tags[volume, tag] = later[0]

    def listed_slots(self, machine: Machine) -> list[storage.KeySummary]:
        found = storage.list_keys(machine.named)
        for each in found:
            if not machine.line.slots:
                self.label_of[each.id] = each.label
            label = self.label_of.get(each.id)
            if each.label not in (self.labels - set(self.label_of.values()) if label is None else {label}):
                raise Violation(f"key {each.id} is {each.label!r}, and was {label!r}")
        self.saw_slots(machine, {each.id for each in found})
        return found

    def saw_slots(self, machine: Machine, found: set[str]) -> None:
        machine.knows_encrypted = True
        sets = machine.line.slots
        if not sets:
            sets.append(found)
        if self.is_split:
            return
        later = [number for number in range(machine.slots, len(sets)) if sets[number] == found]
        if not later and found - self.removed_slots >= set(sets[machine.slots]) - self.removed_slots:
            return  # of a change that failed, and was done all the same
        if not later:
            raise Violation(f"the keys are {found}, of {sets}, and number {machine.slots} was seen")
        machine.slots = later[0]
