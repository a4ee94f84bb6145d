"""Queries give back what was committed; an index never changes; threads do not disturb one
another."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cowfs.base.ids import ChunkHash
from cowfs.errors import InvalidStateError
from cowfs.index import Totals
from cowfs.index import index as index_module
from tests.index.bench import (
    NOW_NS,
    Bench,
    change_set,
    directory_row,
    extent,
    file_row,
    many_files,
    pack_id,
    symlink_row,
)

pytestmark = pytest.mark.quick


def test_an_empty_volume_has_a_root_and_nothing_else(bench: Bench) -> None:
    with bench.empty() as index:
        assert index.inode(1) == (1, 0o40755, 2, 1000, 1000, 0, 0, 0, NOW_NS, NOW_NS, NOW_NS, 0, b"")
        assert index.inode(2) is None
        assert index.directory(1) == []
        assert index.content(1) == ([], [])
        assert index.pack_ids() == {}
        assert index.last_pack_number() == 0
        assert index.next_ino == 2
        assert index.totals() == Totals(0, 0, 0)
        assert index.section is None
    assert bench.store.reads == []


def test_everything_comes_back_from_the_store(bench: Bench) -> None:
    names = [b"a", b"\xff\xfe not utf-8", b"n" * 255, b"Z", "ä".encode(), b" "]
    first = extent(0, 10, chunk=1)
    extents = [
        (*first[:2], ChunkHash(first[2]), *first[3:]),
        extent(4096, 1 << 20, chunk=2, skip=7),
        extent(1 << 41, 1, chunk=3, pack=2),
    ]
    sparse = file_row(15, (1 << 41) + 1, mapped_bytes=10 + (1 << 20) + 1, flags=1)
    changes = change_set(
        next_ino=30,
        inodes=[
            *(file_row(ino) for ino in range(10, 15)),
            sparse,
            symlink_row(16, b"\xff/somewhere"),
            directory_row(17),
        ],
        entries=[(1, name, 10 + n) for n, name in enumerate(names)]
        + [(1, b"link", 16), (1, b"sub", 17), (17, b"a", 10)],
        contents={15: extents},
        xattrs={15: [(b"user.b", b"\0" * 65536), (b"user.a", b"")]},
        packs={1: pack_id(1), 2: pack_id(2)},
    )
    index, published = bench.commit(bench.empty(), changes)
    index.close()
    with bench.open(published.section) as index:
        assert [name for name, _ in index.directory(1)] == sorted([*names, b"link", b"sub"])
        assert dict(index.directory(1))[b"link"] == symlink_row(16, b"\xff/somewhere")
        assert index.directory(17) == [(b"a", file_row(10))]
        assert index.content(15) == (extents, [(b"user.a", b""), (b"user.b", b"\0" * 65536)])
        assert index.inode(15) == sparse
        assert index.pack_ids() == {1: pack_id(1), 2: pack_id(2)}
        assert (index.pack_id(1), index.pack_id(2), index.pack_id(3)) == (pack_id(1), pack_id(2), None)
        assert index.last_pack_number() == 2
        assert index.next_ino == 30
        assert index.totals() == Totals(files=7, directories=1, bytes=(1 << 41) + 1)


@pytest.mark.parametrize("kept", [1, 2, 1024])
def test_what_is_at_a_path_is_found_whatever_was_looked_for_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(index_module, "KEPT_WAYS", kept)
    changes = change_set(
        next_ino=6,
        inodes=[directory_row(2), directory_row(3), directory_row(4), file_row(5)],
        entries=[(1, b"a", 2), (2, b"b", 3), (1, b"b", 4), (3, b"f", 5), (4, b"f", 5)],
    )
    index, _ = bench.commit(bench.empty(), changes)
    there = {b"": 1, b"a": 2, b"a/b": 3, b"b": 4, b"a/b/f": 5, b"b/f": 5, b"/a//b/f": 5, b"a/b/": 3}
    gone = [b"a/f", b"c", b"c/b/f", b"b/f/b", b"a/c/b", b"a/c"]
    with index:
        for path in random.Random(kept).choices([*there, *gone], k=200):
            assert index.find(path) == there.get(path), path


def test_an_empty_first_version_can_be_published(bench: Bench) -> None:
    index, published = bench.commit(bench.empty(), change_set(next_ino=2))
    index.close()
    with bench.open(published.section) as index:
        assert index.directory(1) == []
        assert index.inode(1) is not None


def test_the_new_index_reads_nothing_from_the_store(bench: Bench) -> None:
    index, _ = bench.commit(bench.empty(), many_files(3000))
    bench.store.reads.clear()
    bench.store.is_down = True
    assert len(index.directory(2)) == 1000
    assert index.content(10)[0] == [extent(0, 1000, chunk=5)]
    index.close()
    assert bench.store.reads == []


def test_removed_inodes_take_their_rows_along(bench: Bench) -> None:
    index, _ = bench.commit(bench.empty(), many_files(10))
    changes = change_set(
        next_ino=13,
        removed=[2, *range(3, 13), 99],
        entries=[(1, b"d0002", 0), *((2, b"file-%07d" % n, 0) for n in range(10))],
    )
    index, _ = bench.commit(index, changes)
    assert index.totals() == Totals(0, 0, 0)
    assert index.content(5) == ([], [])
    assert index.directory(1) == []
    index.close()


def test_only_rows_that_differ_are_written(bench: Bench) -> None:
    index, _ = bench.commit(bench.empty(), many_files(2000))
    again = many_files(2000)
    with index.apply(change_set(again.next_ino, inodes=again.inodes, contents=dict(again.contents))) as delta:
        assert [number for number, _ in delta.pages()] in ([], [1])  # at most the change counter
    index.close()


def test_a_change_set_can_be_applied_again(bench: Bench) -> None:
    index = bench.empty()
    changes = many_files(50)
    with index.apply(changes) as first, index.apply(changes) as second:
        assert list(first.pages()) == list(second.pages())
        assert first.totals == second.totals == Totals(50, 1, 50_000)
    assert index.directory(1) == []
    index.close()


def test_many_threads_read_at_once(bench: Bench) -> None:
    index, published = bench.commit(bench.empty(), many_files(5000, per_directory=500))
    index.close()
    expected = many_files(5000, per_directory=500)
    with bench.open(published.section) as index, ThreadPoolExecutor(24) as threads:
        found = list(threads.map(index.inode, [row[0] for row in expected.inodes]))
        assert found == list(expected.inodes)
        sizes = threads.map(lambda ino: len(index.directory(ino)), [*range(2, 12)] * 5)
        assert set(sizes) == {500}


def test_close_waits_for_queries_and_ends_the_index(bench: Bench) -> None:
    index, _ = bench.commit(bench.empty(), many_files(1000))
    started = threading.Barrier(5)

    def read() -> int:
        started.wait()
        return len(index.directory(2))

    with ThreadPoolExecutor(4) as threads:
        reading = [threads.submit(read) for _ in range(4)]
        started.wait()
        index.close()
        for outcome in reading:
            error = outcome.exception()
            assert error is None or isinstance(error, InvalidStateError)
    with pytest.raises(InvalidStateError):
        index.inode(1)


def test_contents_together_are_whole_or_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who would have rows beyond those looked at, or a long value, is not in the answer."""
    rows = [extent(0, 100), extent(100, 100), extent(200, 100)]
    changes = change_set(
        next_ino=30,
        inodes=[file_row(ino, 300, mapped_bytes=300) for ino in range(10, 15)] + [file_row(20)],
        entries=[(1, b"%d" % ino, ino) for ino in (*range(10, 15), 20)],
        contents=dict.fromkeys(range(10, 15), rows),
        xattrs={11: [(b"user.a", bytes(1025)), (b"user.b", b"")], 12: [(b"user.a", b"1")], 20: [(b"user.a", b"2")]},
        packs={1: pack_id(1)},
    )
    index, published = bench.commit(bench.empty(), changes)
    index.close()
    with bench.open(published.section) as index:
        everything = [
            (10, rows, []),
            (12, rows, [(b"user.a", b"1")]),
            (13, rows, []),
            (14, rows, []),
            (20, [], [(b"user.a", b"2")]),
        ]
        assert index.read_stored_contents(1, 29) == everything
        assert index.read_stored_contents(12, 13) == everything[1:3]
        for limit, last in ((16, 20), (15, 13), (14, 13), (13, 13), (12, 12), (3, 9)):
            monkeypatch.setattr(index_module, "CONTENT_ROWS_AT_ONCE", limit)
            assert [ino for ino, _, _ in index.read_stored_contents(1, 29)] == [
                ino for ino, _, _ in everything if ino <= last
            ]
