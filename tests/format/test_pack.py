"""Packs: what goes in is found by the directory, and a pack that contradicts itself is refused."""

from __future__ import annotations

import struct

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from cowfs.errors import CorruptError, CowfsError, InvalidInputError, InvalidStateError, UnsupportedFormatError
from cowfs.format.codec import MAX_RAW_BYTES, Codec, compress, decompress, hash_of
from cowfs.format.pack import (
    ENTRY_BYTES,
    FOOTER_BYTES,
    FOOTER_MAGIC,
    HEADER_BYTES,
    BlobKind,
    PackBuilder,
    PackKind,
    parse_directory,
    parse_footer,
    parse_pack,
    parse_tail,
)

pytestmark = pytest.mark.quick

blobs = st.lists(
    st.binary(min_size=1, max_size=300) | st.binary(min_size=1, max_size=9).map(lambda b: b * 40), max_size=20
)


def build(raws: list[bytes], kind: PackKind = PackKind.DATA, blob_kind: BlobKind = BlobKind.CHUNK) -> bytes:
    builder = PackBuilder(kind)
    for raw in raws:
        codec, stored = compress(raw)
        builder.add(hash_of(raw), stored, len(raw), codec, blob_kind)
    size = builder.size_bytes
    data = bytes(builder.seal())
    assert len(data) == size
    return data


def resealed(data: bytes, *, form: int = 1, kind: int = 1, directory: bytes | None = None) -> bytes:
    """data with another directory or footer whose hashes fit: what a hostile or newer writer could
    make."""
    start = len(data) - FOOTER_BYTES - parse_footer(data, len(data), what="x").directory_length
    directory = data[start:-FOOTER_BYTES] if directory is None else directory
    count = len(directory) // ENTRY_BYTES
    footer = struct.pack(">HBBIQQ32s", form, kind, 0, count, start, len(directory), blake3(directory).digest())
    return data[:start] + directory + footer + blake3(footer).digest(8) + FOOTER_MAGIC


@given(blobs)
def test_round_trip(raws: list[bytes]) -> None:
    data = build(raws)
    kind, entries = parse_pack(data, what="pack")
    assert kind == PackKind.DATA
    assert [entry.hash for entry in entries] == [hash_of(raw) for raw in raws]
    for entry, raw in zip(entries, raws, strict=True):
        stored = data[entry.offset : entry.offset + entry.stored_length]
        assert decompress(stored, entry.codec, entry.raw_length, entry.hash, "x") == raw


@given(blobs)
def test_the_tail_alone_is_enough_for_the_directory(raws: list[bytes]) -> None:
    data = build(raws)
    _, entries = parse_pack(data, what="pack")
    footer = parse_footer(data[-FOOTER_BYTES:], len(data), what="pack")
    at, length = footer.directory_offset, footer.directory_length
    assert list(parse_directory(data[at : at + length], footer, what="pack")) == list(entries)
    assert list(parse_tail(data[at : at + length + FOOTER_BYTES], at, what="pack")) == list(entries)
    with pytest.raises(CorruptError):
        parse_tail(data[at : at + length + FOOTER_BYTES], at + 1, what="pack")


@given(blobs, st.integers(0, 600), st.integers(0, 600))
def test_a_directory_finds_blobs_by_their_offset(raws: list[bytes], offset: int, length: int) -> None:
    _, directory = parse_pack(build(raws), what="pack")
    entries = list(directory)
    assert directory.size_bytes == len(entries) * ENTRY_BYTES
    for entry in entries:
        assert directory.find_at(entry.offset) == entry
    assert directory.find_at(offset) == next((entry for entry in entries if entry.offset == offset), None)
    assert directory.list_after(offset, length) == [e for e in entries if offset < e.offset <= offset + length]


def test_the_builder_tells_where_everything_will_lie() -> None:
    builder = PackBuilder(PackKind.DATA)
    entry = builder.add(hash_of(b"abc"), b"abc", 3, Codec.RAW, BlobKind.CHUNK)
    assert entry.offset == HEADER_BYTES
    at = builder.directory_offset
    data = bytes(builder.seal())
    assert parse_footer(data, len(data), what="x").directory_offset == at
    kind, entries = parse_pack(data, what="x")
    assert (kind, list(entries)) == (PackKind.DATA, [entry])


