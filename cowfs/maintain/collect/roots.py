"""Finds the roots that protect bytes: every head that was not pruned, tags, pins and holds, and
mounts on this machine. Nothing else protects: not a parent, not a locator.

    volumes/<name>/head/<n>          its version; for a deleted volume while it can be restored, for a void one none
    volumes/<name>/pruned/<n>        which heads do not count
    volumes/<name>/tags/<tag>/<n>    the newest record's version; none of a void volume's, whose tags no name reaches
    pins/<id>/<n>                    the newest record: the version of its head, another one it may name, and packs;
                                     a writer's also versions that it may have put after that head

An object that a store does not show is not necessarily absent: `alarms` compares the findings with
those of an earlier collection. A version counts as gone only if `versions/` shows others
(`is_gone`).

A line is never taken from a list alone: its numbers must have no gap, the number after the last is
asked for, and a volume that has a record (`meta/<n>`) has a head. A record that cannot be read is
an error, so that nothing is deleted. Records never change: a `RootReader` reads each once, however
often it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from cowfs.base.errors import CorruptError, NotFoundError, UnavailableError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.base.thread_pool import Helpers
from cowfs.format import keys
from cowfs.format.heads import UNCHANGED
from cowfs.format.records import HeadRecord, PinRecord, SeenVolume, TagRecord
from cowfs.store import ObjectInfo, ObjectStore, remembering
from cowfs.store.contract import list_carefully
from cowfs.store.refs import refs
from cowfs.store.reliability.damaged import read_as
from cowfs.store.reliability.repeating import repeat_while_unavailable
from cowfs.version.names.volumes import require_first_head
from cowfs.version.retention import pruned

E = TypeVar("E")
T = TypeVar("T")
R = TypeVar("R", HeadRecord, TagRecord)

OLD_PIN_LIFETIME_S = 7 * 24 * 3600
THREADS = 16
Foreseen = Mapping[str, Collection[VersionId]]
"""Versions that each volume is assumed to have pruned."""
NOTHING: Foreseen = MappingProxyType({})
InUse = Callable[[], Mapping[VersionId, Sequence[str]]]
"""Versions that are in use without a pin, and what they are needed for, in words."""


@dataclass(frozen=True)
class FoundPin:
    """The newest record of a pin, and when it was put, by the store's clock. number 0: an old pin,
    which has one object for all its records."""

    id: WriteId
    number: int
    record: PinRecord
    mtime_ns: int
    key: str

    @property
    def must_acknowledge(self) -> bool:
        """Whether its owner may begin to use existing objects, and so has to read the lists. Other
        pins name everything that they need."""
        return self.record.kind == "writer"

    def is_expired(self, now_ns: int) -> bool:
        lifetime_s = OLD_PIN_LIFETIME_S if self.number == 0 else self.record.lifetime_s
        return lifetime_s is not None and now_ns >= self.mtime_ns + lifetime_s * 10**9


class _ListedPin(NamedTuple):
    id: WriteId
    number: int
    info: ObjectInfo


@dataclass
class Roots:
    """versions: each with what protects it, in words. pinned: those of them that only pins and
    mounts protect. work: pins of uncommitted work, by the versions that it may be based on.

    lapsed: volumes that must not be used any more: deleted too long ago to be restored, or forked
    too late, from a version that is gone; with their newest head's number, since a later head
    changes that. void: those that a collection has closed. deleted: deleted volumes that can be
    restored, and since when.

    shown: all volumes. deletions: the last head of each that deletes or closes it. unknown: folders
    with records that this cowfs does not know. strange: other keys that it has not made.
    are_pins_shown: `pins/` was really listed. doubts: signs of objects that exist and are not
    shown.
    """

    versions: dict[VersionId, list[str]] = field(default_factory=dict)
    pinned: set[VersionId] = field(default_factory=set)
    packs: dict[PackId, list[str]] = field(default_factory=dict)
    pins: list[FoundPin] = field(default_factory=list)
    work: dict[VersionId, list[FoundPin]] = field(default_factory=dict)
    lapsed: dict[str, int] = field(default_factory=dict)
    void: set[str] = field(default_factory=set)
    deleted: dict[str, int] = field(default_factory=dict)
    shown: dict[str, SeenVolume] = field(default_factory=dict)
    deletions: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    strange: set[str] = field(default_factory=set)
    are_pins_shown: bool = False
    doubts: list[str] = field(default_factory=list)

    def protect(self, version: VersionId | None, why: str) -> None:
        if version is not None:
            self.versions.setdefault(version, []).append(why)


def find_pruned_heads(store: ObjectStore, volume: str, line: Sequence[HeadRecord]) -> frozenset[int]:
    """Numbers of the heads that no longer keep their versions. line: all heads, oldest first."""
    hidden = pruned.read(store, volume)
    return frozenset(number for number in range(1, len(line) + 1) if hidden.has(number))


@dataclass
class _Listed:
    """The objects below `volumes/`. described: volumes that have a record. pruned: numbers of the
    newest pruned records."""

    heads: dict[str, dict[int, ObjectInfo]] = field(default_factory=dict)
    tags: dict[tuple[str, str], int] = field(default_factory=dict)
    described: set[str] = field(default_factory=set)
    pruned: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    strange: set[str] = field(default_factory=set)

    def add(self, info: ObjectInfo) -> None:
        volume, number = keys.parse_volume(info.key), keys.parse_number(info.key)
        if number is None:
            self.strange.add(info.key)
        elif volume is None:
            self.unknown.add(_folder(info.key))
        elif info.key == keys.head(volume, number):
            self.heads.setdefault(volume, {})[number] = info
        elif (tag := keys.parse_tag(info.key)) is not None:
            self.tags[volume, tag] = max(number, self.tags.get((volume, tag), 0))
        elif info.key == keys.meta(volume, number):
            self.described.add(volume)
        elif info.key == keys.pruning_record(volume, number):
            self.pruned[volume] = max(number, self.pruned.get(volume, 0))
        elif info.key not in (keys.lease(volume, number), keys.heartbeat(volume, number)):
            self.unknown.add(_folder(info.key))


def _folder(key: str) -> str:
    return key.rpartition("/")[0] + "/"


class RootReader:
    """Looks at the roots of one store any number of times, in one thread. in_use: called each
    time."""

    def __init__(self, store: ObjectStore, *, threads: int = THREADS, in_use: InUse = dict) -> None:
        list_carefully(store)
        self._store = store
        self._threads = threads
        self._in_use = in_use
        self._heads: dict[str, HeadRecord] = {}
        self._tags: dict[str, TagRecord] = {}
        self._pins: dict[str, PinRecord] = {}
        self.are_pins_shown = False
        """As seen in the last list of pins."""
        self._unknown_pins: set[str] = set()
        self._strange_pins: set[str] = set()

    def read(self, *, now_ns: int = 0, grace_s: float | None = None, foreseen: Foreseen = NOTHING) -> Roots:
        """grace_s: volumes deleted longer ago protect nothing; None: all protect."""
        found = Roots()
        found.pins = self.pins()
        known = remembering.read_all_marks(self._store)
        listed = self._list_volumes()
        heads, tags = listed.heads, listed.tags
        if not heads:
            known = {}  # the plan raises an alarm if there is no head at all
        for volume, tag, mark in remembering.find_unlisted(known, heads.keys() | listed.described, tags):
            if tag:
                raise remembering.rollback_error(self._store, refs.tag(volume, tag), mark, 0)
            raise remembering.rollback_error(self._store, refs.head(volume), mark, 0)
        for volume in sorted(listed.described - heads.keys()):
            require_first_head(self._store, volume)  # it exists: it was put since the list
        lines = {volume: self._line(volume, infos) for volume, infos in heads.items()}
        for volume, line in lines.items():
            last = heads[volume].get(len(line))  # None: it was put since the list
            is_over = last is not None and grace_s is not None and now_ns - last.mtime_ns > grace_s * 1e9
            self._add_line(found, volume, line, foreseen.get(volume, ()), is_over=is_over)
            if last is not None and line[-1].kind == "delete" and not is_over:
                found.deleted[volume] = last.mtime_ns
        for (volume, tag), number in tags.items():
            if volume not in found.lapsed and volume not in found.void:
                version = self._newest_tag(volume, tag, number).version
                if version is not None and not self._is_late_tag(found, version):
                    found.protect(version, f"tag {volume}@{tag}")
        self._add_pins(found, lines)
        self._add_shown(found, listed, lines)
        for version, uses in self._in_use().items():
            _add_pinned(found, version, uses)
        return found

    def _add_shown(self, found: Roots, listed: _Listed, lines: Mapping[str, Sequence[HeadRecord]]) -> None:
        numbers: dict[str, list[int]] = {}
        for (volume, _), number in listed.tags.items():
            numbers.setdefault(volume, []).append(number)
        for volume, line in lines.items():
            tags = numbers.get(volume, [])
            retagged = sum(tags) - len(tags)
            found.shown[volume] = SeenVolume(volume, len(line), listed.pruned.get(volume, 0), sum(tags), retagged)
            found.deletions[volume] = max(
                (number for number, head in enumerate(line, 1) if head.kind in ("delete", "void")), default=0
            )
        found.unknown = listed.unknown | self._unknown_pins
        found.strange = listed.strange | self._strange_pins
        found.are_pins_shown = self.are_pins_shown

    def pins(self) -> list[FoundPin]:
        """The newest record of each pin, dead ones included."""
        return repeat_while_unavailable(self._store, self._pins_now)

    def _pins_now(self) -> list[FoundPin]:
        found = self._each(self._read_pin, self._newest_pins())
        return [pin for pin in found if pin is not None]

    # -- volumes

    def _list_volumes(self) -> _Listed:
        found = _Listed()
        for info in self._store.list(keys.VOLUMES):
            found.add(info)
        return found

    def _add_line(
        self, found: Roots, volume: str, line: Sequence[HeadRecord], foreseen: Collection[VersionId], *, is_over: bool
    ) -> None:
        """is_over: the last head is so old that a deletion by it cannot be undone."""
        last = line[-1]
        if last.kind == "void":
            found.void.add(volume)
            return
        if last.kind == "delete" and is_over:
            found.lapsed[volume] = len(line)
            return
        if self._is_late_fork(found, line):
            found.lapsed[volume] = len(line)
            return
        self._add_doubts(found, volume, line)
        hidden = find_pruned_heads(self._store, volume, line)
        for number, record in enumerate(line, 1):
            is_pruned = number in hidden or record.version in foreseen
            if number == len(line) or not is_pruned:
                found.protect(record.version, f"head {number} of {volume}")

    def _add_doubts(self, found: Roots, volume: str, line: Sequence[HeadRecord]) -> None:
        """A head that was replaced named a version that may be listed nowhere else."""
        for earlier, later in pairwise(enumerate(line, 1)):
            try:
                refs.require_joined(refs.head(volume), later, earlier)
            except CorruptError as error:
                found.doubts.append(error.message)

    def _is_late_fork(self, found: Roots, line: Sequence[HeadRecord]) -> bool:
        """Whether the fork was made too late: its maker was suspended until its pin was dead and
        the version collected, and was killed before it could undo the fork. The dead pin is the
        evidence; the absence of the version would not be."""
        version = line[0].version
        is_only_forked = line[0].kind == "fork" and all(record.kind in UNCHANGED for record in line[1:])
        if not is_only_forked or version is None:
            return False
        was_dropped = any(pin.record.kind == "dead" and pin.record.version == version for pin in found.pins)
        return was_dropped and is_gone(self._store, version, found.doubts)

    def _is_late_tag(self, found: Roots, version: VersionId) -> bool:
        """Whether nothing else keeps the version, and it is gone: the tag was put after it was
        pruned and collected, and its writer was killed before it could undo that."""
        return version not in found.versions and is_gone(self._store, version, found.doubts)

    def _line(self, volume: str, infos: dict[int, ObjectInfo]) -> list[HeadRecord]:
        count = len(infos)
        if set(infos) != set(range(1, count + 1)):
            raise CorruptError(
                f"{self._store.url}: heads of volume {volume} are missing; the last one has number {max(infos)}, but there are {count}",
                hint=f"Nothing was deleted. {Command('verify')} lists the missing ones, and what to do about them.",
            )
        known = remembering.read_mark(self._store, refs.head(volume))
        line = self._each(lambda number: self._head(volume, number), range(1, count + 1))
        while (record := self._later(partial(self._head, volume, len(line) + 1))) is not None:
            line.append(record)
        newest = (len(line), line[-1])
        remembering.compare(self._store, refs.head(volume), known, newest, lambda number: line[number - 1])
        if len({record.write_id for record in line}) < len(line):  # for records that do not state their place
            raise CorruptError(
                f"{self._store.url}: volume {volume} has the same head twice",
                hint="One has replaced another. Nothing was deleted. Ask the store's administrator what happened to them.",
            )
        return line

    def _head(self, volume: str, number: int) -> HeadRecord:
        key = keys.head(volume, number)
        if key not in self._heads:
            self._heads[key] = refs.read(self._store, refs.head(volume), number)
        return self._heads[key]

    def _newest_tag(self, volume: str, tag: str, number: int) -> TagRecord:
        known = remembering.read_mark(self._store, refs.tag(volume, tag))
        record = self._tag(volume, tag, number)
        while (later := self._later(partial(self._tag, volume, tag, number + 1))) is not None:
            record, number = later, number + 1
        remembering.compare(self._store, refs.tag(volume, tag), known, (number, record), lambda _: None)
        return record

    def _tag(self, volume: str, tag: str, number: int) -> TagRecord:
        key = keys.tag(volume, tag, number)
        if key not in self._tags:
            self._tags[key] = refs.read(self._store, refs.tag(volume, tag), number)
        return self._tags[key]

    def _later(self, read: Callable[[], R]) -> R | None:
        try:
            return read()
        except NotFoundError:
            return None

    def _each(self, read: Callable[[E], T], each: Iterable[E]) -> list[T]:
        if self._threads == 1:
            return [read(one) for one in each]
        with Helpers(self._threads, name="cowfs-roots") as threads:
            return list(threads.map(read, each))

    # -- pins

    def _add_pins(self, found: Roots, lines: Mapping[str, Sequence[HeadRecord]]) -> None:
        for pin in found.pins:
            record = pin.record
            if record.kind == "dead":
                continue
            why = f"{'work kept' if record.kind == 'hold' else record.kind} of {record.owner} in {record.volume}"
            versions = {record.version, *_put_since(record, lines.get(record.volume, ()))}
            if record.number > 0:
                versions.add(self._head(record.volume, record.number).version)
            for version in filter(None, versions):
                _add_pinned(found, version, [why])
                if record.kind in ("writer", "hold"):
                    found.work.setdefault(version, []).append(pin)
            for pack in record.packs:
                found.packs.setdefault(pack, []).append(why)

    def _newest_pins(self) -> list[_ListedPin]:
        found: dict[WriteId, _ListedPin] = {}
        self.are_pins_shown = False
        self._unknown_pins, self._strange_pins = set(), set()
        for info in self._store.list(keys.PINS):
            id, number = keys.parse_pin(info.key) or (keys.parse_old_pin(info.key), 0)
            if info.key == keys.PINS_SHOWN:
                self.are_pins_shown = True
            elif id is None:
                if keys.parse_number(info.key) is not None:
                    self._unknown_pins.add(_folder(info.key))
                else:
                    self._strange_pins.add(info.key)
            elif id not in found or number > found[id].number:
                found[id] = _ListedPin(id, number, info)
        return list(found.values())

    def _read_pin(self, listed: _ListedPin) -> FoundPin | None:
        """None: it was removed meanwhile. UnavailableError: it is still listed, but cannot be
        read."""
        found: _ListedPin | None = listed
        if listed.number == refs.FIRST:
            found = self._newest_listed(listed.id)
        while found is not None:
            id, number, info = found
            try:
                record = self._pins.get(info.key)
                if record is None or number == 0:  # old pins are replaced in place
                    place = keys.pin_prefix(id) if number else ""
                    decode = partial(PinRecord.decode, what=info.key, key=place)
                    record = self._pins[info.key] = read_as(self._store, info.key, decode)
                return FoundPin(id, number, record, info.mtime_ns, info.key)
            except NotFoundError:  # its owner has put a new record since; an old pin was converted
                found = self._newest_listed(id)
                if number == 0 or (found is not None and found.number <= number):
                    raise UnavailableError(
                        f"{self._store.url}: pin {id} is listed, but cannot be read",
                        hint="Pruning and collecting need read access below pins/. If you have it, try again later.",
                    ) from None
        return None

    def _newest_listed(self, id: WriteId) -> _ListedPin | None:
        """A long list arrives page by page. If a pin was renewed between two pages, the list shows
        only its first record, which stays: the newest was put in the part of the page before, and
        the last but one was gone from the page after. A list of one key has no pages."""
        for info in self._store.list(keys.pin_prefix(id), limit=1):
            parsed = keys.parse_pin(info.key)
            if parsed is not None:
                return _ListedPin(*parsed, info)
        return None


def drop_gone(store: ObjectStore, found: Roots) -> None:
    """Drops versions that are gone and that only a pin or a mount protects. A working copy that
    returns after its pin has expired pins its base, and then finds out that it is gone; or another
    machine has collected a version that is mounted here."""
    for version in found.pinned:
        if is_gone(store, version, found.doubts):
            found.versions.pop(version, None)


def is_gone(store: ObjectStore, version: VersionId, doubts: list[str]) -> bool:
    """Whether there is no such version. doubts: gets a line if the store shows no version at
    all."""
    if _is_absent(store, version):
        if not store.list(keys.VERSIONS, limit=1):
            doubts.append(f"{keys.VERSIONS} shows no version at all, although version {version} is kept")
        return _is_absent(store, version)
    return False


def _is_absent(store: ObjectStore, version: VersionId) -> bool:
    return store.size(keys.version(version)) is None


def _add_pinned(found: Roots, version: VersionId, uses: Sequence[str]) -> None:
    if version not in found.versions:
        found.pinned.add(version)
    for why in uses:
        found.protect(version, why)


def _put_since(pin: PinRecord, line: Sequence[HeadRecord]) -> set[VersionId | None]:
    """The versions that the owner of the pin may be based on: its pin follows its heads with the
    next heartbeat, or never if it is killed before."""
    if pin.kind != "writer":
        return set()
    behind = line[pin.number :]
    epoch = next((head.epoch for head in behind if head.kind not in UNCHANGED), None)
    return {head.version for head in behind if head.epoch == epoch}
