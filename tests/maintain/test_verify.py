"""cowfs verify: damaged packs are found, and the paths that they break."""

from __future__ import annotations

import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from cowfs.blocking import Progress, ROVolume, Store, Volume
from cowfs.errors import AccessDeniedError, CorruptError, InvalidInputError
from cowfs.format.pack import PackKind
from cowfs.maintain.check import pack_check
from cowfs.maintain.check.pack_check import check_pack
from cowfs.storage import KeyFile, Storage
from tests.cli.conftest import Run
from tests.cli.test_json import check
from tests.maintain.conftest import FIRST, forget
from tests.maintain.damage import Damage, cut, delete, exchange, flip, key_of, packs


def test_a_whole_store_is_sound(place: Path, second: ROVolume, run: Run) -> None:
    second.fork("fork").finalize()
    heard: list[Progress] = []
    done = Store().verify(progress=heard.append)
    assert done.is_sound
    assert (done.checked_versions, done.damaged, done.broken) == (2, [], [])
    assert done.checked_packs == done.packs == len(packs(place / "store", PackKind.DATA)) + 2
    assert heard[-1].stage == "paths"
    said = run("verify", "--json")
    assert said.code == 0
    check("verify", said.json)
    assert "all right" in run("verify", "data").out
    assert run("verify", "--store", (place / "store").as_uri()).code == 0


@pytest.mark.parametrize("damage", [flip, cut, delete])
def test_damage_of_contents_is_found_with_its_paths(place: Path, second: ROVolume, run: Run, damage: Damage) -> None:
    big, other = packs(place / "store", PackKind.DATA)
    damage(big)
    said = run("verify", "--json")
    assert said.code == 1
    check("verify", said.json)
    assert [each["key"] for each in said.json["damaged"]] == [key_of(big)]
    assert said.json["damaged"][0]["kind"] == "data"
    paths = {each["path"] for each in said.json["broken"]}
    assert "/dir/big" in paths
    assert paths <= {"/dir/big", "/dir/sub/small", "/text"}
    assert {tuple(sorted(each["version_ids"])) for each in said.json["broken"]} == {
        tuple(sorted([second.id, second.parents[0]]))
    }
    assert "/dir/big  in data@" in run("verify").out
    found = unreadable(place, second)
    assert {path.lstrip("/") for path in paths} == found
    damage(other)
    fork = Volume.version(f"data@{second.parents[0]}")
    assert {each.path for each in Store().verify(fork.locator).broken} == paths, "only of that version"
    assert "/other" in {each.path for each in Store().verify("data").broken}


def test_an_encrypted_store_is_verified_with_its_key(
    place: Path,
) -> None:
    (place / "key").write_bytes(bytes(range(100, 132)))
    storage = Storage((place / "sealed").as_uri(), encryption_key=KeyFile(place / "key"))
    vol = Volume.new("data", store=storage)
    for path, data in FIRST.items():
        vol.files.write(path.replace("/", "-"), data)
    vol.finalize()
    assert Store(storage=storage).verify().is_sound
    flip(packs(place / "sealed", PackKind.DATA)[0])
    done = Store(storage=storage).verify("data")
    assert [each.path for each in done.broken] == ["/dir-big"]
    with pytest.raises(AccessDeniedError):
        Store(storage=Storage((place / "sealed").as_uri(), encryption_key=KeyFile(place / "other"))).verify()


def test_of_links_the_objects_are_looked_at_and_not_read(place: Path) -> None:
    there = place / "there"
    there.mkdir()
    for name in ("kept", "replaced", "gone"):
        (there / name).write_bytes(name.encode() * 1000)
    version = Store().import_(there, "linked", link=True)
    assert Store().verify().links == 3
    (there / "replaced").write_bytes(b"of another size")
    (there / "gone").unlink()
    done = Store().verify(version.locator)
    assert {(each.path, each.problem) for each in done.broken} == {
        ("/replaced", "the linked object was replaced"),
        ("/gone", "the linked object is gone"),
    }


