"""What a store does not show is not therefore absent: a collection stops, and nothing is
deleted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cowfs.base.ids import PackId, VersionId
from cowfs.errors import CowfsError, InvalidStateError, UnsupportedFormatError
from cowfs.format import fields, keys
from cowfs.format.record import FORMAT
from cowfs.machine.known_stores import KnownStore
from cowfs.maintain.collect import roots, sight
from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.planning import Survey
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.store.refs.pins import Pin
from cowfs.version.names import tags
from cowfs.version.names.deletion import delete_volume
from tests.hiding_store import HidingStore
from tests.maintain.fixtures import either, impatient, store
from tests.maintain.stores import ME, age, collect, commit, fork, prune, random_bytes, stored, survey, tree

__all__ = ["either", "impatient", "store"]

pytestmark = pytest.mark.usefixtures("impatient")

LAST = keys.count_down(1)


def filled(store: ObjectStore, home: Path, *, is_collected: bool = True) -> dict[str, VersionId]:
    """Three volumes; a collection has seen them."""
    made = {name: commit(store, name, home, {b"f": random_bytes(n)}) for n, name in enumerate(("v", "w", "x"))}
    age(home)
    if is_collected:
        collect(store, home)
        age(home)
    return made


def garbage(store: ObjectStore, home: Path) -> None:
    """A version that goes with the next collection, and is less than half of all."""
    commit(store, "v", home, {b"f": random_bytes(100, 20_000)})
    commit(store, "v", home, {b"f": random_bytes(101, 20_000)})
    prune(store, "v", 3)
    age(home)


def require_refused(store: ObjectStore, home: Path, what: str) -> None:
    before = stored(store)
    lists = [info.key for info in store.list(keys.GC)]
    with pytest.raises(InvalidStateError, match=what) as raised:
        collect(store, home)
    assert raised.value.details["plan_id"] in raised.value.hint
    assert stored(store) == before
    assert [info.key for info in store.list(keys.GC)] == lists, "no list was written either"


# -- what cannot be seen


@pytest.mark.parametrize("is_collected", [False, True])
@pytest.mark.parametrize("hidden", [[keys.VOLUMES], [keys.VOLUMES, keys.VERSIONS], [keys.VOLUMES, keys.PINS]])
def test_versions_without_one_head_stop_it(
    either: ObjectStore, tmp_path: Path, hidden: list[str], is_collected: bool
) -> None:
    made = filled(either, tmp_path, is_collected=is_collected)
    require_refused(HidingStore(either, *hidden), tmp_path, "no head at all")
    collect(either, tmp_path)
    assert tree(either, made["x"], tmp_path) == {b"f": random_bytes(2)}


@pytest.mark.parametrize("is_link", [False, True])
def test_a_directory_of_volumes_that_is_not_mounted_stops_it(store: ObjectStore, tmp_path: Path, is_link: bool) -> None:
    filled(store, tmp_path, is_collected=False)
    place = tmp_path / "store/volumes"
    place.rename(tmp_path / "away")
    place.symlink_to(tmp_path / "disk") if is_link else place.mkdir()
    before = stored(store)
    with pytest.raises(CowfsError):
        collect(store, tmp_path)
    assert stored(store) == before


@pytest.mark.parametrize(
    ("hidden", "what"),
    [
        (["volumes/x/"], "volume x, which collection 1 saw, is missing"),
        (["volumes/x/", keys.GC], "no collection that has ended"),
        (["volumes/x/", keys.GC, keys.PINS], "no collection that has ended"),
        ([keys.PINS], "pins/ does not show"),
        ([keys.GC], "no collection that has ended"),
    ],
)
def test_what_the_last_collection_saw_must_be_there(
    either: ObjectStore, tmp_path: Path, hidden: list[str], what: str
) -> None:
    filled(either, tmp_path)
    garbage(either, tmp_path)
    require_refused(HidingStore(either, *hidden), tmp_path, what)
    assert collect(either, tmp_path).deleted


def test_a_head_that_was_there_must_be_listed(store: ObjectStore, tmp_path: Path) -> None:
    filled(store, tmp_path)
    store.delete([keys.head("x", 2)])
    KnownStore(store.url).forget()  # a machine that has not seen it
    require_refused(store, tmp_path, "volume x shows head 1 as its newest; collection 1 saw 2")


def test_tags_that_were_there_must_be_listed(store: ObjectStore, tmp_path: Path) -> None:
    made = filled(store, tmp_path, is_collected=False)
    tags.set_tag(store, "x", "t", made["x"])
    collect(store, tmp_path)
    require_refused(HidingStore(store, "volumes/x/tags/"), tmp_path, "volume x shows fewer records of tags")


@pytest.mark.parametrize("hidden", ["volumes/", "volumes/x/", "pins/", "gc/", "versions/", "packs/"])
@pytest.mark.parametrize("takes_puts", [False, True])
@pytest.mark.parametrize("point", ["begin", "condemn", "spare"])
def test_what_vanishes_while_it_collects_is_kept(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str, takes_puts: bool, point: str
) -> None:
    """Without an earlier collection: the plan itself saw all."""
    made = filled(store, tmp_path, is_collected=False)
    garbage(store, tmp_path)
    store.put(keys.pack(PackId(b"\xaa" * 16)), b"never named")
    age(tmp_path)
    hiding = HidingStore(store, takes_puts=takes_puts)
    found = Survey(hiding, tmp_path / "collector")
    plan = found.plan()
    assert plan.objects
    do = getattr(found.generations, point)

    def vanish(*arguments: object) -> object:
        done = do(*arguments)
        hiding.hidden = {hidden}
        return done

    monkeypatch.setattr(found.generations, point, vanish)
    with suppress(CowfsError):
        Collection(found, ME, wait_s=0).apply(plan)
    collect(store, tmp_path)
    for number, version in enumerate(made.values()):
        if number:
            assert tree(store, version, tmp_path) == {b"f": random_bytes(number)}


def test_a_pack_that_is_needed_and_nowhere_stops_it_once(store: ObjectStore, tmp_path: Path) -> None:
    made = filled(store, tmp_path)
    lost = max((size, key) for key, size in stored(store).items())[1]
    garbage(store, tmp_path)
    require_refused(HidingStore(store, lost), tmp_path, "1 packs that versions need")
    store.delete([lost])
    found, plan = survey(store, tmp_path)
    assert Collection(found, ME, wait_s=0).apply(plan, accept_loss=plan.id).deleted
    collect(store, tmp_path)
    assert len(made) == 3


def test_a_version_that_is_published_behind_the_list_is_not_lost(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its packs are not in the list that was made before the heads were read."""
    filled(store, tmp_path)
    found = Survey(store, tmp_path / "collector")
    read = found.roots.read

    def read_late(**options: Any) -> roots.Roots:
        commit(store, "v", tmp_path, {b"new": random_bytes(7, 50_000)})
        return read(**options)

    monkeypatch.setattr(found.roots, "read", read_late)
    assert not found.plan().alarms


