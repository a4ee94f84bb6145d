"""Linked files: format 2 as long as there are any, format 1 before and after; a link gives way to
contents, and what uncommitted work may refer to stays until nothing does."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from cowfs.errors import CorruptError, InvalidInputError, InvalidStateError
from cowfs.index import ChangeSet, Index, Link, empty_index
from cowfs.index.cache import BlockCache
from cowfs.index.connection import Connection
from cowfs.index.links import MAX_INO
from cowfs.index.overlay import MemoryBlocks
from tests.index.bench import Bench, directory_row, extent, file_row, pack_id

pytestmark = pytest.mark.quick

GOLDEN = Path(__file__).parent / "golden" / "index-2.zst"
T = 1_750_000_000_000_000_000
A = Link("s3://bucket/data", b"dir/a", 1000, T, '"0cc175b9c0f1b6a831c399e269772661"')
B = Link("file:///srv/data", b"\xff", 5, T + 1, str(T + 1))
EXAMPLE = ChangeSet(
    next_ino=5,
    inodes=[directory_row(1), file_row(2, 1000), file_row(3, 5), file_row(4, 10)],
    entries=[(1, b"a", 2), (1, b"b", 3), (1, b"own", 4)],
    contents=[(4, [extent(0, 10)])],
    packs={1: pack_id(1)},
    links=[(2, A), (3, B)],
)


def pages_of_example() -> list[bytes]:
    with tempfile.TemporaryDirectory() as directory:
        with empty_index(Path(directory), uid=1000, gid=1000, now_ns=T) as index, index.apply(EXAMPLE) as delta:
            return [page for _, page in delta.pages()]


def formats(index: Index) -> tuple[int, list[str]]:
    with index._connections.connection() as connection:
        [(number,)] = connection.execute("SELECT value FROM meta WHERE key = 'format'")
        return number, sorted(name for (name,) in connection.execute("SELECT name FROM sqlite_schema"))


def test_the_golden_database_is_read(bench: Bench) -> None:
    data = zstandard.decompress(GOLDEN.read_bytes())
    pages = [data[at : at + 16384] for at in range(0, len(data), 16384)]
    with Index(MemoryBlocks("the example", pages), BlockCache(bench.cache())) as index:
        assert [*index.links()] == [(2, A), (3, B)]
        assert index.read_stored_content(2) == ([], [])
        with pytest.raises(InvalidStateError, match="linked"):
            index.content(2)
        assert index.link(4) is None


def test_links_come_and_go(bench: Bench) -> None:
    index, _ = bench.commit(bench.empty(), ChangeSet(next_ino=2))
    assert (formats(index)[0], index.link(2)) == (1, None)
    index, _ = bench.commit(index, EXAMPLE)
    assert formats(index) == (2, ["dirents", "extents", "inodes", "links", "meta", "origins", "packs", "xattrs"])
    assert [*index.links()] == [(2, A), (3, B)]
    index, _ = bench.commit(index, ChangeSet(next_ino=5, contents=[(2, [extent(0, 1000)])]))
    assert [*index.links()] == [(3, B)]
    left = index.link(2)
    assert left is not None
    assert not left.is_current, "uncommitted work may name its bytes"
    index, _ = bench.commit(index, ChangeSet(next_ino=5, removed=[3], entries=[(1, b"b", 0)]))
    assert [*index.links()] == []
    assert formats(index)[0] == 2
    index, _ = bench.commit(index, ChangeSet(next_ino=5, inodes=[file_row(4, 10, mtime_ns=T)], forgets_links=True))
    assert formats(index) == (1, ["dirents", "extents", "inodes", "meta", "packs", "xattrs"])
    assert index.content(2)[0] == [extent(0, 1000)]
    index.close()


def test_a_link_may_become_another(bench: Bench) -> None:
    index, _ = bench.commit(bench.empty(), EXAMPLE)
    other = Link(A.url, A.key, 7, T, '"other"')
    with index.apply(ChangeSet(next_ino=5, inodes=[file_row(2, 7)], links=[(2, other)])) as delta:
        assert delta.linked_bytes == 7 + B.size
    index.close()


@pytest.mark.parametrize(
    "change",
    [
        {"links": [(2, Link("s3://b", b"k", 999, T, ""))]},
        {"links": [(4, Link("s3://b", b"k", 10, T, ""))]},
        {"links": [(1, Link("s3://b", b"k", 1, T, ""))]},
        {"links": [(9, Link("s3://b", b"k", 1, T, ""))]},
        {"links": [(2, Link("", b"k", 1000, T, ""))]},
        {"links": [(2, Link("s3://b", b"k" * 5000, 1000, T, ""))]},
        {"links": [(2, Link("s3://b", b"k", 0, T, ""))]},
        {"links": [(3, B), (2, A)]},
        {"links": [(2, A)], "contents": [(2, [extent(0, 1000)])]},
        {
            "next_ino": MAX_INO + 3,
            "inodes": [file_row(MAX_INO + 1, 1000)],
            "links": [(MAX_INO + 1, A)],
        },
    ],
)
def test_links_that_make_no_sense_are_refused(bench: Bench, change: dict[str, Any]) -> None:
    index, _ = bench.commit(bench.empty(), EXAMPLE)
    with pytest.raises(InvalidInputError, match="the change set is wrong"):
        index.apply(ChangeSet(**{"next_ino": 5, **change}))
    index.close()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM origins",
        "UPDATE links SET size = 0",
        "UPDATE links SET tag = x'ff'",
        "UPDATE links SET key = x'00'",
    ],
)
def test_damaged_links_are_found(bench: Bench, damage: str) -> None:
    overlay_pages = pages_of_example()
    with tempfile.TemporaryDirectory() as directory:
        from cowfs.index.overlay import Overlay

        overlay = Overlay(MemoryBlocks("damaged", overlay_pages), Path(directory))
        connection = Connection(overlay, writable=True)
        connection.execute(damage)
        connection.close()
        pages = [overlay.read(number) for number in range(overlay.count)]
    with Index(MemoryBlocks("damaged", pages), BlockCache(bench.cache())) as index:
        with pytest.raises(CorruptError):
            index.link(2)
        with pytest.raises(CorruptError):
            list(index.links())


if __name__ == "__main__":
    GOLDEN.write_bytes(zstandard.compress(b"".join(pages_of_example()), 19))
