"""cowfs push and pull: the same ids in another store, only what is missing, and whatever a target's
collections do meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cowfs.api import stores
from cowfs.api.access import file_session
from cowfs.api.upkeep.encryption import add_key, remove_key
from cowfs.base import clock
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    NotFoundError,
)
from cowfs.format import keys
from cowfs.format.pack import PackKind
from cowfs.format.records import CondemnedRecord, HeadRecord
from cowfs.maintain.collect.moving import append_record
from cowfs.maintain.copy import pushing
from cowfs.maintain.copy.pack_copies import PackCopies
from cowfs.storage import KeyFile, Storage
from cowfs.store import ObjectStore, open_store
from cowfs.store.refs import leases, refs
from cowfs.store.refs.holder import current_holder
from cowfs.version.commit import Progress
from cowfs.version.names import head_line
from cowfs.version.names.volumes import create_volume
from tests.cli.conftest import Run
from tests.cli.test_gc import age
from tests.cli.test_json import check
from tests.maintain.conftest import BIG, FIRST, OTHER, contents, first, forget, place, run, second
from tests.maintain.damage import delete, flip, id_of, packs
from tests.version.repacking import move
from tests.version.test_faults import condemn

__all__ = ["first", "place", "run", "second"]

WHOLE = {**FIRST, "other": OTHER}


def objects(root: Path, prefix: str) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in (root / prefix).rglob("*") if path.is_file()}


def at(place: Path, name: str = "mirror") -> str:
    return (place / name).as_uri()


def test_what_was_repacked_twice_travels_whole(place: Path, run: Run) -> None:
    data = Volume.new("data")
    files = {"a": os.urandom(100_000), "b": os.urandom(500_000), "c": os.urandom(2_000_000)}
    for name, content in files.items():
        data.files.write(name, content)
    version = data.commit()
    for gone in ("c", "b"):
        data.files.remove(gone)
        version = data.commit()
        file_session._end_all()  # a writer might use what is older than its pin
        assert run("prune", "data", "--keep-last", "1", "-y").code == 0
        age(2 * 3600)
        assert run("gc", "-y", "--json").json["repacked_packs"] == 1
    assert run("verify", "--all").code == 0
    done = run("push", "data", at(place), "--json").json
    forget(place)
    (place / "store").rename(place / "gone")
    assert done["version_ids"] == [version.id]
    assert contents(Volume.from_locator(done["locator"])) == {"a": files["a"]}
    assert run("verify", "--store", at(place), "--all").code == 0
    moved = list((place / "mirror").rglob("*.moved/*"))
    assert len(moved) == 1, "the record of where it lies now"


def test_what_the_target_alone_has_keeps_no_push_waiting(place: Path) -> None:
    """A pack has moved in both stores. The target's record has a blob more, in a pack that a
    collection has condemned there: that is nothing to the version that is pushed."""
    data = Volume.new("data")
    (place / "tree").mkdir()
    (place / "tree" / "a").write_bytes(os.urandom(100_000))
    (place / "tree" / "b").write_bytes(os.urandom(500_000))
    data.files.upload(place / "tree")  # into one pack
    data.files.remove("b")
    version = data.commit()
    file_session._end_all()
    Store().push("data", at(place))
    store, target = open_store(at(place, "store")), open_store(at(place))
    (old,) = (id_of(path) for path in packs(place / "mirror", PackKind.DATA))
    new = move(target, old, 1)
    condemn(target, 1, {new})
    move(store, old, 1)
    record = refs.read(store, refs.moved(old), 1)
    kept = [blob for blob in record.blobs if blob.stored_length < 200_000]
    append_record(store, old, 1, kept)
    Store().push(f"data@{version.id[:12]}", at(place))
    found = refs.newest(target, refs.moved(old))
    assert found is not None
    assert {blob.new_pack for blob in found[1].blobs} > {new}


def test_a_target_that_repacked_twice_gets_what_it_lacks_once(place: Path, run: Run) -> None:
    """Its moved record still has a row for a pack that it has collected since."""
    data = Volume.new("data")
    files = {"a": os.urandom(100_000), "b": os.urandom(500_000), "c": os.urandom(2_000_000)}
    for name, content in files.items():
        data.files.write(name, content)
    data.commit()
    for gone in ("c", "b"):
        data.files.remove(gone)
        data.commit()
        Store().push("data", at(place))
        age(2 * 3600)
        assert run("prune", "data", "--keep-last", "1", "-y", "--store", at(place)).code == 0
        age(2 * 3600, place / "mirror")
        assert run("gc", "-y", "--json", "--store", at(place)).json["repacked_packs"] == 1
    data.files.write("again", files["b"])
    data.commit()
    pushed = Store().push("data", at(place))
    assert pushed.put_packs >= 1
    data.files.write("more", b"few")
    data.commit()
    assert Store().push("data", at(place)).put_bytes < 10_000
    forget(place)
    (place / "store").rename(place / "gone")
    assert contents(Volume.version("data", store=at(place))) == {"a": files["a"], "again": files["b"], "more": b"few"}


def test_a_version_has_the_same_id_in_another_store(
    place: Path, second: ROVolume, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    done = run("push", "data", at(place), "--json")
    assert done.code == 0
    check("push", done.json)
    there = Volume.from_locator(done.json["locator"])
    assert (there.id, there.message) == (second.id, "second")
    assert (done.json["version_ids"], done.json["made_store_url"]) == ([second.id], at(place))
    source, target = objects(place / "store", "packs"), objects(place / "mirror", "packs")
    assert target.items() <= source.items()
    assert objects(place / "mirror", "versions") == {
        key: data for key, data in objects(place / "store", "versions").items() if second.id in key
    }
    forget(place)
    (place / "store").rename(place / "gone")
    assert contents(Volume.from_locator(there.locator)) == WHOLE
    assert Store(at(place)).verify().is_sound
    (place / "gone").rename(place / "store")
    again = run("push", "data", at(place), "--json").json
    assert (again["is_new"], again["put_packs"], again["version_ids"], again["made_store_url"]) == (False, 0, [], None)
    grown = Volume.open("data", store=at(place))
    grown.files.write("more", b"of the mirror")
    assert grown.finalize().parents == [second.id]
    back = run("pull", "data", at(place), "--json")
    check("pull", back.json)
    assert back.json["put_packs"] == 2
    assert Volume.version("data").files.read("more") == b"of the mirror"
    assert "has a later version" not in caplog.text
    assert run("push", "data@" + second.id, at(place), "--json").json["is_new"] is False, "it is behind"
    assert "volume data" in caplog.text
    assert "has a later version" in caplog.text


def test_a_store_that_is_made_is_told_of(
    place: Path, first: ROVolume, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that was not meant, as in `push data ./other` instead of `push data STORE --as
    other`, is seen at once."""
    monkeypatch.chdir(place)
    assert f"into a new store at {(place / 'other').as_uri()}" in run("push", "data", "./other").err
    assert "new store" not in run("push", "data", "./other").err
    (place / "deep").mkdir()
    assert run("push", "data", "deep/other").code == 0
    assert run("verify", "--store", "deep/other").code == 0, "a path as well as ./deep/other"


