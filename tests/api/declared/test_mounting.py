"""What is declared is mounted whole or not at all, and exactly that is unmounted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cowfs.api.declared import found_files, mount_points, mounting
from cowfs.api.declared.declared_store import storage_of
from cowfs.blocking import Declared, ROVolume, Store, Volume
from cowfs.errors import (
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NeedsFuseError,
    NotFoundError,
)
from cowfs.machine import applied, registry
from cowfs.machine.processes import wait_gone
from tests.interrupt import interrupts
from tests.seaweedfs import SeaweedFS

pytestmark = pytest.mark.mount


@pytest.fixture
def data(place: Path) -> ROVolume:
    """Volume "data" in the default store, with a folder."""
    with Volume.new("data") as volume:
        (volume.path / "train").mkdir()
        (volume.path / "train" / "one").write_text("1")
        return volume.commit("made")


def declare(place: Path, *volumes: str) -> Declared:
    path = place / "cowfs.toml"
    text = ",\n".join(volumes).replace("MNT", str(place / "mnt"))
    path.write_text(f"volumes = [\n{text}\n]\n")
    return Declared.load(path)


def whats(outcomes: list[mounting.Outcome]) -> list[tuple[str, str]]:
    return [(each.state, os.path.basename(each.mount_path)) for each in outcomes]


def paths() -> set[str]:
    return {os.path.basename(entry.mount_path) for entry in registry.list_mounts()}


DATA = '{name = "data", path = "MNT/data", subpath = "train"}'
CKPT = '{name = "ckpt", path = "MNT/ckpt", read_only = false}'


def test_up_mounts_what_is_declared_and_down_unmounts_exactly_that(place: Path, data: ROVolume) -> None:
    declared = declare(place, DATA, CKPT)
    with pytest.raises(NotFoundError, match=r"'ckpt', which is declared at .*ckpt"):
        declared.up()
    assert paths() == set(), "nothing was mounted before all are there"
    Volume.new("ckpt").resolve()
    by_hand = data.mount(place / "mnt" / "hand")
    assert whats(declared.up()) == [("mounted", "data"), ("mounted", "ckpt")]
    assert (place / "mnt" / "data" / "one").read_text() == "1"
    (place / "mnt" / "ckpt" / "step").write_text("7")
    assert whats(declared.up()) == [("found", "data"), ("found", "ckpt")]
    assert [each.has_uncommitted for each in declared.down()] == [True, False]
    assert paths() == {"hand"}
    assert by_hand.is_dir()
    assert declared.down() == []
    declared.up()
    assert (place / "mnt" / "ckpt" / "step").read_text() == "7", "uncommitted work is kept"
    Volume.open("ckpt").discard()
    assert whats(declared.down()) == [("gone", "ckpt"), ("unmounted", "data")]
    data.unmount()


def test_down_unmounts_what_an_interrupted_up_has_mounted(place: Path, data: ROVolume) -> None:
    modules = (
        "cowfs.base.interruptible",
        "cowfs.api.declared.mounting",
        "cowfs.api.ro_volume",
        "cowfs.machine.applied",
    )
    declared = declare(place, DATA.replace("}", ', mode = "copy"}'))
    for interrupt in interrupts(modules, sparse=2):
        with interrupt:
            declared.up()
        declared.down()
        assert paths() == set(), f"interrupted before line {interrupt.number}"
    assert interrupt.number > 50


def test_a_mount_stays_until_what_takes_its_place_is_there(place: Path, data: ROVolume) -> None:
    declare(place, DATA).plan().apply()
    wrong = DATA.replace("train", "test")
    with pytest.raises(NotFoundError, match=r"no 'test' \(declared at .*data\)"):
        declare(place, wrong).plan()
    volume = Volume.open("data")
    volume.files.mkdir("test")
    volume.commit()
    plan = declare(place, wrong).plan()
    volume.files.remove("test", recursive=True)
    volume.commit()
    with pytest.raises(NotFoundError, match="no 'test'"):
        plan.apply()
    assert (place / "mnt" / "data" / "one").read_text() == "1"
    declare(place, DATA).down()


def test_what_is_read_is_mounted_at_its_new_path_before_it_is_taken_off_the_old_one(
    place: Path, data: ROVolume
) -> None:
    declare(place, DATA).plan().apply()
    moved = DATA.replace("MNT/data", "MNT/else")
    optional = moved.replace("}", ", optional = true}")
    volume = Volume.open("data")
    plans = [declare(place, optional).plan(), declare(place, moved).plan()]
    assert [[step.action for step in plan.steps] for plan in plans] == [["mount", "change"]] * 2
    volume.files.remove("train", recursive=True)
    volume.commit()
    plans[0].apply()
    with pytest.raises(NotFoundError, match="no 'train'"):
        plans[1].apply()
    assert paths() == {"data"}
    volume.files.mkdir("train")
    volume.commit()
    declared = declare(place, moved)
    with (place / "mnt" / "data" / "one").open(), pytest.raises(ConflictError):
        declared.plan().apply()
    assert paths() == {"data", "else"}
    assert [step.action for step in declared.plan().steps] == ["change"]
    declared.plan().apply()
    assert paths() == {"else"}
    assert not declared.plan().has_changes
    within = declare(place, DATA.replace("MNT/data", "MNT/else/deep"))
    assert [step.action for step in within.plan().steps] == ["change", "mount"]
    within.plan().apply()
    assert paths() == {"deep"}
    within.down()


@pytest.mark.parametrize("mode", ["fuse", "copy"])
def test_a_mount_stays_when_later_versions_lose_its_folder(place: Path, data: ROVolume, mode: str) -> None:
    data.fork("other").resolve()
    either = DATA.replace('"data"', '["data", "other"]', 1).replace("}", f', mode = "{mode}"}}')
    optional, alone = either.replace("}", ", optional = true}"), either.replace('["data", "other"]', '"data"')
    declare(place, either).plan().apply()
    volume = Volume.open("data")
    volume.files.remove("train", recursive=True)
    volume.files.mkdir("learn")
    latest = volume.commit()
    assert latest is not None
    for said in (either, alone, optional):
        declared = declare(place, said)
        assert {step.action for step in declared.plan().steps} <= {"keep", "change"}
        declared.plan().apply()
        assert whats(declared.up()) == [("found", "data")]
    for said in (
        alone.replace('"data"', f'"data@{latest.id}"', 1),
        alone.replace("MNT/data", "MNT/else"),
        alone.replace("train", "test"),
    ):
        with pytest.raises(NotFoundError, match=r"the version has no '(train|test)' \(declared at"):
            declare(place, said).plan()
        with pytest.raises(NotFoundError):
            declare(place, said).up()
    entry = registry.find_by_path(place / "mnt" / "data")
    assert entry is not None
    assert (entry.volume, entry.version_id) == ("data", data.id)
    assert (place / "mnt" / "data" / "one").read_text() == "1"
    declare(place, either).down()
    assert [each.volume for each in declare(place, either).up()] == ["other"]
    declare(place, either).down()


def test_copies_are_mounted_and_unmounted_as_mounts_are(place: Path, data: ROVolume) -> None:
    Volume.new("ckpt").resolve()
    declared = declare(place, *(each.replace("}", ', mode = "copy"}') for each in (DATA, CKPT)))
    assert whats(declared.up()) == [("mounted", "data"), ("mounted", "ckpt")]
    assert all(entry.kind == "folder" for entry in registry.list_mounts())
    assert (place / "mnt" / "data" / "one").read_text() == "1"
    (place / "mnt" / "ckpt" / "step").write_text("7")
    assert whats(declared.up()) == [("found", "data"), ("found", "ckpt")]
    assert [each.has_uncommitted for each in declared.down()] == [True, False]
    assert whats(declared.up()) == [("mounted", "data"), ("mounted", "ckpt")]
    assert (place / "mnt" / "ckpt" / "step").read_text() == "7", "uncommitted work is kept"
    Volume.open("ckpt").commit()
    declared.down()
    assert paths() == set()
    declared = declare(place, DATA.replace("}", ', mode = "copy", copy_limit = 0}'))
    with pytest.raises(NeedsFuseError):
        declared.up()


def test_a_mount_that_fails_undoes_those_before_it(place: Path, data: ROVolume) -> None:
    Volume.new("ckpt").resolve()
    (place / "mnt" / "ckpt").mkdir()
    (place / "mnt" / "ckpt" / "file").write_text("in the way")
    bad = CKPT.replace("}", ", optional = true}")
    with pytest.raises(ConflictError):
        declare(place, DATA, CKPT).up()
    assert paths() == set()
    assert applied.load(place / "cowfs.toml").mounts == ()
    declared = declare(place, bad, DATA)
    assert whats(declared.up()) == [("skipped", "ckpt"), ("mounted", "data")]
    assert paths() == {"data"}
    declared.down()


def test_what_ends_up_early_is_undone(place: Path, data: ROVolume) -> None:
    declared = declare(place, DATA, DATA.replace("MNT/data", "MNT/more"))
    heard = []

    def interrupted(outcome: mounting.Outcome) -> None:
        heard.append(outcome.state)
        if len(heard) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mounting.up(declared, hears=interrupted)
    assert heard == ["mounted", "mounted", "unmounted", "unmounted"]
    assert paths() == set()
    assert applied.load(place / "cowfs.toml").mounts == ()


def test_a_mount_whose_maker_was_killed_is_found_and_unmounted(place: Path, data: ROVolume) -> None:
    Volume.new("ckpt").resolve()
    declared = declare(place, CKPT, DATA)
    code = "import sys; from cowfs.blocking import Declared; Declared.load(sys.argv[1]).up()"
    environment = {**os.environ, "COWFS_FAILPOINT": "declared-mounted"}
    done = subprocess.run(
        [sys.executable, "-c", code, place / "cowfs.toml"],
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert paths() == {"ckpt"}
    assert applied.load(place / "cowfs.toml").mounts[0].id == ""
    assert whats(declared.up()) == [("found", "ckpt"), ("mounted", "data")]
    assert whats(declared.down()) == [("unmounted", "data"), ("unmounted", "ckpt")]
    assert paths() == set()


def test_a_mount_whose_daemon_died_is_made_again(place: Path, data: ROVolume) -> None:
    Volume.new("ckpt").resolve()
    declared = declare(place, CKPT, DATA)
    declared.up()
    (place / "mnt" / "ckpt" / "step").write_text("7")

    def kill_all() -> None:
        for entry in registry.list_mounts():
            os.kill(entry.pid, signal.SIGKILL)
            assert wait_gone(entry.pid, 60)

    kill_all()
    assert [step.action for step in declared.plan(mounts=True).steps] == ["register", "mount", "register", "mount"]
    assert whats(declared.up()) == [("mounted", "ckpt"), ("mounted", "data")]
    assert (place / "mnt" / "ckpt" / "step").read_text() == "7"
    kill_all()
    assert whats(declared.down()) == [("unmounted", "data"), ("unmounted", "ckpt")]
    assert list((place / "mnt" / "ckpt").iterdir()) == [], "the path is free"


def test_the_first_candidate_that_can_be_mounted_is_and_stays(place: Path) -> None:
    for name in ("a", "b"):
        Volume.new(name).resolve()
    declared = declare(place, '{name = ["none", "a", "b"], path = "MNT/work", read_only = false}')
    held = Volume.open("a")
    held.mount(place / "mnt" / "held")  # somebody else writes to it
    declared.plan().apply()
    entry = registry.find_by_path(place / "mnt" / "work")
    assert entry is not None
    assert entry.volume == "b"
    held.unmount()
    assert not declared.plan().has_changes, "a is free again, but b is mounted"
    assert whats(declared.up()) == [("found", "work")]
    declared.down()


def test_apply_mounts_moves_and_prunes(place: Path, data: ROVolume) -> None:
    declared = declare(place, DATA, CKPT)
    plan = declared.plan()
    assert [step.action for step in plan.steps] == ["register", "mount", "create", "mount"]
    plan.apply()
    assert not declared.plan().has_changes
    (place / "mnt" / "ckpt" / "step").write_text("7")
    moved = declare(place, DATA.replace(', subpath = "train"', ""), CKPT.replace("MNT/ckpt", "MNT/else"))
    plan = moved.plan()
    assert [step.action for step in plan.steps] == ["change", "mount", "change", "mount"]
    plan.apply()
    assert not moved.plan().has_changes
    assert (place / "mnt" / "data" / "train" / "one").read_text() == "1"
    assert (place / "mnt" / "else" / "step").read_text() == "7"
    assert paths() == {"data", "else"}
    pruned = declare(place)
    with pytest.raises(InvalidStateError, match="has uncommitted work"):
        pruned.plan(prune=True).apply()
    Volume.open("ckpt").commit()
    with (place / "mnt" / "else" / "step").open(), pytest.raises(ConflictError):
        pruned.plan(prune=True).apply()  # refused while attached
    assert "else" in paths()
    held = Volume.open("ckpt")
    pruned.plan(prune=True).apply()
    assert paths() == set()
    with pytest.raises(NotFoundError, match="was deleted"):
        held.resolve()
    assert not pruned.plan(prune=True).steps


def test_a_mount_of_somebody_else_is_in_the_way(place: Path, data: ROVolume) -> None:
    other = Volume.new("other")
    other.mount(place / "mnt" / "data")
    declared = declare(place, DATA)
    assert declared.plan().steps[-1].reason == "other is mounted there"
    with pytest.raises(ConflictError, match=r"other is mounted at .*data"):
        declared.plan().apply()
    assert other.is_mounted
    assert declared.down() == []
    other.unmount()


def test_what_is_mounted_already_is_left_as_it_is(place: Path, data: ROVolume) -> None:
    """Also one folder, by whatever has mounted it."""
    declared = declare(place, DATA)
    folder = Volume.version(f"data@{data.id}:/train")
    path = folder.mount(place / "mnt" / "data")
    assert whats(declared.up()) == [("found", "data")]
    assert (path / "one").read_text() == "1"
    folder.unmount()
    data.mount(place / "mnt" / "data")
    with pytest.raises(ConflictError, match=r"data is mounted at .*data otherwise than it is declared"):
        declared.up()
    data.unmount()


def test_a_mount_of_the_same_name_in_another_store_is_told_with_both(place: Path, data: ROVolume) -> None:
    there, here = (place / "elsewhere").as_uri(), (place / "store").as_uri()
    other = Volume.new("data", store=there)
    other.mount(place / "mnt" / "data")
    with pytest.raises(ConflictError, match=f"data of {there} is mounted at .*, where that of {here} is declared"):
        declare(place, DATA).up()
    other.unmount()


def test_what_to_do_next_names_the_store_that_is_declared(place: Path) -> None:
    other = (place / "other").as_uri()
    file = place / "cowfs.toml"
    said = f"""stores = {{main = "{place / "other"}"}}
    volumes = [{{name = "ckpt", path = "{place}/mnt/ckpt", store = "main", read_only = false}}]"""
    file.write_text(said)
    Declared.load(file).plan().apply()
    (place / "mnt" / "ckpt" / "step").write_text("7")
    Declared.load(file).down()
    file.write_text(said.partition("\n")[0])
    pruned = Declared.load(file).plan(prune=True)
    with pytest.raises(InvalidStateError, match="has uncommitted work") as caught:
        pruned.apply()
    assert f"`cowfs commit ckpt --store {other}`" in caught.value.hint
    assert f"`cowfs unmount ckpt --discard --store {other}`" in caught.value.hint
    Store(other).delete("ckpt", force=True)
    file.write_text(said)
    with pytest.raises(NotFoundError, match="was deleted") as deleted:
        Declared.load(file).up()
    assert f"`cowfs undelete ckpt --store {other}`" in deleted.value.hint


@pytest.mark.s3
def test_a_store_is_asked_with_the_credentials_that_are_declared(
    place: Path, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = seaweedfs.credentials
    for name in given:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("THE_KEY", given["AWS_ACCESS_KEY_ID"])
    (place / "secret").write_text(given["AWS_SECRET_ACCESS_KEY"] + "\n")
    data, ckpt = (
        f"{each.removesuffix('}')}, store = 'main'}}" for each in (DATA.replace(', subpath = "train"', ""), CKPT)
    )
    volumes = f"{data}, {ckpt}"
    file = place / "cowfs.toml"
    file.write_text(
        f"""volumes = [{volumes.replace("MNT", str(place / "mnt"))}]
        [stores.main]
        preset = "minio"
        endpoint = "{seaweedfs.endpoint}"
        bucket = "{seaweedfs.bucket}"
        prefix = "declared/{os.urandom(6).hex()}"
        access_key = {{env = "THE_KEY"}}
        secret_key = {{file = "secret"}}
        """
    )
    declared = Declared.load(file)
    Volume.new("data", store=storage_of(declared.stores["main"])).commit("made")
    declared.plan().apply()
    assert list((place / "mnt" / "data").iterdir()) == []
    (place / "mnt" / "ckpt" / "step").write_text("7")
    assert not declared.plan().has_changes
    assert [each.has_uncommitted for each in declared.down()] == [True, False]
    assert given["AWS_SECRET_ACCESS_KEY"] not in applied.place_of(file).read_text()


def test_paths_of_the_machine_are_linked_to(place: Path, data: ROVolume) -> None:
    shared, note, mnt = place / "shared", place / "note", place / "mnt"
    shared.mkdir()
    note.write_text("a file")
    declared = declare(
        place,
        f'{{name = "{shared}", path = "MNT/in/shared", read_only = false}}',
        f'{{name = "{note}", path = "MNT/note", read_only = false}}',
        f'{{name = "{place}/none", path = "MNT/none", read_only = false, optional = true}}',
        f'{{name = ["{place}/fast", "ckpt"], path = "MNT/ckpt", read_only = false}}',
    )
    plan = declared.plan()
    assert [(each.action, os.path.basename(each.mount_path)) for each in plan.steps if each.is_change] == [
        ("register", "shared"), ("mount", "shared"), ("register", "note"), ("mount", "note"), ("create", "ckpt"),
        ("mount", "ckpt"),
    ]  # fmt: skip
    plan.apply()
    (mnt / "in" / "shared" / "made").write_text("x")
    assert ((shared / "made").read_text(), (mnt / "note").read_text()) == ("x", "a file")
    (mnt / "ckpt" / "step").write_text("1")
    assert not declared.plan().has_changes
    assert [what for what, _ in whats(declared.up())] == ["found", "found", "skipped", "found"]
    assert whats(declared.down()) == [("unmounted", "ckpt"), ("unmounted", "note"), ("unmounted", "shared")]
    assert (os.path.lexists(mnt / "note"), sorted(os.listdir(shared))) == (False, ["made"])
    (place / "fast").mkdir()
    assert whats(declared.up())[3] == ("mounted", "ckpt")
    assert os.readlink(mnt / "ckpt") == str(place / "fast"), "the first that is usable"
    (place / "fast").rmdir()
    assert whats(declared.up())[3] == ("mounted", "ckpt"), "the link leads nowhere any more"
    assert (mnt / "ckpt" / "step").read_text() == "1"
    (mnt / "note").unlink()
    (mnt / "note").write_text("somebody's own")
    with pytest.raises(ConflictError, match="there is something at"):
        declared.up()
    assert whats(declared.down()) == [("unmounted", "ckpt"), ("unmounted", "shared")]
    assert (mnt / "note").read_text() == "somebody's own"


def test_links_lead_no_mount_to_a_directory_of_the_system(
    place: Path, data: ROVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path is judged where it leads, too: whoever wrote the file may know of the link."""
    system, other, mnt = (Path(os.path.realpath(place / name)) for name in ("system", "other", "mnt"))
    monkeypatch.setattr(mount_points, "WHOLE", (*mount_points.WHOLE, str(system)))
    for directory in (system / "below", other):
        directory.mkdir(parents=True)
    (mnt / "parent").symlink_to(system)
    (mnt / "itself").symlink_to(system / "below")
    (mnt / "allowed").symlink_to(other)
    (mnt / "home").symlink_to(place / "home")
    for volume in (
        '{name = "data", path = "MNT/parent/below"}',
        '{name = "data", path = "MNT/parent/new"}',
        '{name = "data", path = "MNT/itself"}',
        f'{{name = "{other}", path = "MNT/parent/new", read_only = false}}',
        '{name = "data", path = "MNT/home"}',
    ):
        for each in (volume, volume.replace("{", "{optional = true, ")):
            declared = declare(place, '{name = "data", path = "MNT/first"}', each)
            for act in (declared.plan, declared.up):
                with pytest.raises(InvalidInputError, match=r"leads to .*, which is (below|your home)"):
                    act()
                assert paths() == set(), "nothing is mounted before"
    assert [each.name for each in system.iterdir()] == ["below"]
    declared = declare(place, '{name = "data", path = "MNT/allowed/data"}')
    declared.plan().apply()
    assert registry.find_by_path(other / "data") is not None
    declared.down()
    # a link of ours is not followed: it goes
    assert whats(declare(place, f'{{name = "{system}", path = "MNT/a", read_only = false}}').up()) == [("mounted", "a")]
    assert whats(declare(place, '{name = "data", path = "MNT/a"}').up()) == [("mounted", "a")]


