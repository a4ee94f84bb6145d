"""Packs: many blobs in one immutable object; data packs and index packs differ only in their kind.

    header      16 bytes   magic "cowfspk\\0" | format u16 | kind u8 | 5 zero bytes
    blobs                  stored bytes of each blob, one behind the other, nothing between
    directory   48 each    hash 32 | offset u32 | stored length u32 | raw length u32 | codec u8 | blob kind u8 | 2 zero bytes
    footer      72 bytes   format u16 | kind u8 | zero u8 | entries u32 | directory offset u64 | directory length u64
                           | BLAKE3 of the directory 32 | first 8 bytes of the BLAKE3 of the footer so far | magic "cowfsend"

Numbers are big-endian. The directory is at the end because sizes are not known before; the index
holds everything that a read needs, so a reader with the index makes one ranged request and never
looks at the directory. Without the index it makes two (footer, directory), or one when a catalogue
says where the directory lies (`parse_tail`).

In an encrypted store (`sealed`) the format is 3: stored bytes and directory are sealed, 28 bytes
longer each, and stored lengths count those. Header and footer are not sealed; the hash in the
footer is that of the sealed directory. Sizes are rounded up, so that they reveal less: the
directory ends with empty entries, 48 zero bytes each, which the footer counts, and filler lies
between the last blob and the directory. Packs of format 2, which have neither, are read.

Guarantees: every byte outside the blobs is verified before use; entries cover the space between
header and directory, or filler, without gap or overlap. Blobs are verified when they are read
(`codec.decompress`). A pack's key is unique and never used again (MUST): caches and indexes refer
to it for good. Its size is below 4 GiB. Not here: when a pack is full, uploading (`store.packs`);
deleting (`maintain`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Protocol, Self, overload

from blake3 import blake3

from cowfs.base.errors import CorruptError, InvalidInputError, InvalidStateError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash
from cowfs.format.codec import MAX_RAW_BYTES, check_lengths
from cowfs.format.fields import check_format
from cowfs.format.sealing import DIRECTORY_CODEC, PLAIN_BLOBS, BlobSealing

HEADER_MAGIC = b"cowfspk\0"
FOOTER_MAGIC = b"cowfsend"
MAX_PACK_BYTES = (1 << 32) - 1

_HEADER = struct.Struct(">8sHB5s")
_ENTRY = struct.Struct(">32sIIIBBH")
_FOOTER = struct.Struct(">HBBIQQ32s8s8s")
HEADER_BYTES = _HEADER.size
ENTRY_BYTES = _ENTRY.size
FOOTER_BYTES = _FOOTER.size
_CHECKED_BYTES = FOOTER_BYTES - 16
_ROOM_BYTES = 20 << 20  # a usual pack, one chunk more, and its directory


class PackKind(IntEnum):
    DATA = 1
    INDEX = 2


class BlobKind(IntEnum):
    """The kind of a blob. Data packs hold chunks only, index packs everything else."""

    CHUNK = 1
    BLOCK = 2
    SEGMENT = 3
    CATALOGUE = 4


@dataclass(frozen=True, slots=True)
class PackEntry:
    """One blob: where its stored bytes lie, and their length and hash when decoded. hash is the
    BLAKE3 of the raw bytes."""

    hash: ChunkHash
    offset: int
    stored_length: int
    raw_length: int
    codec: int
    blob_kind: BlobKind


class PackDirectory(Sequence[PackEntry]):
    """Entries in order of offset, verified; kept as they are stored: 48 bytes each, where objects
    would take 400."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    @classmethod
    def of(cls, entries: Iterable[PackEntry]) -> Self:
        """entries: in order of offset; they may leave gaps."""
        return cls(b"".join(map(_pack_entry, entries)))

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def __len__(self) -> int:
        return len(self._data) // ENTRY_BYTES

    @overload
    def __getitem__(self, at: int) -> PackEntry: ...
    @overload
    def __getitem__(self, at: slice) -> list[PackEntry]: ...
    def __getitem__(self, at: int | slice) -> PackEntry | list[PackEntry]:
        places = range(len(self))[at]
        return self._entry(places) if isinstance(places, int) else [self._entry(place) for place in places]

    def find_at(self, offset: int) -> PackEntry | None:
        """The blob that begins at an offset of the pack."""
        place = bisect_left(range(len(self)), offset, key=self._offset)
        return self._entry(place) if place < len(self) and self._offset(place) == offset else None

    def list_after(self, offset: int, length: int) -> list[PackEntry]:
        """Blobs that begin behind an offset of the pack, the last at most `length` behind it."""
        places = range(len(self))
        first = bisect_right(places, offset, key=self._offset)
        return self[first : bisect_right(places, offset + length, key=self._offset)]

    def _offset(self, place: int) -> int:
        start = place * ENTRY_BYTES + ChunkHash.length
        return int.from_bytes(self._data[start : start + 4])

    def _entry(self, place: int) -> PackEntry:
        hash, offset, stored_length, raw_length, codec, kind, _ = _ENTRY.unpack_from(self._data, place * ENTRY_BYTES)
        return PackEntry(ChunkHash(hash), offset, stored_length, raw_length, codec, BlobKind(kind))


