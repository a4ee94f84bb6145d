"""Large files are cut as `recut` cuts them, in few buffers, whatever holes and zeros they have."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.version.publish import cut_file as module
from cowfs.version.publish.cut_file import Buffers, View, cut_file
from cowfs.version.publish.recut import Piece, recut
from tests.version.test_publish import Bytes

pytestmark = pytest.mark.quick

RUNS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 3_000_000), st.sampled_from(["data", "zeros", "hole"])),
    min_size=1,
    max_size=5,
)


def cut(content: bytes, ranges: list[tuple[int, int]], most: int) -> dict[int, bytes]:
    """Pieces by offset, of which at most so many wait to be stored, and fewer if buffers run
    out."""
    buffers, waiting, found = Buffers(), deque[View](), dict[int, bytes]()

    def settle() -> None:
        view = waiting.popleft()
        found[view.offset] = bytes(view.data)
        buffers.release(view.buffer)

    def read_into(offset: int, target: memoryview) -> None:
        target[:] = content[offset : offset + len(target)]

    for view in cut_file(ranges, read_into, buffers, settle):
        waiting.append(view)
        if len(waiting) > most:
            settle()
    while waiting:
        settle()
    assert buffers._made <= module.BUFFERS
    assert len(buffers._free) == buffers._made, "all are free again"
    return found


@settings(max_examples=30)
@given(runs=RUNS, most=st.sampled_from([0, 3, 1000]))
def test_it_is_the_file(runs: list[tuple[int, int, str]], most: int) -> None:
    content, ranges = bytearray(), list[tuple[int, int]]()
    for seed, length, kind in runs:
        if kind != "hole":
            ranges.append((len(content), length))
        content += random.Random(seed).randbytes(length) if kind == "data" else bytes(length)
    found = cut(bytes(content), ranges, most)
    shown = bytearray(len(content))
    for offset, data in found.items():
        shown[offset : offset + len(data)] = data
    assert shown == content
    assert sum(map(len, found.values())) <= sum(length for _, length in ranges), "no byte twice"


def test_it_is_cut_as_by_recut() -> None:
    content = random.Random(7).randbytes(30_000_000)
    found = cut(content, [(0, len(content))], 4)
    pieces = recut([Bytes(content)], lambda extent, first, n: extent.data[first : first + n])
    assert {part.offset: part.data for part in pieces if isinstance(part, Piece)} == found
