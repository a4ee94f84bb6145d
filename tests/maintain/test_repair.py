"""cowfs repair: damaged packs get back what is found elsewhere; addresses, versions and locators
stay."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import zstandard

from cowfs.base.ids import PackId
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import ConflictError, CorruptError, InvalidInputError, InvalidStateError, UnavailableError
from cowfs.format import codec, keys
from cowfs.format.pack import PackKind
from cowfs.maintain.repairs.refit import make_stored_form
from cowfs.maintain.repairs.repair_plan import RepairPlan
from cowfs.storage import KeyFile, Storage
from cowfs.store import initialize, open_store
from cowfs.store.refs import refs
from tests.cli.conftest import Run
from tests.cli.test_json import check
from tests.maintain.conftest import BIG, FIRST, OTHER, contents, forget
from tests.maintain.damage import cut, delete, exchange, flip, id_of, packs
from tests.version.repacking import move
from tests.version.test_faults import condemn

WHOLE = {**FIRST, "other": OTHER}


def mirrored(place: Path) -> Path:
    """Another store with the same packs."""
    made = open_store((place / "mirror").as_uri(), create=True)
    initialize(made)
    made.close()
    shutil.copytree(place / "store", place / "mirror", ignore=lambda *_: [keys.STORE], dirs_exist_ok=True)
    return place / "mirror"


def reads_whole(place: Path, version: ROVolume, expected: dict[str, bytes]) -> None:
    forget(place)
    assert contents(Volume.from_locator(version.locator)) == expected


def test_one_flipped_one_cut_and_one_deleted_pack_come_back_from_another_store(
    place: Path, second: ROVolume, run: Run
) -> None:
    first_version = Volume.version(f"data@{second.parents[0]}")
    third = Volume.open("data")
    third.files.write("third", OTHER[::-1])
    third_version = third.finalize()
    mirror = mirrored(place)
    big, other, more = packs(place / "store", PackKind.DATA)
    flip(big)
    cut(other)
    delete(more)
    index = packs(place / "store", PackKind.INDEX)
    flip(index[0])
    delete(index[1])
    forget(place)
    broken = run("verify", "--json")
    assert broken.code == 1
    assert len(broken.json["damaged"]) == 4, "what named the pack that is gone cannot be read either"
    planned = run("repair", "--from", str(mirror), "--dry-run", "--json")
    assert not planned.json["is_applied"]
    before = sorted(path for path in (place / "store").rglob("*"))
    (place / "report").write_text(broken.out)
    done = run("repair", "--from", str(mirror), "--report", str(place / "report"), "-y", "--json")
    assert (done.code, done.json["broken"]) == (0, [])
    check("repair", done.json)
    assert all(path.exists() for path in before), "nothing is deleted"
    assert sum(done.json["found_in"].values()) > 0
    again = run("verify", "--json")
    assert again.code == 0
    assert all(pack["is_repaired"] for pack in again.json["damaged"])
    reads_whole(place, first_version, FIRST)
    reads_whole(place, second, WHOLE)
    reads_whole(place, third_version, {**WHOLE, "third": OTHER[::-1]})
    idle = run("repair", "-y")
    assert (idle.code, "read from elsewhere already" in idle.out) == (0, True)
    assert Volume.open("data").files.read("third") == OTHER[::-1]


@pytest.mark.parametrize("kind", [PackKind.DATA, PackKind.INDEX])
def test_exchanged_packs_come_back_from_another_store(place: Path, second: ROVolume, run: Run, kind: PackKind) -> None:
    mirror = mirrored(place)
    exchange(*packs(place / "store", kind))
    forget(place)
    assert not Store().verify().is_sound
    assert run("repair", "--from", str(mirror), "-y").code == 0
    assert Store().verify().is_sound
    reads_whole(place, second, WHOLE)


def test_this_machines_cache_gives_chunks_and_index_blocks_back(place: Path, first: ROVolume) -> None:
    assert first.warm().is_complete
    for path in (*packs(place / "store", PackKind.DATA), *packs(place / "store", PackKind.INDEX)):
        delete(path)
    plan = Store().plan_repair()
    done = Store().repair(plan)
    assert (done.is_sound, done.is_applied) == (True, True)
    assert set(done.found) == {"this machine's cache"}
    reads_whole(place, first, FIRST)
    with pytest.raises(InvalidStateError):
        Store().repair(done)


def test_a_directory_with_the_files_gives_chunks_back(place: Path, first: ROVolume) -> None:
    first.files.download("", place / "downloaded")
    forget(place)
    for path in packs(place / "store", PackKind.DATA):
        cut(path)
    (place / "downloaded" / "dir" / "big").write_bytes(BIG[:-1] + b"x")  # changed since
    plan = Store().plan_repair(sources=[place / "downloaded"])
    assert [each.path for each in plan.broken] == ["/dir/big"]
    done = Store().repair(plan)
    assert not done.is_sound
    assert [each.path for each in Store().verify().broken] == ["/dir/big"]
    (place / "downloaded" / "dir" / "big").write_bytes(BIG)
    done = Store().repair(Store().plan_repair(sources=[place / "downloaded"]))
    assert done.is_sound
    reads_whole(place, first, FIRST)


def test_a_copy_without_fuse_is_asked_without_being_named(place: Path, first: ROVolume) -> None:
    first.mount(place / "mnt" / "copy", mode="copy")
    forget(place)
    for path in packs(place / "store", PackKind.DATA):
        delete(path)
    plan = Store().plan_repair()
    assert plan.is_sound
    assert set(plan.found) == {str(place / "mnt" / "copy")}
    first.unmount()


def test_a_pack_whose_directory_is_damaged_loses_nothing(place: Path, first: ROVolume) -> None:
    (pack,) = packs(place / "store", PackKind.DATA)
    flip(pack, pack.stat().st_size - 30)
    forget(place)
    done = Store().repair(Store().plan_repair())
    assert done.is_sound
    assert [(each.found_blobs, each.lost_blobs) for each in done.packs] == [(0, 0)]
    assert Store().verify().damaged[0].is_repaired
    delete(pack)
    assert Store().verify().is_sound
    reads_whole(place, first, FIRST)


def test_what_is_found_nowhere_is_listed_and_can_be_found_later(place: Path, first: ROVolume, run: Run) -> None:
    mirror = mirrored(place)
    (pack,) = packs(place / "store", PackKind.DATA)
    flip(pack, 1000)
    forget(place)
    done = run("repair", "-y", "--json")
    assert done.code == 1
    assert [each["path"] for each in done.json["broken"]] == ["/dir/big"]
    assert "/dir/big" in run("repair", "--dry-run").out
    assert run("repair", "--from", str(mirror), "-y").code == 0
    newest = refs.newest(open_store((place / "store").as_uri()), refs.moved(id_of(pack)))
    assert newest is not None
    assert newest[0] == 2, "the first had what was whole"
    reads_whole(place, first, FIRST)


def test_a_collection_that_moves_the_pack_meanwhile_wins(
    place: Path, first: ROVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = mirrored(place)
    (pack,) = packs(place / "store", PackKind.DATA)
    flip(pack, 1000)
    forget(place)
    plan = Store().plan_repair(sources=[mirror])
    others: list[int] = []
    real: Any = refs.append

    def append(store: Any, ref: Any, n: int, record: Any) -> None:
        real(store, ref, n, record)
        if not others:  # as if it were somebody else's
            others.append(n)
            raise ConflictError("taken")

    monkeypatch.setattr(refs, "append", append)
    assert Store().repair(plan).is_sound
    monkeypatch.setattr(refs, "append", real)
    newest = refs.newest(open_store((place / "store").as_uri()), refs.moved(id_of(pack)))
    assert newest is not None
    assert newest[0] == 2
    reads_whole(place, first, FIRST)


def planned_without_the_pack(place: Path) -> tuple[Path, RepairPlan]:
    """A mirror, and a plan from it for the store, whose only pack of contents is gone."""
    mirror = mirrored(place)
    (pack,) = packs(place / "store", PackKind.DATA)
    delete(pack)
    forget(place)
    return mirror, Store().plan_repair(sources=[mirror])


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_repair_that_slept_until_its_new_pack_was_collected_writes_it_again(
    place: Path, first: ROVolume, monkeypatch: pytest.MonkeyPatch, is_ended: bool
) -> None:
    """Nothing named it before the moved record was there. A list that has not ended will delete
    it."""
    _, plan = planned_without_the_pack(place)
    store = open_store((place / "store").as_uri())
    condemned: list[PackId] = []
    real: Any = refs.append

    def append_late(used: Any, ref: Any, n: int, record: Any) -> None:
        if not condemned:
            condemned.append(record.blobs[-1].new_pack)
            condemn(store, 1, set(condemned))
            if is_ended:
                store.delete([keys.pack(each) for each in condemned])
                store.put(keys.collection(1, "done"), b"")
        real(used, ref, n, record)

    monkeypatch.setattr(refs, "append", append_late)
    assert Store().repair(plan).is_sound
    store.delete([keys.pack(each) for each in condemned])
    reads_whole(place, first, FIRST)


def test_a_repair_that_was_killed_before_it_looked_at_its_new_pack_again_is_made_good_by_the_next(
    place: Path, first: ROVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulation: the next one saw that everything lay where a record says, and left
    it there."""
    mirror, plan = planned_without_the_pack(place)
    store = open_store((place / "store").as_uri())
    condemned: list[PackId] = []

    with monkeypatch.context() as patch:
        real: Any = refs.append

        def append_and_die(used: Any, ref: Any, n: int, record: Any) -> None:
            condemned.append(record.blobs[-1].new_pack)
            condemn(store, 1, set(condemned))
            real(used, ref, n, record)
            raise UnavailableError("killed")

        patch.setattr(refs, "append", append_and_die)
        with pytest.raises(UnavailableError):
            Store().repair(plan)
    assert Store().repair(Store().plan_repair(sources=[mirror])).is_sound
    store.delete([keys.pack(each) for each in condemned])
    reads_whole(place, first, FIRST)


