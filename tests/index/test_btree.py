"""Paths that were prefetched are the paths SQLite takes: afterwards it misses nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.index.btree import prefetch_paths
from cowfs.index.connection import Connection
from cowfs.index.overlay import MemoryBlocks
from cowfs.index.statements import READ_ENTRY, READ_EXTENTS, READ_INODE
from tests.index.bench import Bench, many_files

FILES = 30_000
FIRST = 2 + FILES // 1000


class WatchedBlocks(MemoryBlocks):
    """Counts rounds of prefetching, and reads of pages that were not prefetched."""

    def __init__(self, pages: list[bytes]) -> None:
        super().__init__("watched", pages)
        self.rounds = 0
        self.fetched: set[int] = set()
        self.missed: set[int] = set()

    def read(self, number: int) -> bytes:
        if number not in self.fetched:
            self.missed.add(number)
        return super().read(number)

    def prefetch(self, numbers: Iterable[int]) -> None:
        self.rounds += 1
        self.fetched.update(numbers)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    bench = Bench(tmp_path_factory.mktemp("pages"))
    with bench.empty() as index, index.apply(many_files(FILES)) as delta:
        found = [raw for _, raw in delta.pages()]
    bench.store.close()
    return found


@pytest.mark.parametrize("count", [1, 40, 4000])
def test_look_ups_miss_nothing_after_the_walk(pages: list[bytes], count: int, tmp_path: Path) -> None:
    blocks = WatchedBlocks(pages)
    connection = Connection(blocks)
    roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema"))
    numbers = sorted(random.Random(count).sample(range(FILES), count))
    entries = [(2 + n // 1000, b"file-%07d" % n) for n in numbers]
    prefetch_paths(
        blocks,
        {
            roots["inodes"]: [(FIRST + n,) for n in numbers],
            roots["dirents"]: entries,
            roots["extents"]: [(FIRST + n, 0) for n in numbers],
        },
    )
    assert blocks.rounds <= 4
    blocks.missed.clear()
    for n, entry in zip(numbers, entries, strict=True):
        assert connection.execute(READ_ENTRY, entry) == [(FIRST + n,)]
        assert connection.execute(READ_INODE, (FIRST + n,))[0][0] == FIRST + n
        assert connection.execute(READ_EXTENTS, (FIRST + n,))
    # A range scan may step over to the next page to see that the file ends; a point look-up never
    # does.
    assert len(blocks.missed) <= 1 + count // 100
    if count < 1000:
        assert len(blocks.fetched) <= 3 + 4 * 3 * count
    connection.close()


@given(st.lists(st.binary(min_size=0, max_size=400), min_size=1, max_size=6), st.integers(0, 8))
def test_pages_that_make_no_sense_end_the_walk(starts: list[bytes], root: int) -> None:
    blocks = MemoryBlocks("nonsense", [start.ljust(16384, b"\x02") for start in starts])
    prefetch_paths(blocks, {root: [(1,), (2, b"x"), (2, 3), (9,)]})


def test_a_circle_of_pages_ends_the_walk() -> None:
    page = bytearray(16384)
    page[0] = 5
    page[8:12] = (1).to_bytes(4)
    blocks = WatchedBlocks([bytes(page)] * 3)
    blocks._pages[0] = bytes(100) + bytes(page)[:-100]
    prefetch_paths(blocks, {1: [(5,)], 2: [(7,)]})
    assert blocks.rounds <= 20
