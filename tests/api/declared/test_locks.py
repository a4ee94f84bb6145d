"""A lock keeps declared volumes at their versions: in the file, in the store, and at the mount."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from cowfs import storage
from cowfs.api import stores
from cowfs.api.declared import lock_files, locking
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.blocking import Declared, ROVolume, Store, Volume
from cowfs.errors import AccessDeniedError, ConflictError, InvalidInputError, NotFoundError
from cowfs.format.lock_file import LockedVolume, LockFile
from cowfs.machine import applied, registry
from cowfs.version.names import lock_tags
from tests.effort import share

HINT = "`cowfs lock"


def publish(name: str, text: str, store: str | None = None) -> ROVolume:
    volume = Volume.open(name, store=store, create=True)
    volume.files.write("file", text.encode())
    return volume.commit(text)


def declare(directory: Path, *volumes: str, more: str = "") -> Declared:
    """In a file that the user names. Volumes are copies, below the directory."""
    directory.mkdir(exist_ok=True)
    path = directory / "cowfs.toml"
    path.write_text(f"volumes = [\n{''.join(f'  {each},{chr(10)}' for each in volumes)}]\n{more}\n")
    return Declared.load(path)


def copied(name: str, store: str | None = None) -> str:
    said = f', store = "{store}"' if store else ""
    return f'{{name = "{name}", path = "{os.getcwd()}/mnt/{name.partition("@")[0]}", mode = "copy"{said}}}'


def lock_of(declared: Declared) -> LockFile:
    assert declared.file is not None
    found = lock_files.read(lock_files.path_of(declared.file))
    assert found is not None
    return found[0]


def versions(declared: Declared) -> dict[str, str]:
    return {each.name: each.version.hex() for each in lock_of(declared).volumes}


def read(name: str) -> str:
    return Path("mnt", name, "file").read_text()


def lock_tags_of(name: str, store: str | None = None) -> list[str]:
    return [tag.name for tag in Store(store).tags(name) if lock_tags.parse_project(tag.name) is not None]


@pytest.fixture
def work(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with room for mounts."""
    monkeypatch.chdir(place)
    return place


@pytest.mark.mount
def test_a_mount_shows_the_locked_version_when_the_head_has_moved(work: Path) -> None:
    publish("data", "old")
    fuse = f'{{name = "data", path = "{work}/mnt/data"}}'
    writable = f'{{name = "out", path = "{work}/mnt/out", read_only = false}}'
    publish("out", "first")
    declare(work, fuse, writable).lock()
    publish("data", "new")
    publish("out", "second")
    declared = Declared.load(work / "cowfs.toml")
    try:
        declared.up()
        assert [read("data"), read("out")] == ["old", "second"], "a writable volume follows its head"
        assert [each.what for each in declared.lock().volumes] == ["kept"]
        (step,) = (each for each in Declared.load(work / "cowfs.toml").plan().steps if each.volume == "data")
        assert step.action == "register", "what is mounted is what is locked"
        declared.lock(update=["data"])
        declared.plan().apply()
        assert read("data") == "new"
    finally:
        declared.down()
    assert registry.list_mounts() == []


def test_a_prune_keeps_locked_versions_until_they_are_released(work: Path) -> None:
    first, second, third = (publish("data", text) for text in ("1", "2", "3"))
    store = Store()
    declared = declare(work, copied(f"data@{first.id[:12]}"))
    declared.lock()
    declared = declare(work, copied("data"))
    assert [each.what for each in declared.lock().volumes] == ["added", "removed"]
    publish("data", "4")
    plan = store.plan_prune("data", last=1)
    assert [each.version for each in plan.pruned] == [second.id]
    store.prune(plan)
    Declared.load(declared.file).up()
    assert read("data") == "3"
    declared.down()
    assert declared.release_lock() == [], "another copy of the project may have locked it just now"
    released = declared.release_lock(older=0, dry_run=True)
    assert [(each.volume, each.version) for each in released] == [("data", first.id)]
    assert declared.release_lock(older="1h") == []
    assert declared.release_lock(older=0, only=[]) == []
    assert declared.release_lock(older=0, only=released) == released
    assert declared.release_lock(older=0) == []
    assert lock_tags_of("data") == [lock_tags.lock_tag(lock_of(declared).project, third._located.version)]
    assert [each.version for each in store.plan_prune("data", last=1).pruned] == [first.id]


