"""A plan says what is to be done and writes nothing; applied once, the next plan is empty."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from cowfs.api import sources, stores
from cowfs.api.declared.plan import Plan
from cowfs.blocking import Declared, Store, Volume
from cowfs.errors import (
    ConflictError,
    CorruptError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    UnavailableError,
    UnsupportedFormatError,
)
from cowfs.machine import applied
from cowfs.storage import accept_store


@pytest.fixture
def file(place: Path) -> Path:
    """One volume to write and one to read, in a store beside the file; the second may be
    missing."""
    return declare(
        place,
        '{name = "ckpt", path = "/ckpt", store = "main", read_only = false, size = "1GB", idle_delete = "30d"}',
        '{name = ["data-eu", "data"], path = "/data", store = "main", optional = true}',
    )


def declare(place: Path, *volumes: str) -> Path:
    path = place / "cowfs.toml"
    path.write_text(f"volumes = [\n{''.join(f'  {each},{chr(10)}' for each in volumes)}]\n[stores]\nmain = './main'\n")
    return path


def planned(file: Path, *, prune: bool = False) -> Plan:
    return Declared.load(file).plan(prune=prune, mounts=False)


def actions(plan: Plan) -> list[tuple[str, str]]:
    return [(step.action, step.volume) for step in plan.steps]


def objects(store: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}


def commit(name: str, store: Path) -> None:
    Volume.new(name, store=store, strict=True).commit("made")


def test_a_store_that_does_not_answer_is_waited_for_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many candidates it has."""
    asked: list[str] = []

    def silent(source: str, _: object) -> NoReturn:
        asked.append(source)
        raise UnavailableError("does not answer")

    monkeypatch.setattr(sources, "find", silent)
    file = declare(place, '{name = ["a", "b", "c"], path = "/c", store = "main", read_only = false}')
    with pytest.raises(UnavailableError, match="does not answer"):
        planned(file)
    assert asked == ["a"]


def test_a_plan_writes_no_object_and_no_record(file: Path, place: Path) -> None:
    store = place / "main"
    assert actions(planned(file)) == [("create", "ckpt"), ("skip", "data-eu")]
    assert not store.exists()
    commit("data", store)
    before = objects(store)
    assert before
    assert actions(planned(file)) == [("create", "ckpt"), ("register", "data")]
    assert objects(store) == before
    assert not applied.place_of(file).exists()


def test_a_second_apply_plans_nothing(file: Path, place: Path) -> None:
    commit("data", place / "main")
    planned(file).apply()
    again = planned(file)
    assert actions(again) == [("keep", "ckpt"), ("keep", "data")]
    assert not again.has_changes
    assert [(each.volume, each.made) for each in applied.load(file).volumes] == [
        ("ckpt", "created"),
        ("data", "registered"),
    ]
    again.apply()
    assert not planned(file).has_changes


def test_a_changed_file_is_a_change_and_a_candidate_before_it_another_volume(file: Path, place: Path) -> None:
    commit("data", place / "main")
    planned(file).apply()
    file.write_text(file.read_text().replace("1GB", "2GB").replace('"/data"', '"/else"'))
    plan = planned(file)
    assert actions(plan) == [("change", "ckpt"), ("change", "data")]
    assert [step.reason for step in plan.steps] == [f"size {10**9} → {2 * 10**9}", "path /data → /else"]
    plan.apply()
    assert not planned(file).has_changes
    assert {each.volume: each.made for each in applied.load(file).volumes} == {"ckpt": "created", "data": "registered"}
    commit("data-eu", place / "main")
    plan = planned(file)
    assert actions(plan) == [("keep", "ckpt"), ("register", "data-eu")]
    plan.apply()
    assert not planned(file).has_changes
    assert not planned(file).notes[1:], "the other candidate is no volume that was left behind"


def test_a_change_from_or_to_nothing_is_said_in_words(place: Path) -> None:
    volume = Volume.new("data", store=place / "main")
    volume.files.mkdir("train")
    volume.commit()
    text = '{name = "data", path = "/data", store = "main"}'
    file = declare(place, text.replace("}", ', subpath = "train"}'))
    planned(file).apply()
    said = []
    for more in ("", ", read_only = false", ", read_only = false, size = 4096"):
        plan = planned(declare(place, text.replace("}", more + "}")))
        said += [step.reason for step in plan.steps]
        plan.apply()
    assert said == ["subpath train → none", "read_only true → false", "size none → 4096"]
    Store(place / "main").set_quota("data", None)
    assert [step.reason for step in planned(file).steps] == ["quota none → 4096"]


