"""Who claims what: leases and heartbeats of writers, pins against collection, and what a collection
condemned.

docs/format/refs.md has every field. When a claim is stale is for `store.leases`, `store.pins` and
`maintain` to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeVar, get_args

from cowfs.format import keys
from cowfs.format.fields import Fields
from cowfs.format.record import COUNTED, Holder, Record, check_one_of, form
from cowfs.ids import PackId, VersionId, WriteId
from cowfs.values import dataclass

Id = TypeVar("Id", PackId, VersionId)

PinKind = Literal["writer", "reader", "fork", "hold", "dead"]


def _some(kind: type[Id]) -> Mapping[str, Any]:
    """Ids of which there is one at least, or the field is left out."""

    def read(found: Fields, name: str) -> tuple[Id, ...]:
        if found.is_null(name):
            return ()
        ids = found.ids(name, kind)
        if not ids:
            raise found.damaged(name, "is empty, where it would be left out")
        return ids

    return form(lambda ids: [each.hex() for each in ids] or None, read)


@dataclass(frozen=True, slots=True)
class LeaseRecord(Record):
    """Who took epoch `epoch` of a volume, and when."""

    record: ClassVar[str] = "lease"
    epoch: int = field(metadata=COUNTED)
    holder: Holder
    since_ns: int
    write_id: WriteId


@dataclass(frozen=True, slots=True)
class HeartbeatRecord(Record):
    """beat counts up; released: the holder gave the lease back. Its age is judged by the store's
    clock, not by at_ns."""

    record: ClassVar[str] = "heartbeat"
    epoch: int = field(metadata=COUNTED)
    beat: int
    at_ns: int
    released: bool = False


@dataclass(frozen=True, slots=True)
class PinRecord(Record):
    """number: head number that is protected (0: none yet); version: one that is protected besides.
    lifetime_s: how long after the store's time of this record, None: for good. packs: uploaded, and
    named by no head yet. dead: protects nothing any more. lease: write id of the lease that a
    writer holds, or wanted; None: not said.
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
    versions: the same of versions, which nobody must begin to protect any more. moved: which of the
    packs had moved, so that their moved records are deleted, too.

    shards: so many further lists of the same generation belong to this one; they were written
    before it.
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
    """What of its list a collection leaves, since it was needed when all writers had acknowledged
    the list: decided once, for every collector of the generation. moved: packs whose moved records
    stay."""

    record: ClassVar[str] = "spared"
