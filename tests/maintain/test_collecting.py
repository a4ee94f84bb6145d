"""What a collection deletes, what it spares, and what it waits for."""

from __future__ import annotations

import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cowfs.base import clock
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.errors import AccessDeniedError, CorruptError, CowfsError, InvalidStateError, LeaseHeldError, NotFoundError
from cowfs.format import keys
from cowfs.format.records import HeadRecord, MovedBlob, PinRecord
from cowfs.machine.known_stores import KnownStore
from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.generations import Condemned, Generations
from cowfs.maintain.collect.moving import append_record
from cowfs.store import ObjectStore
from cowfs.store.refs import leases, pins, refs
from cowfs.store.refs.holder import current_holder
from cowfs.store.refs.pins import LIFETIME_S, Pin
from cowfs.version.names import tags
from cowfs.version.names.deletion import delete_volume, undelete_volume
from cowfs.version.names.volumes import find_head, read_head
from cowfs.version.retention import keeping
from tests.faulty_store import Fault, FaultyStore, PagesInstead
from tests.maintain.fixtures import either, impatient, store
from tests.maintain.stores import ME, age, collect, commit, fork, prune, random_bytes, settle, stored, survey, tree
from tests.simulation.roots import closure
from tests.version.working_volume import WorkingVolume

__all__ = ["either", "impatient", "store"]

pytestmark = pytest.mark.usefixtures("impatient")


def three_versions(store: ObjectStore, home: Path) -> list[VersionId]:
    return [commit(store, "v", home, {b"same": b"s" * 5000, b"f": random_bytes(n)}) for n in range(3)]


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY])
def test_a_collection_goes_on_when_the_store_is_busy_for_a_moment(
    store: ObjectStore, tmp_path: Path, fault: Fault
) -> None:
    three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    busy = FaultyStore(store)
    for name in ("begin", "condemned", "shards", "spared"):
        busy.inject(fault, "put_if_absent", key_part=f"/{name}")
    assert collect(busy, tmp_path).deleted
    created = [key for method, key in busy.calls if method == "put_if_absent" and key.startswith("gc/")]
    assert len(created) == len(set(created)) + 4
    assert sum(key.startswith(keys.VERSIONS) for key in stored(store)) == 1


# -- what is freed


def test_a_moved_record_that_was_put_since_the_list_stays(store: ObjectStore, tmp_path: Path) -> None:
    """By a copy from another store, which found the pack condemned: a collector that goes on with
    the list sees the record, and no head that needs it yet."""
    commit(store, "v", tmp_path, {b"f": random_bytes(1)})
    pack = PackId(b"\xaa" * 16)
    store.put(keys.pack(pack), b"never named")
    age(tmp_path)
    generations = Generations(store)
    begun = generations.begin(ME)
    generations.condemn(begun.number, Condemned(frozenset({pack})))
    append_record(store, pack, 0, [MovedBlob(0, PackId(b"\xbb" * 16), 0, 1)])
    assert collect(store, tmp_path).deleted == {keys.pack(pack): 11}
    assert store.size(keys.move_record(pack, 1)) is not None


def test_a_manifest_without_a_head_is_whole_or_condemned(store: ObjectStore, tmp_path: Path) -> None:
    """It was put since the list was made, by a writer who then found a pack on the list. A fork by
    its id looks at the lists, and the version is on none."""
    version = commit(store, "v", tmp_path, {b"f": random_bytes(1)})
    manifest = store.get(keys.version(version))
    store.delete([keys.version(version)])
    delete_volume(store, "v", ME)
    age(tmp_path)
    found, plan = survey(store, tmp_path, grace_s=1)
    assert plan.doomed.packs
    store.put(keys.version(version), manifest)
    Collection(found, ME, wait_s=0).apply(plan)
    fork(store, "v", "late", version)
    assert tree(store, version, tmp_path) == {b"f": random_bytes(1)}


