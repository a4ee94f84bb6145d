"""Which contents come along with one that was missed."""

from __future__ import annotations

import random
import threading

import pytest

from cowfs.session.residency.content_blocks import BLOCK_INODES, BLOCKS_MAX, ContentBlocks, Neighbours

pytestmark = pytest.mark.quick


def walk(blocks: ContentBlocks, inodes: list[int]) -> int:
    """Reads these files; how often something had to be asked for."""
    here: set[int] = set()
    misses = 0
    for ino in inodes:
        if ino not in here:
            misses += 1
            here |= {ino, *(blocks.note_miss(ino) or ())}
    return misses


def test_a_walk_asks_once_a_block() -> None:
    inodes = list(range(1000, 1000 + 20 * BLOCK_INODES))
    assert walk(ContentBlocks(), inodes) == 22
    blocks = ContentBlocks()
    walk(blocks, inodes)
    assert walk(blocks, inodes) <= 23, "again, when all of it was evicted"


def test_files_in_another_order_come_by_blocks_too() -> None:
    inodes = list(range(1000, 1000 + 20 * BLOCK_INODES))
    random.Random(1).shuffle(inodes)
    assert walk(ContentBlocks(), inodes) <= 42


def test_readers_far_apart_bring_nothing_along() -> None:
    blocks = ContentBlocks()
    places = [n * 7 * BLOCK_INODES for n in range(1, 2 * BLOCKS_MAX)]
    assert all(blocks.note_miss(ino) is None for ino in places)
    assert blocks.note_miss(places[-1] + 1) is not None
    assert blocks.note_miss(places[0] + 1) is None, "forgotten"


def test_neighbours_that_no_thread_can_bring_are_brought_later(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[range] = []
    is_here = threading.Event()

    def load(block: range) -> None:
        came.append(block)
        is_here.set()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    neighbours = Neighbours(load)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        neighbours.bring(range(1, 2))
    neighbours.bring(range(2, 3))
    assert is_here.wait(60)
    neighbours.close()
    assert came == [range(2, 3)]
