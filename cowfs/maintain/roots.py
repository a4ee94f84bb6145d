"""What protects bytes: every head that was not pruned, tags, pins and holds, and what is mounted on
the machine that asks. Nothing else does: not a parent, not a locator.

    volumes/<name>/head/<n>          its version; of a deleted volume as long as it can be brought back, of a void one none
    volumes/<name>/pruned/<n>        which heads do not count
    volumes/<name>/tags/<tag>/<n>    the newest record's version; none of a void volume's, whose tags no name reaches
    pins/<id>/<n>                    the newest record: the version of its head, one it names besides, and packs;
                                     a writer's also what it may have put behind that head

A line is never taken from a list alone: its numbers must have no gap, the number behind the last is
asked for, and a volume that has a record (`meta/<n>`) has a head. A record that cannot be read is
an error, so that nothing is deleted. Records never change: a `RootReader` reads each once, however
often it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from cowfs.errors import CorruptError, NotFoundError, UnavailableError
from cowfs.format import keys
from cowfs.format.heads import UNCHANGED
from cowfs.format.records import HeadRecord, PinRecord, TagRecord
from cowfs.helpers import Helpers
from cowfs.ids import PackId, VersionId, WriteId
from cowfs.store import ObjectInfo, ObjectStore, refs
from cowfs.store.contract import list_carefully
from cowfs.store.damaged import read_as
from cowfs.store.repeating import repeated
from cowfs.values import dataclass
from cowfs.version import pruned
from cowfs.version.volumes import require_first_head

E = TypeVar("E")
T = TypeVar("T")
R = TypeVar("R", HeadRecord, TagRecord)

OLD_PIN_LIFETIME_S = 7 * 24 * 3600
THREADS = 16
Foreseen = Mapping[str, Collection[VersionId]]
"""Versions that each volume is taken to have pruned."""
NOTHING: Foreseen = MappingProxyType({})
InUse = Callable[[], Mapping[VersionId, Sequence[str]]]
"""Versions that no pin tells of, and what they are needed for, in words."""


@dataclass(frozen=True)
class FoundPin:
    """The newest record of a pin, and when it was put by the store's clock. number 0: an old pin,
    which has one object for all its records."""

    id: WriteId
    number: int
    record: PinRecord
    mtime_ns: int
    key: str

    @property
    def must_acknowledge(self) -> bool:
        """Whether it may begin to use what is in the store, and so has to read the lists. The
        others name all that they need."""
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
    """versions: each with what protects it, in words. pinned: those of them that nothing but pins
    and mounts protects.

    lapsed: volumes that must not be used any more: deleted so long ago that nobody can bring them
    back, or forked too late, from a version that is gone; with their newest head's number, since a
    later one says something else. void: those that a collection has closed.
    deleted: those that were deleted and can be brought back, and since when.
    """

    versions: dict[VersionId, list[str]] = field(default_factory=dict)
    pinned: set[VersionId] = field(default_factory=set)
    packs: dict[PackId, list[str]] = field(default_factory=dict)
    pins: list[FoundPin] = field(default_factory=list)
    lapsed: dict[str, int] = field(default_factory=dict)
    void: set[str] = field(default_factory=set)
    deleted: dict[str, int] = field(default_factory=dict)

    def protect(self, version: VersionId | None, why: str) -> None:
        if version is not None:
            self.versions.setdefault(version, []).append(why)


def pruned_heads(store: ObjectStore, volume: str, line: Sequence[HeadRecord]) -> frozenset[int]:
    """Numbers of the heads that keep their versions no more. line: all heads, oldest first."""
    hidden = pruned.read(store, volume)
    return frozenset(number for number in range(1, len(line) + 1) if hidden.has(number))


class RootReader:
    """Any number of looks at the roots of one store, in one thread. in_use: is asked at each."""

    def __init__(self, store: ObjectStore, *, threads: int = THREADS, in_use: InUse = dict) -> None:
        list_carefully(store)
        self._store = store
        self._threads = threads
        self._in_use = in_use
        self._heads: dict[str, HeadRecord] = {}
        self._tags: dict[str, TagRecord] = {}
        self._pins: dict[str, PinRecord] = {}

    def read(self, *, now_ns: int = 0, grace_s: float | None = None, foreseen: Foreseen = NOTHING) -> Roots:
        """grace_s: deleted volumes that are older do not protect anything; None: all do."""
        found = Roots()
        found.pins = self.pins()
        heads, tags, described = self._listed()
        for volume in sorted(described - heads.keys()):
            require_first_head(self._store, volume)  # there: it was put since the list
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
        for version, uses in self._in_use().items():
            _add_pinned(found, version, uses)
        return found

    def pins(self) -> list[FoundPin]:
        """The newest record of each pin, dead ones too."""
        return repeated(self._store, self._pins_now)

    def _pins_now(self) -> list[FoundPin]:
        found = self._each(self._found_pin, self._newest_pins())
        return [pin for pin in found if pin is not None]

    # -- volumes

    def _listed(self) -> tuple[dict[str, dict[int, ObjectInfo]], dict[tuple[str, str], int], set[str]]:
        """Heads, tags, and the volumes that have a record."""
        heads: dict[str, dict[int, ObjectInfo]] = {}
        tags: dict[tuple[str, str], int] = {}
        described: set[str] = set()
        for info in self._store.list(keys.VOLUMES):
            volume, number = keys.parse_volume(info.key), keys.parse_number(info.key)
            if volume is None or number is None:
                continue
            if info.key == keys.head(volume, number):
                heads.setdefault(volume, {})[number] = info
            elif (tag := keys.parse_tag(info.key)) is not None:
                tags[volume, tag] = max(number, tags.get((volume, tag), 0))
            elif info.key == keys.meta(volume, number):
                described.add(volume)
        return heads, tags, described

    def _add_line(
        self, found: Roots, volume: str, line: Sequence[HeadRecord], foreseen: Collection[VersionId], *, is_over: bool
    ) -> None:
        """is_over: its last head is so old that what that deletes cannot be brought back."""
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
        hidden = pruned_heads(self._store, volume, line)
        for number, record in enumerate(line, 1):
            is_pruned = number in hidden or record.version in foreseen
            if number == len(line) or not is_pruned:
                found.protect(record.version, f"head {number} of {volume}")

    def _is_late_fork(self, found: Roots, line: Sequence[HeadRecord]) -> bool:
        """Whether its maker slept until its pin was dead and the version collected, and was killed
        before it could take the fork back. The dead pin is the evidence; that the version is absent
        would not be."""
        version = line[0].version
        is_only_forked = line[0].kind == "fork" and all(record.kind in UNCHANGED for record in line[1:])
        if not is_only_forked or version is None:
            return False
        was_dropped = any(pin.record.kind == "dead" and pin.record.version == version for pin in found.pins)
        return was_dropped and self._store.size(keys.version(version)) is None

    def _is_late_tag(self, found: Roots, version: VersionId) -> bool:
        """Whether nothing else keeps the version any more, and it is gone: the tag was put after it
        was pruned and collected, and whoever set it was killed before he could take it back."""
        return version not in found.versions and self._store.size(keys.version(version)) is None

    def _line(self, volume: str, infos: dict[int, ObjectInfo]) -> list[HeadRecord]:
        count = len(infos)
        if set(infos) != set(range(1, count + 1)):
            raise CorruptError(
                f"{self._store.url}: heads of volume {volume} are missing; it has number {max(infos)} and {count} in all",
                hint="Nothing was deleted. `cowfs verify` names those that are missing, and says what to do.",
            )
        line = self._each(lambda number: self._head(volume, number), range(1, count + 1))
        while (record := self._later(partial(self._head, volume, len(line) + 1))) is not None:
            line.append(record)
        if len({record.write_id for record in line}) < len(line):  # of those that do not say where they belong
            raise CorruptError(
                f"{self._store.url}: volume {volume} has one head twice",
                hint="One lies in another's place. Nothing was deleted. Ask whoever looks after the store what became of them.",
            )
        return line

    def _head(self, volume: str, number: int) -> HeadRecord:
        key = keys.head(volume, number)
        if key not in self._heads:
            self._heads[key] = refs.read(self._store, refs.head(volume), number)
        return self._heads[key]

    def _newest_tag(self, volume: str, tag: str, number: int) -> TagRecord:
        record = self._tag(volume, tag, number)
        while (later := self._later(partial(self._tag, volume, tag, number + 1))) is not None:
            record, number = later, number + 1
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
            for pack in record.packs:
                found.packs.setdefault(pack, []).append(why)

    def _newest_pins(self) -> list[_ListedPin]:
        found: dict[WriteId, _ListedPin] = {}
        for info in self._store.list(keys.PINS):
            id, number = keys.parse_pin(info.key) or (keys.parse_old_pin(info.key), 0)
            if id is not None and (id not in found or number > found[id].number):
                found[id] = _ListedPin(id, number, info)
        return list(found.values())

    def _found_pin(self, listed: _ListedPin) -> FoundPin | None:
        """None: it was removed meanwhile. UnavailableError: the list shows it still, and it cannot
        be read."""
        found: _ListedPin | None = listed
        if listed.number == refs.FIRST:
            found = self._newest_listed(listed.id)
        while found is not None:
            id, number, info = found
            try:
                record = self._pins.get(info.key)
                if record is None or number == 0:  # an old one is replaced
                    place = keys.pin_prefix(id) if number else ""
                    decode = partial(PinRecord.decode, what=info.key, key=place)
                    record = self._pins[info.key] = read_as(self._store, info.key, decode)
                return FoundPin(id, number, record, info.mtime_ns, info.key)
            except NotFoundError:  # its owner has gone on since; one that had one object for all records is another now
                found = self._newest_listed(id)
                if number == 0 or (found is not None and found.number <= number):
                    raise UnavailableError(
                        f"{self._store.url}: pin {id} is in the list, and cannot be read",
                        hint="Who may not read below pins/ can neither prune nor collect. If you may, try again later.",
                    ) from None
        return None

    def _newest_listed(self, id: WriteId) -> _ListedPin | None:
        """A long list comes page by page. Of a pin that was renewed between two pages it shows the
        first record alone, which stays: the newest was put on the page before, the last but one was
        gone from the page behind. A list of one key has no pages."""
        for info in self._store.list(keys.pin_prefix(id), limit=1):
            parsed = keys.parse_pin(info.key)
            if parsed is not None:
                return _ListedPin(*parsed, info)
        return None


def drop_gone(store: ObjectStore, found: Roots) -> None:
    """A version that nothing but a pin or a mount protects may be gone: a working copy that comes
    back after its pin had expired pins what it stands on, and then finds out; another machine has
    collected what is mounted here."""
    for version in found.pinned:
        if store.size(keys.version(version)) is None:
            found.versions.pop(version, None)


def _add_pinned(found: Roots, version: VersionId, uses: Sequence[str]) -> None:
    if version not in found.versions:
        found.pinned.add(version)
    for why in uses:
        found.protect(version, why)


def _put_since(pin: PinRecord, line: Sequence[HeadRecord]) -> set[VersionId | None]:
    """What the owner of the pin may stand on: its pin follows its heads with the next heartbeat, or
    not at all if it is killed before."""
    if pin.kind != "writer":
        return set()
    behind = line[pin.number :]
    epoch = next((head.epoch for head in behind if head.kind not in UNCHANGED), None)
    return {head.version for head in behind if head.epoch == epoch}
