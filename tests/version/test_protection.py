"""What a writer may rely on in its store: nothing a collection has condemned, nothing that is gone
or damaged."""

from __future__ import annotations

import math
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cowfs.base import clock
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.errors import CorruptError, LeaseLostError, UnavailableError
from cowfs.format import keys
from cowfs.format.heads import Intent
from cowfs.format.pack import PackDirectory
from cowfs.format.records import CondemnedRecord, HeadRecord
from cowfs.native.chunks import cut_points
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.store.refs.pins import Pin
from cowfs.version.commit import CommitRequest, Progress
from cowfs.version.names.volumes import read_head
from cowfs.version.publish import known_chunks, protection
from cowfs.version.publish.known_chunks import KnownChunks
from tests.faulty_store import Fault, FaultyStore
from tests.store.test_pins import declare_dead
from tests.version.repacking import move
from tests.version.working_volume import ReadingVolume, WorkingVolume

pytestmark = pytest.mark.usefixtures("impatient")

NEW = random.Random(2).randbytes(1_500_000)


def condemn(store: ObjectStore, generation: int, packs: set[PackId]) -> None:
    record = CondemnedRecord(generation, tuple(sorted(packs)), 1, WriteId(bytes(WriteId.length)))
    store.put(keys.condemnation(generation), record.encode())


def packs(store: ObjectStore, at_least_bytes: int = 0) -> set[PackId]:
    return {PackId.from_hex(info.key[-32:]) for info in store.list(keys.PACKS) if info.size >= at_least_bytes}


def delete(store: ObjectStore, doomed: set[PackId]) -> None:
    store.delete([keys.pack(pack) for pack in doomed])


def fence(store: ObjectStore, volume: str) -> None:
    """As a collection does: same version, same epoch."""
    head = read_head(store, volume)
    write_id = WriteId(clock.random_bytes(WriteId.length))
    refs.append(store, refs.head(volume), head.number + 1, HeadRecord("fence", head.version, head.epoch, 1, write_id))


def tree(store: ObjectStore, version: VersionId | None, home: Path) -> dict[bytes, bytes | None]:
    assert version is not None
    with ReadingVolume(store, version, home) as reader:
        return reader.tree()


def pin(volume: WorkingVolume) -> Pin:
    return volume.publisher._protection.pin


def at_the_head(volume: WorkingVolume, action: object) -> None:
    """Runs `action` once, right before the next head is put: the machine was asleep meanwhile."""
    record_intent = volume.publisher._record_intent

    def pause(intent: Intent) -> None:
        volume.publisher._record_intent = record_intent
        record_intent(intent)
        action()  # type: ignore[operator]

    volume.publisher._record_intent = pause


def other_volume_with_new(store: ObjectStore, tmp_path: Path) -> set[PackId]:
    """The packs of a volume that holds NEW."""
    with WorkingVolume(store, "other", tmp_path / "other") as volume:
        volume.write(b"f", NEW)
        volume.commit()
    return packs(store, 1 << 20)


# -- a collection while a writer sleeps


def test_behind_a_collections_fence_everything_is_proven_again(store: ObjectStore, tmp_path: Path) -> None:
    """The pin expired: a chunk the commit had found is gone, and so is a pack it had uploaded."""
    doomed = other_volume_with_new(store, tmp_path)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"found", NEW)
        volume.write(b"own", NEW[::-1])
        before = packs(store)

        def collect() -> None:
            gone = doomed | (packs(store) - before)
            condemn(store, 1, gone)
            declare_dead(store, pin(volume))
            fence(store, "v")
            delete(store, gone)

        old = pin(volume).key
        at_the_head(volume, collect)
        base = volume.commit()
        assert base.head_number == 3
        assert pin(volume).key != old
        assert volume.committer.base == base
    assert [record.kind for _, record in refs.history(store, refs.head("v"))] == ["commit", "fence", "create"]
    assert tree(store, base.version_id, tmp_path / "r") == {b"found": NEW, b"own": NEW[::-1]}


def test_a_writer_that_has_published_nothing_yet_goes_on_behind_a_fence(store: ObjectStore, tmp_path: Path) -> None:
    """The fence has the epoch of the writer before, who gave the volume back."""
    with WorkingVolume(store, "v", tmp_path / "first") as volume:
        volume.write(b"f", b"first")
        volume.commit()
    with WorkingVolume(store, "v", tmp_path / "second") as volume:
        volume.publisher._epoch += 1
        volume.write(b"g", b"second")
        at_the_head(volume, lambda: fence(store, "v"))
        base = volume.commit()
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": b"first", b"g": b"second"}


