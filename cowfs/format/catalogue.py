"""Catalogues: the chunks a commit added, by hash prefix, so that a machine that never saw them
finds them again.

    header     16 bytes   magic "cowfsct\\0" | format u16 | 2 zero bytes | packs u32
    packs      24 each    pack id 16 | directory offset u32 | directory length u32
    entries    16 each    first 8 bytes of the chunk's hash | pack u32 | offset in the pack u32      sorted, none twice

Numbers are big-endian; entries fill the rest. A catalogue gives candidates, never hits: the pack's
directory at the offset has the full hash, one ranged request away (directory and footer,
`pack.parse_tail`). Deduplication is a saving, so a catalogue may be missing, stale or out of order
at no other cost than bytes stored twice.

Catalogues are blobs of an index pack (verified by hash before they come here), at most MAX_ENTRIES
each (8 MiB); a manifest names any number. Look-ups search the bytes: a loaded catalogue costs its
size in memory, 16 bytes a chunk, and a look-up ≈ 20 steps. Catalogues grow in number: `to_merge`
says which small ones should become one, in a version's list (`index.catalogues`) and in the memory
of a writer (`version.publish.known_chunks`). Not here: which to load, and when.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from cowfs.base.errors import CorruptError, InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId
from cowfs.format.fields import check_format

FORMAT = 1
PREFIX_BYTES = 8
MAX_ENTRIES = 1 << 19
MAX_CANDIDATES = 16
TIER_BOUNDS = (1 << 12, 1 << 16)
MAX_PER_TIER = 16
MAGIC = b"cowfsct\0"
_HEADER = struct.Struct(">8sHHI")
_PACK = struct.Struct(">16sII")
_ENTRY = struct.Struct(">8sII")


@dataclass(frozen=True, slots=True)
class CataloguePack:
    """A data pack and the place of its directory: one ranged request fetches full hashes."""

    pack: PackId
    directory_offset: int
    directory_length: int


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A chunk's first 8 hash bytes, its pack's index in the pack table, its offset in the pack."""

    prefix: bytes
    pack: int
    offset: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """Where a chunk with the wanted prefix may lie; the pack's directory has the full hash at this
    offset."""

    pack: CataloguePack
    offset: int


def encode_catalogue(packs: Sequence[CataloguePack], entries: bytes) -> bytes:
    """entries: as they are stored, in order, without duplicates, at most MAX_ENTRIES
    (`native.chunks.ChunkPlaces` produces them so); a larger commit writes several catalogues."""
    count, rest = divmod(len(entries), _ENTRY.size)
    if rest or count > MAX_ENTRIES or len(packs) > MAX_ENTRIES:
        raise InvalidInputError(f"a catalogue has at most {MAX_ENTRIES} whole entries", hint="Write several.")
    table = (_pack(_PACK, p.pack, p.directory_offset, p.directory_length) for p in packs)
    return b"".join((_HEADER.pack(MAGIC, FORMAT, 0, len(packs)), *table, entries))


def merge_catalogues(catalogues: Sequence[Catalogue]) -> bytes:
    """One catalogue of all entries, and of each pack that entries name once. Uses about 60 bytes an
    entry while it runs."""
    numbers: dict[bytes, int] = {}
    records: list[bytes] = []
    for catalogue in catalogues:
        records += catalogue.renumber(numbers)
    records.sort()
    distinct = [record for at, record in enumerate(records) if at == 0 or records[at - 1] != record]
    if len(distinct) > MAX_ENTRIES or len(numbers) > MAX_ENTRIES:
        raise InvalidInputError(f"a catalogue has at most {MAX_ENTRIES} entries", hint="Merge fewer.")
    return b"".join((_HEADER.pack(MAGIC, FORMAT, 0, len(numbers)), *numbers, *distinct))


