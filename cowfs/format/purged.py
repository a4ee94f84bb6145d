"""Purged records: chunks and index blobs whose bytes a person took from the versions of a store.
docs/format/purged.md has the rules."""

from __future__ import annotations

from typing import ClassVar

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash, PackId, VersionId, WriteId
from cowfs.format.record import Record


@dataclass(frozen=True, slots=True)
class PurgedRecord(Record):
    """A blob with one of `hashes` at an address in one of `packs` is purged; equal bytes at another
    address are not. versions: purged as a whole, with their indexes."""

    record: ClassVar[str] = "purged"
    created_ns: int
    write_id: WriteId
    owner: str
    hashes: tuple[ChunkHash, ...]
    packs: tuple[PackId, ...]
    versions: tuple[VersionId, ...]

    def __post_init__(self) -> None:
        if bool(self.hashes) != bool(self.packs):
            raise InvalidInputError("a purged record names hashes and packs, or neither")