def test_a_release_leaves_the_tags_of_another_project(work: Path) -> None:
    publish("data", "1")
    for name in ("a", "b"):
        (work / name).mkdir()
    one, other = (declare(work / name / "same", copied("data")) for name in ("a", "b"))
    one.lock()
    other.lock()
    publish("data", "2")
    one.lock(update_all=True)
    assert len(lock_tags_of("data")) == 3
    assert len(one.release_lock(older=0)) == 1
    assert len(lock_tags_of("data")) == 2
    assert not other.release_lock(older=0)


def test_a_mirror_serves_what_is_locked(work: Path) -> None:
    data = publish("data", "old", "./near")
    declared = declare(work, copied("data", "main"), more='stores.main = "./near"')
    declared.lock()
    Store("./near").push(data.locator, "./mirror")
    publish("data", "new", "./near")
    shutil.rmtree(work / "near")
    shutil.rmtree(work / "home", ignore_errors=True)
    lock = (work / "cowfs.lock").read_bytes()
    declared = declare(work, copied("data", "main"), more='stores.main = "./mirror"')
    assert declared.find_misfits() == []
    declared.up()
    assert read("data") == "old"
    declared.down()
    assert lock_tags_of("data", "./mirror") == []
    declared.lock()
    assert len(lock_tags_of("data", "./mirror")) == 1, "the mirror keeps it, too"
    assert (work / "cowfs.lock").read_bytes() == lock
    publish("other", "1", "./empty")
    declared = declare(work, copied("data", "main"), more='stores.main = "./empty"')
    with pytest.raises(NotFoundError, match=r"data is locked to version .*, which cannot be found"):
        declared.up()


def test_a_lock_that_does_not_fit_is_refused(work: Path) -> None:
    publish("data", "1")
    publish("more", "1")
    declare(work, copied("data")).lock()
    first = versions(Declared.load(work / "cowfs.toml"))
    publish("data", "2")
    declared = declare(work, copied("data"), copied("more"))
    for use in (declared.up, declared.plan, declared.warm, declared.release_lock, lambda: declared.emit("sh")):
        with pytest.raises(InvalidInputError, match=r"cowfs.lock does not fit .*: more is not locked") as raised:
            use()
        assert raised.value.hint.startswith(f"{HINT} -f {work}/cowfs.toml`")
    assert not (work / "mnt" / "data").exists()
    assert declared.find_misfits() == ["more is not locked"]
    declared.lock()
    assert versions(declared) == {**first, "more": Store().version("more").id}, "what was locked is kept"
    declared = declare(work, copied("more"))
    assert declared.find_misfits() == ["data is locked, and not declared to be read"]
    declared.lock()
    assert versions(declared).keys() == {"more"}
    assert declared.find_misfits() == []
    assert declare(work, copied("data"), more="").find_misfits()


def test_the_same_input_gives_the_same_bytes(work: Path) -> None:
    for name in ("b", "a", "c"):
        publish(name, name)
    declared = declare(work, copied("b"), copied("a"), copied("c"))
    assert declared.lock(dry_run=True).is_changed
    assert not (work / "cowfs.lock").exists()
    assert lock_tags_of("a") == []
    assert declared.lock().is_changed
    data, state = (work / "cowfs.lock").read_bytes(), (work / "cowfs.lock").stat()
    publish("a", "later")
    again = declare(work, copied("c"), copied("a"), copied("b"))
    assert not again.lock().is_changed
    assert (work / "cowfs.lock").stat() == state, "it was not written"
    with pytest.raises(InvalidInputError, match="no volume that can be locked is named 'd'"):
        again.lock(update=["d"])
    again.lock(update=["a"])
    assert (work / "cowfs.lock").read_bytes() != data
    assert (work / "cowfs.lock").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


