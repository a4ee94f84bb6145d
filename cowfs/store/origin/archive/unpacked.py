"""A stream that is compressed as a whole, unpacked and checked: gzip, bzip2, xz, lzma, zstd.

The first bytes identify the compression, not a name. A file may be several streams one after the
other, as pigz, pbzip2 and `cat` make them; zeros between and after them are padding. Anything else
after a stream is damage, as is a stream that is cut, or whose checksum is wrong. Python's own gzip,
bz2 and lzma files accept some of these.

At most PIECE_BYTES are unpacked at a time (of zstd 128 MiB, and only of a stream made to do so).
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import zstandard

from cowfs.base.fast_dataclass import dataclass
from cowfs.store.origin.archive.input import Input
from cowfs.store.origin.archive.members import Damaged

PIECE_BYTES = 1 << 20
MEMORY_BYTES = 1 << 30
"""For the dictionary of an xz stream; xz itself never makes one that large by default."""
_ZSTD_BYTES = 4 << 10
_MAGIC_BYTES = 6
_ERRORS = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError)  # bz2 raises an OSError


class _Decoder(Protocol):
    """As `bz2.BZ2Decompressor`, of one stream."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """zlib checks header, CRC and length of a gzip stream itself."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail or data, max_length)


class _Zstd:
    """The library unpacks its whole input at once, so it gets small pieces."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor().decompressobj()
        self._left = memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def needs_input(self) -> bool:
        return not self._left

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data + bytes(self._left)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if not self._left:
            self._left = memoryview(data)
        given, self._left = self._left[:_ZSTD_BYTES], self._left[_ZSTD_BYTES:]
        return self._zstd.decompress(given)


@dataclass(frozen=True)
class _Compression:
    name: str
    magics: tuple[bytes, ...]
    make: Callable[[], _Decoder]


_COMPRESSIONS = (
    _Compression("gzip", (b"\x1f\x8b",), _Gzip),
    _Compression("bzip2", (b"BZh",), bz2.BZ2Decompressor),
    _Compression("xz", (b"\xfd7zXZ\0",), lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, MEMORY_BYTES)),
    _Compression("lzma", (b"\x5d\0\0",), lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, MEMORY_BYTES)),
    # the others are frames that a reader skips, as pzstd and seekable files have them
    _Compression("zstd", (b"(\xb5/\xfd", *(b"%c*M\x18" % number for number in range(0x50, 0x60))), _Zstd),
)


def unpack(source: Input) -> Iterator[bytes | memoryview]:
    """All of it, in pieces that are not empty. Damaged: it is not what the format says."""
    data = bytes(source.piece())
    compression = _compression_of(data)
    if compression is None:
        yield from _pieces(data, source)
    else:
        yield from _streams(compression, data, source)


def _pieces(first: bytes, source: Input) -> Iterator[bytes | memoryview]:
    piece: bytes | memoryview = first
    while piece:
        yield piece
        piece = source.piece()


def _compression_of(data: bytes) -> _Compression | None:
    return next((each for each in _COMPRESSIONS if data.startswith(each.magics)), None)


def _streams(compression: _Compression, data: bytes, source: Input) -> Iterator[bytes]:
    while data:
        decoder = compression.make()
        while not decoder.eof:
            if decoder.needs_input and not data:
                data = bytes(source.piece())
            is_last = not data and decoder.needs_input
            try:
                piece = decoder.decompress(data, PIECE_BYTES)
            except _ERRORS as error:
                raise Damaged(f"its {compression.name} stream is not right ({error})") from error
            data = b""
            if piece:
                yield piece
            elif is_last and not decoder.eof:
                raise Damaged(f"its {compression.name} stream is cut")
        data = _next_stream(decoder.unused_data, source)
        if data and not data.startswith(compression.magics):
            raise Damaged(f"something follows the end of its {compression.name} stream")


def _next_stream(data: bytes, source: Input) -> bytes:
    """What begins behind a stream and the padding there; empty at the end."""
    data = data.lstrip(b"\0")
    while len(data) < _MAGIC_BYTES and (more := bytes(source.piece())):
        data = (data + more).lstrip(b"\0")
    return data
