"""Sparse packs are written anew: every version reads as before, and only what is needed is left."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from cowfs.base.ids import PackId, VersionId
from cowfs.format import keys
from cowfs.format.pack import PackKind
from cowfs.format.records import MovedBlob
from cowfs.maintain.check.verify import Scope, Verifier
from cowfs.maintain.collect import repacking, why
from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.generations import Condemned, Generations
from cowfs.maintain.collect.moving import append_record
from cowfs.maintain.collect.planning import Survey
from cowfs.maintain.collect.repacking import GAIN_BYTES
from cowfs.store import AMBIENT, ObjectStore, load_record
from cowfs.store.packs import PackReader
from cowfs.store.refs import refs
from cowfs.store.refs.pins import Pin
from tests.maintain.fixtures import either, store
from tests.maintain.stores import ME, age, collect, commit, fork, prune, random_bytes, stored, survey, tree
from tests.version.working_volume import ReadingVolume

__all__ = ["either", "store"]

FILES = 20
KEPT = 3


def sparse(store: ObjectStore, home: Path, volume: str = "v", seed: int = 0) -> VersionId:
    """A version that needs 3 of 20 files of its pack, and a version that was pruned."""
    commit(store, volume, home, {b"f%d" % n: random_bytes(seed + n) for n in range(FILES)})
    version = commit(store, volume, home, {b"f%d" % n: None for n in range(KEPT, FILES)})
    prune(store, volume, 2)
    age(home)
    return version


def kept(seed: int = 0) -> dict[bytes, bytes | None]:
    return {b"f%d" % n: random_bytes(seed + n) for n in range(KEPT)}


def pack_bytes(store: ObjectStore) -> int:
    return sum(size for key, size in stored(store).items() if key.startswith(keys.PACKS))


def data_bytes(store: ObjectStore) -> int:
    """Of the packs with chunks of files."""
    packs = [key for key in stored(store) if key.startswith(keys.PACKS) and keys.parse_pack(key) is not None]
    return sum(len(pack) for pack in map(store.get, packs) if pack[10] == PackKind.DATA)


def total(store: ObjectStore) -> int:
    return sum(stored(store).values())


def data_pack(store: ObjectStore) -> PackId:
    found = keys.parse_pack(max(stored(store), key=lambda key: stored(store)[key]))
    assert found is not None
    return found


def test_a_sparse_pack_is_written_anew_to_the_byte(either: ObjectStore, tmp_path: Path) -> None:
    version, old = sparse(either, tmp_path), data_pack(either)
    before = total(either)
    found, plan = survey(either, tmp_path)
    assert plan.sparse.packs == {old}
    assert keys.pack(old) in plan.objects
    outcome = Collection(found, ME, wait_s=0).apply(plan)
    assert outcome.deleted == dict(plan.objects)
    assert outcome.written_bytes == plan.sparse.written_bytes
    assert before - total(either) == plan.freed_bytes
    assert keys.pack(old) not in stored(either)
    assert plan.live_bytes == pack_bytes(either) < 600_000
    assert tree(either, version, tmp_path) == kept()
    assert survey(either, tmp_path)[1].objects == {}


def test_what_is_needed_in_part_again_moves_again(either: ObjectStore, tmp_path: Path) -> None:
    """The new pack becomes sparse: the record of the first one says where its blobs lie now."""
    sparse(either, tmp_path)
    old = data_pack(either)
    collect(either, tmp_path)
    new = data_pack(either)
    age(tmp_path)
    # 300 KB: two thirds of it go
    version = commit(either, "v", tmp_path, {b"f1": None, b"f2": None})
    prune(either, "v", 3)
    age(tmp_path)
    found = Survey(either, tmp_path / "collector", gain_bytes=0)
    plan = found.plan()
    assert new in plan.sparse.packs
    Collection(found, ME, wait_s=0).apply(plan)
    left = stored(either)
    assert left.keys().isdisjoint({keys.pack(old), keys.pack(new)})
    newest = refs.newest(either, refs.moved(old))
    assert newest is not None
    assert newest[0] == 2
    assert tree(either, version, tmp_path) == {b"f0": random_bytes(0)}
    # What the record still says of blobs in a pack that is gone keeps nobody from finding the
    # others.
    again = commit(either, "w", tmp_path, {b"g": random_bytes(0), b"h": random_bytes(1)})
    assert tree(either, again, tmp_path) == {b"g": random_bytes(0), b"h": random_bytes(1)}
    assert max(stored(either).values()) < 150_000, "what is stored was found, what is gone was not relied on"


def test_a_collector_that_sleeps_before_its_record_hides_nothing(
    either: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile another one writes the same blobs anew, and takes the new pack that nothing names.
    The record that comes at last names it: what the record before it says counts, to readers and to
    collections."""
    version, old = sparse(either, tmp_path), data_pack(either)
    found, plan = survey(either, tmp_path)

    def late(store: ObjectStore, pack: PackId, after: int, blobs: Iterable[MovedBlob]) -> int:
        monkeypatch.setattr(repacking, "append_record", append_record)
        age(tmp_path)
        collect(either, tmp_path)
        return append_record(store, pack, after, blobs)

    monkeypatch.setattr(repacking, "append_record", late)
    repacker = found.repacker()
    for batch in plan.sparse.batches:
        repacker.write(batch)
    newest = refs.newest(either, refs.moved(old))
    assert newest is not None
    assert newest[0] == 2
    assert stored(either).keys().isdisjoint(keys.pack(blob.new_pack) for blob in newest[1].blobs)
    for _ in range(2):
        assert tree(either, version, tmp_path) == kept()
        assert len(list(PackReader(either).directory(old))) == KEPT
        found_why = why.why(either, tmp_path / "why", keys.pack(data_pack(either)))
        assert [reason.version for reason in found_why.reasons] == [version]
        age(tmp_path)
        collect(either, tmp_path)
    last = commit(either, "v", tmp_path, {b"f1": None, b"f2": None})
    prune(either, "v", 3)
    age(tmp_path)
    found = Survey(either, tmp_path / "collector", gain_bytes=0)
    Collection(found, ME, wait_s=0).apply(found.plan())
    assert tree(either, last, tmp_path) == {b"f0": random_bytes(0)}