# -- what is not known


def record(kind: str) -> bytes:
    body = {"kind": kind, "epoch": 0, "created_ns": 1, "write_id": "00" * 16, "version": "00" * 32}
    return fields.seal("head", FORMAT, body)


def test_a_record_of_an_unknown_kind_stops_it(store: ObjectStore, tmp_path: Path) -> None:
    filled(store, tmp_path)
    store.put(keys.head("x", 3), record("draft"))
    before = stored(store)
    with pytest.raises(UnsupportedFormatError, match="draft"):
        collect(store, tmp_path)
    assert stored(store) == before


@pytest.mark.parametrize(
    "folder",
    [
        "volumes/v/draft/",
        "volumes/v/head/deeper/",
        "volumes/-/head/",
        f"pins/{'00' * 16}/more/",
        "pins/x/",
        "workspaces/w/",
    ],
)
def test_a_folder_of_records_that_is_not_known_stops_it(either: ObjectStore, tmp_path: Path, folder: str) -> None:
    filled(either, tmp_path)
    either.put(f"{folder}{LAST}", b"of a newer cowfs")
    require_refused(either, tmp_path, f"{folder.split('/')[0]}/.* has records that this cowfs does not know")


def test_another_store_below_and_names_that_are_hashes_do_not_stop_it(store: ObjectStore, tmp_path: Path) -> None:
    filled(store, tmp_path)
    for key in (keys.STORE, keys.COLLECTED, keys.head("v", 1), f"{keys.PINS}{LAST}"):
        store.put(f"teams/a/{key}", b"of that store")
    store.put("blobs/0123456789abcdef", b"somebody's")
    store.put("blobs/fffffff000000000", b"somebody's")
    assert not survey(store, tmp_path)[1].alarms
    store.put(f"teams/b/{LAST}", b"of a newer cowfs")
    require_refused(store, tmp_path, "teams/ has records that this cowfs does not know")