@pytest.mark.parametrize("is_union", [False, True])
def test_git_merges_the_locks_of_two_branches(work: Path, is_union: bool) -> None:
    names = ["a", "b", "m", "y", "z"] if not is_union else ["a", "b", "c", "z"]
    for name in names:
        publish(name, name)
    base, one, other = (["a", "m", "z"], "b", "y") if not is_union else (["a", "z"], "b", "c")

    def git(*words: str) -> str:
        identity = ("-c", "user.name=u", "-c", "user.email=u@example.org", "-c", "init.defaultBranch=main")
        done = subprocess.run(["git", *identity, *words], cwd=work / "p", check=True, capture_output=True, text=True)
        return done.stdout

    def commit(*declared: str, update: str = "") -> None:
        loaded = declare(work / "p", *(copied(each) for each in sorted(declared)))
        loaded.lock(update=[update] if update else [])
        git("add", "-A")
        git("commit", "-qm", "lock")

    (work / "p").mkdir()
    git("init", "-q")
    attributes = "cowfs.lock merge=union\ncowfs.toml merge=union\n" if is_union else ""
    (work / "p" / ".gitattributes").write_text(attributes)
    commit(*base)
    git("branch", "other")
    commit(*base, one)
    git("checkout", "-q", "other")
    commit(*base, other)
    git("merge", "-q", "main", "-m", "both")
    declared = Declared.load(work / "p" / "cowfs.toml")
    assert declared.find_misfits() == []
    assert sorted(versions(declared)) == sorted([*base, one, other])
    merged = (work / "p" / "cowfs.lock").read_bytes()
    declared.lock()
    canonical = lock_of(declared).encode()
    assert (work / "p" / "cowfs.lock").read_bytes() == canonical
    assert is_union or merged == canonical
    if not is_union:
        return
    git("commit", "-qam", "sorted", "--allow-empty")
    git("branch", "third")
    publish("a", "later")
    commit(*base, one, other, update="a")
    git("checkout", "-q", "third")
    publish("a", "last")
    commit(*base, one, other, update="a")
    git("merge", "-q", "other", "-m", "both")
    declared = Declared.load(work / "p" / "cowfs.toml")
    text = (work / "p" / "cowfs.lock").read_text().splitlines()
    one_line, other_line = (number for number, line in enumerate(text, 1) if '"a"' in line)
    where = rf"\(lines {one_line} and {other_line}\)"
    assert declared.find_misfits() == [f"a is locked twice (lines {one_line} and {other_line})"]
    with pytest.raises(InvalidInputError, match=rf"does not fit .*: a is locked twice {where}") as raised:
        declared.up()
    assert raised.value.hint.startswith("Remove one of the two lines")
    with pytest.raises(
        InvalidInputError, match=rf"a is locked twice, to [0-9a-f]{{12}} and [0-9a-f]{{12}} {where}"
    ) as raised:
        declared.lock()
    assert "--update a" in raised.value.hint
    declared.lock(update=["a"])
    assert versions(declared)["a"] == Store().version("a").id


def test_who_may_not_tag_is_told_and_somebody_else_adds_the_tag(work: Path) -> None:
    publish("data", "1", "./near")
    storage.add_store("near", "./near", read_only=True)
    stores._open.clear()  # as in a new process
    declared = declare(work, copied("data", "near"))
    done = declared.lock()
    (note,) = done.notes
    assert "data@" in note
    assert "is locked without a tag" in note
    assert "opened read-only" in note
    assert [each.tag for each in done.volumes] == [None]
    assert "tagged = false" in (work / "cowfs.lock").read_text()
    assert not declared.lock().is_changed
    declared.up()
    assert read("data") == "1"
    declared.down()
    storage.remove_store("near")
    storage.add_store("near", "./near")
    stores._open.clear()
    declared = Declared.load(declared.file)
    done = declared.lock()
    assert (done.notes, done.is_changed) == ((), True)
    assert [each.tag for each in done.volumes] == lock_tags_of("data", "./near")


def test_a_version_that_a_fork_has_from_its_origin_is_tagged_there(work: Path) -> None:
    old = publish("data", "1")
    publish("data", "2").fork("copy")
    publish("copy", "3")
    declared = declare(work, copied(f"copy@{old.id}"))
    declared.lock()
    assert lock_tags_of("copy") == []
    assert len(lock_tags_of("data")) == 1


