"""What comes too late for a collection: a restore that it did not wait for, a fork whose maker has given
it up, a tag on what is gone, tags of a volume that nobody can bring back."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path

import pytest

from cowfs import clock
from cowfs.errors import LeaseLostError, NotFoundError, UnavailableError
from cowfs.format import keys
from cowfs.format.records import HeadRecord, TagRecord
from cowfs.ids import VersionId, WriteId
from cowfs.index import open_index
from cowfs.maintain.kept_versions import kept_versions
from cowfs.store import ObjectStore, leases, refs
from cowfs.store.packs import PackReader
from cowfs.version import keeping, tags
from cowfs.version.commit import CommitRequest
from cowfs.version.deletion import delete_volume
from cowfs.version.history import open_version
from cowfs.version.merge_source import MergeSource
from cowfs.version.restoring import restored
from cowfs.version.volumes import read_head
from tests.faulty_store import Fault, FaultyStore
from tests.maintain.fixtures import impatient, store
from tests.maintain.stores import ME, age, collect, commit, fork, prune, random_bytes, stored, tree
from tests.simulation.roots import closure
from tests.version.working_volume import WorkingVolume

__all__ = ["impatient", "store"]

pytestmark = pytest.mark.usefixtures("impatient")


def three_versions(store: ObjectStore, home: Path) -> list[VersionId]:
    return [commit(store, "v", home, {b"same": b"s" * 5000, b"f": random_bytes(n)}) for n in range(3)]


def test_a_restore_is_not_published_behind_a_fence(store: ObjectStore, tmp_path: Path) -> None:
    """Nobody holds the lease any more, so the collection goes on without the one who restores; his pin
    lives."""
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    lease = leases.acquire(store, "v", ME)
    lease.release()
    with WorkingVolume(store, "v", tmp_path / "w") as writer, ExitStack() as stack:
        packs = PackReader(store)
        section = open_version(store, versions[0]).index
        source = stack.enter_context(open_index(store, packs, section, cache_dir=tmp_path / "source"))
        found = restored(
            writer.publisher.index, source, shared=source.next_ino, path=b"", to=b"", now_ns=clock.now_ns()
        )
        restoring = MergeSource(found, writer.publisher, (versions[0],), are_parents=False)
        assert any(key.startswith(keys.PACKS) for key in collect(store, tmp_path).deleted)
        with pytest.raises(LeaseLostError, match="collection has gone on without this"):
            writer.publisher.publish(restoring, CommitRequest())
    assert read_head(store, "v").version == versions[2]


def test_a_fork_whose_outcome_is_unknown_may_still_come(store: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    faulty = FaultyStore(store)
    faulty.inject(Fault.FAIL, "put_if_absent", times=math.inf, key_part="/head/")
    with pytest.raises(UnavailableError, match="unknown"):
        fork(faulty, "v", "late", versions[0])
    collect(store, tmp_path)
    refs.append(store, refs.head("late"), 1, HeadRecord("fork", versions[0], 0, 1, WriteId(bytes(16))))
    assert tree(store, versions[0], tmp_path)[b"f"] == random_bytes(0)
    age(tmp_path, keeping.LIFETIME_S + 3601)
    collect(store, tmp_path)
    assert read_head(store, "late").version == versions[0]
    assert tree(store, versions[0], tmp_path)[b"f"] == random_bytes(0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_fork_that_was_interrupted_may_still_come(
    error: type[BaseException], store: ObjectStore, tmp_path: Path
) -> None:
    (version, *_) = three_versions(store, tmp_path)
    with pytest.raises(error), keeping.keeping(store, "v", version):
        raise error
    assert len(store.list(keys.PINS)) == 1


def test_what_is_on_its_way_to_be_deleted_is_not_spared(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a second collector, for one who forks, has pinned it, and is about to find it on the list: his second
    try would succeed, and the request arrive."""
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    faulty = FaultyStore(store)
    faulty.inject(Fault.FAIL, "delete", key_part="versions/")
    with pytest.raises(UnavailableError):
        collect(faulty, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(keeping, "condemned_versions", lambda used: set())
        with keeping.keeping(store, "v", versions[0]):
            collect(store, tmp_path)
    with pytest.raises(NotFoundError):
        fork(store, "v", "again", versions[0])


def test_a_tag_that_was_set_too_late_keeps_nothing_and_stops_nothing(store: ObjectStore, tmp_path: Path) -> None:
    """Whoever set it slept before it was there, and was killed before he could take it back."""
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2)
    age(tmp_path)
    collect(store, tmp_path)
    late = TagRecord(version=versions[0], created_ns=clock.now_ns(), write_id=WriteId(bytes(16)))
    refs.append(store, refs.tag("v", "late"), 1, late)
    prune(store, "v", 3)
    age(tmp_path)
    collect(store, tmp_path)
    assert stored(store).keys() == closure(store, versions[2], tmp_path / "c")


def test_a_tagged_version_that_a_head_keeps_and_that_is_lost_stops_it(store: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(store, tmp_path)
    tags.set_tag(store, "v", "t", versions[0])
    store.delete([keys.version(versions[0])])
    age(tmp_path)
    with pytest.raises(NotFoundError):
        collect(store, tmp_path)


def test_tags_of_a_volume_that_nobody_can_bring_back_keep_nothing(store: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(store, tmp_path)
    tags.set_tag(store, "v", "t", versions[0])
    delete_volume(store, "v", ME)
    age(tmp_path, 4 * 3600)
    assert collect(store, tmp_path, grace_s=5 * 3600).deleted == {}
    collect(store, tmp_path, grace_s=3 * 3600)
    assert stored(store) == {}
    assert kept_versions(store) == [], "a verification misses nothing"