def unreadable(machine: Path, version: ROVolume) -> set[str]:
    forget(machine)
    found = set()
    fresh = Volume.from_locator(version.locator)
    for entry in fresh.files.ls("", recursive=True):
        if entry.type == "file":
            try:
                fresh.files.read(entry.path)
            except (CorruptError, OSError):
                found.add(entry.path.lstrip("/"))
    return found


@pytest.mark.parametrize("damage", [flip, cut, delete])
def test_damage_of_an_index_is_found_though_this_machine_has_it_cached(
    place: Path, first: ROVolume, damage: Damage
) -> None:
    (pack,) = packs(place / "store", PackKind.INDEX)
    damage(pack)
    done = Store().verify()
    assert not done.is_sound
    assert [each.kind for each in done.damaged] == ["index"]
    assert done.damaged[0].lost_blobs
    if damage is not flip:
        assert [(each.path, each.version_ids) for each in done.broken] == [("/", [first.id])]


@pytest.mark.parametrize("kind", [PackKind.DATA, PackKind.INDEX])
@pytest.mark.parametrize("is_swap", [False, True])
def test_a_pack_under_another_ones_key_is_found(
    place: Path, second: ROVolume, run: Run, kind: PackKind, is_swap: bool
) -> None:
    """Each is right in itself, and says nowhere which one it is."""
    one, other = packs(place / "store", kind)
    if is_swap:
        exchange(one, other)
    else:
        shutil.copyfile(other, one)
    expected = {key_of(one), key_of(other)} if is_swap else {key_of(one)}
    done = Store().verify()
    assert {each.key for each in done.damaged} == expected
    assert all(each.lost_blobs for each in done.damaged)
    assert not done.is_sound
    assert {each.key for each in Store().verify("data").damaged} == expected
    said = run("verify")
    assert (said.code, "`cowfs repair` looks for" in said.err) == (1, True)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        assert {each.key for each in Store().verify(executor=executor).damaged} == expected


def test_every_bit_counts_even_one_that_breaks_nothing(place: Path, first: ROVolume) -> None:
    """A footer is not needed to read what an index names."""
    (pack,) = packs(place / "store", PackKind.DATA)
    flip(pack, pack.stat().st_size - 30)
    done = Store().verify()
    assert [(each.lost_blobs, each.key) for each in done.damaged] == [(0, key_of(pack))]
    assert done.is_sound


def test_a_missing_manifest_breaks_the_version(place: Path, second: ROVolume) -> None:
    (place / "store" / "versions" / second.id[:2] / second.id).unlink()
    done = Store().verify()
    assert [(each.path, each.version_ids) for each in done.broken] == [(None, [second.id])]


