"""What comes too late for a collection: a restore that it did not wait for, a fork whose maker has
given it up, a tag on what is gone, tags of a volume that nobody can bring back."""

from __future__ import annotations

import math
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import LeaseLostError, NotFoundError, UnavailableError
from cowfs.format import keys
from cowfs.format.records import HeadRecord, Holder, TagRecord
from cowfs.index import open_index
from cowfs.maintain.collect.collecting import WAIT_S, Collection
from cowfs.maintain.collect.generations import Condemned
from cowfs.maintain.collect.planning import Survey, is_silent
from cowfs.maintain.collect.roots import RootReader
from cowfs.maintain.kept_versions import find_kept_versions
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader
from cowfs.store.refs import leases, refs
from cowfs.store.refs.pins import Pin
from cowfs.version.commit import CommitRequest
from cowfs.version.history import open_version
from cowfs.version.merge.merge_source import MergeSource
from cowfs.version.merge.restoring import plan_restore
from cowfs.version.names import tags
from cowfs.version.names.deletion import delete_volume, undelete_volume
from cowfs.version.names.volumes import read_head
from cowfs.version.publish.protection import Protection
from cowfs.version.publish.publisher import Publisher
from cowfs.version.publish.still_there import StillThere
from cowfs.version.retention import keeping
from cowfs.writer.publishing import publishing
from tests.faulty_store import Fault, FaultyStore
from tests.maintain.fixtures import impatient, store
from tests.maintain.stores import ME, age, collect, commit, fork, prune, random_bytes, settle, stored, survey, tree
from tests.simulation.roots import closure
from tests.store.conftest import WarpClock, warp
from tests.version.working_volume import WorkingVolume

__all__ = ["impatient", "store", "warp"]

pytestmark = pytest.mark.usefixtures("impatient")


def three_versions(store: ObjectStore, home: Path) -> list[VersionId]:
    return [commit(store, "v", home, {b"same": b"s" * 5000, b"f": random_bytes(n)}) for n in range(3)]


@pytest.mark.parametrize("looks", [True, False])
def test_a_restore_is_not_published_behind_a_fence(
    store: ObjectStore, tmp_path: Path, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody holds the lease any more, so the collection goes on without the one who restores; his
    pin lives. looks: for the version, as is done where asking costs nothing."""
    if not looks:
        monkeypatch.setattr(StillThere, "has", lambda *arguments: True)
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    lease = leases.acquire(store, "v", ME)
    lease.release()
    with WorkingVolume(store, "v", tmp_path / "w") as writer, ExitStack() as stack:
        source = restoring(stack, writer.publisher, store, versions[0], tmp_path)
        assert any(key.startswith(keys.PACKS) for key in collect(store, tmp_path).deleted)
        error, says = (
            (NotFoundError, "no version") if looks else (LeaseLostError, "collection has continued without this")
        )
        with pytest.raises(error, match=says):
            writer.publisher.publish(source, CommitRequest())
    assert read_head(store, "v").version == versions[2]


def spec_of(store: ObjectStore, home: Path) -> SessionSpec:
    options = MountOptions(cache_dir=home / "cache").resolved()
    return SessionSpec(store_url=store.url, volume="v", mode="rw", working_copy=str(home / "working"), options=options)


def restoring(
    stack: ExitStack, publisher: Publisher, store: ObjectStore, version: VersionId, home: Path
) -> MergeSource:
    """All of an earlier version, to be brought back."""
    section = open_version(store, version).index
    source = stack.enter_context(open_index(store, PackReader(store), section, cache_dir=home / "source"))
    found = plan_restore(publisher.index, source, shared=source.next_ino, path=b"", to=b"", now_ns=clock.now_ns())
    return MergeSource(found, publisher, (version,), are_parents=False)


def test_what_a_list_named_before_the_pin_came_is_not_restored(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time the version is published the collection has ended, and nobody reads its list any
    more; there was no heartbeat in between."""
    monkeypatch.setattr(Protection, "acknowledge", lambda self, number, uploaded: None)
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    found, plan = survey(store, tmp_path)
    generation = found.generations.begin(ME)
    listed = found.generations.condemn(generation.number, plan.doomed)
    with publishing(spec_of(store, tmp_path)) as line, ExitStack() as stack:
        source = restoring(stack, line.publisher, store, versions[0], tmp_path)
        _, is_ended = Collection(found, ME, wait_s=0)._finish(generation, listed, plan, {})
        assert is_ended
        assert keys.version(versions[0]) not in stored(store)
        with pytest.raises(NotFoundError, match="being deleted"):
            line.publisher.publish(source, CommitRequest())
    assert read_head(store, "v").version == versions[2]


def test_what_a_list_names_is_not_restored_wherever_it_lies(store: ObjectStore, tmp_path: Path) -> None:
    """The version's packs have moved: the list names the packs where its blobs lie now, which
    nobody has seen who takes over addresses."""
    commit(store, "v", tmp_path, {b"f%d" % n: random_bytes(n) for n in range(20)})
    wanted = commit(store, "v", tmp_path, {b"f%d" % n: None for n in range(3, 20)})
    prune(store, "v", 2)
    age(tmp_path)
    collect(store, tmp_path)
    last = commit(store, "v", tmp_path, {b"f1": None, b"f2": None})
    prune(store, "v", 3)
    age(tmp_path)
    with publishing(spec_of(store, tmp_path)) as line, ExitStack() as stack:
        source = restoring(stack, line.publisher, store, wanted, tmp_path)
        found = Survey(store, tmp_path / "collector", gain_bytes=0)
        assert Collection(found, ME, wait_s=0).apply(found.plan()).waits_for
        line.publisher.acknowledge()
        assert keys.version(wanted) in collect(store, tmp_path).deleted
        with pytest.raises(NotFoundError, match="being deleted"):
            line.publisher.publish(source, CommitRequest())
    assert read_head(store, "v").version == last


def test_who_was_refused_holds_up_no_collection(store: ObjectStore, tmp_path: Path) -> None:
    """He was killed before he could remove his pin, which lay beside the lease that another got.
    That one is alive, and is waited for; the fence costs it a look at what it uses."""
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2)
    age(tmp_path)
    lost, won = (WriteId(bytes([number]) * 16) for number in (1, 2))
    Pin.create(store, volume="v", number=4, owner="killed", generation=0, lease=lost)
    lease = leases.take(store, "v", leases.find_vacancy(store, "v"), ME, won)
    pin = Pin.create(store, volume="v", number=4, owner="alive", generation=0, lease=won)
    assert settle(store, tmp_path) == ["alive"]
    pin.renew(generation=9)  # each one that may follow
    outcome = collect(store, tmp_path)
    assert not outcome.waits_for
    newest = refs.newest(store, refs.head("v"))
    assert newest is not None
    assert newest[1].kind == "fence"
    lease.release()
    assert read_head(store, "v").version == versions[2]


