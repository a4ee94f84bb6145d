"""The block cache is only ever a help: damaged, deleted or unwritable, the answers stay right."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from blake3 import blake3

from cowfs.base.ids import ChunkHash
from cowfs.format.codec import hash_of
from cowfs.index.cache import BlockCache
from tests.engine.volumes import fresh_engine
from tests.index.bench import Bench, many_files

pytestmark = pytest.mark.quick


def test_blocks_are_found_again_by_their_hash(tmp_path: Path) -> None:
    blocks = [bytes([n]) * 16384 for n in range(20)]
    cache = BlockCache(tmp_path, memory_bytes=3 * 16384)
    for raw in blocks:
        cache.put(hash_of(raw), raw)
    assert cache.recent(hash_of(blocks[0])) is None
    assert cache.recent(hash_of(blocks[-1])) == blocks[-1]
    assert [cache.get(hash_of(raw)) for raw in blocks] == blocks
    name = hash_of(blocks[0]).hex()
    assert (tmp_path / "blocks" / name[:2] / name).read_bytes() == blocks[0]
    assert cache.get(hash_of(b"never put")) is None
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


def test_the_engine_trims_blocks_and_chunks_in_one_account(tmp_path: Path) -> None:
    engine = fresh_engine(tmp_path)
    cache = BlockCache(tmp_path / "cache", memory_bytes=0)
    chunk = os.urandom(30_000)  # less than an eighth of all: it does not go first
    engine.cache_chunk(ChunkHash(blake3(chunk).digest()), chunk)
    blocks = [bytes([n]) * 16384 for n in range(20)]
    for age, raw in enumerate(blocks):
        cache.put(hash_of(raw), raw)
        name = hash_of(raw).hex()
        os.utime(tmp_path / "cache" / "blocks" / name[:2] / name, ns=(0, age * 10**9))
    assert cache.get(hash_of(blocks[3])) == blocks[3]
    assert engine.trim_cache(20 * 16384 + 40_000) == 0
    assert engine.trim_cache(20 * 16384) >= 2 * 16384, "the chunk counts, too"
    kept = [raw[0] for raw in blocks if cache.get(hash_of(raw))]
    assert kept[0] == 3, "what was read last"
    assert kept[1:] == list(range(21 - len(kept), 20))
    assert engine.cached_chunk(ChunkHash(blake3(chunk).digest()), len(chunk)) is not None
    engine.trim_cache(0)
    assert not any(cache.get(hash_of(raw)) for raw in blocks)


def test_an_open_index_may_be_trimmed_at_any_time(bench: Bench) -> None:
    index, done = bench.commit(bench.empty(), many_files(3000))
    index.close()
    cache = bench.cache()
    with bench.open(done.section, cache) as index:
        for ino in range(1, 6):
            expected = index.directory(ino)
            for path in (cache / "blocks").glob("*/*"):
                path.unlink()
            assert index.directory(ino) == expected
