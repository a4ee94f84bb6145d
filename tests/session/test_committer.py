"""Commits end to end without FUSE: what was written is in the version, once, and nothing is lost
when a step fails."""

from __future__ import annotations

import errno
import random
import time
from pathlib import Path
from typing import Any, cast

import pytest

from cowfs.base.ids import VersionId
from cowfs.errors import CowfsError, LeaseLostError, UnavailableError
from cowfs.format import catalogue
from cowfs.format.locator import Locator
from cowfs.session import early
from cowfs.store import ObjectStore
from cowfs.store.contract import Data
from cowfs.store.reliability.patience import patience_of
from cowfs.version.commit import CommitRequest, Progress
from cowfs.version.history import history, open_version
from cowfs.version.names.source_names import resolve_name
from cowfs.version.names.volumes import fork_volume, locator, read_head, volume_names
from cowfs.version.publish import known_chunks
from cowfs.version.publish.known_chunks import KnownChunks
from tests.version.working_volume import ME, ReadingVolume, WorkingVolume

MIB = 1 << 20


def stored_bytes(store: ObjectStore) -> int:
    return sum(info.size for info in store.list("packs/"))


def fork(store: ObjectStore, name: str, version: VersionId, of: str) -> None:
    source: Locator = locator(store, of, version)
    fork_volume(store, name, source)