def test_a_sealed_pack_takes_nothing_more() -> None:
    builder = PackBuilder(PackKind.DATA)
    builder.seal()
    with pytest.raises(InvalidStateError):
        builder.add(hash_of(b"abc"), b"abc", 3, Codec.RAW, BlobKind.CHUNK)
    with pytest.raises(InvalidStateError):
        builder.seal()


@pytest.mark.parametrize(
    ("stored", "raw_length", "codec", "blob_kind"),
    [
        (b"", 0, Codec.RAW, BlobKind.CHUNK),
        (b"abc", 4, Codec.RAW, BlobKind.CHUNK),
        (b"abc", 2, Codec.ZSTD, BlobKind.CHUNK),
        (b"abc", MAX_RAW_BYTES + 1, Codec.ZSTD, BlobKind.CHUNK),
        (b"abc", 3, Codec.RAW, BlobKind.BLOCK),
    ],
)
def test_the_builder_refuses_what_readers_would(
    stored: bytes, raw_length: int, codec: int, blob_kind: BlobKind
) -> None:
    with pytest.raises(InvalidInputError):
        PackBuilder(PackKind.DATA).add(hash_of(b"abc"), stored, raw_length, codec, blob_kind)


@given(st.binary(max_size=400), st.integers(0, 1 << 40))
def test_arbitrary_bytes_are_refused(data: bytes, size: int) -> None:
    for parse in (
        lambda: parse_pack(data, what="pack"),
        lambda: parse_footer(data, size, what="pack"),
        lambda: parse_tail(data, size, what="pack"),
    ):
        with pytest.raises(CorruptError, match="pack"):
            parse()


def test_an_unknown_format_is_named() -> None:
    data = resealed(build([b"abc"]), form=9)
    with pytest.raises(UnsupportedFormatError, match="format 9"):
        parse_footer(data, len(data), what="x")


ENTRY = struct.Struct(">32sIIIBBH")
HASH = bytes(hash_of(b"abc"))


@pytest.mark.parametrize(
    "directory",
    [
        ENTRY.pack(HASH, 17, 3, 3, 0, 1, 0),
        ENTRY.pack(HASH, 16, 2, 2, 0, 1, 0),
        ENTRY.pack(HASH, 16, 4, 4, 0, 1, 0),
        ENTRY.pack(HASH, 16, 3, 4, 0, 1, 0),
        ENTRY.pack(HASH, 16, 3, MAX_RAW_BYTES + 1, 1, 1, 0),
        ENTRY.pack(HASH, 16, 3, 3, 0, 2, 0),
        ENTRY.pack(HASH, 16, 3, 3, 0, 9, 0),
        ENTRY.pack(HASH, 16, 3, 3, 0, 1, 1),
        ENTRY.pack(HASH, 16, 3, 3, 0, 1, 0) * 2,
        ENTRY.pack(HASH, 16, 3, 3, 0, 1, 0)[:-1],
        b"",
    ],
)
def test_a_well_hashed_directory_that_makes_no_sense_is_refused(directory: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_pack(resealed(build([b"abc"]), directory=directory), what="x")


def test_an_unknown_codec_in_a_directory_is_named() -> None:
    data = resealed(build([b"abc"]), directory=ENTRY.pack(HASH, 16, 3, 3, 5, 1, 0))
    with pytest.raises(UnsupportedFormatError, match="codec 5"):
        parse_pack(data, what="x")


@given(st.binary(max_size=200).map(lambda b: b[: len(b) // ENTRY_BYTES * ENTRY_BYTES]))
def test_arbitrary_directories_raise_only_our_errors(directory: bytes) -> None:
    data = resealed(build([b"abc"]), directory=directory)
    with pytest.raises(CowfsError):
        parse_pack(data, what="x")


def test_header_and_footer_must_agree() -> None:
    data = build([b"abc"])
    index = bytes(PackBuilder(PackKind.INDEX).seal())
    with pytest.raises(CorruptError):
        parse_pack(index[:HEADER_BYTES] + data[HEADER_BYTES:], what="x")
