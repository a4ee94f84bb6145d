"""Commits over a store that fails at one call: at each call in turn, before the call takes effect
and after.

Whatever the call was, the commit either succeeds all the same or raises an error of our tree; then
the same commit succeeds, its version is whole, the working copy is clean, and the head's line has
each version once.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from cowfs.base.ids import PackId, WriteId
from cowfs.errors import CowfsError, UnavailableError
from cowfs.format import keys
from cowfs.format.heads import Intent
from cowfs.format.records import CondemnedRecord
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.refs import refs
from cowfs.version.commit import CommitRequest, Progress
from cowfs.version.history import open_version
from cowfs.version.publish import known_chunks
from tests.faulty_store import Fault, FaultyStore
from tests.version.working_volume import ReadingVolume, WorkingVolume

pytestmark = pytest.mark.usefixtures("impatient")

KIB = 1 << 10
LARGE = random.Random(1).randbytes(3000 * KIB)
NEW = random.Random(2).randbytes(1500 * KIB)
QUIET = random.Random(3).randbytes(700 * KIB)


def expected() -> dict[bytes, bytes | None]:
    changed = LARGE[: 1000 * KIB] + b"changed" + LARGE[1000 * KIB + 7 :]
    return {b"large": changed, b"new": NEW, b"quiet": QUIET, b"d": None, b"d/small": b"small"}


def prepare(volume: WorkingVolume) -> None:
    """A first version, and changes of every kind on it."""
    volume.write(b"large", LARGE)
    volume.write(b"gone", b"soon")
    volume.commit("first")
    volume.write(b"quiet", QUIET)
    volume.write(b"large", b"changed", offset=1000 * KIB)
    volume.write(b"new", NEW)
    volume.mkdir(b"d")
    volume.write(b"d/small", b"small")
    volume.unlink(b"gone")


def publish(volume: WorkingVolume) -> None:
    """What a mount does: background upload, then a commit."""
    volume.committer.upload_quiet(idle_s=0)
    volume.commit("second")


def check_line(store: ObjectStore, last_message: str, versions: int) -> None:
    """The heads count up from 1 without gaps, one commit each, each the child of the one before."""
    line = refs.history(store, refs.head("v"))[::-1]
    assert [number for number, _ in line] == list(range(1, len(line) + 1))
    published = [record.version for _, record in line if record.kind == "commit"]
    assert len(published) == len(set(published)) == versions
    parents: tuple[Any, ...] = ()
    message = ""
    for version in published:
        assert version is not None
        manifest = open_version(store, version)
        assert manifest.parents == parents
        parents = (version,)
        message = manifest.message
    assert message == last_message


def calls_of_a_commit(tmp_path: Path) -> int:
    store = open_store((tmp_path / "counted").as_uri(), create=True)
    initialize(store)
    counting = FaultyStore(store)
    with WorkingVolume(counting, "v", tmp_path / "counting") as volume:
        prepare(volume)
        before = len(counting.calls)
        publish(volume)
        return len(counting.calls) - before


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY], ids=lambda fault: fault.name)
def test_a_commit_survives_the_failure_of_any_single_call(tmp_path: Path, fault: Fault) -> None:
    count = calls_of_a_commit(tmp_path)
    assert count >= 5  # a data pack, an index pack, condemned lists, manifest, head
    for failing in range(count + 2):
        home = tmp_path / f"{failing}"
        store = open_store((home / "store").as_uri(), create=True)
        initialize(store)
        faulty = FaultyStore(store)
        with WorkingVolume(faulty, "v", home / "here") as volume:
            prepare(volume)
            faulty.inject(fault, skip=failing)
            try:
                publish(volume)
            except CowfsError as error:
                assert isinstance(error, UnavailableError), error
                assert volume.engine.is_dirty(), faulty.calls[-5:]
                publish(volume)
            faulty.heal()
            assert not volume.engine.is_dirty()
            assert volume.tree() == expected()
            base = volume.committer.base
            volume.write(b"later", b"and on it goes")
            third = volume.commit("third")
        check_line(store, "third", 3)
        for version, content in ((base, expected()), (third, expected() | {b"later": b"and on it goes"})):
            assert version.version_id is not None
            with ReadingVolume(store, version.version_id, home / version.version_id.hex()[:8]) as reader:
                assert reader.tree() == content, f"call {failing}"
        store.close()


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY], ids=lambda fault: fault.name)
def test_writes_between_a_failed_commit_and_its_repetition_are_in_one_of_both(tmp_path: Path, fault: Fault) -> None:
    count = calls_of_a_commit(tmp_path)
    for failing in range(0, count, 2):
        home = tmp_path / f"{failing}"
        store = open_store((home / "store").as_uri(), create=True)
        initialize(store)
        faulty = FaultyStore(store)
        with WorkingVolume(faulty, "v", home / "here") as volume:
            prepare(volume)
            faulty.inject(fault, skip=failing, times=8)  # more than one head put repeats
            try:
                publish(volume)
            except CowfsError:
                volume.write(b"new", b"overwritten", offset=500 * KIB)
                volume.write(b"quiet", b"overwritten", offset=0)
                volume.unlink(b"d/small")
                faulty.heal()
                base = volume.commit("again")
                tree = volume.tree()
                assert b"d/small" not in tree
                assert base.version_id is not None
                with ReadingVolume(store, base.version_id, home / "reader") as reader:
                    assert reader.tree() == tree, f"call {failing}"
            assert not volume.engine.is_dirty()
        store.close()


def test_an_error_of_a_background_upload_fails_no_commit_on_a_store_that_works_again(
    store: ObjectStore, tmp_path: Path
) -> None:
    data = random.Random(4).randbytes(20 << 20)  # more than a pack: it is uploaded before the commit
    faulty = FaultyStore(store)
    with WorkingVolume(faulty, "v", tmp_path / "v") as volume:
        volume.write(b"f", data)
        faulty.inject(Fault.FAIL, "put", key_part="packs/")
        try:
            volume.committer.upload_quiet(idle_s=0)
        except UnavailableError:
            pass  # the pack had failed before the rest of the file was added
        else:
            for _ in range(6000):
                if volume.publisher.chunks._uploader.failure is not None:
                    break
                time.sleep(0.01)
        faulty.heal()
        base = volume.commit()
        assert volume.committer.upload_quiet(idle_s=0) == 0
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        assert reader.tree() == {b"f": data}


class OddError(Exception):
    """What a library under the store might raise and nobody foresaw."""


def test_an_error_that_is_none_of_ours_does_not_stop_later_commits(store: ObjectStore, tmp_path: Path) -> None:
    odd: Any = OddError("unforeseen")
    faulty = FaultyStore(store)
    with WorkingVolume(faulty, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        faulty.inject(Fault.FAIL, "put", key_part="packs/", error=odd)
        with pytest.raises(OddError):
            volume.commit()
        base = volume.commit()
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        assert reader.tree() == {b"f": NEW}


def test_behind_the_head_a_commit_needs_nothing_of_the_store(store: ObjectStore, tmp_path: Path) -> None:
    """The store goes away in the moment the head is in the line, and no index block is cached: the
    commit has happened."""
    faulty = FaultyStore(store)
    with WorkingVolume(faulty, "v", tmp_path / "v") as volume:
        prepare(volume)
        recorded = volume.publisher._record_published

        def lose_the_store(intent: Intent) -> None:
            recorded(intent)
            cache = volume.publisher._index.cache
            cache._memory.clear()
            for path in cache.directory.rglob("*"):
                if path.is_file():
                    path.unlink()
            faulty.inject(Fault.FAIL, times=10**9)

        volume.publisher._record_published = lose_the_store
        second = volume.commit("second")
        assert not volume.engine.is_dirty()
        volume.publisher._record_published = recorded
        faulty.heal()
        volume.write(b"later", b"x")
        third = volume.commit("third")
    assert third.manifest is not None
    assert third.manifest.parents == (second.version_id,)


def test_a_local_disk_that_refuses_the_intent_costs_nothing(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        intents: list[Intent] = []

        def refuse(intent: Intent) -> None:
            raise OSError(28, "No space left on device")

        volume.publisher._record_intent = refuse
        with pytest.raises(OSError, match="No space"):
            volume.commit()
        assert [number for number, _ in refs.history(store, refs.head("v"))] == [1], "no head without its intent"
        volume.publisher._record_intent = intents.append
        volume.publisher._record_published = refuse
        with pytest.raises(OSError, match="No space"):
            volume.commit()
        volume.publisher._record_published = volume.published.append
        base = volume.commit()
        assert volume.published == intents, "the head that was put is the one the working copy moves to"
        assert base.version_id == intents[0].version_id
        assert not volume.engine.is_dirty()


def test_packs_condemned_before_the_writer_came_are_not_relied_on(store: ObjectStore, tmp_path: Path) -> None:
    """Its pin says that it has seen that collection, so the collection may delete them at any
    time."""
    with WorkingVolume(store, "other", tmp_path / "other") as volume:
        volume.write(b"f", NEW)
        other = volume.commit()
    doomed = {PackId.from_hex(info.key[-32:]) for info in store.list("packs/") if info.size > 1 << 20}
    assert doomed
    condemn(store, 1, doomed)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        assert volume.publisher._protection.pin.generation == 1
        volume.write(b"f", NEW)
        volume.committer.upload_quiet(idle_s=0)
        base = volume.commit()
    assert other.version_id != base.version_id
    assert base.version_id is not None
    store.delete([keys.pack(pack) for pack in doomed])
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        assert reader.tree() == {b"f": NEW}


def test_packs_condemned_while_a_commit_runs_are_not_relied_on(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "other", tmp_path / "other") as volume:
        volume.write(b"f", NEW)
        volume.commit()
    doomed = {PackId.from_hex(info.key[-32:]) for info in store.list("packs/") if info.size > 1 << 20}

    def collect_meanwhile(event: Progress) -> None:
        if event.stage == "index" and not list(store.list(keys.GC)):
            condemn(store, 1, doomed)

    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        base = volume.committer.commit(CommitRequest(), collect_meanwhile)
        volume.committer.acknowledge_collections()
        assert volume.publisher._protection.pin.generation == 1
    assert base.version_id is not None
    store.delete([keys.pack(pack) for pack in doomed])
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        assert reader.tree() == {b"f": NEW}


def condemn(store: ObjectStore, generation: int, packs: set[PackId]) -> None:
    record = CondemnedRecord(generation, tuple(sorted(packs)), 1, WriteId(bytes(WriteId.length)))
    store.put(keys.condemnation(generation), record.encode())


def test_one_damaged_volume_hides_no_other_from_deduplication(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "a-damaged", tmp_path / "a") as volume:
        volume.write(b"f", b"x")
        damaged = volume.commit()
    with WorkingVolume(store, "b-whole", tmp_path / "b") as volume:
        volume.write(b"f", NEW)
        volume.commit()
    assert damaged.version_id is not None
    store.put(keys.version(damaged.version_id), b"{}")
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        manifest = volume.commit().manifest
    assert manifest is not None
    assert manifest.stats.added_bytes == 0


def test_a_commit_waits_only_so_long_for_other_volumes_catalogues(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_chunks, "LOAD_WAIT_S", 0.01)
    with WorkingVolume(store, "other", tmp_path / "other") as volume:
        volume.commit()
    slow = FaultyStore(store)
    slow.inject(Fault.DELAY, times=10**9)
    with WorkingVolume(slow, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        base = volume.commit()
    assert base.version_id is not None
