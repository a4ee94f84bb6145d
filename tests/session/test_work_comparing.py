"""Work that is in no version, compared: `diff` says what a commit then publishes, and changes
nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cowfs.base.ids import VersionId
from cowfs.index import Index, open_index
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader
from cowfs.version.differences import Difference, compare
from cowfs.version.history import open_version
from tests.version.working_volume import ReadingVolume, WorkingVolume

FOLDERS = [b"", b"a", b"a/b", b"c"]


def told(differences: list[Difference]) -> list[Any]:
    """All of it but numbers and times of inodes."""
    return [
        (each.kind, each.path, each.old_path, sorted(each.what), each.added_bytes, each.removed_bytes)
        for each in differences
    ]


def change(volume: WorkingVolume, some: random.Random) -> None:
    files = volume.files
    paths = sorted(volume.tree())
    plain = [path for path in paths if path not in FOLDERS]
    what = some.choice(["write", "write", "overwrite", "same", "remove", "move", "truncate", "chmod"])
    new = b"/".join(
        filter(None, (some.choice([each for each in FOLDERS if not each or each in paths]), b"%d" % some.randrange(30)))
    )
    if what == "write" or not plain:
        files.write(new, some.randbytes(some.choice([0, 10, 5000, 300_000])))
    else:
        path = some.choice(plain)
        if what == "overwrite":
            files.write(path, some.randbytes(100), some.randrange(1000))
        elif what == "same":
            files.write(path, files.read(path))
        elif what == "remove":
            files.remove(path)
        elif what == "move":
            files.move(path, new)
        elif what == "truncate":
            with files.open(path, 1) as file:
                file.truncate(some.randrange(2000))
        elif what == "chmod":
            files.chmod(path, some.choice([0o600, 0o644]))


def index_of(store: ObjectStore, version: Any, home: Path) -> Index:
    return open_index(store, PackReader(store), open_version(store, version).index, cache_dir=home)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_told_is_what_a_commit_publishes(store: ObjectStore, tmp_path: Path, seed: int) -> None:
    some = random.Random(seed)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        for folder in FOLDERS[1:]:
            volume.mkdir(folder)
        if seed % 2:  # an index of many pages
            volume.mkdir(b"many")
            for number in range(600):
                volume.write(b"many/%d" % number, b"%d" % number)
        first: VersionId | None = None
        for _ in range(4):
            for _ in range(some.randrange(1, 12)):
                change(volume, some)
            tree = volume.tree()
            before = volume.committer.index
            with volume.committer.working_index() as now:
                found = told(compare(before, now, shared=before.next_ino, times=True))
                since_first: list[Any] | None = None
                if first is not None:
                    with index_of(store, first, tmp_path / "i") as old:
                        since_first = told(compare(old, now, shared=old.next_ino, times=True))
            assert volume.tree() == tree
            assert volume.engine.is_dirty() or not found
            old_version = volume.committer.base.version_id
            version = volume.commit().version_id
            assert version is not None
            with index_of(store, version, tmp_path / "i") as committed:
                if old_version is not None:
                    with index_of(store, old_version, tmp_path / "i") as old:
                        assert told(compare(old, committed, shared=old.next_ino, times=True)) == found
                if first is not None:
                    with index_of(store, first, tmp_path / "i") as old:
                        assert told(compare(old, committed, shared=old.next_ino, times=True)) == since_first
            with ReadingVolume(store, version, tmp_path / "r") as reading:
                assert reading.tree() == tree
            first = first or version


def test_nothing_is_stored_and_what_was_not_told_is_read_once_it_was_uploaded(
    store: ObjectStore, tmp_path: Path
) -> None:
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", bytes(range(256)) * 4000)
        volume.commit()
        packs = len(list(store.list("packs/")))
        volume.write(b"f", b"!", offset=500_000)
        volume.write(b"g", b"new")
        found: list[Difference] = []
        for _ in range(3):
            with volume.committer.working_index() as now:
                found = compare(volume.committer.index, now, shared=volume.committer.index.next_ino)
            assert [(each.kind, each.path) for each in found] == [("changed", b"f"), ("added", b"g")]
            assert found[0].what == {"content", "mtime"}
        assert len(list(store.list("packs/"))) == packs
        volume.committer.upload_quiet(0)
        with volume.committer.working_index() as now:
            assert compare(volume.committer.index, now, shared=volume.committer.index.next_ino) == found
        volume.commit()
        with volume.committer.working_index() as now:
            assert now is volume.committer.index
