"""Converts raw bytes of a blob to the stored form that addresses require: the same codec, and
exactly as many bytes.

Index rows name a blob by place, codec and stored length, and a moved record may only change the
place. Another version of zstd, or another writer, makes other frames of the same bytes. So several
levels are tried, and a frame that is too short is filled with empty raw blocks (RFC 8878, 3.1.1.2:
3 bytes each), which every decoder skips. A checksum (4 bytes) reaches the lengths in between.
"""

from __future__ import annotations

from collections.abc import Iterator

import zstandard

from cowfs.format import codec
from cowfs.format.codec import Codec

_EMPTY_BLOCK_BYTES = 3
_LEVELS = (3, *(level for level in range(1, 20) if level != 3))


def make_stored_form(raw: bytes, how: int, length: int) -> bytes | None:
    """None: no frame of that length was found."""
    if how == Codec.RAW:
        return raw if len(raw) == length else None
    for frame in _frames(raw):
        missing = length - len(frame)
        if missing >= 0 and missing % _EMPTY_BLOCK_BYTES == 0:
            at = zstandard.frame_header_size(frame)
            return frame[:at] + bytes(missing) + frame[at:]
    return None


def _frames(raw: bytes) -> Iterator[bytes]:
    """Yields frames, the one that commits make first."""
    found, stored = codec.compress(raw)
    if found == Codec.ZSTD:
        yield bytes(stored)
    for level in _LEVELS:
        for has_checksum in (False, True):
            yield zstandard.ZstdCompressor(level=level, write_checksum=has_checksum, write_content_size=True).compress(
                raw
            )