def test_pruned_versions_go_to_the_byte(either: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(either, tmp_path)
    prune(either, "v", 2, 3)
    age(tmp_path)
    before = stored(either)
    _, plan = survey(either, tmp_path)
    needed = closure(either, versions[2], tmp_path / "closures")
    assert set(plan.objects) == before.keys() - needed
    assert stored(either) == before, "a plan deletes nothing"
    outcome = collect(either, tmp_path)
    assert outcome.deleted == dict(plan.objects)
    assert stored(either).keys() == needed
    assert plan.freed_bytes == sum(before.values()) - sum(stored(either).values())
    assert plan.live_bytes == sum(size for key, size in stored(either).items() if key.startswith(keys.PACKS))
    assert tree(either, versions[2], tmp_path) == {b"same": b"s" * 5000, b"f": random_bytes(2)}
    _, again = survey(either, tmp_path)
    assert (again.freed_bytes, again.young_bytes) == (0, 0)


def test_nothing_goes_while_anything_protects_it(store: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(store, tmp_path)
    tags.set_tag(store, "v", "first", versions[0])
    fork(store, "v", "f", versions[1])
    prune(store, "v", 2, 3)
    age(tmp_path)
    before = stored(store)
    assert collect(store, tmp_path).deleted == {}
    assert stored(store) == before
    tags.remove_tag(store, "v", "first")
    collect(store, tmp_path)
    assert stored(store).keys() == set().union(*(closure(store, each, tmp_path / "c") for each in versions[1:]))


def test_what_is_young_stays_an_hour(store: ObjectStore, tmp_path: Path) -> None:
    three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    _, plan = survey(store, tmp_path)
    assert plan.objects == {}
    age(tmp_path)
    _, plan = survey(store, tmp_path)
    assert plan.freed_bytes > 0


def test_left_overs_of_writers_go(store: ObjectStore, tmp_path: Path) -> None:
    """A pack that no version names, and a scratch object."""
    version = commit(store, "v", tmp_path, {b"f": random_bytes(1)})
    store.put(keys.pack(PackId(b"\xaa" * 16)), b"never named")
    store.put("probe/left", b"over")
    age(tmp_path)
    assert collect(store, tmp_path).deleted == {"probe/left": 4, keys.pack(PackId(b"\xaa" * 16)): 11}
    assert stored(store).keys() == closure(store, version, tmp_path / "c")


# -- deleted volumes


def test_a_deleted_volume_can_be_brought_back_within_the_grace_period(store: ObjectStore, tmp_path: Path) -> None:
    version = commit(store, "v", tmp_path, {b"f": random_bytes(1)})
    delete_volume(store, "v", ME)
    age(tmp_path)
    assert collect(store, tmp_path, grace_s=3 * 3600).deleted == {}
    undelete_volume(store, "v")
    assert tree(store, version, tmp_path) == {b"f": random_bytes(1)}
    delete_volume(store, "v", ME)
    age(tmp_path, 4 * 3600)
    collect(store, tmp_path, grace_s=3 * 3600)
    assert stored(store) == {}
    with pytest.raises(NotFoundError) as refused:
        undelete_volume(store, "v")
    assert "deleted too long ago" in str(refused.value)
    with pytest.raises(CowfsError):
        tags.set_tag(store, "v", "t", version)


def test_an_undelete_that_comes_first_keeps_the_volume(store: ObjectStore, tmp_path: Path) -> None:
    version = commit(store, "v", tmp_path, {b"f": random_bytes(1)})
    delete_volume(store, "v", ME)
    age(tmp_path)
    found, plan = survey(store, tmp_path, grace_s=1)
    assert set(plan.lapsed) == {"v"}
    undelete_volume(store, "v")
    assert Collection(found, ME, wait_s=0).apply(plan).deleted == {}
    assert tree(store, version, tmp_path) == {b"f": random_bytes(1)}


def test_a_volume_that_was_brought_back_and_deleted_again_can_be_brought_back(
    store: ObjectStore, tmp_path: Path
) -> None:
    """Whatever is still to be carried out of a plan that was made in between."""
    version = commit(store, "v", tmp_path, {b"f": random_bytes(1)})
    delete_volume(store, "v", ME)
    age(tmp_path)
    found, plan = survey(store, tmp_path, grace_s=1)
    undelete_volume(store, "v")
    delete_volume(store, "v", ME)
    Collection(found, ME, wait_s=0).apply(plan)
    undelete_volume(store, "v")
    assert tree(store, version, tmp_path) == {b"f": random_bytes(1)}


# -- writers


def test_a_writer_that_has_not_acknowledged_is_waited_for(store: ObjectStore, tmp_path: Path) -> None:
    three_versions(store, tmp_path)
    with WorkingVolume(store, "w", tmp_path / "w") as writer:
        writer.write(b"f", random_bytes(0))
        writer.commit()
        prune(store, "v", 2, 3)
        age(tmp_path)
        _, plan = survey(store, tmp_path)
        assert (dict(plan.objects), len(plan.waits_for)) == ({}, 1)
        assert plan.young_bytes > 0
        found, _ = survey(store, tmp_path)
        assert len(Collection(found, ME, wait_s=0).settle()) == 1
        assert plan.held_bytes == plan.young_bytes
        writer.publisher.acknowledge()
        assert Collection(found, ME, wait_s=0).settle() == ()
        age(tmp_path)
        before = stored(store)
        outcome = collect(store, tmp_path)
        assert (len(outcome.waits_for), outcome.deleted) == (1, {})
        assert stored(store) == before
        writer.publisher.acknowledge()
        assert collect(store, tmp_path).deleted
        # Its content was found in the first volume's oldest pack, which is needed still.
        assert writer.read(b"f") == random_bytes(0)


def test_work_that_is_kept_stays(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "v") as writer:
        writer.write(b"f", random_bytes(1))
        first = writer.commit()
        writer.write(b"g", random_bytes(2))
        writer.publisher.hold()
    commit(store, "v", tmp_path / "other", {b"f": random_bytes(3)})
    prune(store, "v", 2)
    age(tmp_path, 30 * 24 * 3600)
    collect(store, tmp_path)
    assert first.version_id is not None
    assert tree(store, first.version_id, tmp_path) == {b"f": random_bytes(1)}


def test_a_pin_past_its_lifetime_dies_and_its_volume_is_fenced(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "v") as writer:
        writer.write(b"f", random_bytes(1))
        writer.commit()
        age(tmp_path, LIFETIME_S + 1)
        collect(store, tmp_path)
        assert [record.kind for _, record in refs.history(store, refs.head("v"))] == ["fence", "commit", "create"]
        writer.write(b"f", random_bytes(2))
        assert writer.commit().head_number == 4


def test_a_dead_pin_is_fenced_though_it_seems_to_be_older_than_the_collection(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who declared it dead was killed before the fence; the store's servers have clocks of their
    own."""
    with WorkingVolume(store, "v", tmp_path / "v") as writer:
        writer.write(b"f", random_bytes(1))
        writer.commit()
        age(tmp_path, LIFETIME_S + 1)
        with monkeypatch.context() as patch:
            patch.setattr(Collection, "_fence_once", killed)
            with pytest.raises(KeyboardInterrupt):
                collect(store, tmp_path)
        (pin,) = {info.key.split("/")[1] for info in store.list("pins/") if info.key != keys.PINS_SHOWN}
        dead = tmp_path / "store" / min(info.key for info in store.list(f"pins/{pin}/"))
        begun = (tmp_path / "store" / keys.collection(1, "begin")).stat().st_mtime_ns
        os.utime(dead, ns=(begun - 10**9, begun - 10**9))
        collect(store, tmp_path)
        assert [record.kind for _, record in refs.history(store, refs.head("v"))] == ["fence", "commit", "create"]


def killed(*words: object) -> None:
    raise KeyboardInterrupt


def test_a_writer_that_was_killed_is_not_waited_for(store: ObjectStore, tmp_path: Path) -> None:
    """Its pin goes on to protect what it names; if it comes back it proves the rest."""
    with WorkingVolume(store, "v", tmp_path / "v") as writer:
        lease = leases.acquire(store, "v", ME)
        lease.renew()
        writer.write(b"f", random_bytes(1))
        first = writer.commit()
        commit(store, "w", tmp_path / "other", {b"f": random_bytes(2)})
        commit(store, "w", tmp_path / "other", {b"f": random_bytes(3)})
        prune(store, "w", 2)
        writer.write(b"g", random_bytes(2))
        assert settle(store, tmp_path), "its lease is renewed"
        age(tmp_path)
        outcome = collect(store, tmp_path)
        assert outcome.deleted
        assert not outcome.waits_for
        assert "fence" in [record.kind for _, record in refs.history(store, refs.head("v"))]
        assert writer.commit().head_number > first.head_number + 1
        assert writer.tree() == {b"f": random_bytes(1), b"g": random_bytes(2)}
    version = read_head(store, "v").version
    assert version is not None
    assert tree(store, version, tmp_path) == {b"f": random_bytes(1), b"g": random_bytes(2)}


def test_each_list_has_a_fence_of_its_own(store: ObjectStore, tmp_path: Path) -> None:
    """A collector finds the list of another, goes on with it, and makes one of its own: meanwhile
    the writer may have come back, and fallen silent again."""
    with WorkingVolume(store, "v", tmp_path / "v") as writer:
        lease = leases.acquire(store, "v", ME)
        lease.renew()
        writer.write(b"f", random_bytes(1))
        writer.commit()
        for number in range(3):
            commit(store, "w", tmp_path / "other", {b"f": random_bytes(number)})
        age(tmp_path)
        prune(store, "w", 2)
        condemned(store, tmp_path)
        prune(store, "w", 3)
        age(tmp_path)
        assert not collect(store, tmp_path).waits_for
        kinds = [record.kind for _, record in refs.history(store, refs.head("v"))]
        assert kinds == ["fence", "fence", "commit", "create"]


def test_what_was_put_since_an_abandoned_begin_goes_as_a_whole(store: ObjectStore, tmp_path: Path) -> None:
    """A version that stayed without its packs could be forked."""
    commit(store, "v", tmp_path / "other", {b"f": random_bytes(0)})
    Generations(store).begin(ME)
    version = commit(store, "v", tmp_path / "other", {b"f": random_bytes(1)})
    commit(store, "v", tmp_path / "other", {b"f": random_bytes(2)})
    prune(store, "v", 2, 3)
    age(tmp_path)
    before = stored(store)
    deleted = collect(store, tmp_path).deleted
    assert keys.version(version) in deleted
    assert stored(store) == {key: size for key, size in before.items() if key not in deleted}


def test_what_a_writer_has_put_since_its_pin_stays(store: ObjectStore, tmp_path: Path) -> None:
    """It is killed before the next heartbeat, and somebody else takes the volume over: its work
    stands on that."""
    with WorkingVolume(store, "v", tmp_path / "v") as writer:
        leases.acquire(store, "v", ME).release()
        versions = []
        for number in range(2):
            writer.write(b"f", random_bytes(number))
            versions.append(writer.commit().version_id)
        assert writer.publisher._protection.pin.number == 1, "it has moved on already"
    refs.append(store, refs.head("v"), 4, fence(store, epoch=7))
    last = commit(store, "v", tmp_path / "other", {b"f": random_bytes(3)})
    prune(store, "v", 2, 3)
    age(tmp_path)
    assert not collect(store, tmp_path).waits_for
    for number, version in enumerate(versions):
        assert version is not None
        assert tree(store, version, tmp_path) == {b"f": random_bytes(number)}
    later = commit(store, "v", tmp_path / "other", {b"f": random_bytes(4)})
    prune(store, "v", 5, 6)
    age(tmp_path)
    collect(store, tmp_path)
    assert keys.version(later) in stored(store)
    assert keys.version(last) not in stored(store), "it is another writer's"


def fence(store: ObjectStore, *, epoch: int) -> HeadRecord:
    version = read_head(store, "v").version
    return HeadRecord("fence", version, epoch, clock.now_ns(), WriteId(clock.random_bytes(16)), holder=ME)


# -- forks that come too late


def condemned(store: ObjectStore, home: Path) -> Generations:
    """The list of a collection that goes no further."""
    found, plan = survey(store, home)
    generation = found.generations.begin(ME)
    found.generations.condemn(generation.number, plan.doomed)
    return found.generations


def test_a_version_whose_head_came_after_the_list_is_forked_when_the_collection_has_ended(
    store: ObjectStore, tmp_path: Path
) -> None:
    """Its writer slept between manifest and head. Until it is decided what the list spares, it
    counts as deleted, tagged or not."""
    version = commit(store, "v", tmp_path, {b"f": random_bytes(1)})
    head = keys.head("v", 2)
    kept = store.get(head)
    store.delete([head])
    KnownStore(store.url).forget()  # as another machine has it
    age(tmp_path)
    condemned(store, tmp_path)
    store.put_if_absent(head, kept)
    tags.set_tag(store, "v", "good", version)
    with pytest.raises(NotFoundError, match="being deleted, unless") as refused:
        fork(store, "v", "early", version)
    assert "`cowfs gc`" in refused.value.hint
    collect(store, tmp_path)
    fork(store, "v", "late", version)
    assert tree(store, version, tmp_path) == {b"f": random_bytes(1)}


def test_a_version_that_is_being_deleted_cannot_be_forked(store: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    condemned(store, tmp_path)
    with pytest.raises(NotFoundError, match="being deleted"):
        fork(store, "v", "late", versions[0])
    assert find_head(store, "late") is None
    assert store.list(keys.PINS) == []
    collect(store, tmp_path)
    with pytest.raises(NotFoundError, match="has no version"):
        fork(store, "v", "late", versions[0])
    fork(store, "v", "good", versions[2])


def test_a_fork_made_before_the_last_look_keeps_its_version(store: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    found, plan = survey(store, tmp_path)
    fork(store, "v", "early", versions[0])
    Collection(found, ME, wait_s=0).apply(plan)
    assert tree(store, versions[0], tmp_path)[b"f"] == random_bytes(0)
    fork(store, "early", "another", versions[0])  # the list that named it has ended


def test_a_fork_that_slept_is_taken_back(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    append = refs.append

    def sleep_before(used: ObjectStore, ref: Any, n: int, record: Any) -> Any:
        if isinstance(record, HeadRecord) and record.kind == "fork":
            age(tmp_path, keeping.LIFETIME_S + 3601)
            collect(store, tmp_path)
            assert store.size(keys.version(versions[0])) is not None, "its pin still counted when the roots were read"
            collect(store, tmp_path)
        return append(used, ref, n, record)

    monkeypatch.setattr(refs, "append", sleep_before)
    with pytest.raises(NotFoundError, match="being deleted"):
        fork(store, "v", "late", versions[0])
    with pytest.raises(NotFoundError):
        read_head(store, "late")
    head = find_head(store, "late")
    assert head is not None
    assert head.is_void


def test_a_fork_that_slept_and_was_killed_blocks_nothing(store: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    with keeping.keeping(store, "v", versions[0]) as kept:
        age(tmp_path, keeping.LIFETIME_S + 3601)
        collect(store, tmp_path)
        collect(store, tmp_path)
        assert not kept.is_alive
        refs.append(store, refs.head("late"), 1, HeadRecord("fork", versions[0], 0, 1, WriteId(bytes(16))))
    collect(store, tmp_path)
    head = find_head(store, "late")
    assert head is not None
    assert head.is_void


# -- what stops it


def test_a_root_that_cannot_be_read_stops_everything(store: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(store, tmp_path)
    fork(store, "v", "f", versions[0])
    tags.set_tag(store, "v", "t", versions[0])
    pin = Pin.create(store, volume="v", number=2, owner="x")
    prune(store, "v", 2, 3)
    age(tmp_path)
    before = stored(store)
    for key in [
        keys.head("v", 1),
        keys.head("f", 1),
        keys.tag("v", "t", 1),
        store.list(pin.key)[0].key,
        store.list("volumes/v/pruned/")[0].key,
        keys.version(versions[0]),
    ]:
        whole = store.get(key)
        store.put(key, whole[:-9] + b"!" + whole[-8:])
        with pytest.raises(CowfsError):
            collect(store, tmp_path)
        store.put(key, whole)
    whole = store.get(keys.head("v", 3))
    before_last = refs.read(store, refs.head("v"), 2)
    for record, said in (
        (store.get(keys.head("v", 2)), "is not the record of that place"),
        (before_last.encode(), "has the same head twice"),
    ):
        store.put(keys.head("v", 3), record)  # the second as cowfs before decision 76 wrote it
        with pytest.raises(CorruptError, match=said):
            collect(store, tmp_path)
    store.put(keys.head("v", 3), whole)
    store.delete([keys.head("v", 2)])
    with pytest.raises(CorruptError, match="missing"):
        collect(store, tmp_path)
    assert stored(store).keys() == before.keys()


def test_clocks_that_differ_stop_it(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ahead(clock.SystemClock):
        def now_ns(self) -> int:
            return super().now_ns() + int(400e9)

    monkeypatch.setattr(clock, "current", Ahead())
    with pytest.raises(InvalidStateError, match="differ by"):
        collect(store, tmp_path)


# -- two collectors


def test_who_may_not_delete_begins_no_collection(store: ObjectStore, tmp_path: Path) -> None:
    three_versions(store, tmp_path)
    prune(store, "v", 2)
    age(tmp_path)
    may_put = FaultyStore(store)
    may_put.inject(Fault.FAIL, "delete", times=math.inf, error=AccessDeniedError("no"))
    with pytest.raises(AccessDeniedError, match="cannot be deleted") as caught:
        collect(may_put, tmp_path)
    assert "s3:DeleteObject" in caught.value.hint
    assert store.list(keys.GC) == []


def test_another_process_of_this_machine_is_given_time(store: ObjectStore, tmp_path: Path) -> None:
    three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    with subprocess.Popen(["sleep", "1000"]) as other:
        try:
            found, _ = survey(store, tmp_path)
            found.generations.begin(current_holder("another", pid=other.pid))
            with pytest.raises(LeaseHeldError, match="is collecting"):
                collect(store, tmp_path)
            age(tmp_path)
            assert collect(store, tmp_path).deleted
        finally:
            other.kill()


def test_a_list_is_what_the_first_has_written(store: ObjectStore, tmp_path: Path) -> None:
    """A collector that was killed after a shard, and two that publish at once."""
    three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    found, plan = survey(store, tmp_path)
    generation = found.generations.begin(ME)
    packs = sorted(plan.doomed.packs)
    found.generations._create_shard(generation.number, 0, Condemned(frozenset(packs[:1])))
    rest = Condemned(frozenset(packs[1:]), plan.doomed.versions)
    assert found.generations.condemn(generation.number, rest) == plan.doomed
    assert found.generations.condemn(generation.number, Condemned()) == plan.doomed
    assert set(Collection(found, ME, wait_s=0).apply(plan).deleted) == set(plan.objects)


@pytest.mark.parametrize("answers", [1, math.inf])
def test_a_list_counts_no_part_that_is_not_there(store: ObjectStore, tmp_path: Path, answers: float) -> None:
    """Something on the way answers the look for one with a page of its own."""
    three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    pages = PagesInstead(store, keys.condemnation_shard(1, 2), times=answers)  # behind those of packs and versions
    if answers == 1:
        assert collect(pages, tmp_path).deleted
    else:
        with pytest.raises(CorruptError):
            collect(pages, tmp_path)
        pins.condemned(store, 0)
        assert collect(store, tmp_path).deleted


def test_a_collector_that_slept_deletes_nothing_once_another_has_ended_its_work(
    store: ObjectStore, tmp_path: Path
) -> None:
    """A copy from another store may have put the same objects again."""
    three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    slow, plan = survey(store, tmp_path)
    generation = slow.generations.begin(ME)
    listed = slow.generations.condemn(generation.number, plan.doomed)
    kept = {key: store.get(key) for key in plan.objects}
    assert collect(store, tmp_path).deleted.keys() == kept.keys()
    for key, data in kept.items():
        store.put(key, data)
    Collection(slow, ME, wait_s=0)._finish(generation, listed, plan, {})
    assert stored(store).keys() >= kept.keys()


def test_a_collection_does_not_end_by_a_look_that_is_older_than_its_list(store: ObjectStore, tmp_path: Path) -> None:
    """The other may be about to delete what it has listed, so nobody may begin to use it."""
    early, plan = survey(store, tmp_path)
    three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    age(tmp_path)
    other, others_plan = survey(store, tmp_path)
    generation = other.generations.begin(ME)
    other.generations.condemn(generation.number, others_plan.doomed)
    assert not Collection(early, ME, wait_s=0).apply(plan).deleted
    assert not Generations(store).load().found[generation.number].is_done
    assert Collection(other, ME, wait_s=0).apply(others_plan).deleted == dict(others_plan.objects)


def test_a_collector_takes_nothing_that_its_plan_does_not_name(store: ObjectStore, tmp_path: Path) -> None:
    three_versions(store, tmp_path)
    prune(store, "v", 2)
    age(tmp_path)
    found, plan = survey(store, tmp_path)
    prune(store, "v", 3)
    assert Collection(found, ME, wait_s=0).apply(plan).deleted == dict(plan.objects)
    assert survey(store, tmp_path)[1].freed_bytes > 0


def test_lists_that_everybody_has_acknowledged_go_but_the_newest(store: ObjectStore, tmp_path: Path) -> None:
    for n in range(3):
        commit(store, "v", tmp_path, {b"f": random_bytes(n)})
        commit(store, "v", tmp_path, {b"f": random_bytes(50 + n)})
        prune(store, "v", 2 * n + 2)
        age(tmp_path)
        assert collect(store, tmp_path).deleted
    lists = [info.key for info in store.list(keys.GC) if not info.key.endswith(("/begin", "/done"))]
    assert {keys.parse_generation(key) for key in lists} == {3}
    assert Pin.create(store, volume="v", number=1, owner="").generation == 3


def test_an_old_pin_is_heeded_and_expires(store: ObjectStore, tmp_path: Path) -> None:
    versions = three_versions(store, tmp_path)
    prune(store, "v", 2, 3)
    record = PinRecord("v", 2, 0, 1, None, WriteId(b"\7" * 16))
    store.put(f"{keys.PINS}{'07' * 16}", record.encode())
    age(tmp_path)
    assert collect(store, tmp_path).deleted == {}
    age(tmp_path, LIFETIME_S)
    collect(store, tmp_path)
    assert store.size(f"{keys.PINS}{'07' * 16}") is None
    collect(store, tmp_path)
    assert stored(store).keys() == closure(store, versions[2], tmp_path / "c")
