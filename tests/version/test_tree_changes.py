"""Change sets that are made name by name; and what a damaged index must not make of them."""

from __future__ import annotations

import stat
from itertools import pairwise
from pathlib import Path

import pytest

from cowfs.errors import CorruptError
from cowfs.format.pack import PackKind
from cowfs.index import ChangeSet, Index, InodeRow, empty_index, open_index
from cowfs.index import publish as publish_index
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, PackUploader
from cowfs.transfer.version_tree import VersionTree
from cowfs.version.publish.tree_changes import TreeChanges
from tests.index.bench import Bench

pytestmark = pytest.mark.quick

ROOT = 1


def directory(ino: int, nlink: int = 2) -> InodeRow:
    return (ino, stat.S_IFDIR | 0o755, nlink, 1, 1, 0, 0, 0, 1, 1, 1, 0, b"")


@pytest.fixture
def looped(store: ObjectStore, tmp_path: Path) -> Index:
    """A version somebody has made up: root/a/b leads to a again."""
    reader = PackReader(store)
    base = empty_index(tmp_path / "cache", uid=1, gid=1, now_ns=1)
    changes = ChangeSet(
        next_ino=4, inodes=[directory(2, 4), directory(3)], entries=[(ROOT, b"a", 2), (2, b"b", 3), (3, b"c", 2)]
    )
    uploader = PackUploader(store, PackKind.INDEX)
    with base.apply(changes) as delta:
        published = publish_index(delta, uploader=uploader, reader=reader, base_section=None)
    uploader.close()
    return open_index(store, reader, published.section, cache_dir=tmp_path / "cache")


def test_a_directory_in_itself_is_damage(looped: Index, store: ObjectStore) -> None:
    changes = TreeChanges(looped, owner=(1, 1), now_ns=1)
    row = looped.inode(2)
    assert row is not None
    with pytest.raises(CorruptError, match="two names"):
        changes.remove_tree(changes.root(), row)
    tree = VersionTree(looped, PackReader(store))
    assert [name for name, _ in tree.list(b"a/b")] == [b"c"]
    with pytest.raises(CorruptError, match="lies in itself"):
        tree.list(b"a/b/c")
    tree.close()


def test_link_counts_follow_from_names(tmp_path: Path) -> None:
    changes = TreeChanges(empty_index(tmp_path, uid=1, gid=1, now_ns=1), owner=(7, 8), now_ns=9)
    below = changes.make_directory(ROOT, mode=0o755, mtime_ns=5)
    file = changes.make_file(below, mode=0o640, mtime_ns=-5, size=3, mapped_bytes=0)
    link = changes.make_symlink(below, b"target", mtime_ns=1 << 70)
    for ino in (file, file, link):
        changes.gain(ino)
    changes.put_entries(ROOT, [(b"d", below)])
    changes.put_entries(below, [(b"z", file), (b"a", file), (b"l", link)])
    made = changes.changes()
    assert [(row[0], row[2], row[3], row[4], row[9], row[10]) for row in made.inodes] == [
        (ROOT, 3, 1, 1, 1, 9),
        (below, 2, 7, 8, 5, 9),
        (file, 2, 7, 8, -5, 9),
        (link, 1, 7, 8, (1 << 63) - 1, 9),
    ]
    assert list(made.entries) == [(ROOT, b"d", below), (below, b"a", file), (below, b"l", link), (below, b"z", file)]
    assert (made.next_ino, list(made.removed)) == (link + 1, [])


@pytest.mark.parametrize("is_lost_first", [False, True])
def test_an_inode_that_changes_its_only_name_stays(tmp_path: Path, is_lost_first: bool) -> None:
    bench = Bench(tmp_path)
    row = (2, stat.S_IFREG | 0o4755, 1, 7, 8, 0, 0, 0, 1, 1, 1, 0, b"")
    index, _ = bench.commit(bench.empty(), ChangeSet(next_ino=3, inodes=[row], entries=[(ROOT, b"old", 2)]))
    changes = TreeChanges(index, owner=(1, 1), now_ns=9)
    if is_lost_first:
        changes.lose(row)
    changes.gain(2, row)
    if not is_lost_first:
        changes.lose(row)
    changes.put_entries(ROOT, [(b"old", 0), (b"new", 2)])
    made = changes.changes()
    assert list(made.removed) == []
    assert list(made.inodes) == [(*row[:10], 9, *row[11:])]


def test_directories_are_numbered_side_by_side_so_that_a_listing_of_them_reads_little(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    changes = TreeChanges(bench.empty(), owner=(1, 1), now_ns=1)
    made: list[int] = []
    for _ in range(100):
        made.append(changes.make_directory(ROOT, mode=0o755, mtime_ns=1))
        files = [changes.make_file(made[-1], mode=0o644, mtime_ns=1, size=0, mapped_bytes=0) for _ in range(400)]
        for ino in files:
            changes.gain(ino)
        changes.put_entries(made[-1], [(b"file-%d" % ino, ino) for ino in files])
    changes.put_entries(ROOT, [(b"d%06d" % ino, ino) for ino in made])
    assert sum(b - a == 1 for a, b in pairwise(made)) == 97, "three runs: 16, 32, 64"
    written, _ = bench.commit(bench.empty(), changes.changes())
    assert written.section is not None
    written.close()
    with bench.open(written.section) as index:
        before = len(bench.store.reads)
        assert [ino for page in index.directory_pages(ROOT) for _, (ino, *_) in page] == sorted(made)
        pages = sum(size for _, _, size in bench.store.reads[before:])
        assert pages < 200_000, "229 kB if each lies among its files"
    again = TreeChanges(bench.open(written.section), owner=(1, 1), now_ns=1)
    assert again.make_directory(ROOT, mode=0o755, mtime_ns=1) >= index.next_ino