def test_all_versions_and_tags_make_a_mirror_that_is_kept_by_repeating(place: Path, second: ROVolume) -> None:
    first = Volume.version(f"data@{second.parents[0]}")
    first.tag("v1")
    done = Store().push("data", at(place), all_versions=True)
    assert done.version_ids == [first.id, second.id]
    assert done.tag_names == ["v1"]
    assert Volume.version("data@v1", store=at(place)).id == first.id
    assert [version.id for version in Volume.version("data", store=at(place)).history()] == [second.id, first.id]
    vol = Volume.open("data")
    vol.files.write("third", b"3")
    third = vol.finalize()
    third.tag("v1", move=True)
    again = Store().push("data", at(place), all_versions=True)
    assert (again.version_ids, again.tag_names, again.put_packs) == ([third.id], ["v1"], 2)
    assert Volume.version("data@v1", store=at(place)).id == third.id


def test_what_was_when_is_told_alike_by_a_mirror(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By NAME@{TIME}, and by rules for pruning."""
    volume = Volume.new("data")
    real_ns, day_ns = clock.now_ns, 86_400 * 10**9
    made: list[ROVolume] = []
    for day in range(6, 0, -1):
        monkeypatch.setattr(clock, "now_ns", lambda day=day: real_ns() - day * day_ns)
        if day == 2:
            Store().rollback("data", made[0])
        volume.files.write("file", str(day).encode())
        made.append(volume.commit())
        file_session._end_all()
        if day in (5, 2):
            monkeypatch.setattr(clock, "now_ns", real_ns)
            Store().push("data", at(place), all_versions=True)
    monkeypatch.setattr(clock, "now_ns", real_ns)
    Store().push("data", at(place), all_versions=True)
    Store().push("data", at(place, "last"))
    told = {name: steps(open_store(at(place, name))) for name in ("store", "mirror", "last")}
    assert told["mirror"] == told["store"]
    assert told["last"] == told["store"][:1]
    then = (made[1].created + timedelta(hours=1)).isoformat()
    assert Volume.version(f"data@{{{then}}}", store=at(place)) == made[1]
    plans = [Store(store).plan_prune("data", daily=3) for store in (None, at(place))]
    kept = [[(each.version, each.published_ns) for each in plan.versions if each.is_kept] for plan in plans]
    assert kept[0] == kept[1]
    assert {version for version, _ in kept[0]} == {each.id for each in made[-3:]}


def steps(store: ObjectStore) -> list[tuple[VersionId, int]]:
    newest = refs.newest(store, refs.head("data"))
    assert newest is not None
    return [(step.version, step.created_ns) for step in head_line.steps(store, "data", newest[0])]


@pytest.mark.parametrize("all_versions", [False, True])
def test_a_mirror_follows_although_versions_between_are_collected(
    place: Path, second: ROVolume, run: Run, all_versions: bool
) -> None:
    """And one that went on gets nothing: what it has collected is not said to be there."""
    assert Store().push("data", at(place)).version_ids == [second.id]
    Store().push("data", at(place, "late"))
    vol = Volume.open("data")
    vol.files.write("third", b"1")
    vol.commit()
    vol.files.write("fourth", b"1")
    vol.commit()
    vol.files.write("fifth", b"1")
    last = vol.commit()
    file_session._end_all()
    assert run("prune", "data", "--keep-last", "1", "-y").code == 0
    age(2 * 3600)
    run("gc", "-y")
    with pytest.raises(NotFoundError):
        Volume.version(f"data@{last.parents[0]}")
    assert Store().push("data", at(place), all_versions=all_versions).version_ids == [last.id]
    with pytest.raises(ConflictError, match="has a later version"):
        Store().pull("data", at(place, "late"), all_versions=all_versions)
    assert Volume.version("data").id == last.id
    assert set(contents(Volume.version("data", store=at(place)))) == {*WHOLE, "third", "fourth", "fifth"}


def gone_on_with(place: Path) -> ROVolume:
    """Pushed, and then written to on both sides; theirs."""
    Store().push("data", at(place))
    ours, theirs = Volume.open("data"), Volume.open("data", store=at(place))
    ours.files.write("ours", b"1")
    ours.finalize()
    theirs.files.write("theirs", b"2")
    return theirs.finalize()


def test_what_went_another_way_is_refused_and_can_be_pushed_as_another_volume(place: Path, second: ROVolume) -> None:
    kept = gone_on_with(place)
    with pytest.raises(ConflictError, match="is not an ancestor of"):
        Store().push("data", at(place))
    assert Volume.version("data", store=at(place)).id == kept.id
    Store().push("data", at(place), name="ours")
    Store(at(place)).merge("data", [Volume.version("ours", store=at(place))])
    assert set(contents(Volume.version("data", store=at(place)))) == {*WHOLE, "ours", "theirs"}


def test_an_earlier_version_that_the_target_has_not_is_refused(place: Path, second: ROVolume, run: Run) -> None:
    """The target knows its name only: as a parent, or from its own line, where it was pruned."""
    earlier = f"data@{second.parents[0]}"
    Store().push("data", at(place))
    Store().push("data", at(place, "pruned"), all_versions=True)
    Store(at(place, "pruned")).prune(Store(at(place, "pruned")).plan_prune("data", last=1))
    refused = run("push", earlier, at(place, "pruned"), "--json")
    assert (refused.code, refused.json["error"]["kind"]) == (4, "conflict"), "it is garbage, though it could be read"
    age(2 * 3600, place / "pruned")
    assert run("gc", "-y", "--store", at(place, "pruned")).code == 0
    for name in ("mirror", "pruned"):
        with pytest.raises(ConflictError, match="has a later version") as error:
            Store().push(earlier, at(place, name))
        assert "another name" in (error.value.hint or "")
    with pytest.raises(ConflictError, match="has a later version"):
        Store(at(place)).pull(earlier, at(place, "store"))
    done = Store().push(earlier, at(place), name="old")
    assert contents(Volume.from_locator(done.locator)) == FIRST


def test_an_earlier_version_of_a_line_is_not_told_to_be_merged(place: Path, second: ROVolume) -> None:
    """The target does not even know its name."""
    data = Volume.open("data")
    data.files.write("third", b"3")
    data.finalize()
    Store().push("data", at(place))
    with pytest.raises(ConflictError, match="has a later version"):
        Store().push(f"data@{second.parents[0]}", at(place))


def test_what_another_volume_keeps_is_there_as_long_as_it_does(place: Path, second: ROVolume) -> None:
    """It was merged into this one there."""
    gone_on_with(place)
    Store().push("data", at(place), name="ours")
    Store(at(place)).merge("data", [Volume.version("ours", store=at(place))])
    done = Store().push("data", at(place))
    assert not done.is_new
    assert contents(Volume.from_locator(done.locator)) == {**WHOLE, "ours": b"1"}
    Store(at(place)).delete("ours")
    with pytest.raises(ConflictError, match="has a later version"):
        Store().push("data", at(place))


def test_a_version_that_the_target_knows_as_a_parent_only_is_named(place: Path, second: ROVolume) -> None:
    """Through a fork, which was merged since."""
    first = Volume.version(f"data@{second.parents[0]}")
    fork = Volume.version("data").fork("fork")
    fork.files.write("more", b"1")
    Store().push(fork.finalize().locator, at(place), name="data")
    data = Volume.open("data")
    data.files.write("third", b"3")
    third = data.finalize()
    Store().merge("data", [Volume.version("fork")])
    second.tag("kept")
    done = Store().push("data", at(place), all_versions=True)
    assert done.version_ids == [third.id, Volume.version("data").id], "what is older would have taken the last one back"
    assert (done.tag_names, done.left_out_version_ids, done.left_out_tag_names) == ([], [first.id, second.id], ["kept"])


def test_who_pushes_at_the_same_time_changes_what_has_to_be_copied(place: Path, second: ROVolume) -> None:
    """Heads were appended of versions that the target did not have."""
    Store().push("data", at(place))
    fork = Volume.version("data").fork("fork")
    fork.files.write("more", b"1")
    fork.finalize()
    data = Volume.open("data")
    for number in range(3):
        data.files.write("third", b"%d" % number)
        data.commit()
    data.finalize()
    Store().merge("data", [Volume.version("fork")])
    told: list[Progress] = []

    def tell(progress: Progress) -> None:
        if not told:
            told.append(progress)
            Store().push("fork", at(place), name="data")

    Store().push("data", at(place), all_versions=True, progress=tell)
    assert told
    for number in range(5):
        assert Volume.version(f"data@{{{number}}}", store=at(place)).files.read("more" if number in (0, 4) else "third")
    assert Store(at(place)).verify().is_sound


def test_what_the_target_has_merged_is_there_whatever_became_of_other_volumes(place: Path, second: ROVolume) -> None:
    gone_on_with(place)
    Store().push("data", at(place), name="ours")
    Store(at(place)).merge("data", [Volume.version("ours", store=at(place))])
    other = Volume.new("another", store=at(place))
    other.files.write("x", b"3")
    other.finalize()
    for head in (place / "mirror" / "volumes" / "another" / "head").iterdir():
        head.write_bytes(b"damaged")
    assert not Store().push("data", at(place)).is_new


def test_what_was_pruned_at_a_mirror_is_no_news(
    place: Path, second: ROVolume, caplog: pytest.LogCaptureFixture
) -> None:
    Store().push("data", at(place), all_versions=True)
    Store(at(place)).prune(Store(at(place)).plan_prune("data", last=1))
    done = Store().push("data", at(place), all_versions=True)
    assert done.left_out_version_ids == [second.parents[0]]
    assert "left out" not in caplog.text


def test_what_cannot_be_put_below_the_last_version_is_named(
    place: Path, second: ROVolume, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    first = Volume.version(f"data@{second.parents[0]}")
    Store().push("data", at(place))
    first.tag("v1")
    second.tag("v2")
    done = run("push", "data", at(place), "--all-versions", "--json")
    assert done.code == 0
    check("push", done.json)
    assert (done.json["left_out_version_ids"], done.json["left_out_tag_names"], done.json["tag_names"]) == (
        [first.id],
        ["v1"],
        ["v2"],
    )
    assert f"left out: {first.id[:12]}, tag v1. Push under another name" in caplog.text
    caplog.clear()
    Store().push("data", at(place), name="whole", all_versions=True)
    assert "left out" not in caplog.text


def test_a_volume_that_is_written_to_gets_its_packs_and_no_head(place: Path, second: ROVolume) -> None:
    Store().push(f"data@{second.parents[0]}", at(place))
    target = open_store(at(place))
    lease = leases.acquire(target, "data", current_holder("/somewhere"))
    with pytest.raises(LeaseHeldError):
        Store().push("data", at(place))
    lease.release()
    done = Store().push("data", at(place))
    assert (done.is_new, done.put_packs) == (True, 0)


def test_a_push_that_was_asleep_while_its_pin_died_proves_everything_again(
    place: Path, second: ROVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collection finds no volume that it could fence, deletes, and removes its list; or it
    fences before the push looks for the newest head."""
    real: Any = leases.acquire
    asleep: list[str] = []

    def acquire(store: ObjectStore, volume: str, holder: Any) -> Any:
        if len(asleep) < 2:
            target = open_store(at(place))
            swept(target, packs(place / "mirror", PackKind.DATA)[:1])
            head = refs.newest(target, refs.head(volume))
            assert head is not None
            fence = HeadRecord("fence", head[1].version, head[1].epoch, 1, WriteId(os.urandom(WriteId.length)))
            refs.append(target, refs.head(volume), head[0] + 1, fence)
            asleep.append(volume)
        return real(store, volume, holder)

    def create(store: ObjectStore, name: str, *, owner: str) -> None:
        swept(store, packs(place / "mirror", PackKind.DATA)[:1])
        create_volume(store, name, owner=owner)

    monkeypatch.setattr(pushing, "create_volume", create)
    monkeypatch.setattr(leases, "acquire", acquire)
    done = Store().push("data", at(place))
    assert done.is_new
    assert len(asleep) == 2
    monkeypatch.setattr(leases, "acquire", real)
    assert Store(at(place)).verify().is_sound


def test_uncommitted_work_is_not_left_behind(place: Path, second: ROVolume) -> None:
    Store().push(f"data@{second.parents[0]}", at(place))
    work = Volume.open("data", store=at(place))
    work.mount(mode="copy")
    with pytest.raises(InvalidStateError, match="is mounted at"):
        Store().push("data", at(place))
    work.finalize()
    assert Store().push("data", at(place)).is_new


@pytest.mark.parametrize("point", ["push-after-pack", "push-before-manifests", "push-before-head"])
def test_a_push_that_is_killed_is_repeated_and_moves_the_rest(place: Path, second: ROVolume, point: str) -> None:
    command = [sys.executable, "-m", "cowfs.cli", "push", "data", at(place), "--all-versions"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    killed = subprocess.run(
        command, env={**environment, "COWFS_FAILPOINT": point}, cwd=place, capture_output=True, timeout=180
    )
    assert killed.returncode == -9
    there = objects(place / "mirror", "packs")
    assert there
    assert not objects(place / "mirror", "volumes")
    done = Store().push("data", at(place), all_versions=True)
    assert done.put_packs == done.packs - len(there)
    assert Store(at(place)).verify().is_sound
    assert contents(Volume.version("data", store=at(place))) == WHOLE


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(2)])
@pytest.mark.parametrize("kind", [PackKind.DATA, PackKind.INDEX])
def test_a_pack_under_another_ones_key_does_not_travel(
    place: Path, second: ROVolume, kind: PackKind, executor: ThreadPoolExecutor | None
) -> None:
    one, other = packs(place / "store", kind)
    shutil.copyfile(other, one)
    with pytest.raises(CorruptError):
        Store().push("data", at(place), executor=executor)
    assert not objects(place / "mirror", "volumes")