def test_a_fence_alone_costs_no_upload(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        at_the_head(volume, lambda: fence(store, "v"))
        base = volume.commit()
        assert len(packs(store, 1 << 20)) == 1
        volume.write(b"g", b"x")
        assert volume.commit().head_number == base.head_number + 1
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW}


def test_lists_of_an_earlier_state_that_was_put_back_are_heeded(store: ObjectStore, tmp_path: Path) -> None:
    """Its next collection has a number that was read before, and acknowledged."""
    doomed = other_volume_with_new(store, tmp_path)
    condemn(store, 5, set())
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", b"first")
        volume.commit()
        volume.publisher.acknowledge()
        assert pin(volume).generation == 5
        store.delete([keys.condemnation(5)])
        condemn(store, 4, doomed)
        volume.write(b"g", NEW)
        base = volume.commit()
        volume.publisher.acknowledge()
        assert pin(volume).generation == 4
    delete(store, doomed)
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": b"first", b"g": NEW}


def test_a_failure_behind_a_fence_loses_nothing(store: ObjectStore, tmp_path: Path) -> None:
    faulty = FaultyStore(store)
    with WorkingVolume(faulty, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)

        def fence_and_fail() -> None:
            fence(store, "v")
            faulty.inject(Fault.FAIL, "put", key_part="packs/")

        at_the_head(volume, fence_and_fail)
        with pytest.raises(UnavailableError):
            volume.commit()
        faulty.heal()
        base = volume.commit()
        assert not volume.engine.is_dirty()
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW}


def test_a_commit_between_two_fences_is_another_writers(store: ObjectStore, tmp_path: Path) -> None:
    """Same version and same epoch at the end of the line, and still not the line the commit was
    made on."""
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        first = volume.commit()
        assert first.version_id is not None
        volume.write(b"f", b"mine")

        def go_on() -> None:
            for version in (VersionId(bytes(32)), first.version_id):
                head = read_head(store, "v")
                write_id = WriteId(clock.random_bytes(16))
                refs.append(
                    store, refs.head("v"), head.number + 1, HeadRecord("commit", version, head.epoch, 1, write_id)
                )
            fence(store, "v")

        at_the_head(volume, go_on)
        with pytest.raises(LeaseLostError):
            volume.commit()
        assert volume.tree() == {b"f": b"mine"}


def test_own_index_packs_are_compared_with_the_lists(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        prepare = volume.publisher._prepare
        condemned: list[set[PackId]] = []

        def collect(*arguments: object) -> object:
            prepared = prepare(*arguments)  # type: ignore[arg-type]
            if not condemned:
                condemned.append(set(prepared.index_packs))
                condemn(store, 1, condemned[0])
            return prepared

        monkeypatch.setattr(volume.publisher, "_prepare", collect)
        base = volume.commit()
    delete(store, condemned[0])
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW}


def test_nothing_is_acknowledged_while_a_heads_outcome_is_unknown(store: ObjectStore, tmp_path: Path) -> None:
    faulty = FaultyStore(store)
    with WorkingVolume(faulty, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        faulty.inject(Fault.FAIL, "put_if_absent", times=math.inf, key_part="/head/")
        with pytest.raises(UnavailableError):
            volume.commit()
        mine = packs(store)
        for generation in (1, 2):
            condemn(store, generation, mine)
            with pytest.raises(UnavailableError):
                volume.committer.acknowledge_collections()
            assert pin(volume).generation == 0
        faulty.heal()
        volume.committer.acknowledge_collections()
        assert pin(volume).generation == 2, "the collection goes on once the head is settled"
        base = volume.committer.base
        assert base.version_id is not None, "and then reads it among its roots"
        assert volume.commit() == base
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW}


def test_nothing_is_acknowledged_between_the_last_look_and_the_head(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protection, "BEAT_WAITS_S", 0.1)
    other_volume_with_new(store, tmp_path)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)

        def collect() -> None:
            condemn(store, 1, packs(store))
            volume.committer.acknowledge_collections()
            assert pin(volume).generation == 0

        at_the_head(volume, collect)
        volume.commit()
        volume.committer.acknowledge_collections()
        assert pin(volume).generation == 1