@pytest.mark.parametrize("moment", ["after the check", "while parents are made"])
def test_a_link_is_not_made_where_a_parent_was_exchanged(
    place: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    canary, parent = place / "canary", place / "mnt" / "in"
    (place / "host").mkdir()
    (canary / "below" / "shared").mkdir(parents=True)
    real: Any = {"after the check": found_files.checked_place, "while parents are made": os.mkdir}[moment]

    def met(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        if parent.is_dir() and not parent.is_symlink():
            parent.rename(place / "aside")
            parent.symlink_to(canary)
        return result

    declared = declare(place, f'{{name = "{place}/host", path = "MNT/in/below/shared", read_only = false}}')
    if moment == "after the check":
        parent.mkdir(parents=True)
        monkeypatch.setattr(found_files, "checked_place", met)
    else:
        monkeypatch.setattr(os, "mkdir", met)
    with pytest.raises(CowfsError, match="cannot be made"):
        declared.up()
    assert parent.is_symlink()
    assert (canary / "below" / "shared").is_dir()
    assert not (canary / "below" / "shared").is_symlink()


def test_a_link_is_not_removed_where_a_parent_was_exchanged(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "host").mkdir()
    declared = declare(place, f'{{name = "{place}/host", path = "MNT/in/shared", read_only = false}}')
    declared.up()
    canary, parent, real = place / "canary", place / "mnt" / "in", os.readlink
    canary.mkdir()
    (canary / "shared").write_text("somebody's own")

    def met(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        if result == os.fsencode(place / "host"):
            parent.rename(place / "aside")
            parent.symlink_to(canary)
        return result

    monkeypatch.setattr(os, "readlink", met)
    assert whats(declared.down()) == [("unmounted", "shared")]
    assert os.listdir(canary) == ["shared"]


def test_a_link_whose_maker_was_killed_is_removed(place: Path) -> None:
    (place / "shared").mkdir()
    declared = declare(place, f'{{name = "{place}/shared", path = "MNT/shared", read_only = false}}')
    program = f"from cowfs.blocking import Declared; Declared.load({str(declared.file)!r}).up()"
    environment = {
        **os.environ,
        "COWFS_FAILPOINT": "declared-mounted",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (place / "mnt" / "shared").is_symlink()
    assert whats(declared.down()) == [("unmounted", "shared")]
    assert not os.path.lexists(place / "mnt" / "shared")