def test_volumes_of_which_another_machine_means_others_are_not_locked(work: Path) -> None:
    publish("data", "1")
    user = f'{{name = ["data-{{user}}", "data"], path = "{work}/mnt/user", mode = "copy"}}'
    host = f'{{name = "/media", path = "{work}/mnt/host", read_only = false, optional = true}}'
    absent = copied("absent").replace("}", ", optional = true}")
    several = copied("data").replace('name = "data"', 'name = ["gone", "data"]')
    declared = declare(work, user, host, absent, several)
    declared.lock()
    assert versions(declared).keys() == {"data"}
    publish("gone", "1")
    publish("absent", "1")
    publish("data", "2")
    declared = Declared.load(declared.file)
    outcomes = declared.up()
    assert [(each.state, each.volume) for each in outcomes][2:] == [("skipped", "absent"), ("mounted", "data")]
    assert (read("user"), read("data")) == ("2", "1")
    declared.down()
    declared.lock()
    assert versions(declared).keys() == {"data", "gone", "absent"}
    with pytest.raises(NotFoundError, match="no volume 'nothing'"):
        declare(work, copied("nothing")).lock()


def test_a_tag_that_moves_leaves_the_lock_and_an_update_follows_it(work: Path) -> None:
    one, two = publish("data", "1"), publish("data", "2")
    one.tag("v")
    declared = declare(work, copied("data@v"))
    declared.lock()
    two.tag("v", move=True)
    assert not declared.lock().is_changed
    declared.lock(update=["data"])
    assert versions(declared) == {"data@v": two.id}
    Store().untag("data", "v")
    with pytest.raises(NotFoundError, match="no tag or version 'v'"):
        declared.lock(update_all=True)


def test_two_at_once_do_not_undo_each_other(work: Path) -> None:
    old = {name: publish(name, "1").id for name in ("a", "b")}
    declared = declare(work, copied("a"), copied("b"))
    declared.lock()
    for name in ("a", "b"):
        publish(name, "2")
    other = Declared.load(declared.file)
    declared.lock(update=["a"])
    with pytest.raises(ConflictError, match=r"cowfs\.lock was changed"):
        other.lock(update=["b"])
    with pytest.raises(ConflictError, match=r"cowfs\.lock was changed"):
        other.release_lock(older=0)
    assert versions(declared) == {"a": Store().version("a").id, "b": old["b"]}
    assert declared.file is not None
    with applied.hold_lock(declared.file):
        with pytest.raises(ConflictError, match="locking"):
            declared.lock(update=["b"])
        assert declared.lock(update=["b"], dry_run=True).is_changed
    declared.lock(update=["b"])
    assert versions(declared)["b"] == Store().version("b").id


def test_tags_of_a_lock_that_did_not_end_are_of_its_project(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the tags, or stopped by a volume that is missing: no tag is nobody's."""
    publish("data", "1")
    with pytest.raises(NotFoundError):
        declare(work, copied("data"), copied("missing")).lock()
    assert lock_tags_of("data") == []
    declared = declare(work, copied("data"))

    class KilledError(BaseException):
        pass

    def killed(located: LocatedVersion, name: str) -> str:
        tag(located, name)
        raise KilledError

    tag = locking._tag
    with monkeypatch.context() as patch:
        patch.setattr(locking, "_tag", killed)
        with pytest.raises(KilledError):
            declared.lock()
    [left] = lock_tags_of("data")
    declared = Declared.load(declared.file)
    with pytest.raises(InvalidInputError, match="data is not locked") as refused:
        declared.up()
    assert HINT in refused.value.hint
    declared.lock()
    assert lock_tags_of("data") == [left]


@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "huge", "text"])
def test_what_is_no_lock_file_is_refused_at_once(work: Path, kind: str) -> None:
    publish("data", "1")
    declared = declare(work, copied("data"))
    path = work / "cowfs.lock"
    elsewhere = work / "elsewhere"
    elsewhere.write_bytes(LockFile("p").encode())
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"#" * (lock_files.LARGEST + 1) if kind == "huge" else b"\0")
    with pytest.raises((InvalidInputError, AccessDeniedError), match=r"cowfs\.lock"):
        Declared.load(declared.file)