def test_damage_does_not_travel(place: Path, second: ROVolume) -> None:
    flip(packs(place / "store", PackKind.DATA)[1])
    with pytest.raises(CorruptError, match="is damaged or gone"):
        Store().push("data", at(place))
    assert not objects(place / "mirror", "volumes")
    assert Store().push(f"data@{second.parents[0]}", at(place)).is_new, "which does not need it"


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(2)])
def test_what_a_repair_has_not_found_is_missed_until_it_is_found(
    place: Path, second: ROVolume, run: Run, executor: ThreadPoolExecutor | None
) -> None:
    """The record that it writes tells of the rest of the pack."""
    Store().push("data", at(place, "whole"))
    flip(packs(place / "store", PackKind.DATA)[0], 1000)
    forget(place)
    assert run("repair", "-y").code == 1
    with pytest.raises(CorruptError, match="blobs that are needed there are lost"):
        Store().push("data", at(place), executor=executor)
    assert not objects(place / "mirror", "volumes")
    assert run("repair", "--from", str(place / "whole"), "-y").code == 0
    assert Store().push("data", at(place), executor=executor).is_new
    forget(place)
    assert contents(Volume.version("data", store=at(place))) == WHOLE


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(2)])
def test_of_two_damaged_packs_each_gives_what_the_other_lacks(
    place: Path, second: ROVolume, run: Run, executor: ThreadPoolExecutor | None
) -> None:
    """The pack was repaired, and where its blobs were moved to is damaged since, elsewhere."""
    Store().push("data", at(place, "whole"))
    (old, *_) = before = packs(place / "store", PackKind.DATA)
    flip(old, 1000)
    forget(place)
    assert run("repair", "--from", str(place / "whole"), "-y").code == 0
    (new,) = set(packs(place / "store", PackKind.DATA)) - set(before)
    flip(new, new.stat().st_size - 2000)
    assert run("verify", "--all").code == 0, "nothing is lost"
    done = Store().push("data", at(place), executor=executor)
    assert done.is_new
    assert Store().push("data", at(place), executor=executor).put_packs == 0
    forget(place)
    assert contents(Volume.version("data", store=at(place))) == WHOLE
    assert Store(at(place)).verify().is_sound


