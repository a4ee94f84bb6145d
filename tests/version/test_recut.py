"""Cutting changed files again: the same bytes come out, equal content gives equal chunks, small
changes stay small."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from cowfs.native.chunks import ChunkRef
from cowfs.version.publish.recut import FETCHED_RUNS, ZERO_RUN_BYTES, Piece, Run, recut, to_fetch

pytestmark = pytest.mark.quick

KIB = 1 << 10


@dataclass
class Extent:
    """What the engine's LayerExtent looks like; only the engine can make real ones."""

    offset: int
    length: int
    segment: int
    segment_offset: int
    chunk: ChunkRef | None
    skip: int = 0


def random_bytes(length: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(length)


def staged(offset: int, length: int) -> Extent:
    return Extent(offset, length, 0, offset, None)


def chunked(offset: int, data: bytes) -> Extent:
    return Extent(offset, len(data), -1, 0, ChunkRef(blake3(data).digest(), 1, offset, len(data), len(data), 0))


def reader(content: bytes, *, local: bool = True) -> Callable[[Extent, int, int], bytes | None]:
    def read(extent: Extent, first: int, length: int) -> bytes | None:
        if extent.chunk is not None and not local:
            return None
        return content[extent.offset + first : extent.offset + first + length]

    return read


def cut_whole(content: bytes) -> list[Piece]:
    return [part for part in recut([staged(0, len(content))], reader(content)) if isinstance(part, Piece)]


def as_chunks(pieces: list[Piece]) -> list[Extent]:
    return [chunked(piece.offset, piece.data) for piece in pieces]


def in_parts(extent: Extent, lengths: Sequence[int]) -> list[Extent]:
    """The same range as the engine has it when it was written in parts of these lengths, the last
    as long as it must be."""
    parts, first = [], 0
    for length in [*lengths, extent.length]:
        length = min(length, extent.length - first)
        if length > 0:
            parts.append(replace(extent, offset=extent.offset + first, length=length, skip=extent.skip + first))
        first += length
    return parts


def rebuilt(parts: Sequence[Run[Extent] | Piece], content: bytes) -> bytes:
    result = bytearray(len(content))
    end = 0
    for part in parts:
        assert part.offset >= end, "parts overlap or are out of order"
        data = part.data if isinstance(part, Piece) else content[part.offset : part.offset + part.length]
        result[part.offset : part.offset + len(data)] = data
        end = part.offset + len(data)
    return bytes(result)


def stored_bytes(parts: Sequence[Run[Extent] | Piece], known: set[bytes]) -> int:
    return sum(len(part.data) for part in parts if isinstance(part, Piece) and part.data not in known)


@given(
    seed=st.integers(0, 2**32),
    lengths=st.lists(st.integers(1, 700 * KIB), min_size=1, max_size=12),
    kinds=st.lists(st.sampled_from(["staged", "chunk", "hole"]), min_size=12, max_size=12),
    local=st.booleans(),
)
def test_the_same_bytes_come_out(seed: int, lengths: list[int], kinds: list[str], local: bool) -> None:
    content = bytearray(random_bytes(sum(lengths), seed))
    extents, offset = [], 0
    for length, kind in zip(lengths, kinds, strict=False):
        if kind == "hole":
            content[offset : offset + length] = bytes(length)
        elif kind == "staged":
            extents.append(staged(offset, length))
        else:
            extents.append(chunked(offset, bytes(content[offset : offset + length])))
        offset += length
    whole = bytes(content)
    parts = list(recut(extents, reader(whole, local=local)))
    assert rebuilt(parts, whole) == whole
    assert all(len(part.data) <= 2 << 20 for part in parts if isinstance(part, Piece))


@given(
    seed=st.integers(0, 2**32),
    lengths=st.lists(st.integers(1, 300 * KIB), min_size=1, max_size=8),
    kinds=st.lists(st.sampled_from(["staged", "chunk", "hole"]), min_size=8, max_size=8),
    parts=st.lists(st.integers(1, 5000), max_size=60),
    local=st.booleans(),
)
def test_what_comes_out_does_not_depend_on_how_many_writes_there_were(
    seed: int, lengths: list[int], kinds: list[str], parts: list[int], local: bool
) -> None:
    content = bytearray(random_bytes(sum(lengths), seed))
    whole, split, offset = [], [], 0
    for length, kind in zip(lengths, kinds, strict=False):
        if kind == "hole":
            content[offset : offset + length] = bytes(length)
        else:
            data = bytes(content[offset : offset + length])
            extent = staged(offset, length) if kind == "staged" else chunked(offset, data)
            whole.append(extent)
            split += in_parts(extent, parts)
        offset += length
    read = reader(bytes(content), local=local)
    made = [shape(part) for part in recut(split, read)]
    assert made == [shape(part) for part in recut(whole, read)]


def shape(part: Run[Extent] | Piece) -> tuple[object, ...]:
    if isinstance(part, Piece):
        return part.offset, part.data
    return part.offset, part.length, part.chunk, part.skip


def test_one_changed_byte_costs_about_two_chunks() -> None:
    content = bytearray(random_bytes(24 << 20, 1))
    pieces = cut_whole(bytes(content))
    known = {piece.data for piece in pieces}
    at = 11 << 20
    content[at] ^= 1
    extents = []
    for extent in as_chunks(pieces):
        if extent.offset <= at < extent.offset + extent.length:
            before, after = at - extent.offset, extent.offset + extent.length - at - 1
            extents.append(Extent(extent.offset, before, -1, 0, extent.chunk))
            extents.append(staged(at, 1))
            extents.append(Extent(at + 1, after, -1, 0, extent.chunk, skip=before + 1))
        else:
            extents.append(extent)
    parts = list(recut(extents, reader(bytes(content))))
    assert rebuilt(parts, bytes(content)) == bytes(content)
    assert stored_bytes(parts, known) < 2 << 20


def test_without_the_neighbours_only_the_staged_range_is_stored() -> None:
    content = random_bytes(4 << 20, 2)
    pieces = cut_whole(content)
    middle = as_chunks(pieces)[1]
    extents = [*as_chunks(pieces)[:1], staged(middle.offset, middle.length), *as_chunks(pieces)[2:]]
    parts = list(recut(extents, reader(content, local=False)))
    assert sum(len(part.data) for part in parts if isinstance(part, Piece)) == middle.length


def test_a_prepended_byte_changes_only_the_first_chunks() -> None:
    content = random_bytes(32 << 20, 3)
    known = {piece.data for piece in cut_whole(content)}
    assert stored_bytes(list(cut_whole(b"x" + content)), known) < 4 << 20


def test_zero_runs_become_holes() -> None:
    content = random_bytes(300 * KIB, 4) + bytes(5 << 20) + random_bytes(10, 5)
    parts = cut_whole(content)
    assert rebuilt(list(parts), content) == content
    assert sum(len(part.data) for part in parts) < 300 * KIB + 10 + 2 * ZERO_RUN_BYTES


def test_scattered_small_writes_do_not_rewrite_the_file() -> None:
    content = random_bytes(96 << 20, 6)
    extents: list[Extent] = []
    for extent in as_chunks(cut_whole(content)):
        half = extent.length // 2
        extents.append(Extent(extent.offset, half, -1, 0, extent.chunk))
        extents.append(staged(extent.offset + half, 10))
        extents.append(Extent(extent.offset + half + 10, extent.length - half - 10, -1, 0, extent.chunk, half + 10))
    parts = list(recut(extents, reader(content)))
    assert rebuilt(parts, content) == content
    assert sum(len(part.data) for part in parts if isinstance(part, Piece)) < 24 << 20


def test_neighbours_are_fetched_only_for_a_file_in_pieces() -> None:
    """As many as a cut may join: those behind a staged range, and one before it."""
    whole = [chunked(n * 100 * KIB, b"%d" % n * 100) for n in range(200)]
    page = staged(0, 4 * KIB)
    assert to_fetch([page, *(replace(each, offset=each.offset + 4 * KIB, length=100 * KIB) for each in whole)]) == []
    pieces = [replace(each, offset=n * 4 * KIB, length=4 * KIB) for n, each in enumerate(whole)]
    assert to_fetch(pieces) == [], "nothing is new"
    pieces[100] = staged(pieces[100].offset, 4 * KIB)
    assert to_fetch(pieces) == [each.chunk for each in (pieces[99], *pieces[101 : 101 + FETCHED_RUNS])]
    assert to_fetch(pieces[90:110]) == [], "few pieces cost little"