def test_first_commit_of_an_empty_volume(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        base = volume.commit("empty")
        assert volume.commit("again") == base
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as version:
        assert version.tree() == {}


def test_a_commit_holds_what_was_written(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(5 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.mkdir(b"d")
        volume.write(b"d/large", data)
        volume.write(b"small", b"hello")
        volume.write(b"na\xffme", b"")
        base = volume.commit("first")
        expected = {b"d": None, b"d/large": data, b"small": b"hello", b"na\xffme": b""}
        assert volume.tree() == expected
        assert base.version_id
        assert base.manifest
        stats = base.manifest.stats
        assert (stats.files, stats.directories, stats.bytes) == (3, 1, len(data) + 5)
        assert stats.added_bytes == len(data) + 5
    with ReadingVolume(store, base.version_id, tmp_path / "r") as version:
        assert version.tree() == expected


def test_versions_never_change_and_the_second_adds_only_what_changed(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(20 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"large", data)
        volume.write(b"gone", b"soon")
        first = volume.commit("first")
        before = stored_bytes(store)
        volume.write(b"large", b"!", offset=7 * MIB)
        volume.unlink(b"gone")
        second = volume.commit("second")
        assert stored_bytes(store) - before < 2 * MIB
    assert first.version_id
    assert second.version_id
    assert [past.version for past in history(store, second.version_id)] == [second.version_id, first.version_id]
    with ReadingVolume(store, first.version_id, tmp_path / "r1") as version:
        assert version.tree() == {b"large": data, b"gone": b"soon"}
    with ReadingVolume(store, second.version_id, tmp_path / "r2") as version:
        assert version.tree() == {b"large": data[: 7 * MIB] + b"!" + data[7 * MIB + 1 :]}


def test_equal_content_is_stored_once(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(3).randbytes(8 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"one", data)
        volume.write(b"two", data)
        base = volume.commit()
        assert base.version_id
        assert base.manifest
        assert base.manifest.stats.added_bytes == len(data)
    before = stored_bytes(store)
    fork(store, "fork", base.version_id, "a")
    for name in ("fork", "unrelated"):  # each on a machine with an empty cache
        with WorkingVolume(store, name, tmp_path / name) as volume:
            volume.write(b"three", data)
            manifest = volume.commit().manifest
            assert manifest
            assert manifest.stats.added_bytes == 0
    assert stored_bytes(store) - before < MIB


class _SlowRanges:
    """A store that takes a while for each part of a pack."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_range(self, key: str, offset: int, length: int) -> Data:
        time.sleep(0.3 if key.startswith("packs/") else 0.0)
        return self._store.get_range(key, offset, length)


def test_a_commit_waits_until_it_is_known_what_the_store_has(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(5).randbytes(400_000)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", data)
        version = volume.commit().version_id
    assert version is not None
    fork(store, "w", version, "v")
    slow = cast("ObjectStore", _SlowRanges(store))
    with WorkingVolume(slow, "w", tmp_path / "w") as volume:
        volume.write(b"g", data)
        manifest = volume.committer.commit(CommitRequest()).manifest
    assert manifest is not None
    assert manifest.stats.added_bytes == 0


def test_a_file_written_anew_is_found_in_its_own_history(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any catalogue has come, in background upload as in a commit."""
    data = random.Random(8).randbytes(3 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", data)
        volume.commit()
    monkeypatch.setattr(KnownChunks, "_load_all", lambda self: None)
    for is_quiet in (True, False):
        with WorkingVolume(store, "a", tmp_path / f"{is_quiet}") as volume:
            volume.write(b"f", data)
            if is_quiet:
                assert volume.committer.upload_quiet(idle_s=0) == len(data)
            manifest = volume.commit().manifest
        assert manifest
        assert manifest.stats.added_bytes == 0


def test_content_of_many_other_volumes_is_found_in_few_catalogues(store: ObjectStore, tmp_path: Path) -> None:
    contents = [random.Random(number).randbytes(1000) for number in range(50)]
    for number, data in enumerate(contents):
        with WorkingVolume(store, f"other{number}", tmp_path / f"other{number}") as volume:
            volume.write(b"f", data)
            volume.commit()
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        for number, data in enumerate(contents):
            volume.write(b"f%d" % number, data)
        manifest = volume.commit().manifest
        assert manifest
        assert manifest.stats.added_bytes == 0
        assert len(volume.publisher.chunks._known._catalogues) < 20


def test_forks_share_the_line_and_part(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", b"base")
        base = volume.commit()
    assert base.version_id
    fork(store, "b", base.version_id, "a")
    assert read_head(store, "b").version == base.version_id
    with WorkingVolume(store, "b", tmp_path / "b") as volume:
        assert volume.tree() == {b"f": b"base"}
        volume.write(b"f", b"forked")
        forked = volume.commit()
    assert forked.version_id
    assert resolve_name(store, "a", None) == base.version_id
    assert resolve_name(store, "b", forked.version_id.hex()[:8]) == forked.version_id
    assert volume_names(store) == ["a", "b"]


@pytest.mark.parametrize("stage", ["frozen", "index"])
def test_writes_after_the_freeze_are_in_the_next_version(store: ObjectStore, tmp_path: Path, stage: str) -> None:
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", b"one")

        def write_meanwhile(event: Progress) -> None:
            if event.stage == stage:
                volume.write(b"f", b"two!")
                volume.write(b"g", b"new")

        first = volume.committer.commit(CommitRequest(), write_meanwhile)
        assert volume.tree() == {b"f": b"two!", b"g": b"new"}
        second = volume.commit()
    assert first.version_id
    assert second.version_id
    with ReadingVolume(store, first.version_id, tmp_path / "r1") as version:
        assert version.tree() == {b"f": b"one"}
    with ReadingVolume(store, second.version_id, tmp_path / "r2") as version:
        assert version.tree() == {b"f": b"two!", b"g": b"new"}


def test_quiet_files_are_uploaded_before_the_commit(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(4).randbytes(40 * MIB)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", data)
        assert volume.committer.upload_quiet(idle_s=0) == len(data)
        assert volume.committer.upload_quiet(idle_s=0) == 0
        base = volume.commit()
        assert base.version_id
        assert base.manifest
        assert base.manifest.stats.added_bytes == len(data)
    with ReadingVolume(store, base.version_id, tmp_path / "r") as version:
        assert version.tree() == {b"f": data}


def test_what_commits_leave_in_memory_does_not_grow(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_chunks, "LEFT_CHUNKS", 2)
    with WorkingVolume(store, "a", tmp_path) as volume:
        for turn in range(12):
            volume.write(b"f", random.Random(turn).randbytes(5000))
            volume.committer.upload_quiet(idle_s=0)
            volume.write(b"f", random.Random(-1 - turn).randbytes(5000))  # what was uploaded is in no version
            volume.commit()
            assert len(volume.publisher.chunks._receipts) <= 2
            assert len(volume.publisher.chunks._known.list_uploaded_packs()) <= 2


def test_a_commit_of_many_chunks_writes_several_catalogues(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (catalogue, known_chunks):
        monkeypatch.setattr(module, "MAX_ENTRIES", 4)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        for number in range(10):
            volume.write(b"f%d" % number, b"%d" % number)
        manifest = volume.commit().manifest
        assert manifest is not None
        assert sorted(ref.chunks for ref in manifest.index.catalogues) == [2, 4, 4]
        volume.write(b"again", b"7")
        again = volume.commit().manifest
        assert again is not None
        assert again.stats.added_bytes == 0


def test_background_upload_reaches_every_file_however_many_are_quiet(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early, "FILES", 4)
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        for number in range(10):
            volume.write(b"f%d" % number, b"x" * number)
        assert volume.committer.upload_quiet(idle_s=0) == sum(range(10))
        volume.write(b"late", b"y")
        volume.write(b"f3", b"zz")
        assert volume.committer.upload_quiet(idle_s=0) == 3
        tree = volume.tree()
        base = volume.commit()
        assert base.version_id
    with ReadingVolume(store, base.version_id, tmp_path / "r") as version:
        assert version.tree() == tree


def test_a_file_overwritten_while_it_is_uploaded_early_is_left_for_later(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (random.Random(seed).randbytes(70_000) for seed in (1, 2))  # too long for many at once
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        volume.write(b"f", old)
        storer = volume.publisher.chunks._storer
        real = storer.rows

        def rows(*_: object) -> list[Any]:
            monkeypatch.setattr(storer, "rows", real)
            volume.write(b"f", new)
            raise OSError(errno.EIO, "the segment of what was overwritten is gone")

        monkeypatch.setattr(storer, "rows", rows)
        assert volume.committer.upload_quiet(idle_s=0) == 0
        assert volume.committer.upload_quiet(idle_s=0) == len(new)
        base = volume.commit()
        assert base.version_id
    with ReadingVolume(store, base.version_id, tmp_path / "r") as version:
        assert version.tree() == {b"f": new}


class CountingStore:
    """Counts ranged reads of packs."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_range(self, key: str, offset: int, length: int) -> Data:
        self.reads += key.startswith("packs/")
        return self._store.get_range(key, offset, length)


def test_a_tree_of_small_files_is_read_in_few_requests(store: ObjectStore, tmp_path: Path) -> None:
    expected = {f"f{number:04}".encode(): random.Random(number).randbytes(2000) for number in range(2000)}
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        for path, data in expected.items():
            volume.write(path, data)
        base = volume.commit()
    assert base.version_id
    counting = CountingStore(store)
    with ReadingVolume(counting, base.version_id, tmp_path / "r") as version:
        assert version.tree() == expected
    assert counting.reads < 60


class FailingStore:
    """Passes everything through until `fail` says otherwise for (call, key)."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.fail: tuple[str, str] | None = None
        self.after_effect = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in ("put", "put_if_absent"):
            return method

        def call(key: str, data: bytes) -> None:
            if self.fail and name == self.fail[0] and key.startswith(self.fail[1]):
                if self.after_effect:
                    method(key, data)
                raise UnavailableError(f"injected: {name} {key}")
            method(key, data)

        return call


@pytest.mark.parametrize(
    "point", [("put", "packs/"), ("put", "versions/"), ("put_if_absent", "volumes/")], ids=lambda point: point[1]
)
def test_a_failed_commit_loses_nothing_and_the_next_has_everything(
    store: ObjectStore, tmp_path: Path, point: tuple[str, str]
) -> None:
    patience = patience_of(store)
    assert patience is not None
    patience.limit_s = 2.0
    faulty = FailingStore(store)
    data = random.Random(5).randbytes(3 * MIB)
    with WorkingVolume(faulty, "a", tmp_path / "a") as volume:
        volume.write(b"f", data)
        faulty.fail = point
        with pytest.raises(CowfsError):
            volume.commit()
        volume.write(b"g", b"later")
        with pytest.raises(CowfsError):
            volume.commit()
        faulty.fail = None
        base = volume.commit()
        assert volume.tree() == {b"f": data, b"g": b"later"}
    assert base.version_id
    with ReadingVolume(store, base.version_id, tmp_path / "r") as version:
        assert version.tree() == {b"f": data, b"g": b"later"}


def test_a_head_whose_reply_was_lost_is_recognised(store: ObjectStore, tmp_path: Path) -> None:
    faulty = FailingStore(store)
    with WorkingVolume(faulty, "a", tmp_path / "a") as volume:
        volume.write(b"f", b"x")
        faulty.fail, faulty.after_effect = ("put_if_absent", "volumes/a/head/"), True
        base = volume.commit()
    assert read_head(store, "a").version == base.version_id


def test_what_is_uploaded_while_a_heads_outcome_is_unknown_is_in_the_next_version(
    store: ObjectStore, tmp_path: Path
) -> None:
    patience = patience_of(store)
    assert patience is not None
    patience.limit_s = 0.1
    faulty = FailingStore(store)
    with WorkingVolume(faulty, "a", tmp_path / "a") as volume:
        volume.write(b"f", b"of the first")
        faulty.fail = ("put_if_absent", "volumes/a/head/")
        with pytest.raises(UnavailableError):
            volume.commit()
        volume.write(b"g", b"small")
        volume.write(b"h", random.Random(9).randbytes(MIB))
        assert volume.committer.upload_quiet(idle_s=0) == 5 + MIB
        faulty.fail = None
        base = volume.commit()
        assert sorted(volume.tree()) == [b"f", b"g", b"h"]
        assert not volume.engine.is_dirty()
    assert base.version_id
    assert len(list(history(store, base.version_id))) == 2


def test_a_writer_that_lost_the_line_publishes_nothing_and_keeps_its_work(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "a", tmp_path / "a") as slow, WorkingVolume(store, "a", tmp_path / "b") as fast:
        slow.write(b"f", b"slow")
        fast.write(b"f", b"fast")
        winner = fast.commit()
        with pytest.raises(LeaseLostError):
            slow.commit()
        assert slow.tree() == {b"f": b"slow"}
        assert slow.engine.is_dirty()
    assert read_head(store, "a").version == winner.version_id
    assert winner.version_id
    assert open_version(store, winner.version_id).parents == ()


def test_sparse_files_of_eight_exbibytes_are_committed(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "a", tmp_path / "a") as volume:
        for name in (b"one", b"two"):
            volume.write(name, b"x")
            volume.call(volume.engine.setattr, volume.find(name), ME, size=2**63 - 1)
        first = volume.commit()
        volume.unlink(b"one")
        second = volume.commit()
    assert first.manifest
    assert second.manifest
    assert (first.manifest.stats.files, second.manifest.stats.files) == (2, 1)
