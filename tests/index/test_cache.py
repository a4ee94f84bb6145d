"""The block cache is only ever a help: damaged, deleted or unwritable, the answers stay right."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from cowfs.index import trim_blocks
from cowfs.index.cache import ABANDONED_S, BlockCache, hash_block
from tests.index.bench import Bench, many_files

pytestmark = pytest.mark.quick


def test_blocks_are_found_again_by_their_hash(tmp_path: Path) -> None:
    blocks = [bytes([n]) * 16384 for n in range(20)]
    cache = BlockCache(tmp_path, memory_bytes=3 * 16384)
    for raw in blocks:
        cache.put(hash_block(raw), raw)
    assert cache.recent(hash_block(blocks[0])) is None
    assert cache.recent(hash_block(blocks[-1])) == blocks[-1]
    assert [cache.get(hash_block(raw)) for raw in blocks] == blocks
    name = hash_block(blocks[0]).hex()
    assert (tmp_path / "blocks" / name[:2] / name).read_bytes() == blocks[0]
    assert cache.get(hash_block(b"never put")) is None
    assert not list(tmp_path.rglob(".*"))


def test_damaged_files_are_fetched_again(bench: Bench) -> None:
    index, done = bench.commit(bench.empty(), many_files(3000))
    index.close()
    cache = bench.cache()
    with bench.open(done.section, cache) as index:
        expected = [index.directory(ino) for ino in range(1, 6)]
    chance = random.Random(1)
    for path in (cache / "blocks").rglob("*"):
        if path.is_file():
            damage = chance.choice([b"", b"x" * 16384, path.read_bytes()[:100]])
            path.write_bytes(damage)
    with bench.open(done.section, cache) as index:
        assert [index.directory(ino) for ino in range(1, 6)] == expected
    bench.store.reads.clear()
    with bench.open(done.section, cache) as index:
        assert [index.directory(ino) for ino in range(1, 6)] == expected
    assert bench.store.reads == []


def test_a_cache_may_vanish_under_an_open_index(bench: Bench) -> None:
    index, done = bench.commit(bench.empty(), many_files(3000))
    index.close()
    cache = bench.cache()
    with bench.open(done.section, cache) as index:
        shutil.rmtree(cache)
        assert len(index.directory(2)) == 1000


@pytest.mark.parametrize("place", ["/proc/nowhere", "file"])
def test_without_a_cache_everything_works(bench: Bench, place: str) -> None:
    cache = Path(place) if place.startswith("/") else bench.directory / place
    if not place.startswith("/"):
        cache.write_bytes(b"in the way")
    index, done = bench.commit(bench.empty(), many_files(3000))
    index.close()
    with bench.open(done.section, cache) as index:
        assert len(index.directory(2)) == 1000
        with index.apply(many_files(3000)) as delta:
            assert delta.totals.files == 3000


def test_trimming_keeps_what_was_read_last(tmp_path: Path) -> None:
    blocks = [bytes([n]) * 16384 for n in range(20)]
    cache = BlockCache(tmp_path, memory_bytes=0)
    for age, raw in enumerate(blocks):
        cache.put(hash_block(raw), raw)
        name = hash_block(raw).hex()
        os.utime(tmp_path / "blocks" / name[:2] / name, ns=(0, age * 10**9))
    assert cache.get(hash_block(blocks[3])) == blocks[3]
    assert trim_blocks(tmp_path, 20 * 16384) == 0
    assert trim_blocks(tmp_path, 5 * 16384) == 15 * 16384
    assert [raw[0] for raw in blocks if cache.get(hash_block(raw))] == [3, 16, 17, 18, 19]
    assert trim_blocks(tmp_path, 0) == 5 * 16384
    assert trim_blocks(tmp_path / "absent", 0) == 0


def test_trimming_removes_what_killed_writers_left_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "blocks" / "ab"
    folder.mkdir(parents=True)
    for name in (".ab.old", ".ab.new"):
        (folder / name).write_bytes(bytes(100))
    old_s = os.stat(folder / ".ab.old").st_mtime - ABANDONED_S - 1
    os.utime(folder / ".ab.old", (old_s, old_s))
    (tmp_path / "chunks").mkdir()
    (tmp_path / "chunks" / "f").write_bytes(bytes(100))
    assert trim_blocks(tmp_path, 0) == 100
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [".ab.new", "f"]


def test_an_open_index_may_be_trimmed_at_any_time(bench: Bench) -> None:
    index, done = bench.commit(bench.empty(), many_files(3000))
    index.close()
    cache = bench.cache()
    with bench.open(done.section, cache) as index:
        for ino in range(1, 6):
            expected = index.directory(ino)
            trim_blocks(cache, 0)
            assert index.directory(ino) == expected