def test_a_heartbeat_that_meets_a_head_acknowledges_behind_it(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a collection waits for a writer that commits all the time until a heartbeat meets none."""
    monkeypatch.setattr(protection, "BEAT_WAITS_S", 60)
    other_volume_with_new(store, tmp_path)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        beat = threading.Thread(target=volume.committer.acknowledge_collections)

        def collect() -> None:
            condemn(store, 1, packs(store))
            beat.start()
            beat.join(0.2)  # by then it has met the head, if not before

        at_the_head(volume, collect)
        base = volume.commit()
        beat.join()
        assert (pin(volume).generation, pin(volume).number) == (1, base.head_number)


def test_a_heartbeat_that_comes_late_leaves_a_hold_as_it_is(store: ObjectStore, tmp_path: Path) -> None:
    """A writer's pin would expire, and the work that stays here with it."""
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        volume.committer.hold()
        condemn(store, 1, packs(store))
        volume.committer.acknowledge_collections()
        assert (pin(volume)._record.kind, pin(volume).generation) == ("hold", 0)


def test_collections_are_acknowledged_during_a_long_upload(store: ObjectStore, tmp_path: Path) -> None:
    doomed = other_volume_with_new(store, tmp_path)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        volume.write(b"g", NEW[::-1])

        def collect(event: Progress) -> None:
            if event.stage == "files" and event.done == 2 and not store.list(keys.GC):
                condemn(store, 1, doomed)
                volume.committer.acknowledge_collections()
                assert pin(volume).generation == 1

        base = volume.committer.commit(CommitRequest(), collect)
        assert pin(volume).generation == 1
    delete(store, doomed)
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW, b"g": NEW[::-1]}


def test_the_pin_follows_commits_and_names_what_no_head_names(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        for _ in range(2):
            volume.write(b"f", clock.random_bytes(100))
            base = volume.commit()
            volume.committer.acknowledge_collections()
            assert (pin(volume).number, pin(volume).packs) == (base.head_number, ())
        volume.write(b"g", random.Random(5).randbytes(20 << 20))
        volume.committer.upload_quiet(idle_s=0)
        condemn(store, 1, set())
        volume.committer.acknowledge_collections()
        assert len(pin(volume).packs) == 2
        volume.committer.hold()
        assert pin(volume)._record.kind == "hold"
        assert len(pin(volume).packs) == 2


# -- chunks that are gone or damaged


def damage(store: ObjectStore, pack: PackId) -> None:
    data = bytearray(store.get(keys.pack(pack)))
    data[700_000] ^= 1
    store.put(keys.pack(pack), bytes(data))


def test_restored_content_replaces_a_chunk_that_could_not_be_read(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "v1") as volume:
        volume.write(b"f", NEW)
        volume.commit()
    damage(store, packs(store, 1 << 20).pop())
    with WorkingVolume(store, "v", tmp_path / "v2") as volume:
        with pytest.raises(CorruptError):
            volume.read(b"f")
        volume.write(b"f", NEW)
        volume.write(b"g", NEW)
        base = volume.commit("restored")
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW, b"g": NEW}


def test_a_chunk_found_damaged_after_it_was_relied_on_is_stored_again(store: ObjectStore, tmp_path: Path) -> None:
    """Found by a background upload first, then read."""
    with WorkingVolume(store, "v", tmp_path / "v1") as volume:
        volume.write(b"f", NEW)
        volume.commit()
    damage(store, packs(store, 1 << 20).pop())
    with WorkingVolume(store, "v", tmp_path / "v2") as volume:
        volume.write(b"g", NEW)
        assert volume.committer.upload_quiet(idle_s=0) == len(NEW)
        with pytest.raises(CorruptError):
            volume.read(b"f")
        base = volume.commit()
    assert base.version_id is not None
    with ReadingVolume(store, base.version_id, tmp_path / "r") as reader:
        assert reader.read(b"g") == NEW


def test_a_damaged_chunk_that_is_kept_hinders_no_commit(store: ObjectStore, tmp_path: Path) -> None:
    large = random.Random(7).randbytes(20 << 20)
    with WorkingVolume(store, "v", tmp_path / "v1") as volume:
        volume.write(b"f", large)
        volume.commit()
    for pack in packs(store, 1 << 20):
        damage(store, pack)
    with WorkingVolume(store, "v", tmp_path / "v2") as volume:
        with pytest.raises(CorruptError):
            volume.read(b"f")
        volume.write(b"f", b"new end", offset=len(large) - 7)
        base = volume.commit()
        assert base.manifest is not None
        assert base.manifest.stats.added_bytes < 4 << 20