ELSEWHERE = Holder("ada", "far-away", "a process", 4711, 99, "another machine", "another boot")


def test_who_was_killed_with_a_clock_ahead_holds_up_no_collection(
    store: ObjectStore, tmp_path: Path, warp: WarpClock
) -> None:
    """The time of its heartbeat is still to come, and says nothing: that it stays the same does."""
    three_versions(store, tmp_path)
    prune(store, "v", 2)
    age(tmp_path)
    id = WriteId(bytes([1]) * 16)
    lease = leases.take(store, "v", leases.find_vacancy(store, "v"), ELSEWHERE, id)
    pin = Pin.create(store, volume="v", number=4, owner="killed", generation=0, lease=id)
    lease.renew()
    at_s = clock.now_ns() // 10**9 + 365 * 24 * 3600
    os.utime(tmp_path / "store" / keys.heartbeat("v", lease.epoch), (at_s, at_s))
    assert settle(store, tmp_path), "it may be alive, and its clock still ahead"
    assert not settle(store, tmp_path, wait_s=WAIT_S)
    assert read_head(store, "v").number == 5, "fenced off, should it come back"
    assert store.list(pin.key), "its work may be kept"


def test_a_volume_is_called_gone_for_good_only_when_it_is(store: ObjectStore, tmp_path: Path) -> None:
    three_versions(store, tmp_path)
    delete_volume(store, "v", ME)
    age(tmp_path, 8 * 24 * 3600)
    with WorkingVolume(store, "w", tmp_path / "w") as writer:
        writer.write(b"f", random_bytes(0))
        writer.commit()
        found, plan = survey(store, tmp_path)
        assert list(plan.lapsed) == ["v"]
        collecting = Collection(found, ME, wait_s=0)
        condemned = Condemned(frozenset([PackId(bytes([1]) * PackId.length)]))
        found.generations.condemn(found.generations.begin(ME).number, condemned)  # the writer has not read this list
        outcome = collecting.apply(plan)
        assert (bool(outcome.waits_for), outcome.closed) == (True, ())
        undelete_volume(store, "v")
        delete_volume(store, "v", ME)
        age(tmp_path, 8 * 24 * 3600)
    assert collect(store, tmp_path).closed == ("v",)


def test_who_opened_and_got_no_lease_holds_up_no_collection(store: ObjectStore, tmp_path: Path) -> None:
    """Killed between the two, of a volume that nobody has written to but by copies."""
    three_versions(store, tmp_path)
    Pin.create(store, volume="v", number=4, owner="killed", generation=0, lease=WriteId(bytes(16)))
    (pin,) = RootReader(store).pins()
    assert is_silent(leases.Watch(store), pin)
    leases.acquire(store, "v", ME)
    assert is_silent(leases.Watch(store), pin)
    store.put(keys.lease("v", 1), b"")
    assert not is_silent(leases.Watch(store), pin), "whose lease it is is not known"


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
    """By a second collector, for one who forks, has pinned it, and is about to find it on the list:
    his second try would succeed, and the request arrive."""
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    faulty = FaultyStore(store)
    faulty.inject(Fault.FAIL, "delete", key_part="versions/")
    with pytest.raises(UnavailableError):
        collect(faulty, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(keeping, "load_condemned_versions", lambda used: set())
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
    assert find_kept_versions(store) == [], "a verification misses nothing"
