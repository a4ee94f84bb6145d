"""Which chunks one request fetches, and who hears of it when."""

from __future__ import annotations

import random

import pytest

from cowfs.index.links import FIRST_NUMBER
from cowfs.native.chunks import CODEC_RAW, ChunkRef
from cowfs.session.residency.chunk_requests import PART_BYTES, REQUEST_BYTES, Load, Request, parts, runs
from cowfs.store.packs import GAP_BYTES
from cowfs.transfer import linked

pytestmark = pytest.mark.quick

CHUNK_BYTES = 500_000


def chunk(pack: int, offset: int, stored_length: int = CHUNK_BYTES) -> ChunkRef:
    return ChunkRef(random.randbytes(32), pack, offset, stored_length, max(stored_length, 1), CODEC_RAW)


def row(pack: int, count: int) -> list[ChunkRef]:
    return [chunk(pack, number * CHUNK_BYTES) for number in range(count)]


def lengths(found: list[list[ChunkRef]]) -> list[int]:
    return [sum(chunk.stored_length for chunk in each) for each in found]


def test_a_pack_is_one_request() -> None:
    one, other = row(1, 32), row(2, 32)
    shuffled = random.Random(1).sample(one + other, 64)
    assert runs(shuffled) == [one, other]
    assert max(lengths(runs(shuffled))) <= REQUEST_BYTES


def test_what_is_longer_is_split_evenly() -> None:
    found = runs(row(1, 80))  # 40 MB, of which a request takes 16 MiB
    assert len(found) == 3
    assert max(lengths(found)) - min(lengths(found)) <= CHUNK_BYTES


def test_a_gap_ends_a_run() -> None:
    near, far = chunk(1, CHUNK_BYTES + GAP_BYTES), chunk(1, 3 * CHUNK_BYTES + GAP_BYTES)
    first = chunk(1, 0)
    assert runs([first, near, far]) == [[first, near], [far]]


def test_linked_objects_are_asked_for_less() -> None:
    assert max(lengths(runs(row(FIRST_NUMBER + 1, 32)))) <= linked.REQUEST_BYTES + CHUNK_BYTES


def test_addresses_that_no_chunk_has() -> None:
    empty = chunk(1, 5, 0)
    assert runs([empty]) == [[empty]]
    assert parts([empty]) == [[empty]]


def test_a_load_ends_with_its_own_chunks() -> None:
    run = row(1, 8)
    request = Request()
    for part in parts(run):
        request.add(Load(request), part)
    assert request.chunks == run
    assert max(lengths(parts(run))) <= PART_BYTES + CHUNK_BYTES
    assert len(request.loads) == 4
    ended = [(number, load) for number in range(len(run)) if (load := request.mark_arrived(number)) is not None]
    assert [load for _, load in ended] == request.loads
    assert [number for number, _ in ended][-1] == len(run) - 1