def test_a_pack_that_is_gone_is_not_relied_on(store: ObjectStore, tmp_path: Path) -> None:
    """Nobody has tried to read it in this mount; the file's own history says that it is there."""
    with WorkingVolume(store, "v", tmp_path / "v1") as volume:
        volume.write(b"f", NEW)
        volume.commit()
    delete(store, packs(store, 1 << 20))
    with WorkingVolume(store, "v", tmp_path / "v2") as volume:
        volume.write(b"f", NEW)
        base = volume.commit("restored")
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW}


# -- what a restart remembers


@pytest.mark.parametrize("early", [False, True])
def test_an_equal_chunk_of_a_condemned_pack_is_not_taken_for_the_one_the_file_has(
    store: ObjectStore, tmp_path: Path, early: bool
) -> None:
    """The file's first chunk is cut again, unchanged, and found in a pack of another volume."""
    data = random.Random(3).randbytes(6 << 20)
    with (
        WorkingVolume(store, "other", tmp_path / "other") as other,
        WorkingVolume(store, "v", tmp_path / "v1") as volume,
    ):
        for each in (other, volume):  # neither knows of the other's chunks
            each.write(b"f", data)
            each.publisher.chunks._known.wait_loaded(1 << 40)
        volume.write(b"g", random.Random(9).randbytes(3 << 20))
        before = packs(store)
        other.commit()
        theirs = packs(store, 1 << 20) - before
        version = volume.commit().version_id
    for number in range(18):  # their catalogue is looked through before the volume's own
        with WorkingVolume(store, f"x{number}", tmp_path / f"x{number}") as each:
            each.write(b"f", random.Random(100 + number).randbytes(1000))
            each.commit()
    assert version is not None
    with ReadingVolume(store, version, tmp_path / "v2") as reader:
        assert reader.read(b"f") == data  # its chunks are in the cache
    at = cut_points(data, True)[0]
    written = data[at : at + 4] + b"rest"

    with WorkingVolume(store, "v", tmp_path / "v2") as volume:
        volume.publisher.chunks._known.wait_loaded(1 << 40)
        volume.write(b"f", written, at)

        def collect(event: Progress | None = None) -> None:
            if (event is None or event.stage == "index") and not pin(volume).generation:
                condemn(store, 1, theirs)
                volume.committer.acknowledge_collections()
                delete(store, theirs)

        if early:
            volume.committer.upload_quiet(idle_s=0)
            collect()
        base = volume.committer.commit(CommitRequest(), collect)
        assert pin(volume).generation == 1
    assert tree(store, base.version_id, tmp_path / "r")[b"f"] == data[:at] + written + data[at + 8 :]


def test_a_commit_before_the_uploads_of_an_earlier_mount_are_found_keeps_them(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(3).randbytes(20 << 20)
    with WorkingVolume(store, "v", tmp_path / "v1") as volume:
        volume.write(b"f", data)
        volume.committer.upload_quiet(idle_s=0)
        volume.publisher.chunks._uploader.flush()  # a pack that no thread has begun with is dropped at the end
        uploaded = volume.publisher.chunks.list_uploaded_packs()
    (tmp_path / "v2").mkdir()
    shutil.copy(tmp_path / "v1" / "uploads", tmp_path / "v2" / "uploads")
    gate, look_up = threading.Event(), KnownChunks._directory

    def slowly(self: KnownChunks, *place: Any) -> PackDirectory:
        if threading.current_thread().name == "cowfs-catalogues":
            gate.wait(30)  # else a failure would wait for ever
        return look_up(self, *place)

    monkeypatch.setattr(KnownChunks, "_directory", slowly)
    monkeypatch.setattr(known_chunks, "LOAD_WAIT_S", 0.1)
    with WorkingVolume(store, "v", tmp_path / "v2") as volume:
        volume.publisher.chunks._known.begin()
        volume.write(b"g", b"small")
        volume.committer.commit(CommitRequest())
        assert volume.publisher.chunks.list_uploaded_packs() >= uploaded & packs(store)
        gate.set()
        volume.publisher.chunks._known._has_ended.wait()
        volume.write(b"f", data)
        base = volume.committer.commit(CommitRequest())
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": data, b"g": b"small"}


def restarted(store: ObjectStore, tmp_path: Path) -> WorkingVolume:
    """The volume of `v1` again, with what it wrote down of its uploads; the test writes its files
    once more."""
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "uploads").write_bytes((tmp_path / "v1" / "uploads").read_bytes())
    return WorkingVolume(store, "v", tmp_path / "v2")