@pytest.mark.parametrize("times", [1, 2])
def test_a_blob_that_is_needed_again_meanwhile_is_not_lost(
    times: int, either: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the blobs were copied, and before anybody knows that the old pack is condemned, a
    version comes that finds a blob there which was not copied."""
    version = sparse(either, tmp_path)
    if times == 2:
        collect(either, tmp_path)
        version = commit(either, "v", tmp_path, {b"f1": None, b"f2": None})
        prune(either, "v", 3)
        age(tmp_path)
    lost = 2 if times == 2 else 10
    found = Survey(either, tmp_path / "collector", gain_bytes=0)
    plan = found.plan()
    condemn = Generations.condemn
    revived: list[VersionId] = []

    def late(self: Generations, number: int, doomed: Condemned) -> Condemned:
        before = data_bytes(either)
        revived.append(commit(either, "late", tmp_path, {b"again": random_bytes(lost)}))
        assert data_bytes(either) - before < 50_000, "it was not found in the old pack"
        return condemn(self, number, doomed)

    monkeypatch.setattr(Generations, "condemn", late)
    assert plan.sparse.packs
    Collection(found, ME, wait_s=0).apply(plan)
    monkeypatch.undo()
    expected = {b"f0": random_bytes(0)} if times == 2 else kept()
    for _ in range(3):
        assert tree(either, revived[0], tmp_path) == {b"again": random_bytes(lost)}
        assert tree(either, version, tmp_path) == expected
        age(tmp_path)
        found = Survey(either, tmp_path / "collector", gain_bytes=0)
        Collection(found, ME, wait_s=0).apply(found.plan())
    data = sum(len(each) for each in expected.values() if each is not None) + 100_000
    assert data_bytes(either) < data + 60_000, "in the end nothing is stored that nobody needs"


def test_what_writers_and_readers_hold_stays_as_it_is(store: ObjectStore, tmp_path: Path) -> None:
    sparse(store, tmp_path)
    old = data_pack(store)
    pin = Pin.create(store, volume="v", number=3, owner="somebody", packs=[old])
    pin.renew(kind="hold")
    assert old in survey(store, tmp_path)[1].sparse.left
    pin.remove()
    assert survey(store, tmp_path)[1].sparse.packs == {old}
    os.utime(tmp_path / "store" / keys.pack(old))
    plan = survey(store, tmp_path)[1]
    assert plan.sparse.packs == set()
    assert old in plan.sparse.left, "too young"


def test_a_damaged_pack_is_left_alone(store: ObjectStore, tmp_path: Path) -> None:
    sparse(store, tmp_path)
    sparse(store, tmp_path, "other", 100)
    first, second = sorted((size, key) for key, size in stored(store).items())[-2:]
    path = tmp_path / "store" / first[1]
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    age(tmp_path)
    collect(store, tmp_path)
    assert first[1] in stored(store)
    assert second[1] not in stored(store)


def test_a_pack_with_little_to_gain_stays(store: ObjectStore, tmp_path: Path) -> None:
    commit(store, "v", tmp_path, {b"f%d" % n: random_bytes(n, GAIN_BYTES // 4) for n in range(4)})
    commit(store, "v", tmp_path, {b"f%d" % n: None for n in range(1, 4)})
    prune(store, "v", 2)
    age(tmp_path)
    plan = survey(store, tmp_path)[1]
    assert plan.sparse.batches == ()
    assert sum(plan.sparse.left.values()) > GAIN_BYTES // 2


def test_what_was_moved_is_no_damage(store: ObjectStore, tmp_path: Path) -> None:
    sparse(store, tmp_path)
    old = data_pack(store)
    collect(store, tmp_path)
    assert keys.pack(old) not in stored(store)
    verifier = Verifier(store, load_record(store), cache_dir=tmp_path / "verifier", access=AMBIENT)
    report = verifier.run(Scope.of_store(store))
    assert (report.damaged, report.broken) == ([], [])


def test_an_open_version_reads_on(either: ObjectStore, tmp_path: Path) -> None:
    version = sparse(either, tmp_path)
    with ReadingVolume(either, version, tmp_path / "open") as reader:
        old = data_pack(either)
        collect(either, tmp_path)
        assert keys.pack(old) not in stored(either)
        assert reader.tree() == kept()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_kept_reads_back(seed: int, either: ObjectStore, tmp_path: Path) -> None:
    """Any history of commits, forks, prunes and collections. At last nothing is left but what is
    needed, and less than half as much again."""
    chance = random.Random(seed)
    volumes: dict[str, dict[bytes, bytes | None]] = {"v": {}}
    for step in range(30):
        name = chance.choice(sorted(volumes))
        files = volumes[name]
        match chance.randrange(6):
            case 0 if files and len(volumes) < 4:
                volumes[f"fork{step}"] = dict(files)
                fork(either, name, f"fork{step}")
            case 1 | 2 if files:
                changes: dict[bytes, bytes | None] = {path: None for path in files if chance.random() < 0.6} or {
                    b"x": b"x"
                }
                commit(either, name, tmp_path, changes)
                volumes[name] = {k: v for k, v in (files | changes).items() if v is not None}
            case 3 if files:
                newest = refs.newest(either, refs.head(name))
                assert newest is not None
                prune(either, name, *range(1, newest[0]))
                age(tmp_path)
                found = Survey(either, tmp_path / "collector", gain_bytes=0)
                plan, before = found.plan(), total(either)
                Collection(found, ME, wait_s=0).apply(plan)
                assert before - total(either) == plan.freed_bytes
            case _:
                some: dict[bytes, bytes | None] = {
                    b"%d" % chance.randrange(40): random_bytes(chance.randrange(60), 20_000) for _ in range(8)
                }
                commit(either, name, tmp_path, some)
                volumes[name] = files | some
    for name in volumes:
        newest = refs.newest(either, refs.head(name))
        assert newest is not None
        assert newest[1].version is not None
        assert tree(either, newest[1].version, tmp_path) == volumes[name]
