"""cowfs purge and Store.purge: a plan that names who loses what, a name that is typed, and what
the other commands say of it afterwards."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from cowfs.api.access import file_session
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import InvalidInputError, InvalidStateError, LeaseHeldError, NotFoundError, PurgedError
from cowfs.store import open_store
from cowfs.store.packs import load_purged
from tests.cli.conftest import Run
from tests.cli.test_gc import store_path
from tests.cli.test_json import check
from tests.maintain.conftest import BIG, FIRST, OTHER, first, place, run, second

__all__ = ["first", "place", "run", "second"]

REST = {path: data for path, data in FIRST.items() if path != "dir/big"}


def everything(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


def read_rest(version: ROVolume) -> dict[str, bytes]:
    return {path: version.files.read(path) for path in REST}


def test_a_plan_is_shown_and_a_name_is_typed(second: ROVolume, first: ROVolume, run: Run) -> None:
    file_session._end_all()
    run("tag", "data@{1}", "old")
    assert run("purge", "data:dir/big").code == 2, "nobody can be asked"
    plan = run("purge", "data:dir/big", "--dry-run", "--json")
    assert plan.code == 0
    check("purge", plan.json)
    assert {each["version"] for each in plan.json["versions"]} == {first.id, second.id}
    assert plan.json["freed_bytes"] > len(BIG) * 0.99
    assert not plan.json["is_done"]
    before = everything(store_path())
    assert "/dir/big" in run("purge", "data:dir/big", "--dry-run").out
    wrong = run("purge", "data:dir/big", "--yes-purge", "date")
    assert (wrong.code, "Nothing was purged" in wrong.err) == (2, True)
    assert everything(store_path()) == before
    done = run("purge", "data:dir/big", "--yes-purge", "data", "--json")
    assert (done.code, done.json["is_done"]) == (0, True)
    check("purge", done.json)
    assert BIG[1_000_000:1_001_000] not in everything(store_path())
    assert run("cat", "data:dir/big").code == PurgedError.exit_code
    assert read_rest(first) == read_rest(second) == REST
    assert second.files.read("other") == OTHER
    again = run("purge", "data:dir/big", "--yes-purge", "data")
    assert (again.code, "purged already" in again.err) == (0, True)


def test_this_machine_forgets_it(second: ROVolume, run: Run, place: Path) -> None:
    file_session._end_all()
    assert run("warm", "data").code == 0
    cache = place / "c" / "cache"
    assert BIG[1_000_000:1_001_000] in everything(cache)
    Store().purge("data:dir/big", name="data")
    file_session._end_all()
    assert BIG[1_000_000:1_001_000] not in everything(cache)
    with pytest.raises(PurgedError):
        second.files.read("dir/big")


@pytest.mark.parametrize("target", ["data:dir/big", "data"])
def test_a_later_run_clears_a_cache_that_a_purge_left(target: str, second: ROVolume, run: Run, place: Path) -> None:
    """The purge was killed, or ran on another machine."""
    file_session._end_all()
    assert run("warm", "data").code == 0
    cache, left = place / "c" / "cache", place / "left"
    shutil.copytree(cache, left)
    command = [sys.executable, "-m", "cowfs", "purge", target, "--yes-purge", "data"]
    killed = {**os.environ, "COWFS_FAILPOINT": "purge-after-record"}
    assert subprocess.run(command, env=killed, check=False, capture_output=True).returncode == -9
    again = ("purge", target, "--yes-purge", "data")
    for how in (("gc", "-y"), ("gc", "-y"), again):
        assert BIG[1_000_000:1_001_000] in everything(cache)
        assert run(*how).code == 0
        assert BIG[1_000_000:1_001_000] not in everything(cache), how
        assert BIG[1_000_000:1_001_000] not in everything(store_path())
        shutil.rmtree(cache)
        shutil.copytree(left, cache)


def test_verify_and_repair_call_it_no_damage(second: ROVolume, run: Run, tmp_path: Path) -> None:
    (tmp_path / "copy" / "dir").mkdir(parents=True)
    (tmp_path / "copy" / "dir" / "big").write_bytes(BIG)
    file_session._end_all()
    Store().purge("data:dir/big", name="data")
    said = run("verify", "--json")
    assert (said.code, said.json["is_sound"], said.json["damaged"], said.json["broken"]) == (0, True, [], [])
    check("verify", said.json)
    assert [(each["path"], len(each["version_ids"])) for each in said.json["purged"]] == [("/dir/big", 2)]
    assert "purged   /dir/big" in run("verify").out
    before = everything(store_path())
    for arguments in ([], ["--from", str(tmp_path / "copy")]):
        repaired = run("repair", "-y", "--json", *arguments)
        assert (repaired.code, repaired.json["is_sound"], repaired.json["found_in"]) == (0, True, {})
        assert all(each["lost_blobs"] == 0 for each in repaired.json["damaged"])
    assert everything(store_path()) == before


@pytest.mark.parametrize("target", ["data:dir/big", "data"])
def test_a_copy_says_so_too(target: str, second: ROVolume, first: ROVolume, run: Run, tmp_path: Path) -> None:
    file_session._end_all()
    Store().purge(target, name="data")
    url = (tmp_path / "mirror").as_uri()
    Store().push("data", url, all_versions=True)
    for store in (Store(), Store(url)):
        report = store.verify()
        assert (report.is_sound, report.damaged, report.broken) == (True, [], [])
        assert {each.path for each in report.purged} == {"/dir/big" if ":" in target else None}
        copied = store.version(f"data@{first.id}")
        with pytest.raises(PurgedError):
            copied.files.read("dir/big")
        if ":" in target:
            assert read_rest(copied) == REST
    assert Store().push("data", url, all_versions=True).put_packs == 0
    assert len(_purged(url)) == len(_purged(None)) == 1


@pytest.mark.parametrize("target", ["data:dir/big", "data:other", "data"])
def test_a_copy_does_not_bring_it_back(target: str, second: ROVolume, first: ROVolume, tmp_path: Path) -> None:
    """The mirror has everything, and is copied to what is left."""
    url = (tmp_path / "mirror").as_uri()
    Store().push("data", url, all_versions=True)
    file_session._end_all()
    Store().purge(target, name="data")
    Store(url).version(f"data@{second.id}").files.read("dir/big")
    fork = Store(url).volume("data").fork("again")
    fork.files.write("new", b"new")
    newest = fork.finalize()
    if ":" in target:
        Store().pull("again", url, all_versions=True)
        there = Store().version(f"again@{newest.id}")
        assert there.files.read("new") == b"new"
        assert read_rest(there) == REST
        with pytest.raises(PurgedError):
            there.files.read(target.removeprefix("data:"))
    else:
        Store().pull("data", url, all_versions=True)
    gone = OTHER if target == "data:other" else BIG
    assert gone[500_000:501_000] not in everything(store_path())
    assert Store(url).version(f"data@{second.id}").files.read("dir/big") == BIG
    assert Store().verify().is_sound


def _purged(url: str | None) -> tuple[object, ...]:
    opened = open_store(url or os.environ["COWFS_STORE"])
    try:
        return load_purged(opened).records
    finally:
        opened.close()


def test_a_whole_version_is_not_taken_from_under_a_writer(second: ROVolume) -> None:
    writer = Volume.open("data")
    writer.files.write("more", b"more")
    with pytest.raises(LeaseHeldError, match="data"):
        Store().purge("data", name="data")
    with pytest.raises(LeaseHeldError):
        Store().purge(f"data@{second.id}", name="data")
    assert writer.commit().files.read("dir/big") == BIG


@pytest.mark.mount
def test_uncommitted_work_is_not_lost_with_its_base(second: ROVolume, run: Run, tmp_path: Path) -> None:
    file_session._end_all()
    path = tmp_path / "mnt"
    assert run("mount", "data", str(path)).code == 0
    (path / "mine").write_bytes(OTHER)
    assert run("unmount", str(path)).code == 0
    refused = run("purge", "data", "--yes-purge", "data")
    assert (refused.code, "uncommitted work" in refused.err) == (InvalidStateError.exit_code, True)
    assert Store().purge("data:dir/big", name="data").is_done
    assert run("mount", "data", str(path)).code == 0
    assert (path / "mine").read_bytes() == OTHER
    assert run("unmount", str(path), "--commit").code == 0
    assert Volume.open("data").files.read("mine") == OTHER
    file_session._end_all()
    assert run("mount", "data", str(path)).code == 0
    (path / "mine").write_bytes(BIG)
    assert run("unmount", str(path)).code == 0
    assert run("purge", "data", "--yes-purge", "data", "--lose-work").code == 0
    assert run("unmount", "data", "--discard").code == 0


@pytest.mark.parametrize("how", ["upload", "touched", "checksum", "cp", "files", "fsspec", "version"])
def test_what_was_purged_can_be_stored_again(how: str, second: ROVolume, run: Run, tmp_path: Path) -> None:
    """By each writer that compares with what the volume has, which lacks only the bytes."""
    file_session._end_all()
    source = tmp_path / "source"
    second.files.download("/", source)
    Store().fork("data", "other")
    assert Store().purge("data:dir/big", name="data").is_done
    if how == "upload":
        assert run("upload", str(source), "data").code == 0
    elif how == "touched":
        os.utime(source / "dir/big")
        assert run("upload", str(source), "data").code == 0
    elif how == "checksum":
        assert run("upload", "--checksum", str(source), "data").code == 0
    elif how == "cp":
        assert run("cp", str(source / "dir/big"), "data:dir/big").code == 0
    elif how == "files":
        Volume.open("data").files.write("dir/big", BIG)
        Volume.open("data").commit()
    elif how == "fsspec":
        file_system = fsspec.filesystem("cowfs")
        with file_system.open("cowfs://data/dir/big", "wb") as file:
            file.write(BIG)
        Volume.open("data").commit()
    else:
        Volume.open("other").files.write("dir/big", BIG)
        Volume.open("other").commit()
        file_session._end_all()
        assert run("cp", "other:dir/big", "data:dir/big").code == 0
    file_session._end_all()
    assert Volume.open("data").files.read("dir/big") == BIG
    file_session._end_all()


def test_a_deleted_volume_can_be_purged(second: ROVolume, run: Run) -> None:
    file_session._end_all()
    Store().delete("data")
    assert run("purge", "data", "--yes-purge", "data").code == 0
    assert everything(store_path() / "packs") == b""
    shutil.rmtree(store_path() / "packs", ignore_errors=True)


def test_a_purged_volume_does_not_disturb_the_others(
    second: ROVolume, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store is counted without it, and writers of other volumes say nothing of it."""
    file_session._end_all()
    Volume.new("other").files.write("f", OTHER[::-1])
    Volume.open("other").finalize()
    Store().purge("data", name="data")
    counted = run("du", "--stored", "--json")
    check("du --stored", counted.json)
    sizes = {each["group"]: (each["stored_bytes"], each["purged_count"]) for each in counted.json["groups"]}
    assert sizes["data"] == (0, 2)
    assert sizes["other"][0] > len(OTHER)
    assert "data (2 versions purged)" in run("du", "--stored").out
    overview = run("store", "--full", "--json").json
    assert (overview["problems"], overview["stored_bytes"], overview["purged_count"]) == ([], sizes["other"][0], 2)
    assert "purged   2 versions" in run("store", "--full").out
    (tmp_path / "new").write_bytes(BIG)
    copied = run("cp", str(tmp_path / "new"), "other:new")
    assert copied.code == 0
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_version_that_was_purged_as_a_whole_says_so(second: ROVolume, run: Run, tmp_path: Path) -> None:
    """Whatever opens it; the hint names a version that was not purged, as long as there is one."""
    Volume.open("data").files.remove("text")
    newest = Volume.open("data").finalize()
    file_session._end_all()
    Store().purge(f"data@{newest.id}", name="data")
    opening = [
        ("cp", "data:other", str(tmp_path / "text")),
        ("upload", str(tmp_path), "data"),
        ("mount", "data", str(tmp_path / "mnt")),
        ("ls", "data:dir"),
        ("diff", f"data@{second.id}", "data"),
        ("restore", f"data@{second.id}:text"),
        ("log", "data:other"),
    ]
    for arguments in opening:
        said = run(*arguments)
        assert said.code == PurgedError.exit_code, arguments
        assert f"version {newest.id[:12]} of volume 'data' was purged as a whole" in said.err, arguments
        assert f"cowfs fork data@{second.id[:12]} NEW" in said.err
        assert "cowfs delete data" in said.err
    assert "(purged)" in run("ls").out
    assert [each["is_purged"] for each in run("ls", "--json").json["volumes"]] == [True]
    assert [each["is_purged"] for each in run("log", "data", "--json").json["versions"]] == [True, False, False]
    assert "purged" in run("log", "data").out
    assert "purged" in run("show", "data").out
    assert "purged" in run("show", f"data@{newest.id}").out
    assert run("fork", f"data@{second.id}", "new").code == 0
    assert Volume.open("new").files.read("text") == FIRST["text"]
    file_session._end_all()
    Store().purge("data", name="data")
    assert "No other version of the volume is left" in run("cp", "data:other", str(tmp_path / "text")).err