# -- packs that a collection has moved


def test_content_of_a_pack_that_moved_is_found(store: ObjectStore, tmp_path: Path) -> None:
    for pack in other_volume_with_new(store, tmp_path):
        move(store, pack, 1)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        base = volume.commit()
    assert base.manifest is not None
    assert base.manifest.stats.added_bytes == 0
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW}


def test_a_condemned_pack_is_not_relied_on_through_one_that_moved_there(store: ObjectStore, tmp_path: Path) -> None:
    """The address is in a pack that no list names; its bytes lie in one that goes before the head
    is put, or after."""
    (old,) = other_volume_with_new(store, tmp_path)
    home = move(store, old, 1)
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        volume.write(b"f", NEW)
        publishing = volume.publisher._protection.publishing

        @contextmanager
        def collected() -> Iterator[Callable[[], None]]:
            volume.publisher._protection.publishing = publishing  # type: ignore[method-assign]
            condemn(store, 1, {home})
            with publishing() as read_lists:
                yield read_lists

        volume.publisher._protection.publishing = collected  # type: ignore[method-assign]
        base = volume.commit()
        delete(store, {home})
        volume.write(b"g", NEW)
        volume.commit()
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW}


def test_what_was_uploaded_before_a_restart_is_found_again(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(6).randbytes(40 << 20)
    faulty = FaultyStore(store)
    volume = WorkingVolume(faulty, "v", tmp_path / "v1")
    volume.write(b"f", data)
    faulty.inject(Fault.FAIL, "put", key_part="versions/")
    with pytest.raises(UnavailableError):
        volume.commit()
    volume.close()
    uploaded = packs(store, 1 << 20)
    assert uploaded
    delete(store, {min(uploaded)})  # that one was collected
    with restarted(store, tmp_path) as volume:
        volume.write(b"f", data)
        base = volume.commit()
    again = packs(store, 1 << 20)
    assert again >= set(sorted(uploaded)[1:])
    assert len(again) == len(uploaded)
    assert base.manifest is not None
    assert base.manifest.stats.added_bytes == len(data)
    assert (tmp_path / "v2" / "uploads").read_text() == ""
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": data}


def test_condemned_uploads_of_before_a_restart_are_not_relied_on(store: ObjectStore, tmp_path: Path) -> None:
    volume = WorkingVolume(store, "v", tmp_path / "v1")
    volume.write(b"f", NEW * 12)
    volume.committer.upload_quiet(idle_s=0)
    volume.publisher.chunks._uploader.flush()
    volume.close()
    doomed = packs(store, 1 << 20)
    condemn(store, 1, doomed)
    with restarted(store, tmp_path) as volume:
        volume.write(b"f", NEW * 12)
        base = volume.commit()
    delete(store, doomed)
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW * 12}


@pytest.mark.quick
def test_a_damaged_record_of_uploads_costs_an_upload_and_no_more(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "v", tmp_path / "v1") as volume:
        volume.write(b"f", NEW)
        volume.commit()
    pack = next(iter(packs(store, len(NEW))))
    lines = [
        "torn",
        f"{pack.hex()} x",
        f"{'ab' * 16} 1 2 3 4",
        f"{pack.hex()} 9 99999999 9 9",
        pack.hex(),
    ]
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "uploads").write_text("\n".join(lines))
    with WorkingVolume(store, "v", tmp_path / "v2") as volume:
        volume.write(b"g", NEW)
        base = volume.commit()
    assert tree(store, base.version_id, tmp_path / "r") == {b"f": NEW, b"g": NEW}


def test_a_pin_that_died_before_it_follows_the_head_is_replaced(store: ObjectStore, tmp_path: Path) -> None:
    """While a volume is opened: a collection took the writer for dead between its claim and the
    head."""
    with WorkingVolume(store, "v", tmp_path / "v") as volume:
        protection, old = volume.publisher._protection, pin(volume)
        declare_dead(store, old)
        lapses = protection.lapses
        protection.follow(old.number + 1)
        assert protection.pin.key != old.key
        assert protection.pin.number == old.number + 1
        assert protection.lapses == lapses + 1, "what was found under the old one is looked for again"
        protection.pin.renew(is_forced=True)
