"""cowfs gc and Store.gc: a plan that says what goes, nothing else deleted, and why something
stays."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cowfs.api.access import file_session
from cowfs.api.upkeep import collecting
from cowfs.blocking import GcReport, ROVolume, Store, Volume
from cowfs.errors import AccessDeniedError, InvalidInputError, InvalidStateError
from cowfs.rendering import format_time
from cowfs.store import open_store
from cowfs.store.backends.directory.directory_store import DirectoryStore
from cowfs.version.retention import pruned
from tests.api.conftest import place
from tests.cli.conftest import Run, run
from tests.cli.test_json import check

__all__ = ["place", "run"]


def store_path() -> Path:
    return Path(os.environ["COWFS_STORE"].removeprefix("file://"))


def stored_bytes() -> int:
    folders = [store_path() / name for name in ("packs", "versions")]
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def age(seconds: float, store: Path | None = None) -> None:
    """Everything in the store counts as that much older."""
    for path in (store or store_path()).rglob("*"):
        if path.is_file():
            found = path.stat().st_mtime_ns - int(seconds * 1e9)
            os.utime(path, ns=(found, found))


def _deleted(said: Any) -> dict[str, int]:
    """Versions and packs, with their sizes, of what `maintain` says."""
    objects = said["gc"]["objects"]
    return {each["key"]: each["bytes"] for each in objects if each["key"].startswith(("versions/", "packs/"))}


@pytest.fixture
def versions(place: Path) -> list[ROVolume]:
    """The first is pruned, and all of it two hours old."""
    data = Volume.new("data")
    made = []
    for _ in range(2):
        data.files.write("file", os.urandom(100_000))
        made.append(data.commit())
    file_session._end_all()  # a writer might use what is older than its pin
    with_store = open_store(os.environ["COWFS_STORE"])
    pruned.append(with_store, "data", pruned.read(with_store, "data"), [(1, 2)])
    with_store.close()
    age(2 * 3600)
    return made


def test_a_plan_is_shown_and_applied(versions: list[ROVolume], run: Run) -> None:
    assert run("gc").code == 2  # nobody can be asked
    before = stored_bytes()
    planned = run("gc", "--dry-run", "--json").json
    check("gc", planned)
    assert (planned["freed_versions"], planned["kept_versions"], planned["is_done"]) == (1, 1, False)
    assert planned["freed_bytes"] == sum(each["bytes"] for each in planned["objects"]) > 100_000
    assert "1 version," in run("gc", "--dry-run").out
    done = run("gc", "-y", "--json").json
    check("gc", done)
    assert done["is_done"]
    assert done["objects"] == planned["objects"]
    assert before - stored_bytes() == planned["freed_bytes"]
    assert run("gc", "-y").out.startswith("Freed 0")
    assert versions[1].files.read("file")


def test_a_plan_closes_no_volume_that_it_does_not_name(place: Path) -> None:
    """Whose time to be brought back was over only after it was made."""
    Volume.new("data").files.write("file", b"data")
    Volume.open("data").commit()
    file_session._end_all()
    Store().delete("data")
    age(6 * 24 * 3600)
    plan = Store().gc(dry_run=True)
    assert (plan.gone, [each.volume for each in plan.deleted_volumes]) == ([], ["data"])
    age(2 * 24 * 3600)
    assert Store().gc(plan=plan).gone == []
    Store().undelete("data")
    assert Volume.version("data").files.read("file") == b"data"
    Store().delete("data")
    age(8 * 24 * 3600)
    assert Store().gc(plan=Store().gc(dry_run=True)).gone == ["data"]


def test_what_is_needed_of_a_pack_is_written_anew(place: Path, run: Run) -> None:
    data = Volume.new("data")
    kept = os.urandom(50_000)
    data.files.write("kept", kept)
    data.files.write("gone", os.urandom(900_000))
    data.commit()
    data.files.remove("gone")
    version = data.commit()
    file_session._end_all()
    run("prune", "data", "--keep-last", "1", "-y")
    age(2 * 3600)
    before = stored_bytes()
    planned = run("gc", "--dry-run", "--json").json
    check("gc", planned)
    assert planned["repacked_packs"] == 1
    assert 50_000 < planned["written_bytes"] < 51_000
    assert "what is needed of 1 pack that go" in run("gc", "--dry-run").out
    done = run("gc", "-y", "--json").json
    assert {**done, "is_done": False} == planned
    assert before - stored_bytes() == planned["freed_bytes"] > 850_000
    assert version.files.read("kept") == kept


def test_a_deleted_volume_is_said_to_take_room(versions: list[ROVolume], run: Run) -> None:
    assert "brought back" not in run("gc", "--dry-run").out
    assert run("gc", "-y").code == 0
    assert run("delete", "data", "-y").code == 0
    planned = run("gc", "--dry-run", "--json").json
    check("gc", planned)
    assert (planned["freed_versions"], planned["gone"]) == (0, [])
    (kept,) = planned["deleted_volumes"]
    assert kept["volume"] == "data"
    until = format_time(int(kept["until_ns"]))
    assert f"1 deleted volume can be brought back until {until}" in run("gc", "--dry-run").out
    age(8 * 24 * 3600)
    planned = run("gc", "--dry-run", "--json").json
    assert (planned["gone"], planned["deleted_volumes"]) == (["data"], [])
    assert "Then volume data cannot be brought back any more" in run("gc", "--dry-run").out
    assert run("undelete", "data").code == 0
    assert run("delete", "data", "-y").code == 0
    age(8 * 24 * 3600)
    said = run("gc", "-y")
    assert "\nVolume data cannot be brought back any more" in said.err
    assert run("undelete", "data").code == 3
    for deleted in (False, True):
        assert Store().volumes(deleted=deleted) == []
        assert run("ls", *(["--deleted"] if deleted else []), "--json").json["volumes"] == []
    said = run("create", "data")
    assert (said.code, "open the existing volume" in said.err) == (4, False)


def test_why_something_is_kept(versions: list[ROVolume], run: Run) -> None:
    old, new = versions
    found = run("gc", "--why", new.id, "--json").json
    check("gc --why", found)
    assert found["reasons"] == [{"version": new.id, "kept_by": ["head 3 of data"]}]
    assert "nothing needs it" in run("gc", "--why", old.id).out
    pack = next(each["key"] for each in run("gc", "--dry-run", "--json").json["objects"] if "packs/" in each["key"])
    assert "nothing needs it" in run("gc", "--why", pack).out
    run("gc", "-y")
    kept = next(path for path in (store_path() / "packs").rglob("*") if path.is_file())
    assert f"by version {new.id[:12]}: head 3 of data" in run("gc", "--why", kept.name).out
    assert run("gc", "--why", pack).code == 3
    assert run("gc", "--why", f"data@{new.id[:12]}", "--json").json == found
    assert run("gc", "--why", str(new.locator), "--json").json == found
    assert run("gc", "--why", "no-such-thing").code == 2
    assert run("gc", "--why", "data@no-such-tag").code == 3


@pytest.mark.parametrize("of_deleted", [False, True])
@pytest.mark.parametrize("is_planned_before", [False, True])
def test_what_is_mounted_here_to_be_read_stays(
    versions: list[ROVolume], run: Run, of_deleted: bool, is_planned_before: bool
) -> None:
    """Which no pin tells of: of a deleted volume, or pruned since, or before."""
    old = versions[0]
    prepared = collecting.prepare(None) if is_planned_before else None
    path = old.mount(mode="fuse")
    if of_deleted:
        Store().delete("data")
        age(8 * 24 * 3600)
    if prepared is not None:
        assert [key for key in prepared.report.objects if "versions/" in key]
        assert not [key for key in prepared.apply().objects if "versions/" in key]
    planned = Store().gc(dry_run=True)
    done = Store().gc(plan=planned)
    assert not [key for key in planned.objects if old.id in key]
    assert len((path / "file").read_bytes()) == 100_000
    assert run("gc", "--why", old.id, "--json").json["reasons"] == [
        {"version": old.id, "kept_by": [f"mounted at {path}"]}
    ]
    old.unmount()
    assert done.is_done
    assert [key for key in Store().gc().objects if old.id in key]


def test_a_mount_of_a_version_that_is_gone_holds_up_nothing(versions: list[ROVolume], run: Run) -> None:
    """It was collected on another machine."""
    old = versions[0]
    old.mount(mode="copy")
    (store_path() / "versions" / old.id[:2] / old.id).unlink()
    planned = Store().gc(dry_run=True)
    assert planned.kept_versions == 1
    pack = next(path for path in (store_path() / "packs").rglob("*") if path.is_file())
    assert run("gc", "--why", pack.name).code == 0
    assert Store().gc().is_done
    old.unmount()


def test_a_store_that_shows_less_is_not_collected(versions: list[ROVolume], run: Run) -> None:
    """Nor maintained; and a person may accept what is said."""
    place = store_path()
    (place / "volumes").rename(place.parent / "away")
    (place / "volumes").mkdir()
    before = stored_bytes()
    planned = run("gc", "--dry-run", "--json").json
    check("gc", planned)
    assert planned["plan_id"]
    assert "no head at all" in planned["alarms"][0]
    for command in (["gc", "-y"], ["maintain", "-y"], ["gc", "-y", "--accept-loss", "0" * 16]):
        refused = run(*command)
        assert refused.code == 14
        assert "no head at all" in refused.err
    assert f"cowfs gc --accept-loss {planned['plan_id']}" in run("gc", "-y").err
    with pytest.raises(InvalidStateError, match="no head at all"):
        Store().gc()
    assert stored_bytes() == before
    assert run("gc", "-y", "--accept-loss", planned["plan_id"]).code == 0
    assert stored_bytes() == 0


def test_from_python(versions: list[ROVolume]) -> None:
    plan = Store().gc(dry_run=True)
    assert isinstance(plan, GcReport)
    with pytest.raises(InvalidInputError):
        Store().gc(dry_run=True, plan=plan)
    some = dict(list(plan.objects.items())[:1])
    smaller = GcReport(**{**vars(plan), "objects": some})
    assert Store().gc(plan=smaller).objects == some
    done = Store().gc(plan=plan)
    assert done.objects.keys() == plan.objects.keys() - some.keys()
    assert done.is_done
    assert Store().gc().freed_bytes == 0


def test_volumes_are_maintained_by_the_rules_they_have_saved(versions: list[ROVolume], run: Run) -> None:
    kept = Volume.new("kept")
    for _ in range(3):
        kept.files.write("file", os.urandom(100_000))
        kept.commit()
    kept.finalize()
    assert run("prune", "kept", "--dry-run").code == 2, "no rule is given or saved"
    assert run("prune", "kept", "--save").code == 2
    saved = run(
        "prune", "kept", "--keep-last", "1", "--keep-within", "1s", "--keep-yearly", "1", "--save", "--json"
    ).json
    check("prune", saved)
    assert saved["rules"] == {"last": 1, "yearly": 1, "within_s": 1}
    assert saved["pruned_version_ids"] == []
    assert Store().retention("kept") == {"last": 1, "yearly": 1, "within": timedelta(seconds=1)}
    Store().set_retention("kept", **{**Store().retention("kept"), "within": None})
    assert "last 1, yearly 1" in run("prune", "kept", "--dry-run").err
    for rule in ("last", "hourly", "daily", "weekly", "monthly", "yearly"):
        refused = run("prune", "kept", f"--keep-{rule}", "0", "--dry-run")
        assert (refused.code, f"--keep-{rule}" in refused.err) == (2, True)
        with pytest.raises(InvalidInputError, match=f"{rule} is 0"):
            Store().plan_prune("kept", **{rule: 0})  # type: ignore[arg-type]
    assert run("maintain").code == 2, "nobody can be asked"
    planned = run("maintain", "--dry-run", "--json").json
    check("maintain", planned)
    assert [each["volume"] for each in planned["volumes"]] == ["kept"]
    assert (planned["volumes"][0]["pruned_version_ids"], planned["gc"]["is_done"]) == ([], False)
    assert len(Volume.version("kept").history()) == 3
    assert planned["gc"]["freed_versions"] == 1, "the others are too young, as for a collection"
    Store().set_retention("kept", last=1)  # by times: what is aged was stored before its committer's clock says
    age(2 * 3600)
    alone = run("gc", "--dry-run", "--json").json
    foreseen = run("maintain", "--dry-run", "--json").json
    assert (alone["freed_versions"], foreseen["gc"]["freed_versions"]) == (1, 3), "and the two that would be pruned"
    assert "3 versions" in run("maintain", "--dry-run").out
    assert len(Volume.version("kept").history()) == 3
    Volume.version("kept").history()[1].tag("held")
    assert run("maintain", "--dry-run", "--json").json["gc"]["freed_versions"] == 2, "what is tagged stays"
    Store().untag("kept", "held")
    with pytest.raises(InvalidInputError, match="plans"):
        Store().gc(pruned=Store().plan_maintain())
    with pytest.raises(InvalidInputError, match="elsewhere"):
        Store().gc(
            dry_run=True, pruned=[replace(each, store_url="file:///elsewhere") for each in Store().plan_maintain()]
        )
    done = run("maintain", "-y", "--json").json
    assert _deleted(done) == _deleted(foreseen)
    assert done["gc"]["freed_bytes"] - alone["freed_bytes"] > 200_000
    assert (len(done["volumes"][0]["pruned_version_ids"]), done["gc"]["freed_versions"], done["gc"]["is_done"]) == (
        2,
        3,
        True,
    )
    assert [each.is_pruned for each in Volume.version("kept").history()] == [False, True]
    assert run("prune", "kept", "--forget", "--json").json["rules"] == {}
    assert Store().plan_maintain() == []
    assert run("maintain", "-y").code == 0


def test_questions_need_no_right_to_write(versions: list[ROVolume], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Volume.open("data").files.write("work", b"of a writer that is asked whether it lives")
    age(3 * 3600)  # so it has not heard of a collection for long
    assert run("prune", "data", "--keep-last", "1", "--save").code == 0

    def refuse(self: object, key: object, *_: object) -> None:
        raise AccessDeniedError(f"{key}: Access Denied")

    for method in ("put", "put_if_absent", "delete"):
        monkeypatch.setattr(DirectoryStore, method, refuse)
    for question in (("gc", "--dry-run"), ("gc", "--why", versions[1].id), ("maintain", "--dry-run")):
        said = run(*question)
        assert (said.code, said.err.count("Denied")) == (0, 0), said.err
    assert run("gc", "-y").code == AccessDeniedError.exit_code