def test_a_lock_chooses_only_among_versions_of_what_is_declared(work: Path) -> None:
    data, other = publish("data", "1"), publish("other", "2")
    located = data._located.named
    declared = declare(work, copied("data"), copied(f"data@{data.id}").replace("mnt/data", "mnt/same"))
    declared.lock()
    lock = lock_of(declared)
    for wrong in (
        LockedVolume("data", None, other._located.named, lock.volumes[0].content_id),
        LockedVolume(f"data@{data.id}", None, publish("data", "3")._located.named, lock.volumes[0].content_id),
    ):
        lock_files.replace(work / "cowfs.lock", LockFile(lock.project, (wrong, *lock.volumes)))
        with pytest.raises(InvalidInputError, match="is locked to "):
            Declared.load(declared.file).up()
    stolen = type(located)(located.store, "data", other._located.version)
    only = declare(work, copied("data"))
    lock_files.replace(
        work / "cowfs.lock", LockFile("p", (LockedVolume("data", None, stolen, "content-1:" + "0" * 64),))
    )
    with pytest.raises(NotFoundError, match="belongs to volume 'other'"):
        Declared.load(only.file).up()


def test_a_line_of_another_volume_is_replaced_and_tags_nothing_there(work: Path) -> None:
    data, other = publish("data", "1"), publish("other", "2")
    declared = declare(work, copied("data"))
    declared.lock()
    lock = lock_of(declared)
    wrong = LockedVolume("data", None, other._located.named, lock.volumes[0].content_id)
    lock_files.replace(work / "cowfs.lock", LockFile(lock.project, (wrong,)))
    declared = Declared.load(declared.file)
    with pytest.raises(InvalidInputError, match="data is locked to other@") as raised:
        declared.up()
    assert raised.value.hint.startswith(HINT)
    (line,) = declared.lock().volumes
    assert (line.what, line.before, line.locator) == ("updated", str(wrong.locator), data.locator)
    assert (versions(declared), lock_tags_of("other")) == ({"data": data.id}, [])
    declared.up()
    assert read("data") == "1"


def test_a_lock_that_others_may_write_is_not_used_where_it_is_merely_found(work: Path) -> None:
    publish("data", "1")
    declare(work, '"data"').lock()
    (work / "cowfs.lock").chmod(0o666)
    with pytest.raises(AccessDeniedError, match=r"cowfs.lock may be written by anybody"):
        Declared.load()
    assert Declared.load(work / "cowfs.toml").find_misfits() == []
    (work / "cowfs.lock").chmod(0o644)
    assert Declared.load().find_misfits() == []


def test_names_alone_are_mounted_below_the_root(work: Path) -> None:
    data = publish("data", "1")
    publish("sd15", "2", "./models")
    strings = ('"data@{0}"', '"models/sd15"', f'"{data.locator.replace("/data@", "/data@")}"')
    declared = declare(work, *strings[:2], more='stores.models = "./models"')
    paths = [each.mount_path for each in declared.volumes]
    assert paths == [f"{work}/volumes/data", f"{work}/volumes/models/sd15"]
    assert [(each.store, each.read_only) for each in declared.volumes] == [(None, True), ("models", True)]
    for root in ("elsewhere", f"{work}/elsewhere", f"{work}/outside"):
        text = (work / "cowfs.toml").read_text()
        (work / "cowfs.toml").write_text(f'root = "{root}"\n{text.partition("root")[0]}')
        assert Declared.load().volumes[0].mount_path == os.path.join(work, root, "data")
        (work / "cowfs.toml").write_text(text)
    declared = declare(work, strings[2], more='root = "/volumes"')
    assert declared.volumes[0].mount_path == "/volumes/data"
    with pytest.raises(InvalidInputError, match="was merely found, and it mounts at /volumes/data") as raised:
        Declared.load().up()
    assert "cowfs allow" in raised.value.hint
    for wrong in ('"/srv/data"', '"a/b/c"', '"../data"', '"nowhere/data"', '"data-{user}"', "1"):
        with pytest.raises(InvalidInputError):
            declare(work, wrong)
    with pytest.raises(InvalidInputError, match="has no mount path"):
        Declared(volumes=["data"])
    assert Declared(volumes=["data"], root="/data").volumes[0].mount_path == "/data/data"


