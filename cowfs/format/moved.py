"""Moved records: the new places of the live blobs of a pack. docs/format/moved.md has the rules."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, ClassVar

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId, WriteId
from cowfs.format.fields import U64, Fields
from cowfs.format.record import Record


@dataclass(frozen=True, slots=True)
class MovedBlob:
    """The blob that was at `offset` lies, byte for byte, at new_offset of new_pack."""

    offset: int
    new_pack: PackId
    new_offset: int
    stored_length: int


@dataclass(frozen=True, slots=True)
class MovedRecord(Record):
    """The new place of every live blob of `pack`: complete, never chained, ascending by offset."""

    record: ClassVar[str] = "moved"
    pack: PackId
    created_ns: int
    write_id: WriteId
    blobs: tuple[MovedBlob, ...]

    def __post_init__(self) -> None:
        before = -1
        for blob in self.blobs:
            if blob.offset <= before or blob.stored_length < 1 or blob.new_pack == self.pack:
                raise InvalidInputError(
                    f"moved blob at {blob.offset} is out of order, empty or moved into its own pack"
                )
            before = blob.offset

    def locate(self, offset: int) -> MovedBlob | None:
        """The new place of the blob that was at offset; None: it was not live when the record was
        written."""
        at = bisect_left(self.blobs, offset, key=lambda blob: blob.offset)
        return self.blobs[at] if at < len(self.blobs) and self.blobs[at].offset == offset else None

    def _body(self) -> dict[str, Any]:
        packs: dict[PackId, int] = {}
        rows = [
            [blob.offset, packs.setdefault(blob.new_pack, len(packs)), blob.new_offset, blob.stored_length]
            for blob in self.blobs
        ]
        return {
            "pack": self.pack.hex(),
            "created_ns": self.created_ns,
            "write_id": self.write_id.hex(),
            "packs": [pack.hex() for pack in packs],
            "blobs": rows,
        }

    @classmethod
    def _arguments(cls, found: Fields) -> dict[str, Any]:
        packs = found.ids("packs", PackId)
        blobs = tuple(_parse_blob(found, row, packs) for row in found.items("blobs"))
        if {blob.new_pack for blob in blobs} != set(packs):
            raise found.damage_error("packs", "names packs that no blob lies in")
        return {
            "pack": found.id("pack", PackId),
            "created_ns": found.integer("created_ns"),
            "write_id": found.id("write_id", WriteId),
            "blobs": blobs,
        }


def _parse_blob(found: Fields, row: object, packs: tuple[PackId, ...]) -> MovedBlob:
    match row:
        case [int(offset), int(pack), int(new_offset), int(stored_length)] if bool not in map(type, row):
            if 0 <= pack < len(packs) and 0 <= offset <= U64 and 0 <= new_offset <= U64:
                return MovedBlob(offset, packs[pack], new_offset, stored_length)
    raise found.damage_error("blobs", f"has the row {row!r:.60}, not [offset, pack, new offset, stored length]")