def test_what_was_moved_travels_with_its_records(place: Path, second: ROVolume) -> None:
    store = open_store(at(place, "store"))
    for kind in PackKind:
        for path in packs(place / "store", kind):
            move(store, id_of(path), 1)
    Store().push("data", at(place))
    forget(place)
    assert contents(Volume.version("data", store=at(place))) == WHOLE
    assert Store().push("data", at(place)).put_packs == 0


def test_a_target_that_moved_its_packs_gets_only_what_it_lacks(place: Path, second: ROVolume) -> None:
    Store().push("data", at(place))
    target = open_store(at(place))
    for path in packs(place / "mirror", PackKind.DATA):
        move(target, id_of(path), 1)
    assert Store().push("data", at(place)).put_packs == 0
    delete(packs(place / "mirror", PackKind.DATA)[0])
    assert Store().push("data", at(place)).put_packs == 1
    forget(place)
    assert contents(Volume.version("data", store=at(place))) == WHOLE


def test_what_the_target_lost_comes_back(place: Path, second: ROVolume) -> None:
    Store().push("data", at(place))
    delete(packs(place / "mirror", PackKind.DATA)[0])
    done = Store().push("data", at(place))
    assert (done.is_new, done.put_packs) == (False, 1)
    assert Store(at(place)).verify().is_sound


