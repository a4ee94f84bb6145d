"""Segments of the block list."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.base.ids import ChunkHash, PackId
from cowfs.errors import CorruptError, CowfsError, InvalidInputError, UnsupportedFormatError
from cowfs.format.blocklist import SEGMENT_ENTRIES, BlockRef, decode_segment, encode_segment
from cowfs.format.codec import MAX_RAW_BYTES, hash_of
from tests.format.samples import BLOCKS

pytestmark = pytest.mark.quick

refs = st.builds(
    BlockRef,
    pack=st.integers(0, 5).map(lambda n: PackId(bytes([n]) * 16)) | st.binary(min_size=16, max_size=16).map(PackId),
    offset=st.integers(0, (1 << 32) - 1),
    stored_length=st.integers(1, MAX_RAW_BYTES),
    hash=st.binary(min_size=32, max_size=32).map(ChunkHash),
    codec=st.integers(0, 1),
)
lists = st.lists(st.none() | refs, min_size=1, max_size=SEGMENT_ENTRIES)


@given(lists)
def test_round_trip(blocks: list[BlockRef | None]) -> None:
    data = encode_segment(blocks)
    assert decode_segment(data, what="x") == blocks


def test_a_full_segment_of_many_packs() -> None:
    blocks = [BlockRef(PackId(bytes([n]) * 16), n, 1, hash_of(bytes([n])), 0) for n in range(SEGMENT_ENTRIES)]
    assert decode_segment(encode_segment(blocks), what="x") == blocks


@given(st.binary(max_size=300), st.booleans())
def test_arbitrary_bytes_are_refused_or_reproduced(data: bytes, with_magic: bool) -> None:
    data = b"cowfsbl\0\1" + data if with_magic else data
    with contextlib.suppress(CowfsError):
        assert encode_segment(decode_segment(data, what="x")) == data


@given(st.lists(st.none() | refs, min_size=1, max_size=4), st.data())
def test_altered_segments_are_refused_or_mean_themselves(blocks: list[BlockRef | None], data: st.DataObject) -> None:
    encoded = bytearray(encode_segment(blocks))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CowfsError):
        assert encode_segment(decode_segment(bytes(encoded), what="x")) == encoded


def test_formats_and_codecs_nobody_knows_are_named() -> None:
    data = bytearray(encode_segment(BLOCKS))
    data[8] = 3
    with pytest.raises(UnsupportedFormatError, match="format 3"):
        decode_segment(bytes(data), what="x")
    data = bytearray(encode_segment(BLOCKS))
    data[12 + 2 * 16 + 2] = 8
    with pytest.raises(UnsupportedFormatError, match="codec 8"):
        decode_segment(bytes(data), what="x")


@pytest.mark.parametrize("change", [{"offset": 1 << 32}, {"offset": -1}, {"stored_length": 0}, {"codec": 2}])
def test_entries_no_reader_would_take_are_not_written(change: dict[str, Any]) -> None:
    assert BLOCKS[0] is not None
    with pytest.raises(InvalidInputError):
        encode_segment([dataclasses.replace(BLOCKS[0], **change)])


@pytest.mark.parametrize("count", [0, SEGMENT_ENTRIES + 1])
def test_only_1_to_256_entries(count: int) -> None:
    with pytest.raises(InvalidInputError):
        encode_segment([None] * count)


def test_what_is_named_in_errors() -> None:
    with pytest.raises(CorruptError, match="segment 4 of version"):
        decode_segment(b"", what="segment 4 of version")