def test_an_interrupted_run_is_resumed(place: Path, second: ROVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []

    def check(store: object, pack: object, named: object) -> object:
        if len(checked) == 2:
            raise KeyboardInterrupt
        checked.append(pack)
        return check_pack(store, pack, named)  # type: ignore[arg-type]

    monkeypatch.setattr(pack_check, "THREADS", 1)
    monkeypatch.setattr(pack_check, "check_pack", check)
    with pytest.raises(KeyboardInterrupt):
        Store().verify()
    before = set(checked)
    later: list[object] = []

    def check_all(store: object, pack: object, named: object) -> object:
        later.append(pack)
        return check_pack(store, pack, named)  # type: ignore[arg-type]

    monkeypatch.setattr(pack_check, "check_pack", check_all)
    done = Store().verify(resume=True)
    assert before.isdisjoint(later)
    assert done.checked_packs == done.packs
    assert len(before) + len(later) == done.packs
    again = Store().verify(resume=True)
    assert again.checked_packs == again.packs, "a run that ended leaves nothing behind"


def test_a_sample_reads_some_and_misses_none_that_is_gone(place: Path, second: ROVolume) -> None:
    done = Store().verify(sample=0.01)
    assert done.checked_packs == 1
    assert done.packs > 1
    big = packs(place / "store", PackKind.DATA)[0]
    delete(big)
    assert [each.key for each in Store().verify(sample=0.01).damaged] == [key_of(big)]
    with pytest.raises(InvalidInputError):
        Store().verify(sample=0)


def test_a_store_is_named_as_one(place: Path, first: ROVolume, run: Run) -> None:
    assert run("verify", "--sample", "5%").code == 0
    for wrong in ("lots", "500%", "0", "-5%", "nan"):
        refused = run("verify", f"--sample={wrong}")
        assert (refused.code, refused.err.splitlines()[0]) == (2, f"cowfs: '{wrong}' is no part of a whole")
        assert "more than 0 and at most 100: --sample 5%" in refused.err
    assert run("verify", "data:dir").code == 2
    assert run("verify", "s3://x/y", "--store", (place / "store").as_uri()).code == 2


def test_a_damaged_lease_is_reported_and_holds_up_nothing(place: Path, second: ROVolume, run: Run) -> None:
    lease = min((place / "store" / "volumes" / "data" / "lease").iterdir())
    lease.write_bytes(b"")
    said = run("verify", "--json")
    assert said.code == 1
    check("verify", said.json)
    assert [each["key"] for each in said.json["records"]] == [lease.relative_to(place / "store").as_posix()]
    assert said.json["broken"] == []
    assert "the next writer" in run("verify").err
    assert run("gc", "-y").code == 0
    volume = Volume.open("data")
    volume.files.write("new", b"new")
    volume.commit()
    volume.finalize()
    assert run("verify").code == 0


@pytest.mark.parametrize(
    ("what", "versions"), [("head/fffffffffffffffc", 1), ("head/fffffffffffffffd", 2), ("tags/t/*", 2), ("pruned/*", 2)]
)
def test_a_damaged_record_is_reported_and_the_rest_verified(
    place: Path, second: ROVolume, run: Run, what: str, versions: int
) -> None:
    if what.startswith("pruned"):
        Store().prune(Store().plan_prune("data", last=1))
    else:
        Volume.version(f"data@{second.parents[0]}").fork("fork").finalize()
    if what.startswith("tags"):
        second.tag("t")
    (record,) = (place / "store" / "volumes" / "data").glob(what)
    record.write_bytes(b"")
    key = record.relative_to(place / "store").as_posix()
    big = packs(place / "store", PackKind.DATA)[0]
    cut(big)
    said = run("verify", "--json")
    assert said.code == 1
    check("verify", said.json)
    assert [(each["key"], each["volume"]) for each in said.json["records"]] == [(key, "data")]
    assert said.json["checked_versions"] == versions
    assert "/dir/big" in {each["path"] for each in said.json["broken"]}, "the rest is looked at"
    (place / "report").write_text(said.out)
    said = run("repair", "--json", "-y", "--report", str(place / "report"))
    assert said.code == 1
    check("repair", said.json)
    assert [each["key"] for each in said.json["records"]] == [key]
    assert f"damaged  {key}" in run("verify").out
    before = sorted((place / "store").rglob("*"))
    said = run("gc", "-y")
    assert said.code == 10
    assert key in said.err
    assert sorted((place / "store").rglob("*")) == before


def test_a_missing_head_is_reported_and_whatever_needs_its_line_says_so(
    place: Path, second: ROVolume, run: Run, tmp_path: Path
) -> None:
    third = Volume.open("data").commit("third")
    line = place / "store" / "volumes" / "data" / "head"
    delete(line / "fffffffffffffffc")
    said = run("verify", "--json")
    assert said.code == 1
    check("verify", said.json)
    (record,) = said.json["records"]
    assert (record["key"], record["volume"]) == ("volumes/data/head/fffffffffffffffc", "data")
    assert "number 3 (volumes/data/head/fffffffffffffffc), is missing" in record["problem"]
    for said in (run("verify"), run("repair")):
        assert said.code == 1
        assert record["key"] in said.out
        assert "put these objects back from a backup" in said.err
        assert "cowfs push LOCATOR" in said.err
    for command in (
        ["gc", "-y"],
        ["prune", "data", "--keep-last", "1", "--dry-run"],
        ["tag", f"data@{second.id}", "t"],
        ["ls", "data@{1}"],
        ["du", "--stored"],
        ["push", "data", str(tmp_path / "line"), "--all-versions"],
    ):
        said = run(*command)
        assert said.code == 10, command
        assert "missing" in said.err
        assert "cowfs verify" in said.err
    assert Store(tmp_path / "line").volumes() == [], "no volume without its versions"
    for version in (second, third):
        done = Store().push(version.locator, tmp_path / "copy")
        assert Volume.from_locator(done.locator).message == version.message
    copied = Volume.open("data", store=tmp_path / "copy").history()
    assert [each.id for each in copied][:2] == [third.id, second.id]


def test_a_volume_without_any_head_is_reported_and_not_collected(
    place: Path, second: ROVolume, run: Run, tmp_path: Path
) -> None:
    shutil.rmtree(place / "store" / "volumes" / "data" / "head")
    (tmp_path / "source").mkdir()
    for command in (["create", "data"], ["upload", str(tmp_path / "source"), "data"], ["ls", "data"]):
        said = run(*command)
        assert said.code == 10, command
        assert "remove all objects below volumes/data/" in said.err
    said = run("verify", "--json")
    assert said.code == 1
    assert [each["key"] for each in said.json["records"]] == ["volumes/data/head/fffffffffffffffe"]
    said = run("gc", "-y")
    assert said.code == 10
    assert "volume data, number 1 (volumes/data/head/fffffffffffffffe), is missing" in said.err
    assert "remove all objects below volumes/data/" in said.err
    assert Volume.from_locator(Store().push(second.locator, tmp_path / "copy").locator).message == second.message


def test_a_tag_of_a_volume_without_any_head_may_be_of_a_deleted_one(place: Path, second: ROVolume, run: Run) -> None:
    volume = place / "store" / "volumes" / "data"
    second.tag("t")
    shutil.rmtree(volume / "head")
    for manifest in (place / "store" / "versions").rglob(second.id):
        manifest.unlink()
    said = run("verify", "--json")
    assert said.code == 1
    assert [each["key"] for each in said.json["records"]] == ["volumes/data/head/fffffffffffffffe"], "once"
    assert said.json["broken"] == []


def test_the_owner_that_a_damaged_record_named_is_told_to_be_lost(
    place: Path, second: ROVolume, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    (record,) = (place / "store" / "volumes" / "data" / "meta").iterdir()
    record.write_bytes(b"")
    assert "owner" in run("verify").err
    assert "owner" in run("quota", "data").err
    assert run("quota", "data", "none").code == 0
    assert "and no owner" in caplog.text
    assert [each.owner for each in Store().volumes()] == [""]


def test_a_damaged_record_of_a_volume_is_reported_and_a_new_quota_mends_it(
    place: Path, second: ROVolume, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    (before,) = Store().volumes()
    Store().set_retention("data", last=1)
    Store().set_quota("data", "1G")
    (place / "store" / "volumes" / "data" / "meta" / "fffffffffffffffc").write_bytes(b"")
    said = run("verify", "--json")
    assert said.code == 1
    check("verify", said.json)
    assert [each["key"] for each in said.json["records"]] == ["volumes/data/meta/fffffffffffffffc"]
    assert "cowfs quota data SIZE" in run("repair").err
    assert "cowfs verify" in run("ls").err
    for command in (
        ["show", "data"],
        ["quota", "data"],
        ["maintain", "--dry-run"],
        ["du", "--stored", "--by", "owner"],
    ):
        said = run(*command)
        assert said.code == 10, command
        assert "cowfs quota data SIZE" in said.err
    assert run("quota", "data", "none").code == 0
    assert "no rules of pruning" in caplog.text
    assert "no owner" not in caplog.text
    assert run("verify").code == 0
    assert (Store().quota("data"), Store().retention("data")) == (None, {}), "what it said may have been something else"
    assert [(each.owner, each.problem) for each in Store().volumes()] == [(before.owner, None)]
