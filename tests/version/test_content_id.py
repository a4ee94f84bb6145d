"""Content ids: equal exactly where `diff` finds nothing that counts; the bytes of the scheme; what
counts that random trees do not have; crafted rows; the cache."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.base.ids import StoreId, VersionId
from cowfs.errors import CorruptError
from cowfs.format.sealed import Sealed
from cowfs.format.sealing import PLAIN
from cowfs.index import ChangeSet, Index, Link, Subtree, empty_index
from cowfs.index.cache import BlockCache
from cowfs.index.overlay import MemoryBlocks
from cowfs.version import content_id_cache
from cowfs.version.content_id import content_id
from cowfs.version.content_id_cache import ContentIdCache
from cowfs.version.differences import compare
from tests.index.bench import NOW_NS, change_set, directory_row, extent, file_row, pack_id
from tests.index.example import golden_pages
from tests.version.trees import NOWHERE, ROOT, Node, Tree, applied_in_memory, changed, trees

PAGE = (Path(__file__).parents[2] / "docs" / "format" / "content-id.md").read_text()
NOT_COUNTED = {"owner", "mtime"}
LINK = Link("s3://bucket/data", b"a", 100, NOW_NS, "tag")


def id_of(tree: Tree, folder: bytes = b"") -> str:
    with tree.in_memory() as index:
        if not folder:
            return content_id(index, PLAIN)
        with Subtree(index, folder, "v") as below:
            return content_id(below, PLAIN)


def id_of_rows(**rows: Any) -> str:
    """Of an index with these changes to an empty one."""
    with empty_index(NOWHERE, uid=1000, gid=1000, now_ns=NOW_NS) as nothing:
        changes = change_set(**rows) if "links" not in rows else ChangeSet(**rows)
        with applied_in_memory(nothing, changes) as index:
            return content_id(index, PLAIN)


# -- equal and different


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_ids_are_equal_where_a_comparison_finds_nothing_that_counts(data: st.DataObject) -> None:
    base = data.draw(trees)
    a = data.draw(changed(base))
    b = data.draw(st.one_of(changed(base, most=3), changed(a, most=3)))
    of_base = base.in_memory()
    with of_base, a.in_memory(base, of_base) as of_a, b.in_memory(base, of_base) as of_b:
        found = compare(of_a, of_b, shared=base.next_ino, renames=False)
        counted = [each for each in found if each.kind != "changed" or each.what - NOT_COUNTED]
        assert (content_id(of_a, PLAIN) == content_id(of_b, PLAIN)) == (not counted)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_tree_made_again_has_the_same_id(data: st.DataObject) -> None:
    """In another order, so with other inode numbers, and by another owner at another time."""
    tree = data.draw(trees)
    again = Tree()
    again.next_ino = 100
    again.nodes[ROOT] = Node("directory", tree.nodes[ROOT].mode, uid=7, xattrs=tree.nodes[ROOT].xattrs)
    numbers = {ROOT: ROOT}
    for path, ino in data.draw(st.permutations(list(tree.paths()))):
        numbers.setdefault(ino, len(numbers) + 100) if path else None
    for ino, node in tree.nodes.items():
        names = {name: numbers[below] for name, below in node.names.items()}
        again.nodes[numbers[ino]] = Node(
            node.kind, node.mode, 7, 5, node.target, node.chunks, node.xattrs, dict(reversed(names.items()))
        )
    again.next_ino = 1000
    assert id_of(again) == id_of(tree)


def test_two_links_are_not_two_files() -> None:
    linked, copied, alone = Tree(), Tree(), Tree()
    one = linked.make(ROOT, b"a", Node("file", chunks=(1,)))
    linked.link(ROOT, b"b", one)
    for name in (b"a", b"b"):
        copied.make(ROOT, name, Node("file", chunks=(1,)))
    alone.make(ROOT, b"a", Node("file", chunks=(1,)))
    assert len({id_of(linked), id_of(copied), id_of(alone)}) == 3


def test_which_names_are_one_file_counts() -> None:
    def paired(*pairs: str) -> str:
        tree = Tree()
        for pair in pairs:
            ino = tree.make(ROOT, pair[:1].encode(), Node("file", chunks=(1,)))
            tree.link(ROOT, pair[1:].encode(), ino)
        return id_of(tree)

    assert paired("ab", "cd") == paired("cd", "ba")
    assert len({paired("ab", "cd"), paired("ac", "bd"), paired("ad", "bc")}) == 3


def test_a_folder_has_the_id_of_the_same_files_elsewhere() -> None:
    """A name outside of the folder does not count."""
    tree = Tree()
    folder = tree.make(ROOT, b"a", Node("directory", 0o755, xattrs={b"user.a": b"1"}))
    file = tree.make(folder, b"f", Node("file", chunks=(1, 2)))
    tree.link(ROOT, b"outside", file)
    tree.make(folder, b"d", Node("directory"))
    alone = Tree()
    alone.nodes[ROOT].xattrs = {b"user.a": b"1"}
    alone.make(ROOT, b"d", Node("directory"))
    alone.make(ROOT, b"f", Node("file", chunks=(1, 2)))
    assert id_of(tree, b"a") == id_of(alone)
    assert len({id_of(tree, b"a"), id_of(tree, b"a/d"), id_of(tree)}) == 3


def test_kinds_and_device_numbers_count() -> None:
    def special(kind: int, rdev: int = 0) -> str:
        row = (2, kind | 0o644, 1, 0, 0, rdev, 0, 0, 0, 0, 0, 0, b"")
        return id_of_rows(next_ino=3, inodes=[row], entries=[(ROOT, b"a", 2)])

    kinds = (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)
    found = [special(kind) for kind in kinds] + [special(kind, 259) for kind in kinds[-2:]]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("size", "extents"),
    [
        (300, [extent(0, 100, chunk=1), extent(200, 100, chunk=1)]),
        (300, [extent(0, 100, chunk=1), extent(100, 100, chunk=1)]),
        (301, [extent(0, 100, chunk=1), extent(200, 100, chunk=1)]),
        (300, [extent(0, 100, chunk=1), extent(200, 100, chunk=2)]),
        (300, [extent(0, 100, chunk=1), extent(200, 100, chunk=1, skip=1)]),
        (300, [extent(0, 100, chunk=1), extent(200, 99, chunk=1)]),
        (300, []),
    ],
)
def test_holes_and_parts_of_chunks_count(size: int, extents: list[Any]) -> None:
    def sparse(size: int, extents: list[Any]) -> str:
        row = file_row(2, size, mapped_bytes=sum(each[1] for each in extents))
        return id_of_rows(
            next_ino=3, inodes=[row], entries=[(ROOT, b"a", 2)], contents={2: extents}, packs={1: pack_id(1)}
        )

    usual = (300, [extent(0, 100, chunk=1), extent(200, 100, chunk=1)])
    assert (sparse(size, extents) == sparse(*usual)) == ((size, extents) == usual)


@pytest.mark.parametrize(
    "link",
    [
        LINK,
        Link("s3://bucket/other", b"a", 100, NOW_NS, "tag"),
        Link("s3://bucket/data", b"b", 100, NOW_NS, "tag"),
        Link("s3://bucket/data", b"a", 100, NOW_NS + 1, "tag"),
        Link("s3://bucket/data", b"a", 100, NOW_NS, "another"),
    ],
)
def test_linked_files_count_by_the_state_of_their_object(link: Link) -> None:
    def linked(link: Link) -> str:
        inodes = [directory_row(1), file_row(2, 100)]
        return id_of_rows(next_ino=3, inodes=inodes, entries=[(1, b"a", 2)], links=[(2, link)])

    assert (linked(link) == linked(LINK)) == (link == LINK)


def test_a_link_differs_from_its_copy_and_an_outdated_one_does_not_count() -> None:
    inodes, entries = [directory_row(1), file_row(2, 100)], [(1, b"a", 2)]
    packs, contents = {1: pack_id(1)}, [(2, [extent(0, 100)])]
    linked = ChangeSet(next_ino=3, inodes=inodes, entries=entries, links=[(2, LINK)])
    with empty_index(NOWHERE, uid=1000, gid=1000, now_ns=NOW_NS) as nothing:
        of_linked = applied_in_memory(nothing, linked)
    of_copied = applied_in_memory(of_linked, ChangeSet(next_ino=3, packs=packs, contents=contents))
    never_linked = id_of_rows(next_ino=3, inodes=inodes, entries=entries, contents=dict(contents), packs=packs)
    with of_linked, of_copied:
        assert content_id(of_copied, PLAIN) == never_linked != content_id(of_linked, PLAIN)


def test_more_files_than_a_window_and_a_page() -> None:
    def many(changed: int) -> str:
        count = 12_000
        return id_of_rows(
            next_ino=count + 2,
            inodes=[file_row(2 + n, 100) for n in range(count)],
            entries=[(ROOT, b"%05d" % n, 2 + n) for n in range(count)],
            contents={2 + n: [extent(0, 100, chunk=n + (n == changed))] for n in range(count)},
            packs={1: pack_id(1)},
        )

    assert len({many(0), many(5000), many(11_999)}) == 3


# -- the scheme


def golden_index() -> Index:
    return Index(MemoryBlocks("the example", golden_pages()), BlockCache(NOWHERE))


def test_the_id_of_the_golden_database_stays_as_it_is() -> None:
    with golden_index() as index:
        assert content_id(index, PLAIN) in PAGE
        assert content_id(index, PLAIN) == "content-1:797b2ed7c35b5056659a74e4e98a6bf2b6e32094e43b18ea670f400862751e38"


def test_the_stream_on_the_page_has_that_id() -> None:
    found = re.search(r"^```stream\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    stream = bytes.fromhex(" ".join(line.partition("|")[0] for line in found[1].splitlines()))
    inner = blake3(stream, derive_key_context="cowfs 2026-11-30 content-1").digest()
    assert "content-1:" + blake3(b"content-1" + inner).hexdigest() in PAGE


def test_an_encrypted_store_has_ids_of_its_own() -> None:
    store = StoreId(bytes(StoreId.length))
    sealings = PLAIN, Sealed(b"a" * 32, store), Sealed(b"b" * 32, store)
    with golden_index() as index:
        assert len({content_id(index, sealing) for sealing in sealings}) == 3


# -- crafted rows


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("INSERT INTO dirents VALUES (4, CAST('me' AS BLOB), 4)", "two names"),
        ("INSERT INTO dirents VALUES (4, CAST('root' AS BLOB), 1)", "two names"),
        ("INSERT INTO dirents VALUES (4, CAST('gone' AS BLOB), 99)", "does not exist"),
        ("UPDATE inodes SET mode = 33188 WHERE ino = 1", "no root directory"),
        ("UPDATE inodes SET flags = 0", "flags deny"),
        ("UPDATE inodes SET mapped_bytes = 0", "maps no bytes"),
        ("UPDATE extents SET length = 0", "impossible length"),
    ],
)
def test_rows_that_are_no_tree_are_refused(statement: str, says: str) -> None:
    from cowfs.index.connection import Connection
    from cowfs.index.overlay import Overlay

    overlay = Overlay(MemoryBlocks("the example", golden_pages()), NOWHERE)
    connection = Connection(overlay, writable=True)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(statement)
    connection.execute("COMMIT")
    connection.close()
    with Index(overlay, BlockCache(NOWHERE)) as index, pytest.raises(CorruptError, match=says):
        content_id(index, PLAIN)


# -- the cache

VERSION = VersionId(b"\x01" * 32)
OTHER = VersionId(b"\x02" * 32)
FOUND = "content-1:" + "ab" * 32


def test_ids_are_remembered_by_version_and_folder(tmp_path: Path) -> None:
    cache = ContentIdCache(tmp_path / "c")
    assert cache.find(VERSION, b"") is None
    cache.store(VERSION, b"", FOUND)
    assert ContentIdCache(tmp_path / "c").find(VERSION, b"") == FOUND
    assert cache.find(VERSION, b"a") is None
    assert cache.find(OTHER, b"") is None


def test_a_damaged_slot_is_not_believed(tmp_path: Path) -> None:
    cache = ContentIdCache(tmp_path)
    cache.store(VERSION, b"", FOUND)
    file = tmp_path / "content-ids"
    data = file.read_bytes()
    for at in range(len(data) - 96, len(data)):
        file.write_bytes(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
        assert cache.find(VERSION, b"") is None
    file.write_bytes(data[:-1])
    assert cache.find(VERSION, b"") is None
    cache.store(VERSION, b"", FOUND)
    assert cache.find(VERSION, b"") == FOUND


def test_the_cache_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_id_cache, "SLOTS", 4)
    cache = ContentIdCache(tmp_path)
    for number in range(64):
        cache.store(VersionId(number.to_bytes(32)), b"", FOUND)
        assert cache.find(VersionId(number.to_bytes(32)), b"") == FOUND
    assert (tmp_path / "content-ids").stat().st_size <= 4 * 96


def test_without_a_cache_nothing_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = ContentIdCache(tmp_path / "file" / "below")
    cache.store(VERSION, b"", FOUND)
    assert cache.find(VERSION, b"") is None
    (tmp_path / "content-ids").symlink_to(tmp_path / "file")
    ContentIdCache(tmp_path).store(VERSION, b"", FOUND)
    assert (tmp_path / "file").read_bytes() == b""