def test_missing_parents_below_a_root_elsewhere_are_made(work: Path, tmp_path: Path) -> None:
    publish("sd15", "2", "./models")
    declared = declare(work / "p", '"models/sd15"', more=f'root = "{tmp_path}/volumes"\nstores.models = "../models"')
    Store("./models")
    declared.up()
    assert (tmp_path / "volumes" / "models" / "sd15" / "file").read_text() == "2"
    declared.down()


def test_a_manifest_of_another_program_is_mounted_locked_and_warmed(work: Path, tmp_path: Path) -> None:
    publish("data", "1")
    publish("sd15", "2", "./models")
    storage.add_store("builtin", "./models", read_only=True)
    stores._open.clear()
    file = work / "tool" / "manifest.toml"
    file.parent.mkdir()
    text = '[main]\nvolumes = ["data", "builtin/sd15"]\npython = "3.12"\n[other]\nroot = "/"\n'
    file.write_text(f'name = "x"\nroot = "/tmp"\nstores = 1\n{text}')
    assert [each.mount_path for each in Declared.load_manifest(file).volumes] == [
        f"{work}/tool/volumes/data",
        f"{work}/tool/volumes/builtin/sd15",
    ]
    declared = Declared.load_manifest(file, root=tmp_path / "v")
    assert len(declared.lock().notes) == 1
    assert lock_files.path_of(file).name == "manifest.cowfs.lock"
    publish("data", "3")
    declared = Declared.load_manifest(file, root=tmp_path / "v")
    warmed = declared.warm(cache_dir=tmp_path / "cache")
    assert [(each.bytes, each.is_complete) for each in warmed] == [(1, True), (1, True)]
    declared.up()
    assert (tmp_path / "v" / "data" / "file").read_text() == "1"
    assert (tmp_path / "v" / "builtin" / "sd15" / "file").read_text() == "2"
    Declared.unmount(file)
    assert registry.list_mounts() == []
    file.write_text(text.replace('"data", ', ""))
    with pytest.raises(InvalidInputError, match="does not fit") as raised:
        Declared.load_manifest(file).up()
    assert f"{HINT} --manifest {file}`" in raised.value.hint
    for wrong in ("", "[main]\n", '[main]\nvolumes = "data"\n', "[main]\nvolumes = [{}]\n", "main = 1\n"):
        file.write_text(wrong)
        with pytest.raises(InvalidInputError, match=r"no list of names at main.volumes"):
            Declared.load_manifest(file)


def test_what_is_emitted_has_the_locked_versions(work: Path) -> None:
    data = publish("data", "1")
    declared = declare(work, copied("data"))
    declared.lock()
    publish("data", "2")
    assert f"- data@{data.id}" in Declared.load(declared.file).emit("sh")


def test_a_lock_keeps_any_mix_of_changes_consistent(work: Path) -> None:
    """Whatever is declared and published in between: after `lock` it fits, and only what was asked
    for has moved."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    names = ["a", "b", "c"]
    for name in names:
        publish(name, "0")
    before: dict[str, str] = {}
    for number in range(share(20)):
        declared = declare(work, *(copied(each) for each in names if draw.random() < 0.7))
        publish(draw.choice(names), f"{seed}-{number}")
        wanted = {each.name[0] for each in declared.volumes}
        update = [each for each in sorted(wanted) if draw.random() < 0.3]
        declared.lock(update=update)
        now = {name: Store().version(name).id for name in wanted}
        kept = {name: before[name] if name in before and name not in update else now[name] for name in wanted}
        found = versions(declared) if (work / "cowfs.lock").exists() else {}
        assert found == kept
        loaded = Declared.load(declared.file)
        assert loaded.find_misfits() == []
        before = kept
        for name in wanted:
            project = lock_of(declared).project
            assert lock_tags.lock_tag(
                project, Store().version(f"{name}@{kept[name]}")._located.version
            ) in lock_tags_of(name)
