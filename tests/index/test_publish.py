"""Publishing: what is uploaded, what the section counts, how packs and catalogues stay few, what a
failure leaves."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from cowfs.base.ids import ChunkHash, PackId
from cowfs.errors import InvalidInputError, InvalidStateError, UnavailableError
from cowfs.format.catalogue import MAX_PER_TIER, Catalogue, CatalogueEntry, CataloguePack
from cowfs.format.manifest import CatalogueRef, IndexSection
from cowfs.format.pack import PackKind
from cowfs.index import ChangeSet, publish
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cache import BlockCache
from cowfs.index.delta import MAX_PACKS
from cowfs.store.packs import PackUploader
from tests.index.bench import Bench, change_set, extent, file_row, many_files, pack_id

FILES = 20_000
FIRST = 2 + FILES // 1000
SEED = 64


def blocks_in_packs(bench: Bench, section: IndexSection) -> dict[PackId, int]:
    blocks = StoreBlocks(bench.reader, section, BlockCache(bench.cache()))
    refs = [blocks.ref(number) for number in range(blocks.count)]
    return dict(Counter(ref.pack for ref in refs if ref is not None))


def counted(section: IndexSection) -> dict[PackId, int]:
    return {use.pack: use.live_blocks for use in section.packs}


def touch(number: int, mtime_ns: int) -> ChangeSet:
    return change_set(next_ino=FIRST + FILES, inodes=[file_row(FIRST + number, 1000, mtime_ns=mtime_ns)])


def test_packs_are_counted_and_stay_few(bench: Bench) -> None:
    """A hundred versions that each leave a block of their own somewhere: the oldest ones move
    together."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    index, published = bench.commit(bench.empty(), many_files(FILES))
    first = published.section
    for round_ in range(100):
        index, published = bench.commit(index, touch(chance.randrange(FILES), round_))
        assert sum(receipt.size_bytes for receipt in published.receipts) < 1 << 20
        if round_ % 20 == 0:
            assert counted(published.section) == blocks_in_packs(bench, published.section)
    index.close()
    assert len(published.section.packs) <= MAX_PACKS + 1
    assert counted(published.section) == blocks_in_packs(bench, published.section)
    with bench.open(published.section) as new, bench.open(first) as old:
        assert new.totals() == old.totals()
        for ino in range(FIRST, FIRST + FILES, 77):
            assert new.content(ino) == old.content(ino)


def test_replaced_blocks_do_not_stay_in_memory(bench: Bench) -> None:
    """A mount that commits for hours keeps what its newest version has."""
    index, published = bench.commit(bench.empty(), many_files(FILES))
    versions = [published.section]
    for round_ in range(5):
        index, published = bench.commit(index, touch(round_, round_ + 1))
        versions.append(published.section)
    with index.apply(touch(0, 0)) as delta:
        cache = delta.cache
    newest = names(bench, versions[-1])
    assert all(cache.recent(each) is not None for each in newest)
    gone = set[ChunkHash]().union(*(names(bench, each) for each in versions)) - newest
    assert len(gone) >= 10  # two blocks and a segment for each version
    assert [each for each in gone if cache.recent(each) is not None] == []
    index.close()


def names(bench: Bench, section: IndexSection) -> set[ChunkHash]:
    blocks = StoreBlocks(bench.reader, section, BlockCache(bench.cache()))
    refs = (blocks.ref(number) for number in range(blocks.count))
    return {ref.hash for ref in refs if ref is not None} | {ref.hash for ref in section.segments}


def test_unchanged_blocks_and_segments_stay_where_they_are(bench: Bench) -> None:
    index, first = bench.commit(bench.empty(), many_files(FILES))
    index, second = bench.commit(index, touch(5, 5))
    index.close()
    assert len(first.section.segments) == len(second.section.segments)
    entries = sum(receipt.entries for receipt in second.receipts)
    assert entries <= 4  # page 1, a leaf of inodes, a segment


def test_equal_pages_are_uploaded_once(bench: Bench) -> None:
    """Extended attributes large enough for overflow pages, all the same bytes."""
    value = b"v" * 65536
    changes = change_set(
        next_ino=40,
        inodes=[file_row(ino, flags=1) for ino in range(2, 40)],
        entries=[(1, b"%d" % ino, ino) for ino in range(2, 40)],
        xattrs={ino: [(b"user.x", value)] for ino in range(2, 40)},
    )
    index, published = bench.commit(bench.empty(), changes)
    index.close()
    assert sum(receipt.entries for receipt in published.receipts) <= published.section.pages
    assert counted(published.section) == blocks_in_packs(bench, published.section)
    with bench.open(published.section) as index:
        assert index.content(39) == ([], [(b"user.x", value)])