def test_a_copy_leaves_out_purged_files(second: ROVolume, run: Run, tmp_path: Path) -> None:
    """It copies all others, then fails with the version and the paths."""
    file_session._end_all()
    large = OTHER[::-1] * 9
    Volume.open("data").files.write("large", large)
    newest = Volume.open("data").finalize()
    file_session._end_all()
    for path in ("large", "dir/sub/small"):
        Store().purge(f"data:{path}", name="data")
    rest = {"dir", "dir/sub", "dir/big", "text", "other"}
    for command in (["download", "data"], ["cp", "data:"], ["cp", "data:*"]):
        to = tmp_path / "-".join(command).replace(":", "").replace("*", "all")
        said = run(*command, str(to) + "/")
        assert said.code == PurgedError.exit_code, said.err
        assert f"data@{newest.id[:12]}: purged, and not copied" in said.err
        assert "large" in said.err
        assert "dir/sub/small" in said.err
        assert {str(path.relative_to(to)) for path in to.rglob("*")} == rest
        assert (to / "text").read_bytes() == FIRST["text"]


def test_a_patch_calls_a_file_purged(second: ROVolume, run: Run) -> None:
    Volume.open("data").files.write("text", b"other lines")
    Volume.open("data").files.write("dir/sub/small", b"more")
    Volume.open("data").commit()
    file_session._end_all()
    Store().purge("data:dir/sub/small", name="data")
    patch = run("diff", f"data@{second.id}", "data", "--patch")
    assert patch.code == 0
    assert "# cowfs: dir/sub/small: not in this patch: content (purged)" in patch.out.replace("/dir", "dir")
    assert "+other lines" in patch.out


def test_what_is_not_there_is_not_purged(second: ROVolume, run: Run) -> None:
    file_session._end_all()
    with pytest.raises(NotFoundError, match="nothing-here"):
        Store().purge("data:nothing-here", dry_run=True)
    with pytest.raises(NotFoundError):
        Store().purge("date", dry_run=True)
    for source in ("data", "data@{0}", f"data@{second.id}", second.locator):
        for path in (":", ":/", ":."):
            with pytest.raises(InvalidInputError, match="empty path"):
                Store().purge(source + path, dry_run=True)
        assert Store().purge(source, dry_run=True).chunks, "the same without a path"
    with pytest.raises(InvalidInputError):
        Store().purge("data:dir/big")
    Volume.new("other").files.write("f", b"f")
    other = Volume.open("other").finalize()
    with pytest.raises(NotFoundError):
        Store().purge(f"data@{other.id}", dry_run=True)