def test_a_manifest_that_is_damaged_at_the_target_is_put_again(place: Path, second: ROVolume, run: Run) -> None:
    Store().push("data", at(place), all_versions=True)
    whole = objects(place / "mirror", "versions")
    for version in (second.id, second.parents[0]):
        manifest = place / "mirror" / keys.version(VersionId.from_hex(version))
        for damage in (b"", manifest.read_bytes()[:-1], bytes(len(manifest.read_bytes()))):
            manifest.write_bytes(damage)
            assert not Store(at(place)).verify().is_sound
            done = Store().push("data", at(place), all_versions=True)
            assert (done.is_new, done.mended_version_ids) == (False, [version])
            assert objects(place / "mirror", "versions") == whole
    newest = place / "mirror" / keys.version(VersionId.from_hex(second.id))
    newest.write_bytes(b"")
    said = run("push", "data", at(place), "--all-versions")
    assert said.code == 0
    assert "1 damaged version record put there again" in said.err
    newest.write_bytes(b"")
    data = Volume.open("data")
    data.files.write("more", b"more")
    data.commit()
    data.finalize()
    done = Store().push("data", at(place), all_versions=True)
    assert (done.is_new, done.mended_version_ids) == (True, [second.id])
    assert Store(at(place)).verify().is_sound