def test_a_failed_publish_can_be_repeated(bench: Bench) -> None:
    index, first = bench.commit(bench.empty(), many_files(FILES))
    with index.apply(touch(3, 3)) as delta:
        with pytest.raises(InvalidStateError):
            delta.as_index(first.section)
        broken = PackUploader(bench.store, PackKind.INDEX)
        bench.store.is_down = True
        with pytest.raises(UnavailableError):
            publish(delta, uploader=broken, reader=bench.reader, base_section=index.section)
        broken.close()
        bench.store.is_down = False
        uploader = PackUploader(bench.store, PackKind.INDEX)
        published = publish(delta, uploader=uploader, reader=bench.reader, base_section=index.section)
        uploader.close()
    index.close()
    with bench.open(published.section) as index:
        assert index.inode(FIRST + 3) == file_row(FIRST + 3, 1000, mtime_ns=3)


def test_a_delta_is_published_over_its_own_base_only(bench: Bench) -> None:
    index, _ = bench.commit(bench.empty(), many_files(10))
    uploader = PackUploader(bench.store, PackKind.INDEX)
    with index.apply(change_set(next_ino=100)) as delta, pytest.raises(InvalidInputError):
        publish(delta, uploader=uploader, reader=bench.reader, base_section=None)
    uploader.close()
    index.close()


# -- catalogues


def chunk(number: int) -> ChunkHash:
    return ChunkHash((number * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(8) + bytes(24))


def single_chunk(number: int) -> dict[str, Any]:
    """The arguments of a commit that adds one chunk."""
    packs = [CataloguePack(pack_id(number), 5, 5)]
    return {"catalogue_packs": packs, "catalogue": [CatalogueEntry(chunk(number)[:8], 0, 0)]}


def load(bench: Bench, ref: CatalogueRef) -> Catalogue:
    raw = bench.reader.read(ref.pack, ref.offset, ref.stored_length, ref.raw_length, ref.codec, ref.hash)
    return Catalogue.decode(raw, what="a catalogue")


def test_catalogues_name_every_chunk_and_stay_few(bench: Bench) -> None:
    index = bench.empty()
    count = 60
    catalogues: tuple[CatalogueRef, ...] = ()
    for n in range(count):
        packs = [CataloguePack(pack_id(1000 + n // 2), 500 + n // 2, 50)]
        entries = [CatalogueEntry(chunk(10 * n + i)[:8], 0, i) for i in range(3)]
        index, published = bench.commit(index, change_set(next_ino=2 + n), catalogue_packs=packs, catalogue=entries)
        catalogues = published.section.catalogues
        assert len(catalogues) <= MAX_PER_TIER + 1
    index.close()
    loaded = [load(bench, ref) for ref in catalogues]
    assert [len(catalogue) for catalogue in loaded] == [ref.chunks for ref in catalogues]
    assert sum(map(len, loaded)) == 3 * count
    for n in range(count):
        for i in range(3):
            found = [place for catalogue in loaded for place in catalogue.lookup(chunk(10 * n + i))]
            assert [(place.pack.pack, place.pack.directory_offset, place.offset) for place in found] == [
                (pack_id(1000 + n // 2), 500 + n // 2, i)
            ]


def test_a_commit_without_new_chunks_keeps_the_catalogues(bench: Bench) -> None:
    index, first = bench.commit(bench.empty(), change_set(next_ino=2), **single_chunk(1))
    index, second = bench.commit(index, change_set(next_ino=3))
    index.close()
    assert first.section.catalogues == second.section.catalogues
    assert len(first.section.catalogues) == 1


def test_a_lost_catalogue_does_not_hold_up_commits(bench: Bench) -> None:
    index, published = bench.commit(bench.empty(), change_set(next_ino=2), **single_chunk(0))
    (lost,) = published.section.catalogues
    path = bench.pack_path(lost.pack)
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[: lost.offset] + b"\0" + data[lost.offset + 1 :])
    for n in range(1, MAX_PER_TIER + 4):
        index, published = bench.commit(index, change_set(next_ino=2), **single_chunk(n))
    index.close()
    assert lost in published.section.catalogues
    assert len(published.section.catalogues) <= MAX_PER_TIER + 1
    others = [load(bench, ref) for ref in published.section.catalogues if ref != lost]
    assert sum(map(len, others)) == MAX_PER_TIER + 3


def test_extents_of_a_file_are_compared_row_by_row(bench: Bench) -> None:
    """Rewriting the end of a file with 5,000 extents dirties the end only."""
    rows = [extent(n * 1000, 1000, chunk=n) for n in range(5000)]
    base = change_set(
        next_ino=3, inodes=[file_row(2, 5_000_000)], entries=[(1, b"f", 2)], contents={2: rows}, packs={1: pack_id(1)}
    )
    index, _ = bench.commit(bench.empty(), base)
    changed = [*rows[:-1], extent(4_999_000, 1000, chunk=77_777)]
    with index.apply(change_set(next_ino=3, contents={2: changed})) as delta:
        assert len(list(delta.pages())) <= 2  # page 1 and one leaf
    index.close()
