"""Compression of blobs, where it saves space, and strict decompression.

A blob is a run of raw bytes named by its BLAKE3: a chunk, an index block, a segment of a block
list, a catalogue. It is stored raw or as exactly one zstd frame that declares its content size and
has no dictionary and no trailing bytes.

Guarantees: `decompress` returns bytes of the declared length and hash or raises; it allocates
nothing larger than the declared length, which is at most MAX_RAW_BYTES, regardless of the stored
bytes. Stored bytes are never longer than raw ones. The hash alone names a blob: two writers may
store the same raw bytes differently.

Compression is native (`native/blob`), at level 3. Of a blob above 128 KiB a sample of 32 KiB is
compressed first; if that saves less than 3 %, the blob is stored raw. This can miss savings in two
cases: data that repeats only at distances above the sample's length, and noise with less than an
eighth of compressible data. Measured on one core with 512 KiB chunks, thread time: random bytes
pass at 32 GB/s (5 to 6 GB/s without a sample; BLAKE3 itself: 4.6 GB/s). Float32 weights are
compressed at 0.6 GB/s to 93 %, Python source at 0.2 GB/s to 25 %, both as fast as without a sample;
at level 1 source takes 0.36 GB/s to 28 %. Random bytes copied into new memory pass at 1.2 GB/s, so
incompressible blobs get no new memory. Thread-safe; no context is shared while it works; hashing
and (de)compression release the GIL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

import zstandard
from blake3 import blake3

from cowfs.base.errors import CorruptError, InvalidInputError, UnsupportedFormatError
from cowfs.base.ids import ChunkHash

MAX_RAW_BYTES = 16 << 20


B = TypeVar("B", bytes, memoryview)


class Codec(IntEnum):
    """How a blob's stored bytes relate to its raw bytes. The numbers are those of the engine and of
    the index."""

    RAW = 0
    ZSTD = 1


class Blob(NamedTuple):
    """The stored form of raw bytes, and their name."""

    name: ChunkHash
    codec: Codec
    stored: bytes

    # Idle contexts. A context is taken out while it works, so no two threads share it, and there
    # are as many as ever worked at once; making one costs 13 µs. One that failed is not put back.


_decompressors: deque[zstandard.ZstdDecompressor] = deque()


def _take_decompressor() -> zstandard.ZstdDecompressor:
    try:
        return _decompressors.pop()
    except IndexError:
        return zstandard.ZstdDecompressor()


def compress(raw: B) -> tuple[Codec, bytes | B]:
    """(codec, stored bytes): zstd where it saves at least 3 %, else raw itself. Any thread;
    releases the GIL."""
    from cowfs.native.chunks import compressed  # most programs that use volumes never store anything

    if not 1 <= len(raw) <= MAX_RAW_BYTES:
        raise InvalidInputError(f"a blob has 1 to {MAX_RAW_BYTES} bytes, not {len(raw)}")
    stored = compressed(raw)
    return (Codec.RAW, raw) if stored is None else (Codec.ZSTD, stored)


def decompress(
    stored: bytes,
    codec: int,
    raw_length: int,
    expected_hash: bytes,
    what: str,
    *,
    name: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """The raw bytes, checked against length and name; never allocates more than raw_length (≤
    MAX_RAW_BYTES). name: how the store names blobs (`Sealing.name`); None: by their BLAKE3.

    CorruptError naming `what` when anything disagrees; UnsupportedFormatError for an unknown codec.
    """
    check_lengths(codec, len(stored), raw_length, what=what)
    raw = stored if codec == Codec.RAW else _expand(stored, raw_length, what)
    if (name or hash_of)(raw) != expected_hash:
        raise CorruptError(f"{what} does not have the hash it is named by", hint="Its stored bytes were altered.")
    return raw


def check_lengths(codec: int, stored_length: int, raw_length: int, *, what: str) -> None:
    """Refuses lengths no blob can have, before anything is fetched or allocated for it."""
    if codec not in (Codec.RAW, Codec.ZSTD):
        raise UnsupportedFormatError(f"{what} has codec {codec}, unknown to this cowfs", hint="Use a newer cowfs.")
    if not 1 <= raw_length <= MAX_RAW_BYTES:
        raise CorruptError(f"{what} claims {raw_length} raw bytes; a blob has 1 to {MAX_RAW_BYTES}")
    if codec == Codec.RAW and stored_length != raw_length:
        raise CorruptError(f"{what} has {stored_length} stored bytes instead of {raw_length}")
    if not 1 <= stored_length <= raw_length:
        raise CorruptError(f"{what} has {stored_length} stored bytes for {raw_length} raw ones")


def _expand(stored: bytes, raw_length: int, what: str) -> bytes:
    # The library allocates what the frame declares: compare before it does.
    try:
        frame = zstandard.get_frame_parameters(stored)
        if frame.content_size != raw_length or frame.dict_id:
            raise CorruptError(f"{what} does not hold one frame of {raw_length} bytes")
        decompressor = _take_decompressor()
        raw = decompressor.decompress(stored, max_output_size=raw_length, allow_extra_data=False)
        _decompressors.append(decompressor)
    except zstandard.ZstdError as error:
        raise CorruptError(f"{what} cannot be decompressed: {error}") from error
    if len(raw) != raw_length:
        raise CorruptError(f"{what} decompresses to {len(raw)} bytes instead of {raw_length}")
    return raw


def hash_of(raw: bytes | bytearray | memoryview) -> ChunkHash:
    """The name of a blob in a store without a key: the BLAKE3 of its raw bytes."""
    return ChunkHash(blake3(raw).digest())
