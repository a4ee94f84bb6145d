"""Heads, tags, pruned heads and volume records: the create-only sequences under `volumes/<name>/`.
docs/format/refs.md has every field."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Literal, get_args

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import VersionId, WriteId
from cowfs.format.record import Holder, Record, check_one_of, form

HeadKind = Literal["create", "commit", "fork", "fence", "delete", "undelete", "void"]
Origin = Literal["created", "registered"]
Setting = str | int | bool
UNCHANGED = ("fence", "delete", "undelete")
"""Kinds of heads that repeat the version of the head before, or have none if that has none."""
_WITHOUT_VERSION = ("create", "void")
_CHECK = form(lambda check: check, lambda found, name: None if found.is_null(name) else found.id(name, VersionId).hex())


@dataclass(frozen=True, slots=True)
class HeadRecord(Record):
    """One step of a volume's line. create: no version yet; commit, fork: a version; fence: the
    version before; delete: the version before, of a volume that does not exist until an undelete
    follows; void: no version, since it was a fork of a version that a collection was deleting.

    source (fork): locator of the version it came from. prev: the `check` of the head before, as its
    writer saw it; None for the first head, and for heads written by an earlier cowfs.
    """

    record: ClassVar[str] = "head"
    kind: HeadKind
    version: VersionId | None
    epoch: int
    created_ns: int
    write_id: WriteId
    holder: Holder | None = None
    source: str | None = None
    prev: str | None = field(default=None, metadata=_CHECK)

    def __post_init__(self) -> None:
        check_one_of(self.kind, get_args(HeadKind), "kind of head")
        if self.kind not in UNCHANGED and (self.version is None) != (self.kind in _WITHOUT_VERSION):
            raise InvalidInputError(f"a head of kind {self.kind} {'has' if self.version else 'lacks'} a version")


@dataclass(frozen=True)
class Intent:
    """Fsynced on the writer's machine before head `number` is put, so that a restart can tell
    whether an existing head is its own. `layer` is the writer's number for the work that the head
    publishes."""

    number: int
    write_id: WriteId
    version_id: VersionId
    layer: int


@dataclass(frozen=True, slots=True)
class TagRecord(Record):
    """version None: the tag was removed."""

    record: ClassVar[str] = "tag"
    version: VersionId | None
    created_ns: int
    write_id: WriteId
    holder: Holder | None = None


_RANGES = form(
    lambda ranges: [{"first": first, "last": last} for first, last in ranges],
    lambda found, name: tuple((each.integer("first"), each.integer("last")) for each in found.objects(name)),
)


@dataclass(frozen=True, slots=True)
class PrunedRecord(Record):
    """The heads of a volume that no longer keep their version. ranges: (first, last) numbers of
    heads, in ascending order, with at least one head between two of them. Only the newest record
    counts, and it includes all earlier ones.
    """

    record: ClassVar[str] = "pruned"
    ranges: tuple[tuple[int, int], ...] = field(metadata=_RANGES)
    created_ns: int
    write_id: WriteId
    holder: Holder | None = None

    def __post_init__(self) -> None:
        before = -1
        for first, last in self.ranges:
            if not max(before + 2, 1) <= first <= last:
                raise InvalidInputError(f"heads {first} to {last} are not a range behind head {max(before, 0)}")
            before = last

    def has(self, number: int) -> bool:
        """Whether head `number` is pruned."""
        at = bisect_right(self.ranges, number, key=lambda each: each[0])
        return at > 0 and number <= self.ranges[at - 1][1]


_SETTINGS = form(dict, lambda found, name: found.object(name).rest)


@dataclass(frozen=True, slots=True)
class MetaRecord(Record):
    """The record of a volume. origin: made here, or registered (its versions came from elsewhere).
    The newest record counts."""

    record: ClassVar[str] = "volume"
    owner: str
    created_ns: int
    write_id: WriteId
    settings: Mapping[str, Setting] = field(default_factory=dict, hash=False, metadata=_SETTINGS)
    expires_ns: int | None = None
    quota_bytes: int | None = None
    origin: Origin = "created"

    def __post_init__(self) -> None:
        check_one_of(self.origin, get_args(Origin), "origin of a volume")
        for name, value in self.settings.items():
            if not isinstance(value, str | int):
                raise InvalidInputError(f"setting {name!r} is neither text, integer nor true or false")