def to_merge(sizes: Sequence[int]) -> list[int]:
    """Positions of the catalogues that should become one; empty if none should. sizes: the number
    of entries of each.

    They fall into tiers by size (up to 4,096, up to 65,536, larger). When a tier has more than
    MAX_PER_TIER, these are its smallest. Those over half of MAX_ENTRIES stay as they are.
    """
    tiers: list[list[int]] = [[] for _ in range(len(TIER_BOUNDS) + 1)]
    for position, size in enumerate(sizes):
        if size <= MAX_ENTRIES // 2:
            tiers[bisect_left(TIER_BOUNDS, size)].append(position)
    for tier in tiers:
        if len(tier) > MAX_PER_TIER:
            smallest = sorted(tier, key=lambda position: sizes[position])[: MAX_PER_TIER + 1]
            room = accumulate(sizes[position] for position in smallest)
            return [position for position, total in zip(smallest, room, strict=True) if total <= MAX_ENTRIES]
    return []


def _pack(record: struct.Struct, *values: bytes | int) -> bytes:
    try:
        return record.pack(*values)
    except struct.error as error:
        raise InvalidInputError(f"{values} do not fit into a catalogue: {error}") from None


class Catalogue:
    """A decoded catalogue, searched as bytes. Immutable, thread-safe."""

    __slots__ = ("_count", "_data", "_packs", "_start")

    def __init__(self, data: bytes, packs: int) -> None:
        self._data = data
        self._packs = packs
        self._start = _HEADER.size + packs * _PACK.size
        self._count = (len(data) - self._start) // _ENTRY.size

    @staticmethod
    def decode(data: bytes, *, what: str) -> Catalogue:
        """A catalogue whose bytes were verified (`codec.decompress`)."""
        if len(data) < _HEADER.size or not data.startswith(MAGIC):
            raise CorruptError(f"{what} is not a catalogue")
        _, form, zero, packs = _HEADER.unpack_from(data)
        check_format(form, FORMAT, what=what)
        start = _HEADER.size + packs * _PACK.size
        entries, left_over = divmod(len(data) - start, _ENTRY.size)
        if zero or start > len(data) or left_over or entries > MAX_ENTRIES or packs > MAX_ENTRIES:
            raise CorruptError(f"{what}: its {len(data)} bytes do not fit {packs} packs and whole entries")
        return Catalogue(data, packs)

    @property
    def packs(self) -> tuple[CataloguePack, ...]:
        return tuple(self._pack(number) for number in range(self._packs))

    def __len__(self) -> int:
        return self._count

    @property
    def searched(self) -> tuple[bytes, int]:
        """The bytes to search, and where the entries begin in them: for many look-ups at once."""
        return self._data, self._start

    def lookup(self, prefix: bytes) -> list[Candidate]:
        """Candidates for the first 8 bytes of a hash (a longer hash is cut), at most 16."""
        prefix = prefix[:PREFIX_BYTES]
        found: list[Candidate] = []
        at = bisect_left(range(self._count), prefix, key=self._prefix)
        while at < self._count and len(found) < MAX_CANDIDATES and self._prefix(at) == prefix:
            _, pack, offset = _ENTRY.unpack_from(self._data, self._start + at * _ENTRY.size)
            if pack < self._packs:
                found.append(Candidate(self._pack(pack), offset))
            at += 1
        return found

    def _pack(self, number: int) -> CataloguePack:
        id, offset, length = _PACK.unpack_from(self._data, _HEADER.size + number * _PACK.size)
        return CataloguePack(PackId(id), offset, length)

    def _prefix(self, at: int) -> bytes:
        start = self._start + at * _ENTRY.size
        return self._data[start : start + PREFIX_BYTES]

    def entries(self) -> Iterator[CatalogueEntry]:
        """All entries in order of prefix."""
        for at in range(self._count):
            prefix, pack, offset = _ENTRY.unpack_from(self._data, self._start + at * _ENTRY.size)
            if pack < self._packs:
                yield CatalogueEntry(prefix, pack, offset)

    def renumber(self, numbers: dict[bytes, int]) -> Iterator[bytes]:
        """All entries as they are stored, with packs numbered as in `numbers`. Missing packs (their
        records) are added to it."""
        for at in range(self._count):
            prefix, pack, offset = _ENTRY.unpack_from(self._data, self._start + at * _ENTRY.size)
            if pack < self._packs:
                start = _HEADER.size + pack * _PACK.size
                number = numbers.setdefault(self._data[start : start + _PACK.size], len(numbers))
                yield _ENTRY.pack(prefix, number, offset)
