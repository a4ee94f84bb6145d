"""Claims: leases and heartbeats of writers, pins against collection, and the lists of packs that a
collection condemned.

docs/format/refs.md has every field. `store.refs.leases`, `store.refs.pins` and `maintain` decide
when a claim is stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.format import keys
from cowfs.format.fields import Fields
from cowfs.format.record import COUNTED, Holder, Record, check_one_of, form

Id = TypeVar("Id", PackId, VersionId)

PinKind = Literal["writer", "reader", "fork", "hold", "dead"]


def _some(kind: type[Id]) -> Mapping[str, Any]:
    """At least one id, or the field is left out."""

    def read(found: Fields, name: str) -> tuple[Id, ...]:
        if found.is_null(name):
            return ()
        ids = found.ids(name, kind)
        if not ids:
            raise found.damage_error(name, "is empty, where it would be left out")
        return ids

    return form(lambda ids: [each.hex() for each in ids] or None, read)


@dataclass(frozen=True, slots=True)
class LeaseRecord(Record):
    """The holder that took epoch `epoch` of a volume, and the time."""

    record: ClassVar[str] = "lease"
    epoch: int = field(metadata=COUNTED)
    holder: Holder
    since_ns: int
    write_id: WriteId


@dataclass(frozen=True, slots=True)
class HeartbeatRecord(Record):
    """beat counts up; released: the holder released the lease. Its age is judged by the store's
    clock, not by at_ns."""

    record: ClassVar[str] = "heartbeat"
    epoch: int = field(metadata=COUNTED)
    beat: int
    at_ns: int
    released: bool = False


@dataclass(frozen=True, slots=True)
class PinRecord(Record):
    """number: protected head number (0: none yet); version: a further protected version.
    lifetime_s: how long the pin lasts after the store's time of this record, None: without limit.
    packs: uploaded packs that no head names yet. dead: the pin protects nothing any more. lease:
    write id of the lease that a writer holds, or requested; None: unknown.
    """

    record: ClassVar[str] = "pin"
    volume: str
    number: int
    gc_generation: int
    created_ns: int
    lifetime_s: int | None
    write_id: WriteId
    owner: str = ""
    kind: PinKind = "writer"
    packs: tuple[PackId, ...] = ()
    version: VersionId | None = None
    lease: WriteId | None = None

    def __post_init__(self) -> None:
        keys.check_volume_name(self.volume)
        check_one_of(self.kind, get_args(PinKind), "kind of pin")


@dataclass(frozen=True, slots=True)
class CondemnedRecord(Record):
    """Packs that a collection is going to delete; writers must not refer to them any more.
    versions: versions that must not be protected anew. moved: the packs that had moved, whose moved
    records are deleted, too.

    shards: the number of further lists of the same generation that belong to this one; they were
    written before it.
    """

    record: ClassVar[str] = "condemned"
    generation: int = field(metadata=COUNTED)
    packs: tuple[PackId, ...]
    created_ns: int
    write_id: WriteId
    shards: int | None = None
    versions: tuple[VersionId, ...] = field(default=(), metadata=_some(VersionId))
    moved: tuple[PackId, ...] = field(default=(), metadata=_some(PackId))


@dataclass(frozen=True, slots=True)
class SparedRecord(CondemnedRecord):
    """The part of its list that a collection spares, since it was needed when all writers had
    acknowledged the list. Decided once, for every collector of the generation. moved: packs whose
    moved records stay."""

    record: ClassVar[str] = "spared"


class SeenVolume(NamedTuple):
    """Numbers of its newest head and its newest pruned record (0: none). tags: sum of the numbers
    of the newest records of all its tags; retagged: the same without the first record of each
    tag."""

    name: str
    head: int
    pruned: int
    tags: int
    retagged: int


_VOLUMES = form(
    lambda volumes: [each._asdict() for each in volumes],
    lambda found, name: tuple(
        SeenVolume(
            keys.check_volume_name(each.text("name")),
            *(each.integer(number) for number in ("head", "pruned", "tags", "retagged")),
        )
        for each in found.objects(name)
    ),
)


@dataclass(frozen=True, slots=True)
class SeenRecord(Record):
    """Some of the volumes that a collection found."""

    record: ClassVar[str] = "seen"
    generation: int = field(metadata=COUNTED)
    volumes: tuple[SeenVolume, ...] = field(metadata=_VOLUMES)
    write_id: WriteId


@dataclass(frozen=True, slots=True)
class DoneRecord(Record):
    """The result of a collection. shards: the number of `SeenRecord`s with the same write id, which
    list the volumes found. young_s: the collection judged only objects that were put at least so
    long before its `begin`. live_bytes: the part of them that heads and tags need; other_bytes: the
    rest that stayed. lost_packs: packs that are needed and were not found.
    """

    record: ClassVar[str] = "done"
    generation: int = field(metadata=COUNTED)
    young_s: int
    live_bytes: int
    other_bytes: int
    lost_packs: int
    shards: int
    created_ns: int
    write_id: WriteId