def test_compression_of_contents_is_as_declared_and_else_left_alone(place: Path) -> None:
    said = []
    for declared, compresses in ((", compress = false", False), ("", False), (", compress = true", True)):
        text = f'{{name = "data", path = "/data", store = "main", read_only = false{declared}}}'
        plan = planned(declare(place, text))
        said += [(step.action, step.reason) for step in plan.steps if step.action == "change"]
        plan.apply()
        assert [each.is_compressed for each in Store(place / "main").volumes()] == [compresses]
    assert said == [("change", "compress false → none"), ("change", "compress none → true")]


def test_what_is_declared_no_more_is_pruned_what_was_created_deleted(file: Path, place: Path) -> None:
    store = place / "main"
    commit("data", store)
    planned(file).apply()
    declare(place)
    plan = planned(file)
    assert not plan.has_changes
    notes = {note.split()[0]: note.split("(prune=True) ")[1] for note in plan.notes}
    assert notes == {"ckpt": "deletes it in its store", "data": "forgets it"}
    before = objects(store)
    plan = planned(file, prune=True)
    assert actions(plan) == [("delete", "ckpt"), ("forget", "data")]
    assert objects(store) == before
    plan.apply()
    assert [each.name for each in Store(store).volumes()] == ["data"]
    assert [each.name for each in Store(store).volumes(deleted=True)] == ["ckpt"]
    assert not planned(file, prune=True).steps
    assert applied.load(file).is_empty
    declare(place, '{name = "ckpt", path = "/ckpt", store = "main", read_only = false}')
    with pytest.raises(NotFoundError, match="was deleted"):
        planned(file)  # a deleted volume is none to be created
    Store(store).undelete("ckpt")
    assert actions(planned(file)) == [("register", "ckpt")]


def test_a_created_volume_that_is_declared_elsewhere_is_only_forgotten(file: Path, place: Path) -> None:
    planned(file).apply()
    other = place / "other.cowfs.yml"
    other.write_text("volumes: [{name: ckpt, path: /other, store: main, read_only: false}]\nstores: {main: ./main}\n")
    planned(other).apply()
    declare(place)
    plan = planned(file, prune=True)
    assert [step.action for step in plan.steps] == ["forget"]
    plan.apply()
    other.write_text("stores: {main: ./main}\n")
    planned(other, prune=True).apply()
    assert [each.name for each in Store(place / "main").volumes()] == ["ckpt"], "the other file has only registered it"


def test_what_a_file_has_applied_is_undone(file: Path, place: Path) -> None:
    store = place / "main"
    commit("data", store)
    assert not Declared.load(file).plan_deletion().steps
    planned(file).apply()
    plan = Declared.load(file).plan_deletion()
    assert sorted((step.action, step.volume) for step in plan.steps) == [
        ("delete", "ckpt"),
        ("forget", "data"),
    ]
    writer = Volume.open("ckpt", store=store)
    writer.files.write("work", b"uncommitted")
    with pytest.raises(InvalidStateError):
        plan.apply()
    plan = Declared.load(file).plan_deletion()
    plan.apply(force=True)
    assert [each.name for each in Store(store).volumes()] == ["data"]
    assert applied.load(file).is_empty
    assert not Declared.load(file).plan_deletion().steps


@pytest.mark.parametrize("by", ["prune", "deletion"])
def test_another_volume_of_the_name_is_forgotten_and_not_deleted(file: Path, place: Path, by: str) -> None:
    """The store was put back to what it was before, and somebody else has made one of that name."""
    store = place / "main"
    planned(file).apply()
    shutil.rmtree(store / "volumes")
    accept_store(store)
    commit("ckpt", store)
    declare(place)
    before = objects(store)
    plan = planned(file, prune=True) if by == "prune" else Declared.load(file).plan_deletion()
    said = []
    plan.apply(hears=lambda step, outcome: said.append((step.volume, outcome.state if outcome is not None else "")))
    assert said == [("ckpt", "forgotten")]
    assert objects(store) == before
    assert applied.load(file).is_empty


