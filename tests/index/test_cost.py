"""What things cost: requests and bytes, counted on a store with 100,000 files."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cowfs.format.manifest import IndexSection
from cowfs.index import ChangeSet
from tests.index.bench import Bench, change_set, directory_row, extent, file_row, many_files, pack_id

FILES = 100_000
FIRST = 2 + FILES // 1000
SEED = 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, IndexSection]]:
    bench = Bench(tmp_path_factory.mktemp("large"))
    index, published = bench.commit(bench.empty(), many_files(FILES))
    index.close()
    bench.store.reads.clear()
    yield bench, published.section
    bench.store.close()


@pytest.fixture(autouse=True)
def forget_reads(large: tuple[Bench, IndexSection]) -> None:
    large[0].store.reads.clear()


def rewrite(numbers: list[int]) -> ChangeSet:
    return change_set(
        next_ino=FIRST + FILES,
        inodes=[file_row(FIRST + n, 500, mtime_ns=7) for n in numbers],
        contents={FIRST + n: [extent(0, 500, chunk=n + 1, pack=2)] for n in numbers},
        packs={2: pack_id(2)},
    )


def test_one_changed_file_uploads_little(large: tuple[Bench, IndexSection]) -> None:
    bench, section = large
    index, published = bench.commit(bench.open(section), rewrite([FILES // 2]))
    index.close()
    uploaded = sum(receipt.size_bytes for receipt in published.receipts)
    assert uploaded < 400_000
    changed = [new for old, new in zip(section.segments, published.section.segments, strict=True) if old != new]
    assert 1 <= len(changed) <= 3
    assert len(published.receipts) == 1


def test_ten_new_files_upload_little(large: tuple[Bench, IndexSection]) -> None:
    bench, section = large
    new = range(FIRST + FILES, FIRST + FILES + 10)
    changes = change_set(
        next_ino=new.stop,
        inodes=[directory_row(50, mtime_ns=9), *(file_row(ino, 1000) for ino in new)],
        entries=[(50, b"new-%d" % ino, ino) for ino in new],
        contents={ino: [extent(0, 1000, chunk=ino)] for ino in new},
    )
    index, published = bench.commit(bench.open(section), changes)
    index.close()
    assert sum(receipt.size_bytes for receipt in published.receipts) < 400_000


def test_opening_and_a_first_look_take_few_requests(large: tuple[Bench, IndexSection]) -> None:
    bench, section = large
    with bench.open(section) as index:
        assert len(bench.store.reads) == 1  # a list segment, and the roots before it
        assert index.inode(1) is not None
        assert len(index.directory(1)) == 100
        assert len(index.directory(60)) == 1000
        assert index.content(FIRST + 58_500)[0]
        assert len(bench.store.reads) <= 20
        assert sum(length for _, _, length in bench.store.reads) < 5 << 20


def test_a_second_open_takes_none(large: tuple[Bench, IndexSection]) -> None:
    bench, section = large
    cache = bench.cache()
    with bench.open(section, cache) as index:
        first = index.directory(60)
    bench.store.reads.clear()
    with bench.open(section, cache) as index:
        assert index.directory(60) == first
    assert bench.store.reads == []


def test_a_scan_reads_ahead(large: tuple[Bench, IndexSection]) -> None:
    bench, section = large
    with bench.open(section) as index:
        for ino in range(2, FIRST):
            index.directory(ino)
    assert len(bench.store.reads) < 40  # 887 pages


def test_a_scattered_change_fetches_its_pages_together(large: tuple[Bench, IndexSection]) -> None:
    bench, section = large
    print(f"seed {SEED}")
    numbers = random.Random(SEED).sample(range(FILES), 300)
    index = bench.open(section)
    bench.store.readers.clear()
    with index.apply(rewrite(numbers)) as delta:
        assert sum(1 for _ in delta.pages()) > 200
    index.close()
    one_by_one = bench.store.readers.count(threading.get_ident())  # the others ran beside each other
    assert one_by_one <= 12


def test_threads_that_miss_the_same_block_fetch_it_once(large: tuple[Bench, IndexSection]) -> None:
    bench, section = large
    with bench.open(section, Path("/proc/no-cache-can-be-here")) as index, ThreadPoolExecutor(8) as threads:
        bench.store.reads.clear()
        together = threading.Barrier(8)

        def look(_: int) -> object:
            together.wait()
            return index.content(FIRST + 77_777)

        assert len({repr(found) for found in threads.map(look, range(8))}) == 1
    assert len(bench.store.reads) == len(set(bench.store.reads))
