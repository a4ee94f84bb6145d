"""Blobs: compressed where it pays, and never read as anything but what was written."""

from __future__ import annotations

import threading
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cowfs.errors import CorruptError, CowfsError, InvalidInputError, UnsupportedFormatError
from cowfs.format.codec import MAX_RAW_BYTES, Codec, compress, decompress, hash_of

pytestmark = pytest.mark.quick

# Deterministic and incompressible.
NOISE = b"".join(hash_of(n.to_bytes(4, "big")) for n in range(4096))


@given(st.binary(min_size=1, max_size=2000) | st.binary(min_size=1, max_size=40).map(lambda part: part * 50))
def test_round_trip(raw: bytes) -> None:
    codec, stored = compress(raw)
    assert len(stored) <= len(raw)
    assert decompress(stored, codec, len(raw), hash_of(raw), "x") == raw


def test_keeps_compression_only_where_it_saves() -> None:
    assert compress(NOISE) == (Codec.RAW, NOISE)
    codec, stored = compress(b"ab" * 10_000)
    assert codec == Codec.ZSTD
    assert len(stored) < 100
    slightly = NOISE + b"\0" * (len(NOISE) // 50)  # saves 2 %
    assert compress(slightly) == (Codec.RAW, slightly)


@pytest.mark.parametrize("raw", [b"", b"x" * (MAX_RAW_BYTES + 1)], ids=["empty", "too large"])
def test_refuses_what_is_no_blob(raw: bytes) -> None:
    with pytest.raises(InvalidInputError):
        compress(raw)


@given(st.binary(max_size=200), st.integers(-1, 3), st.integers(-1, 1 << 40))
def test_arbitrary_bytes_raise_only_our_errors(stored: bytes, codec: int, raw_length: int) -> None:
    with pytest.raises(CowfsError, match="blob"):
        decompress(stored, codec, raw_length, bytes(32), "blob 7")


@pytest.mark.parametrize("declared", [1, 999, 1001, MAX_RAW_BYTES, MAX_RAW_BYTES + 1, 1 << 40])
def test_a_wrong_length_is_refused_before_allocating(declared: int) -> None:
    raw = b"a" * 1000
    codec, stored = compress(raw)
    with pytest.raises(CorruptError):
        decompress(stored, codec, declared, hash_of(raw), "x")


def test_a_bomb_allocates_nothing() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(512 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError):
            decompress(bomb, Codec.ZSTD, 1 << 20, bytes(32), "x")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_that_hides_its_size_is_refused() -> None:
    raw = b"a" * 1000
    hidden = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    with pytest.raises(CorruptError):
        decompress(hidden, Codec.ZSTD, len(raw), hash_of(raw), "x")


def test_bytes_behind_the_frame_are_refused() -> None:
    raw = b"a" * 1000
    _, stored = compress(raw)
    for extra in (b"x", stored):
        with pytest.raises(CorruptError):
            decompress(stored + extra, Codec.ZSTD, len(raw), hash_of(raw), "x")


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedFormatError, match="codec 7"):
        decompress(b"abc", 7, 3, hash_of(b"abc"), "x")


def test_threads_do_not_disturb_each_other() -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        for n in range(50):
            raw = bytes([seed]) * (1000 + n) + NOISE[: 100 * seed]
            codec, stored = compress(raw)
            if decompress(stored, codec, len(raw), hash_of(raw), "x") != raw:
                failures.append(f"{seed}, {n}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