def test_other_files_are_named_and_left_alone(store: ObjectStore, tmp_path: Path) -> None:
    filled(store, tmp_path)
    garbage(store, tmp_path)
    others = ("README", "a-/deep/er/file", "photos/1.jpg", "volumes/.DS_Store", "volumes/v/notes", "zoo/x/y")
    for key in others:
        store.put(key, b"mine")
    found, plan = survey(store, tmp_path)
    assert plan.strange == ("README", "a-/", "photos/", "volumes/.DS_Store", "volumes/v/notes", "zoo/")
    assert Collection(found, ME, wait_s=0).apply(plan).deleted
    assert all(store.get(key) == b"mine" for key in others)


# -- more than half


def test_more_than_half_without_a_record_of_it_stops_it(
    either: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(either, "v", tmp_path, {b"f": random_bytes(1, 1_000_000)})
    commit(either, "v", tmp_path, {b"f": random_bytes(2, 20_000)})
    age(tmp_path)
    found, plan = survey(either, tmp_path)
    assert not plan.objects
    Collection(found, ME).look_only()
    age(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(roots, "find_pruned_heads", lambda store, volume, line: frozenset({1, 2}))
        require_refused(
            either, tmp_path, "that collection 1 found in use would be deleted, although nothing was pruned"
        )
    prune(either, "v", 2)
    age(tmp_path)
    assert len([key for key in collect(either, tmp_path).deleted if keys.parse_version(key)]) == 1


def nine_of_ten_pruned(store: ObjectStore, home: Path) -> None:
    prune(store, "v", *range(2, 11))


def fork_deleted(store: ObjectStore, home: Path) -> None:
    delete_volume(store, "fork", ME)
    age(home, 8 * 24 * 3600)


def deletion_run_out(store: ObjectStore, home: Path) -> None:
    """It was recorded before the collection that still found it in use."""
    delete_volume(store, "fork", ME)
    collect(store, home)
    age(home, 8 * 24 * 3600)


def tag_removed(store: ObjectStore, home: Path) -> None:
    version = refs.read(store, refs.head("v"), 2).version
    assert version is not None
    tags.set_tag(store, "v", "t", version)
    prune(store, "v", *range(2, 11))
    collect(store, home)
    age(home)
    tags.remove_tag(store, "v", "t")


def work_dropped(store: ObjectStore, home: Path) -> None:
    """What kept work had uploaded, and stood on."""
    pin = Pin.create(store, volume="v", number=2, owner="somebody")
    pack = PackId(b"\xaa" * 16)
    store.put(keys.pack(pack), bytes(10 << 20))
    pin.renew(kind="hold", packs=[pack], is_forced=True)
    prune(store, "v", *range(2, 11))
    age(home)
    collect(store, home)
    age(home)
    pin.remove()


def upload_killed(store: ObjectStore, home: Path) -> None:
    """Since the last collection."""
    store.put(keys.pack(PackId(b"\xaa" * 16)), bytes(10 << 20))


@pytest.mark.parametrize(
    "what", [nine_of_ten_pruned, fork_deleted, deletion_run_out, tag_removed, work_dropped, upload_killed]
)
def test_ordinary_use_goes_on_without_a_question(
    store: ObjectStore, tmp_path: Path, what: Callable[[ObjectStore, Path], None]
) -> None:
    for number in range(10):
        commit(store, "v", tmp_path, {b"f": random_bytes(number)})
    fork(store, "v", "fork")
    commit(store, "fork", tmp_path, {b"large": random_bytes(50, 4 << 20)})
    age(tmp_path)
    collect(store, tmp_path)
    age(tmp_path)
    what(store, tmp_path)
    age(tmp_path)
    assert collect(store, tmp_path).deleted
    age(tmp_path)
    collect(store, tmp_path)


# -- going on


def test_a_loss_is_accepted_for_one_plan(either: ObjectStore, tmp_path: Path) -> None:
    made = filled(either, tmp_path)
    hiding = HidingStore(either, "volumes/x/")
    found, plan = survey(hiding, tmp_path)
    for wrong in ("", "0" * 16):
        with pytest.raises(InvalidStateError):
            Collection(found, ME, wait_s=0).apply(plan, accept_loss=wrong)
    hiding.hidden |= {"volumes/w/"}
    another = Survey(hiding, tmp_path / "collector")
    with pytest.raises(InvalidStateError, match="volume w, which"):
        Collection(another, ME, wait_s=0).apply(another.plan(), accept_loss=plan.id)
    hiding.hidden = {"volumes/x/"}
    done = Collection(found, ME, wait_s=0).apply(plan, accept_loss=plan.id)
    assert keys.version(made["x"]) in done.deleted
    age(tmp_path)
    assert not survey(hiding, tmp_path)[1].alarms, "it is not expected any more"


def test_an_id_of_a_plan_without_alarms_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    filled(store, tmp_path)
    found, plan = survey(store, tmp_path)
    with pytest.raises(InvalidStateError, match="no alarm is left"):
        Collection(found, ME, wait_s=0).apply(plan, accept_loss="0" * 16)


def test_what_was_seen_is_in_lists_that_replace_each_other(
    either: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sight, "SHARD_VOLUMES", 2)
    filled(either, tmp_path)
    garbage(either, tmp_path)
    collect(either, tmp_path)
    lists = [info.key for info in either.list(keys.GC) if "/seen/" in info.key]
    assert {keys.parse_generation(key) for key in lists} == {2}
    assert len(lists) == 2
    require_refused(HidingStore(either, "volumes/v/"), tmp_path, "volume v, which collection 2 saw, is missing")


def test_an_empty_record_of_an_earlier_cowfs_says_nothing(store: ObjectStore, tmp_path: Path) -> None:
    filled(store, tmp_path)
    store.put(keys.collection(1, "done"), b"")
    shutil.rmtree(tmp_path / "store/volumes/x")
    KnownStore(store.url).forget()  # as on another machine
    assert not survey(store, tmp_path)[1].alarms


@pytest.mark.parametrize("is_damaged", [False, True])
def test_lists_that_are_not_there_or_damaged_stop_it(store: ObjectStore, tmp_path: Path, is_damaged: bool) -> None:
    """For good, perhaps: a person can go on."""
    filled(store, tmp_path)
    garbage(store, tmp_path)
    [seen] = [info.key for info in store.list(keys.GC) if "/seen/" in info.key]
    store.delete([seen])
    if is_damaged:
        store.put(seen, b"{}")
    require_refused(store, tmp_path, "the findings of the last collection cannot be read")
    found, plan = survey(store, tmp_path)
    assert Collection(found, ME, wait_s=0).apply(plan, accept_loss=plan.id).deleted
    assert not survey(store, tmp_path)[1].alarms