@dataclass(frozen=True, slots=True)
class PackFooter:
    """The verified last FOOTER_BYTES of a pack: where the directory lies and its hash."""

    kind: PackKind
    format: int
    directory_offset: int
    directory_length: int
    directory_hash: bytes


class Room:
    """Memory for the bytes of a pack, reused by later packs: new pages for each would cost more
    than all other work on its bytes (docs/decisions/0024-malloc.md)."""

    def __init__(self) -> None:
        self._memory = mmap(-1, _ROOM_BYTES, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._end = 0

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """No view of it may exist."""
        end = self._end + len(data)
        if end > len(self._memory):
            self._memory.resize(max(end, 2 * len(self._memory)))
        self._memory[self._end : end] = data
        self._end = end

    def fill(self, put: Callable[[memoryview], int], least_bytes: int) -> int:
        """Calls `put` with the memory behind the appended bytes, of `least_bytes` or more; `put`
        returns how many bytes it wrote. No view of it may exist."""
        if len(self._memory) - self._end < least_bytes:
            self._memory.resize(max(self._end + least_bytes, 2 * len(self._memory)))
        with memoryview(self._memory) as memory, memory[self._end :] as space:
            length = put(space)
        self._end += length
        return length

    def view(self) -> memoryview:
        """The appended bytes."""
        return memoryview(self._memory)[: self._end]

    def clear(self) -> bool:
        """Empties it. False: it must not be used again, since a view of it exists, perhaps in a
        request that was given up and whose connection is not closed yet."""
        try:
            self._memory.resize(len(self._memory))
        except BufferError:
            return False
        self._end = 0
        return True


class Pourable(Protocol):
    """As the engine's `SmallFiles`."""

    def pour(
        self, pack: bytes, offset: int, room: memoryview, target: int, margins: tuple[int, int]
    ) -> tuple[int, bytes]: ...


class PackBuilder:
    """Collects the blobs of one pack; not thread-safe. room: owned by the builder from now on."""

    def __init__(self, kind: PackKind, blobs: BlobSealing = PLAIN_BLOBS, room: Room | None = None) -> None:
        self._kind = PackKind(kind)
        self._blobs = blobs
        self._room = room or Room()
        self._room.append(_HEADER.pack(HEADER_MAGIC, blobs.format, kind, bytes(5)))
        self._directory = (
            bytearray()
        )  # entries in their stored form: as objects those of tiny chunks outweigh the chunks
        self._end = HEADER_BYTES
        self._sealed = False

    @property
    def room(self) -> Room:
        return self._room

    @property
    def size_bytes(self) -> int:
        """The size of the pack if it was sealed now, directory and footer included."""
        return size_of(self._end - HEADER_BYTES, self.count, self._blobs)

    @property
    def directory_offset(self) -> int:
        """Where the directory lies if the pack is sealed now."""
        return self.size_bytes - _tail_bytes(self.count, self._blobs)

    @property
    def count(self) -> int:
        return len(self._directory) // ENTRY_BYTES

    def add(
        self, hash: ChunkHash, stored: bytes | memoryview, raw_length: int, codec: int, blob_kind: BlobKind
    ) -> PackEntry:
        """Appends a blob as `codec.compress` returned it; its offset is final."""
        if self._sealed:
            raise InvalidStateError("a sealed pack takes no more blobs")
        try:
            _check_kind(self._kind, blob_kind, what="new blob")
            check_lengths(codec, len(stored), raw_length, what="new blob")
        except CorruptError as error:
            raise InvalidInputError(error.message) from None
        stored_length = len(stored) + self._blobs.overhead_bytes
        if size_of(self._end - HEADER_BYTES + stored_length, self.count + 1, self._blobs) > MAX_PACK_BYTES:
            raise InvalidInputError(f"a pack holds at most {MAX_PACK_BYTES} bytes", hint="Seal it and start another.")
        entry = PackEntry(ChunkHash(hash), self._end, stored_length, raw_length, codec, BlobKind(blob_kind))
        self._directory += _pack_entry(entry)
        self._room.append(self._blobs.head)
        self._room.append(stored)
        self._room.append(self._blobs.tail)
        self._end += stored_length
        return entry

    def pour(self, chunks: Pourable, pack: bytes, target_bytes: int) -> None:
        """Appends chunks of a data pack with this id until it has target_bytes, or there are no
        more."""
        if self._sealed or self._kind != PackKind.DATA:
            raise InvalidStateError("a sealed pack takes no more blobs, and only data packs take chunks")
        margins = len(self._blobs.head), len(self._blobs.tail)
        entries = b""

        def put(space: memoryview) -> int:
            nonlocal entries
            length, entries = chunks.pour(pack, self._end, space, max(target_bytes - self.size_bytes, 1), margins)
            return length

        self._end += self._room.fill(put, MAX_RAW_BYTES + sum(margins))
        self._directory += entries

    def seal(self) -> memoryview:
        """The whole pack, a view of its room; later calls of `add` fail."""
        if self._sealed:
            raise InvalidStateError("the pack is sealed already")
        self._sealed = True
        room, directory_offset = self._room, self.directory_offset
        count = self._blobs.pad_entries(self.count)
        filler_bytes = directory_offset - self._end
        room.append(bytes(filler_bytes))
        room.append(self._blobs.head)
        room.append(self._directory)
        room.append(bytes((count - self.count) * ENTRY_BYTES))
        room.append(self._blobs.tail)
        with room.view() as whole:
            if self._blobs.overhead_bytes:
                self._seal_blobs(whole)
            directory = whole[directory_offset:]
            self._blobs.seal(directory, directory_offset, DIRECTORY_CODEC, count * ENTRY_BYTES)
            directory_hash = blake3(directory).digest()
            whole[self._end : directory_offset] = self._blobs.filler(filler_bytes, directory_hash)
            footer = struct.pack(
                ">HBBIQQ32s",
                self._blobs.format,
                self._kind,
                0,
                count,
                directory_offset,
                len(directory),
                directory_hash,
            )
            directory.release()
        room.append(footer + blake3(footer).digest(8) + FOOTER_MAGIC)
        return room.view()

    def _seal_blobs(self, whole: memoryview) -> None:
        for _, offset, stored_length, raw_length, codec, _, _ in _ENTRY.iter_unpack(self._directory):
            with whole[offset : offset + stored_length] as space:
                self._blobs.seal(space, offset, codec, raw_length)


def size_of(blobs_bytes: int, count: int, blobs: BlobSealing) -> int:
    """The size of a pack with so many blobs, which take so many bytes together."""
    return blobs.pad_size(HEADER_BYTES + blobs_bytes + _tail_bytes(count, blobs))


def _tail_bytes(count: int, blobs: BlobSealing) -> int:
    return blobs.pad_entries(count) * ENTRY_BYTES + blobs.overhead_bytes + FOOTER_BYTES


def parse_footer(tail: bytes, pack_size: int, *, what: str, blobs: BlobSealing = PLAIN_BLOBS) -> PackFooter:
    """From the last FOOTER_BYTES (or more) of a pack of pack_size bytes."""
    if len(tail) < FOOTER_BYTES:
        raise CorruptError(f"{what} is too short to be a pack: {len(tail)} bytes at its end")
    raw = bytes(tail[-FOOTER_BYTES:])
    form, kind, zero, entries, offset, length, directory_hash, check, magic = _FOOTER.unpack(raw)
    if magic != FOOTER_MAGIC:
        raise CorruptError(f"{what} does not end as a pack does", hint="It was cut short, or is not a pack.")
    if check != blake3(raw[:_CHECKED_BYTES]).digest(8):
        raise CorruptError(f"{what}: its footer fails its check", hint="Its stored bytes were altered.")
    if form != blobs.older_format:
        check_format(form, blobs.format, what=what)
    if kind not in (PackKind.DATA, PackKind.INDEX) or zero or length != entries * ENTRY_BYTES + blobs.overhead_bytes:
        raise CorruptError(f"{what}: its footer contradicts itself")
    if offset < HEADER_BYTES or offset + length + FOOTER_BYTES != pack_size:
        raise CorruptError(
            f"{what} has {pack_size} bytes, its footer says {offset + length + FOOTER_BYTES}",
            hint="It was cut or extended.",
        )
    return PackFooter(PackKind(kind), form, offset, length, directory_hash)


def parse_directory(
    directory: bytes, footer: PackFooter, *, what: str, blobs: BlobSealing = PLAIN_BLOBS
) -> PackDirectory:
    """Entries verified against the footer's hash and bounds."""
    if len(directory) != footer.directory_length or blake3(directory).digest() != footer.directory_hash:
        raise CorruptError(f"{what}: its directory fails its hash", hint="Its stored bytes were altered or cut.")
    listed = footer.directory_length - blobs.overhead_bytes
    directory = blobs.open(directory, footer.directory_offset, DIRECTORY_CODEC, listed, what=f"the directory of {what}")
    if is_padded := footer.format != blobs.older_format:
        used = len(directory.rstrip(b"\0"))  # only the last two bytes of an entry are always zero
        directory = directory[: -(-used // ENTRY_BYTES) * ENTRY_BYTES]
    end = HEADER_BYTES
    for number, entry in enumerate(_ENTRY.iter_unpack(directory)):
        _, offset, stored_length, raw_length, codec, blob_kind, zero = entry
        where = f"{what}, blob at {offset}"
        if offset != end or zero or blob_kind not in _BLOB_KINDS:
            raise CorruptError(f"{what}: entry {number} of its directory makes no sense")
        check_lengths(codec, stored_length - blobs.overhead_bytes, raw_length, what=where)
        _check_kind(footer.kind, blob_kind, what=where)
        end += stored_length
    if end != footer.directory_offset and not (is_padded and end < footer.directory_offset):
        raise CorruptError(f"{what}: its directory covers {end} of {footer.directory_offset} bytes")
    return PackDirectory(directory)


def parse_tail(tail: bytes, directory_offset: int, *, what: str, blobs: BlobSealing = PLAIN_BLOBS) -> PackDirectory:
    """From everything behind directory_offset (directory and footer, one ranged request:
    directory_length + FOOTER_BYTES)."""
    footer = parse_footer(tail, directory_offset + len(tail), what=what, blobs=blobs)
    if footer.directory_offset != directory_offset:
        raise CorruptError(f"{what}: its directory does not lie at {directory_offset}")
    return parse_directory(tail[: footer.directory_length], footer, what=what, blobs=blobs)


def parse_pack(data: bytes, *, what: str, blobs: BlobSealing = PLAIN_BLOBS) -> tuple[PackKind, PackDirectory]:
    """Checks header, footer and directory of a whole pack; blobs are checked by
    `codec.decompress`."""
    footer = parse_footer(data, len(data), what=what, blobs=blobs)
    if data[:HEADER_BYTES] != _HEADER.pack(HEADER_MAGIC, footer.format, footer.kind, bytes(5)):
        raise CorruptError(f"{what} does not start as a pack does")
    start = footer.directory_offset
    end = start + footer.directory_length
    directory = parse_directory(data[start:end], footer, what=what, blobs=blobs)
    filled = directory[-1].offset + directory[-1].stored_length if directory else HEADER_BYTES
    if data[filled:start] != blobs.filler(start - filled, footer.directory_hash):
        raise CorruptError(f"{what}: its filler has changed", hint="Its stored bytes were altered.")
    return footer.kind, directory


def _pack_entry(e: PackEntry) -> bytes:
    return _ENTRY.pack(e.hash, e.offset, e.stored_length, e.raw_length, e.codec, e.blob_kind, 0)


_BLOB_KINDS: Sequence[int] = [int(kind) for kind in BlobKind]


def _check_kind(kind: PackKind, blob_kind: int, *, what: str) -> None:
    if (kind == PackKind.DATA) != (blob_kind == BlobKind.CHUNK):
        raise CorruptError(f"{what}: a blob of kind {blob_kind} does not belong into a pack of kind {int(kind)}")
