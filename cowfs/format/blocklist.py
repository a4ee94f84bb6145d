"""Segments of the block list: where up to 256 consecutive pages of an index lie.

The list has two levels: the manifest names the segments (`manifest.SegmentRef`, by hash), a segment
names the blocks. A commit writes only segments that changed. Page p (from 0) is entry p mod 256 of
segment p div 256.

    header     12 bytes   magic "cowfsbl\\0" | format u8 | entries - 1 u8 | packs u16
    packs      16 each    ids, in order of first use, each used
    entries    44 each    pack u16 | codec u8 | 1 zero byte | offset u32 | stored length u32 | hash 32
                          a page that was never written: pack 0xffff, the rest zero

Numbers are big-endian. One list has one encoding. Segments are blobs of an index pack: their bytes
were verified by hash before they come here; decoding still refuses values out of bounds. Not
here: fetching (`index`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cowfs.base.errors import CorruptError, InvalidInputError, UnsupportedFormatError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash, PackId
from cowfs.format.codec import MAX_RAW_BYTES, Codec
from cowfs.format.fields import check_format

FORMAT = 1
SEGMENT_ENTRIES = 256
MAGIC = b"cowfsbl\0"
_HEADER = struct.Struct(">8sBBH")
_ENTRY = struct.Struct(">HBBII32s")
_ABSENT_PACK = 0xFFFF
_ABSENT = _ENTRY.pack(_ABSENT_PACK, 0, 0, 0, 0, bytes(32))


@dataclass(frozen=True, slots=True)
class BlockRef:
    """Where a page lies, and its hash; its raw length is the index's page size."""

    pack: PackId
    offset: int
    stored_length: int
    hash: ChunkHash
    codec: int


def encode_segment(blocks: Sequence[BlockRef | None]) -> bytes:
    """1 to 256 entries; None: a page that was never written (reads as zeros)."""
    if not 1 <= len(blocks) <= SEGMENT_ENTRIES:
        raise InvalidInputError(f"a segment has 1 to {SEGMENT_ENTRIES} entries, not {len(blocks)}")
    packs: dict[PackId, int] = {}
    entries = bytearray()
    for block in blocks:
        if block is None:
            entries += _ABSENT
            continue
        number = packs.setdefault(block.pack, len(packs))
        try:
            _check_entry(block.codec, block.stored_length, what="new segment")
            entries += _ENTRY.pack(number, block.codec, 0, block.offset, block.stored_length, block.hash)
        except (CorruptError, UnsupportedFormatError, struct.error) as error:
            raise InvalidInputError(f"{block} does not fit into a block list: {error}") from None
    return b"".join((_HEADER.pack(MAGIC, FORMAT, len(blocks) - 1, len(packs)), *packs, entries))


def decode_segment(data: bytes, *, what: str) -> list[BlockRef | None]:
    """The entries of a segment whose bytes were verified (`codec.decompress`)."""
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        raise CorruptError(f"{what} is not a segment of a block list")
    _, form, last, pack_count = _HEADER.unpack_from(data)
    check_format(form, FORMAT, what=what)
    start = _HEADER.size + pack_count * PackId.length
    if len(data) != start + (last + 1) * _ENTRY.size:
        raise CorruptError(f"{what} has {len(data)} bytes instead of {start + (last + 1) * _ENTRY.size}")
    packs = [PackId(data[at : at + PackId.length]) for at in range(_HEADER.size, start, PackId.length)]
    blocks: list[BlockRef | None] = []
    used = 0
    for at, (number, codec, zero, offset, stored_length, hash) in enumerate(_ENTRY.iter_unpack(data[start:])):
        if number == _ABSENT_PACK and not (codec or zero or offset or stored_length or any(hash)):
            blocks.append(None)
            continue
        if number > used or number >= pack_count or zero:
            raise CorruptError(f"{what}: entry {at} makes no sense")
        _check_entry(codec, stored_length, what=f"{what}, entry {at}")
        used = max(used, number + 1)
        blocks.append(BlockRef(packs[number], offset, stored_length, ChunkHash(hash), codec))
    if used != pack_count or len(set(packs)) != pack_count:
        raise CorruptError(f"{what}: its pack table has unused or repeated packs")
    return blocks


def _check_entry(codec: int, stored_length: int, *, what: str) -> None:
    if codec not in (Codec.RAW, Codec.ZSTD):
        raise UnsupportedFormatError(f"{what} has codec {codec}, unknown to this cowfs", hint="Use a newer cowfs.")
    if not 1 <= stored_length <= MAX_RAW_BYTES:
        raise CorruptError(f"{what}: a block of {stored_length} stored bytes cannot be")
