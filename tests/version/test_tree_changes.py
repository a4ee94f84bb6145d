"""Change sets that are made name by name; and what a damaged index must not make of them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cowfs.errors import CorruptError
from cowfs.format.pack import PackKind
from cowfs.index import ChangeSet, Index, InodeRow, empty_index, open_index
from cowfs.index import publish as publish_index
from cowfs.session.version_tree import VersionTree
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, PackUploader
from cowfs.version.tree_changes import TreeChanges

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