def swept(store: ObjectStore, doomed: list[Path]) -> None:
    """What a collection does in the end with packs that nobody needs."""
    store.delete([keys.pack(id_of(path)) for path in doomed])


def test_condemned_packs_of_the_target_are_not_relied_on(place: Path, second: ROVolume) -> None:
    Store().push("data", at(place), name="else")
    target = open_store(at(place))
    doomed = packs(place / "mirror", PackKind.DATA)
    condemn(target, 1, {id_of(path) for path in doomed})
    done = Store().push("data", at(place))
    assert done.put_packs == len(doomed)
    swept(target, doomed)
    forget(place)
    assert contents(Volume.version("data", store=at(place))) == WHOLE


def test_a_version_that_is_being_collected_at_the_target_is_not_named(place: Path, second: ROVolume) -> None:
    Store().push("data", at(place), name="else")
    target = open_store(at(place))
    record = CondemnedRecord(1, (), 1, WriteId(bytes(WriteId.length)), versions=(VersionId.from_hex(second.id),))
    target.put(keys.condemnation(1), record.encode())
    with pytest.raises(ConflictError, match="is being collected"):
        Store().push("data", at(place))
    done = keys.collection(1, "done")
    target.put(done, b"")
    with pytest.raises(ConflictError, match="less than an hour ago"):
        Store().push("data", at(place))
    os.utime(place / "mirror" / done, (0, 0))
    assert Store().push("data", at(place)).is_new