def test_a_repair_keeps_what_the_record_before_says_of_other_blobs(place: Path, second: ROVolume, run: Run) -> None:
    """A writer may be about to name them, and a copy to another store takes what the newest record
    has."""
    vol = Volume.open("data")
    vol.files.write("both", OTHER[::2])
    vol.files.write("alone", OTHER[1::2])
    vol.commit()
    vol.files.remove("alone")
    vol.finalize()
    mirror = mirrored(place)
    store = open_store((place / "store").as_uri())
    (pack,) = (path for path in packs(place / "store", PackKind.DATA) if OTHER[1::2] in path.read_bytes())
    new = move(store, id_of(pack), 1)
    assert run("prune", "data", "--keep-last", "1", "-y").code == 0
    flip(place / "store" / keys.pack(new), (place / "store" / keys.pack(new)).read_bytes().index(OTHER[::2]) + 5)
    forget(place)
    assert Store().repair(Store().plan_repair(sources=[mirror])).is_sound
    before, after = (refs.read(store, refs.moved(id_of(pack)), n) for n in (1, 2))
    assert {blob.offset for blob in after.blobs} == {blob.offset for blob in before.blobs}
    assert {blob.new_pack for blob in after.blobs} > {new}
    reads_whole(place, Volume.version("data"), {**WHOLE, "both": OTHER[::2]})


