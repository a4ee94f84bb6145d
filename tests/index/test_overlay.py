"""The copy-on-write layer: what is written is read back, the base stays, gaps are zeros, large
changes go to a file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cowfs.format.pack import PackKind
from cowfs.index import IndexDelta, publish
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cache import BlockCache
from cowfs.index.overlay import PAGE_BYTES, ZERO_PAGE, MemoryBlocks, Overlay
from cowfs.store.packs import PackUploader
from tests.index.bench import Bench

pytestmark = pytest.mark.quick


def page(number: int) -> bytes:
    return bytes([number % 251 + 1]) * PAGE_BYTES


@pytest.mark.parametrize("memory_pages", [0, 3, 1000])
def test_random_writes_against_a_dict(tmp_path: Path, memory_pages: int) -> None:
    chance = random.Random(memory_pages)
    base = [page(n) for n in range(20)]
    overlay = Overlay(MemoryBlocks("base", list(base)), tmp_path, memory_pages=memory_pages)
    model = dict(enumerate(base))
    written: set[int] = set()
    for step in range(300):
        number = chance.randrange(40)
        if step % 60 == 59:
            overlay.truncate(number)
            model = {n: raw for n, raw in model.items() if n < number}
            written = {n for n in written if n < number}
        else:
            raw = page(step + 100)
            overlay.write(number, raw)
            model[number] = raw
            written.add(number)
    for number in range(20, overlay.count):
        model.setdefault(number, ZERO_PAGE)
        written.add(number)
    assert {n: overlay.read(n) for n in model} == model
    assert dict(overlay.list_written()) == {n: model[n] for n in written}
    assert [n for n, _ in overlay.list_written()] == sorted(written)
    overlay.close()
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_directory_is_done_without() -> None:
    overlay = Overlay(MemoryBlocks("base", []), Path("/proc/nowhere"), memory_pages=0)
    overlay.write(0, page(1))
    assert overlay.read(0) == page(1)
    overlay.close()


FACTS = {"format": 1, "files": 0, "directories": 0, "bytes": 0}


def test_a_page_nobody_wrote_is_named_nowhere_and_reads_as_zeros(bench: Bench) -> None:
    """As SQLite leaves out the page at 1 GiB."""
    overlay = Overlay(MemoryBlocks("base", []), bench.directory)
    for number in (0, 2):
        overlay.write(number, page(number))
    uploader = PackUploader(bench.store, PackKind.INDEX)
    with IndexDelta(overlay, FACTS, BlockCache(bench.cache())) as delta:
        done = publish(delta, uploader=uploader, reader=bench.reader, base_section=None)
    uploader.close()
    blocks = StoreBlocks(bench.reader, done.section, BlockCache(bench.cache()))
    assert [blocks.ref(number) is None for number in range(3)] == [False, True, False]
    assert [blocks.read(number) for number in range(3)] == [page(0), ZERO_PAGE, page(2)]
    assert sum(use.live_blocks for use in done.section.packs) == 2