def test_nothing_is_deleted_by_a_record_that_does_not_tell_volumes_of_one_name_apart(file: Path, place: Path) -> None:
    """Earlier versions of cowfs have written such ones."""
    planned(file).apply()
    path = applied.place_of(file)
    record = json.loads(path.read_bytes())
    for each in record["volumes"]:
        del each["write_id"]
    path.write_text(json.dumps(record))
    assert not planned(file).has_changes
    plan = Declared.load(file).plan_deletion()
    assert [step.action for step in plan.steps] == ["forget"]
    assert "an earlier cowfs made it" in plan.steps[0].reason
    plan.apply()
    assert [each.name for each in Store(place / "main").volumes()] == ["ckpt"]
    assert applied.load(file).is_empty


def test_what_tells_a_created_volume_from_others_survives_changes(file: Path, place: Path) -> None:
    planned(file).apply()
    declare(place, '{name = "ckpt", path = "/elsewhere", store = "main", read_only = false}')
    plan = planned(file)
    assert actions(plan) == [("change", "ckpt")]
    plan.apply()
    Declared.load(file).plan_deletion().apply()
    assert [each.name for each in Store(place / "main").volumes(deleted=True)] == ["ckpt"]


def test_volumes_of_other_ranks_are_never_pruned(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = declare(place, '{name = "ckpt-{rank}", path = "/ckpt", store = "main", read_only = false}')
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        plan = planned(file, prune=True)
        assert actions(plan) == [("create", f"ckpt-{rank}")]
        plan.apply()
    assert planned(file, prune=True).notes == ()
    declare(place, '{name = "ckpt-x", path = "/ckpt", store = "main", read_only = false}')
    assert actions(planned(file, prune=True)) == [("delete", "ckpt-0"), ("delete", "ckpt-1"), ("create", "ckpt-x")]


def test_a_volume_that_somebody_deleted_can_be_pruned(file: Path, place: Path) -> None:
    planned(file).apply()
    Store(place / "main").delete("ckpt")
    declare(place)
    planned(file, prune=True).apply()
    assert applied.load(file).is_empty


def test_what_cannot_be_used_is_an_error_unless_it_is_optional(file: Path, place: Path) -> None:
    commit("data", place / "main")
    Volume.new("empty", store=place / "main").resolve()
    for volume in ("missing", "empty", "data@v1", "data@00000000"):
        declare(place, f'{{name = "{volume}", path = "/data", store = "main"}}')
        with pytest.raises(NotFoundError, match=r"\(declared at /data\)"):
            planned(file)
    declare(place, '{name = "data", path = "/data"}')
    with pytest.raises(NotFoundError, match="no store"):
        planned(file)
    locator = Volume.open("data", store=place / "main").resolve().locator
    declare(place, f'{{name = "{locator}", path = "/data"}}')
    assert actions(planned(file)) == [("register", "data")]


def test_a_folder_that_the_version_does_not_have_is_missed_by_the_plan(place: Path) -> None:
    for name, folder in (("digits", "train"), ("letters", "test")):
        volume = Volume.new(name, store=place / "main")
        volume.files.mkdir(folder)
        volume.files.write(f"{folder}/one", b"1")
        volume.commit()
    version = Volume.version("digits", store=place / "main")
    digits = '{name = "digits", path = "/data", store = "main", subpath = "FOLDER"}'
    with pytest.raises(NotFoundError, match=r"the version has no 'trian' \(declared at /data\)") as caught:
        planned(declare(place, digits.replace("FOLDER", "trian")))
    assert f"`cowfs ls digits@{version.id[:12]} --store " in caught.value.hint
    with pytest.raises(InvalidInputError, match=r"'train/one' is not a directory .* \(declared at /data\)"):
        planned(declare(place, digits.replace("FOLDER", "train/one")))
    optional = digits.replace("FOLDER", "trian").replace("}", ", optional = true}")
    assert actions(planned(declare(place, optional))) == [("skip", "digits")]
    either = digits.replace('"digits"', '["digits", "letters"]').replace("FOLDER", "test")
    assert actions(planned(declare(place, either))) == [("register", "letters")]


def test_an_unusable_store_is_never_a_reason_to_create_another_candidate(place: Path) -> None:
    (place / "main").mkdir()
    (place / "main" / "cowfs.json").write_text("torn")
    file = declare(place, '{name = ["a", "b"], path = "/data", store = "main", read_only = false}')
    with pytest.raises(CorruptError):
        planned(file)


def test_what_was_applied_and_is_away_is_not_made_anew(place: Path) -> None:
    """The store's disk may not be mounted."""
    file = declare(
        place,
        '{name = "ckpt", path = "/ckpt", store = "main", read_only = false}',
        '{name = "logs", path = "/logs", store = "main", read_only = false, optional = true}',
    )
    planned(file).apply()
    (place / "main").rename(place / "away")
    stores._open.clear()
    with pytest.raises(NotFoundError, match="which was applied before, is not there any more") as caught:
        planned(file)
    assert f"`cowfs apply -f {file} --prune`" in caught.value.hint
    assert not (place / "main").exists()
    (place / "away").rename(place / "main")
    assert actions(planned(file)) == [("keep", "ckpt"), ("keep", "logs")]
    shutil.rmtree(place / "main")
    stores._open.clear()
    text = file.read_text()
    declare(place)
    planned(file, prune=True).apply()
    file.write_text(text)
    assert actions(planned(file)) == [("create", "ckpt"), ("create", "logs")]
    with pytest.raises(InvalidStateError, match="this machine has used one there"):
        planned(file).apply()
    Volume.new("other", store=str(place / "main")).resolve(new_store=True)
    planned(file).apply()
    assert actions(planned(file)) == [("keep", "ckpt"), ("keep", "logs")]


def test_what_was_applied_by_its_second_name_and_is_away_is_not_made_by_its_first(place: Path) -> None:
    commit("ckpt", place / "main")
    file = declare(place, '{name = ["ckpt-mine", "ckpt"], path = "/ckpt", store = "main", read_only = false}')
    assert actions(planned(file)) == [("register", "ckpt")]
    planned(file).apply()
    (place / "main").rename(place / "away")
    stores._open.clear()
    with pytest.raises(NotFoundError, match=r"volume 'ckpt' .* was applied before"):
        planned(file)


def test_a_plan_that_is_no_longer_true_is_refused(file: Path) -> None:
    first, second = planned(file), planned(file)
    first.apply()
    with pytest.raises(ConflictError, match="applied by another process"):
        second.apply()


def test_one_process_at_a_time(file: Path) -> None:
    plan = planned(file)
    with applied.hold_lock(file):
        with pytest.raises(ConflictError, match=r"process \d+ is applying"):
            plan.apply()
        with pytest.raises(ConflictError):
            Declared.load(file).up()


def test_an_apply_that_was_killed_is_continued(file: Path, place: Path) -> None:
    commit("data", place / "main")
    code = (
        "import os, sys; from cowfs.blocking import Declared\n"
        "Declared.load(sys.argv[1]).plan(mounts=False).apply(hears=lambda *_: os.kill(os.getpid(), 9))"
    )
    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, timeout=120)
    assert done.returncode == -9, done.stderr
    plan = planned(file)
    assert actions(plan) == [("keep", "ckpt"), ("register", "data")]
    plan.apply()
    assert [each.made for each in applied.load(file).volumes] == ["created", "registered"]


def test_a_declaration_without_a_file_has_no_record() -> None:
    with pytest.raises(InvalidInputError, match="no record"):
        Declared().plan()


def test_records_of_today_stay_readable_and_others_are_refused(file: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "format" / "applied.md").read_text()
    example = page.split("```json\n")[1].split("```")[0]
    golden = json.loads(example)
    place = applied.place_of(file)
    place.parent.mkdir(parents=True)
    place.write_text(example)
    found = applied.load(file)
    assert found.to_json().decode() == example
    later = {**golden, "x": 1, "mounts": [{**golden["mounts"][0], "x": 1}]}
    place.write_text(json.dumps(later))
    assert applied.load(file) == found, "fields of a later cowfs are ignored"
    found = replace(found, file=str(file))
    with applied.hold_lock(file):
        applied.store(found)
    assert applied.load(file) == found
    place.write_text(json.dumps({**golden, "format": 2}))
    with pytest.raises(UnsupportedFormatError):
        applied.load(file)
    for text in ("", "[]", "{}", '{"format": 1, "file": "", "volumes": [{}], "mounts": []}'):
        place.write_text(text)
        with pytest.raises(CorruptError, match="not a record"):
            applied.load(file)