def test_an_encrypted_store_is_repaired_and_another_key_is_refused(place: Path) -> None:
    for name, start in (("key", 100), ("other", 50)):
        (place / name).write_bytes(bytes(range(start, start + 32)))
    storage = Storage((place / "sealed").as_uri(), encryption_key=KeyFile(place / "key"))
    vol = Volume.new("data", store=storage)
    vol.files.write("text", FIRST["text"])
    vol.files.write("big", BIG)
    version = vol.finalize()
    assert version.warm().is_complete
    (pack,) = packs(place / "sealed", PackKind.DATA)
    cut(pack)
    elsewhere = Storage((place / "elsewhere").as_uri(), encryption_key=KeyFile(place / "other"))
    Volume.new("data", store=elsewhere).commit()
    with pytest.raises(InvalidInputError, match="it has a different key") as caught:
        Store(storage=storage).plan_repair(sources=[elsewhere])
    assert f"`cowfs download --store {elsewhere.url}`" in caught.value.hint
    done = Store(storage=storage).repair(Store(storage=storage).plan_repair())
    assert done.is_sound
    forget(place)
    assert Volume.version("data", store=storage).files.read("big") == BIG


def test_a_source_that_changes_between_plan_and_repair_changes_nothing(place: Path, first: ROVolume) -> None:
    mirror = mirrored(place)
    (pack,) = packs(place / "store", PackKind.DATA)
    delete(pack)
    forget(place)
    plan = Store().plan_repair(sources=[mirror])
    shutil.rmtree(mirror / "packs")
    with pytest.raises(CorruptError, match="is no longer there"):
        Store().repair(plan)
    assert refs.newest(open_store((place / "store").as_uri()), refs.moved(id_of(pack))) is None


@pytest.mark.parametrize("change", [0, 1, 2, 3, 4, 5, 30, 301])
@pytest.mark.quick
def test_a_frame_of_another_length_is_made_of_the_same_bytes(change: int) -> None:
    raw = b"".join(b"line %d of a text\n" % n for n in range(4000))
    length = len(zstandard.ZstdCompressor(level=3, write_content_size=True).compress(raw)) + change
    stored = make_stored_form(raw, codec.Codec.ZSTD, length)
    assert stored is not None
    assert len(stored) == length
    assert codec.decompress(stored, codec.Codec.ZSTD, len(raw), codec.hash_of(raw), "a frame") == raw


@pytest.mark.quick
def test_no_frame_is_shorter_than_its_content_can_be() -> None:
    assert make_stored_form(bytes(range(256)) * 10, codec.Codec.ZSTD, 20) is None
    assert make_stored_form(b"raw", codec.Codec.RAW, 4) is None