def test_a_list_that_comes_during_the_push_is_heeded_before_the_head(
    place: Path, second: ROVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store().push(f"data@{second.parents[0]}", at(place), name="else")
    target = open_store(at(place))
    doomed = packs(place / "mirror", PackKind.DATA)
    real = PackCopies.copy
    calls: list[int] = []

    def copy(self: PackCopies, wanted: set[PackId], condemned: frozenset[PackId], collected: set[PackId]) -> None:
        real(self, wanted, condemned, collected)
        calls.append(len(condemned))
        if len(calls) == 1:
            condemn(target, 1, {id_of(path) for path in doomed})

    monkeypatch.setattr(PackCopies, "copy", copy)
    Store().push("data", at(place))
    assert calls[:2] == [0, len(doomed)]
    swept(target, doomed)
    forget(place)
    assert contents(Volume.version("data", store=at(place))) == WHOLE


def test_a_fence_makes_a_push_prove_everything_again(
    place: Path, second: ROVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection that took the pin for dead has deleted what it protected."""
    Store().push(f"data@{second.parents[0]}", at(place))
    target = open_store(at(place))
    real: Any = refs.append
    done: list[str] = []

    def append(store: ObjectStore, ref: Any, n: int, record: Any) -> Any:
        if not done and ref.title == "the head of volume data" and record.kind == "commit":
            done.append(ref.title)
            [newest] = [path for path in packs(place / "mirror", PackKind.DATA) if path.stat().st_size < 2 << 20]
            swept(target, [newest])
            before = refs.newest(store, refs.head("data"))
            assert before is not None
            fence = HeadRecord("fence", before[1].version, before[1].epoch, 1, WriteId(bytes(WriteId.length)))
            real(store, ref, n, fence)
        return real(store, ref, n, record)

    monkeypatch.setattr(refs, "append", append)
    assert Store().push("data", at(place)).is_new
    assert done
    monkeypatch.setattr(refs, "append", real)
    forget(place)
    assert contents(Volume.version("data", store=at(place))) == WHOLE


def test_encrypted_stores_need_the_same_key_and_a_new_one_gets_it(place: Path, second: ROVolume) -> None:
    (place / "key").write_bytes(bytes(range(100, 132)))
    sealed, mirror, other = (
        Storage(at(place, name), encryption_key=KeyFile(place / "key")) for name in ("sealed", "twin", "other")
    )
    vol = Volume.new("data", store=sealed)
    vol.files.write("big", BIG)
    version = vol.finalize()
    with pytest.raises(InvalidInputError, match="with the same key"):
        Store().push("data", sealed)
    with pytest.raises(InvalidInputError, match="there is no passphrase or key"):
        Store(storage=sealed).push("data", at(place, "nothing"))
    assert not (place / "nothing" / keys.STORE).exists()
    with pytest.raises(InvalidInputError, match="is not encrypted, and a store that is made"):
        Store().push("data", other)
    assert not (place / "other" / keys.STORE).exists()
    Volume.new("own", store=other).commit()
    with pytest.raises(InvalidInputError, match="with the same key"):
        Store(storage=sealed).push("data", other)
    done = Store(storage=sealed).push("data", mirror)
    (place / "sealed").rename(place / "gone")
    forget(place)
    there = Volume.version("data", store=mirror)
    assert (there.id, there.locator) == (version.id, done.locator)
    assert there.files.read("big") == BIG
    for path in packs(place / "twin", PackKind.DATA):
        assert path.read_bytes() == (place / "gone" / keys.pack(id_of(path))).read_bytes()


def test_what_an_interrupted_push_gave_a_mirror_opens_it_no_more_once_it_is_taken_out(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the keys and the record of the store that it makes."""
    sealed, mirror = (at(place, name) for name in ("sealed", "twin"))
    vol = Volume.new("data", store=Storage(sealed, encryption_key="beta"))
    vol.files.write("small", b"secret")
    vol.finalize()
    alpha = add_key("alpha", Storage(sealed, encryption_key="beta"))
    with monkeypatch.context() as patch:
        patch.setattr(stores, "open_or_initialize", None)
        with pytest.raises(TypeError):
            Store(storage=Storage(sealed, encryption_key="alpha")).push("data", Storage(mirror, encryption_key="alpha"))
    assert list((place / "twin" / keys.KEYS).iterdir())
    remove_key(alpha.id, Storage(sealed, encryption_key="beta"))
    forget(place)
    Store(storage=Storage(sealed, encryption_key="beta")).push("data", Storage(mirror, encryption_key="beta"))
    forget(place)
    with pytest.raises(AccessDeniedError, match="does not open"):
        Volume.version("data", store=Storage(mirror, encryption_key="alpha"))
    assert Volume.version("data", store=Storage(mirror, encryption_key="beta")).files.read("small") == b"secret"


def test_the_same_store_and_folders_are_refused(place: Path, second: ROVolume, run: Run) -> None:
    assert run("push", "data", at(place, "store")).code == 2
    assert run("push", "data:dir", at(place)).code == 2
    assert run("pull", "data", at(place, "nowhere")).code == 3


def test_to_s3_and_back_with_a_break_in_the_middle(
    place: Path, second: ROVolume, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.items():
        if name != "COWFS_STORE":
            monkeypatch.setenv(name, value)
    bucket = s3["COWFS_STORE"]
    real = PackCopies._put
    put: list[object] = []

    def broken(self: PackCopies, pack: object, data: bytes) -> None:
        if len(put) == 2:
            raise KeyboardInterrupt
        put.append(pack)
        real(self, pack, data)  # type: ignore[arg-type]

    monkeypatch.setattr(PackCopies, "_put", broken)
    with pytest.raises(KeyboardInterrupt):
        Store().push("data", bucket, all_versions=True)
    monkeypatch.setattr(PackCopies, "_put", real)
    done = Store().push("data", bucket, all_versions=True)
    assert done.put_packs < done.packs
    assert done.version_ids[-1] == second.id
    assert Store(bucket).verify().is_sound
    assert Store().push("data", bucket, all_versions=True).put_packs == 0
    back = Store(at(place, "back")).pull("data", bucket, all_versions=True)
    assert back.version_ids == done.version_ids
    forget(place)
    assert contents(Volume.version("data", store=at(place, "back"))) == WHOLE
    assert objects(place / "back", "packs") == objects(place / "store", "packs")
    assert objects(place / "back", "versions") == objects(place / "store", "versions")


def test_work_that_stays_behind_is_told_of(place: Path, first: ROVolume, caplog: pytest.LogCaptureFixture) -> None:
    Store().push("data", at(place))
    assert "uncommitted" not in caplog.text
    work = Volume.open("data")
    work.files.write("later", b"not pushed")
    Store().push(f"data@{first.id}", at(place))
    assert "uncommitted" not in caplog.text, "a version was named"
    pushed = Store().push("data", at(place))
    assert "volume data has uncommitted work on this machine, which is not copied" in caplog.text
    assert not Volume.from_locator(pushed.locator).files.exists("later")
    work.discard()
