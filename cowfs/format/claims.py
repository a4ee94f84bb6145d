"""Who claims what: leases and heartbeats of writers, pins against collection, and what a collection
condemned.

docs/format/refs.md has every field. When a claim is stale is for `store.leases`, `store.pins` and
`maintain` to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from cowfs.format import keys
from cowfs.format.fields import Fields
from cowfs.format.record import Holder, Record, check_one_of, holder_body, known_text, parse_holder
from cowfs.ids import PackId, VersionId, WriteId

Id = TypeVar("Id", PackId, VersionId)

PinKind = Literal["writer", "reader", "fork", "hold", "dead"]
_PIN_KINDS = ("writer", "reader", "fork", "hold", "dead")


@dataclass(frozen=True, slots=True)
class LeaseRecord(Record):
    """Who took epoch `epoch` of a volume, and when."""

    record: ClassVar[str] = "lease"
    epoch: int
    holder: Holder
    since_ns: int
    write_id: WriteId

    def _body(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "holder": holder_body(self.holder),
            "since_ns": self.since_ns,
            "write_id": self.write_id.hex(),
        }

    @classmethod
    def _arguments(cls, found: Fields) -> dict[str, Any]:
        return {
            "epoch": found.integer("epoch", minimum=1),
            "holder": parse_holder(found.object("holder")),
            "since_ns": found.integer("since_ns"),
            "write_id": found.id("write_id", WriteId),
        }


@dataclass(frozen=True, slots=True)
class HeartbeatRecord(Record):
    """beat counts up; released: the holder gave the lease back. Its age is judged by the store's
    clock, not by at_ns."""

    record: ClassVar[str] = "heartbeat"
    epoch: int
    beat: int
    at_ns: int
    released: bool = False

    def _body(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "beat": self.beat, "at_ns": self.at_ns, "released": self.released}

    @classmethod
    def _arguments(cls, found: Fields) -> dict[str, Any]:
        return {
            "epoch": found.integer("epoch", minimum=1),
            "beat": found.integer("beat"),
            "at_ns": found.integer("at_ns"),
            "released": found.flag("released"),
        }


@dataclass(frozen=True, slots=True)
class PinRecord(Record):
    """number: head number that is protected (0: none yet); version: one that is protected besides.
    lifetime_s: how long after the store's time of this record, None: for good. packs: uploaded, and
    named by no head yet. dead: protects nothing any more.
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

    def __post_init__(self) -> None:
        keys.check_volume_name(self.volume)
        check_one_of(self.kind, _PIN_KINDS, "kind of pin")

    def _body(self) -> dict[str, Any]:
        return {
            "volume": self.volume,
            "number": self.number,
            "gc_generation": self.gc_generation,
            "created_ns": self.created_ns,
            "lifetime_s": self.lifetime_s,
            "write_id": self.write_id.hex(),
            "owner": self.owner,
            "kind": self.kind,
            "packs": [pack.hex() for pack in self.packs],
            "version": self.version and self.version.hex(),
        }

    @classmethod
    def _arguments(cls, found: Fields) -> dict[str, Any]:
        return {
            "volume": found.text("volume"),
            "number": found.integer("number"),
            "gc_generation": found.integer("gc_generation"),
            "created_ns": found.integer("created_ns"),
            "lifetime_s": found.optional_integer("lifetime_s"),
            "write_id": found.id("write_id", WriteId),
            "owner": found.text("owner"),
            "kind": known_text(found, "kind", _PIN_KINDS),
            "packs": found.ids("packs", PackId),
            "version": found.optional_id("version", VersionId),
        }


@dataclass(frozen=True, slots=True)
class CondemnedRecord(Record):
    """Packs that a collection is going to delete; writers must not refer to them any more. versions:
    the same of versions, which nobody must begin to protect any more. moved: which of the packs had
    moved, so that their moved records are deleted, too.

    shards: so many further lists of the same generation belong to this one; they were written
    before it.
    """

    record: ClassVar[str] = "condemned"
    generation: int
    packs: tuple[PackId, ...]
    created_ns: int
    write_id: WriteId
    shards: int | None = None
    versions: tuple[VersionId, ...] = ()
    moved: tuple[PackId, ...] = ()

    def _body(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "packs": [pack.hex() for pack in self.packs],
            "moved": [pack.hex() for pack in self.moved] or None,
            "versions": [version.hex() for version in self.versions] or None,
            "shards": self.shards,
            "created_ns": self.created_ns,
            "write_id": self.write_id.hex(),
        }

    @classmethod
    def _arguments(cls, found: Fields) -> dict[str, Any]:
        return {
            "generation": found.integer("generation", minimum=1),
            "packs": found.ids("packs", PackId),
            "versions": _some(found, "versions", VersionId),
            "moved": _some(found, "moved", PackId),
            "shards": found.optional_integer("shards"),
            "created_ns": found.integer("created_ns"),
            "write_id": found.id("write_id", WriteId),
        }


@dataclass(frozen=True, slots=True)
class SparedRecord(CondemnedRecord):
    """What of its list a collection leaves, since it was needed when all writers had acknowledged the
    list: decided once, for every collector of the generation. moved: packs whose moved records stay."""

    record: ClassVar[str] = "spared"


def _some(found: Fields, name: str, kind: type[Id]) -> tuple[Id, ...]:
    if found.is_null(name):
        return ()
    ids = found.ids(name, kind)
    if not ids:
        raise found.damaged(name, "is empty, where it would be left out")
    return ids
