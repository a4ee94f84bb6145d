"""Mounts that are copies, from the command line: each command knows them as it knows mounts."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.blocking import Volume
from cowfs.machine import mount_table, processes
from tests.cli.conftest import Run
from tests.cli.test_json import check


@pytest.fixture
def copied(run: Run, home: Path) -> Path:
    """Volume "data" as a copy, with uncommitted work."""
    assert run("create", "data").code == 0
    (home / "mnt").mkdir()
    path = home / "mnt" / "data"
    said = run("mount", "data", str(path), "--mode", "copy")
    assert (said.code, said.out) == (0, f"{path}\n")
    assert "writable (a copy)" in said.err
    (path / "file").write_text("one")
    return path


def test_a_copy_is_committed_and_unmounted_as_a_mount_is(run: Run, copied: Path) -> None:
    (copied / "dir").mkdir()
    status = run("status")
    assert status.out.splitlines()[1].split()[:3] == ["data", "writable", "uncommitted"]
    assert " copy " in status.out
    locator = run("commit", str(copied / "dir"), "-m", "from below").out.strip()
    assert Volume.from_locator(locator).files.read("file") == b"one"
    found = run("mount", "data", str(copied), "--json").json
    assert (found["kind"], found["mount_path"]) == ("folder", str(copied))
    assert run("show", "data", "--json").json["mounts"][0]["kind"] == "folder"
    assert run("unmount", str(copied)).err == f"Unmounted {copied}\n"
    assert not copied.exists()
    assert str(copied) not in run("status").out


def test_volumes_are_listed_with_their_copies(run: Run, copied: Path, home: Path) -> None:
    """A copy holds no lease between commits: the registry of mounts tells of it."""

    def mounted(name: str) -> str | None:
        volumes = run("ls", "--json").json["volumes"]
        found: str | None = next(each["writer"] for each in volumes if each["volume"] == name)
        return found

    assert run("create", "other").code == 0
    here = f"{socket.gethostname()}:{copied}"
    assert (mounted("data"), mounted("other")) == (here, None)
    assert next(line for line in run("ls").out.splitlines() if line.startswith("data ")).endswith(here)
    assert run("show", "data", "--json").json["writer"] == here
    locator = run("commit", "data").out.strip()
    assert run("mount", locator, str(home / "mnt" / "version"), "--mode", "copy").code == 0
    assert mounted("data") == here, "what is written to, not what is read"
    elsewhere = (home / "elsewhere").as_uri()
    assert run("create", "data", "--store", elsewhere).code == 0
    assert run("ls", "--store", elsewhere, "--json").json["volumes"][0]["writer"] is None, "of the same name"
    assert run("unmount", "data").code == 0
    assert mounted("data") is None
    assert run("unmount", str(home / "mnt" / "version")).code == 0


def test_work_is_kept_shown_and_found_again(run: Run, copied: Path) -> None:
    assert "uncommitted work is kept" in run("unmount", "data").err
    assert (copied / "file").read_text() == "one"
    kept = run("status")
    assert ("not mounted" in kept.out, str(copied) in kept.out) == (True, True)
    refused = run("mount", "data", str(copied), "--mode", "fuse")
    assert (refused.code, "as a copy" in refused.err) == (14, True)
    assert run("mount", "data", str(copied)).code == 0
    said = run("unmount", "data", "--commit")
    assert (said.code, copied.exists()) == (0, False)
    assert Volume.from_locator(said.out.strip()).stats.files == 1


def test_work_is_compared_before_it_is_committed(run: Run, copied: Path) -> None:
    (copied / "gone").write_text("first\n")
    first = run("commit", "data").out.strip()
    (copied / "gone").unlink()
    (copied / "file").write_text("two\n")
    (copied / "dir").mkdir()
    (copied / "dir" / "new").write_text("line\n")
    wanted = "A\tdir/\nA\tdir/new\nM\tfile\nD\tgone\n".replace("\t", "\t/")
    assert run("diff", "data", "--name-status").out == wanted
    left = run("unmount", "data")
    assert "uncommitted work is kept" in left.err
    assert run("diff", "data", "--name-status").out == wanted
    told = run("diff", "data", "--json").json
    check("diff", told)
    assert (told["old_locator"], told["new_locator"], told["totals"]["added"]) == (first, None, 2)
    assert run("diff", first, "data", "--work", "--json").json == told
    assert run("diff", "data:dir", "--name-status").out == "A\t/dir/\nA\t/dir/new\n"
    assert run("diff", first, "data", "dir", "--work", "--name-status").out == "A\t/dir/\nA\t/dir/new\n"
    shown = run("diff", "data", "--patch").out
    assert ("+line" in shown, "+two" in shown, "-first" in shown) == (True, True, True)
    assert run("diff", "data", "--exit-code").code == 1
    refused = run("restore", f"{first}:gone")
    assert (refused.code, "nothing is restored into a copy" in refused.err) == (14, True)
    assert "`cowfs commit data`" in refused.err
    made = run("commit", "data")
    assert (made.code, copied.exists()) == (0, False)
    assert run("restore", f"{first}:gone").code == 0
    assert run("diff", first, made.out.strip(), "--name-status").out == wanted
    assert run("diff", "data", "--exit-code").code == 0


def test_work_is_dropped_or_forked(run: Run, copied: Path) -> None:
    forked = run("fork", "data", "other")
    assert (forked.code, "Committed uncommitted work of data first" in forked.err) == (0, True)
    (copied / "file").write_text("dropped")
    assert "dropped uncommitted work" in run("unmount", "data", "--discard").err
    assert [each.read_text() for each in copied.iterdir()] == ["dropped"], "what differs is never removed"
    assert Volume.version("data").files.read("file") == b"one"
    assert "no uncommitted work" in run("unmount", "data", "--discard").err


def test_a_fork_says_that_overtaken_work_has_moved(run: Run, copied: Path, home: Path) -> None:
    assert run("commit", "data").code == 0
    (copied / "mine").write_text("not published")
    with pytest.MonkeyPatch.context() as elsewhere:
        for variable in ("COWFS_CACHE_DIR", "COWFS_STATE_DIR", "XDG_RUNTIME_DIR"):
            elsewhere.setenv(variable, str(home / "elsewhere" / variable))
        other = Volume.open("data")
        other.files.write("theirs", b"published")
        other.finalize()
    forked = run("fork", "data", "saved")
    assert f"The mount at {copied} has ended" in forked.err
    assert run("mount", "saved", str(copied)).code == 0
    assert (copied / "mine").read_text() == "not published"


def test_a_copy_that_is_mounted_is_not_taken_away_by_another_mount(run: Run, copied: Path, home: Path) -> None:
    assert run("commit", str(copied)).code == 0, "so that the folder has nothing that would be lost"
    for options in ((), ("--mode", "copy"), ("--mode", "fuse")):
        refused = run("mount", "data", str(home / "elsewhere"), *options)
        assert refused.code == 5
        assert f"is mounted as a copy at {copied}" in refused.err
    (copied / "later").write_text("is seen")
    Volume.open("data").files.write("beside", b"it")
    assert run("commit", str(copied)).code == 0
    assert {path.name for path in copied.iterdir()} == {"file", "later", "beside"}


def test_a_mount_is_no_place_of_kept_work_whatever_its_files_are_called(run: Run, copied: Path) -> None:
    (copied / "state.json").write_text("{}")
    assert run("unmount", str(copied), "--discard").code == 0
    assert run("status", "--json").json["mounts"] == []


def test_a_version_is_read_from_a_copy(run: Run, copied: Path, home: Path) -> None:
    locator = run("commit", "data").out.strip()
    for source in (locator, "data@{0}"):
        path = home / "mnt" / "version"
        mounted = run("mount", source, str(path), "--mode", "copy", "--json")
        assert (mounted.json["is_read_only"], mounted.json["kind"]) == (True, "folder")
        assert (path / "file").read_text() == "one"
        assert "read-only" in run("status").out
        for command in (("commit", str(path)), ("unmount", str(path), "--commit")):
            refused = run(*command)
            assert (refused.code, "is a read-only copy of data@" in refused.err) == (7, True)
        assert run("unmount", str(path)).code == 0
        assert not path.exists()


def test_what_is_too_large_says_what_to_do(run: Run, copied: Path, home: Path) -> None:
    locator = run("commit", "data").out.strip()
    refused = run("mount", locator, str(home / "mnt" / "v"), "--mode", "copy", "--copy-limit", "2B", "--json")
    assert refused.code == 15
    assert refused.json["error"]["kind"] == "needs_fuse"
    assert "--copy-limit" in refused.json["error"]["hint"]
    assert run("mount", locator, str(home / "mnt" / "v"), "--copy-limit", "lots").code == 2


@pytest.mark.parametrize("command", ["upload", "import"])
def test_an_upload_goes_into_the_copy(run: Run, copied: Path, home: Path, command: str) -> None:
    below = home / "source" / "in" if command == "import" else home / "source"
    below.mkdir(parents=True)
    (below / "new").write_text("new")
    said = run(command, str(home / "source"), "data:in" if command == "upload" else "data")
    assert (said.code, said.out) == (0, ""), "no locator of a version that lacks it"
    assert f"into the mount {copied}, whose commit publishes it" in said.err
    assert (copied / "in" / "new").read_text() == "new"
    run("unmount", "data", "--commit")
    assert Volume.version("data").files.read("in/new") == b"new"


def test_doctor_misses_a_folder_that_was_moved(run: Run, copied: Path, home: Path) -> None:
    def check() -> dict[str, str]:
        checks = run("doctor", "--json").json["checks"]
        return next(dict(each) for each in checks if each["check"].startswith("copies"))

    assert check()["state"] == "ok"
    copied.rename(home / "moved")
    assert check()["state"] == "warn"
    assert str(copied) in check()["message"]


def test_a_copy_outlives_the_command_that_made_it(run: Run, copied: Path) -> None:
    """Each command is a process of its own outside of tests."""
    program = [sys.executable, "-m", "cowfs.cli"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    run("unmount", "data", "--commit")
    for command in (["mount", "data", str(copied), "--mode", "copy"], ["unmount", "data"]):
        subprocess.run([*program, *command], env=environ, check=True, timeout=120, capture_output=True)
        assert copied.exists() is (command[0] == "mount")


def nothing_is_left(run: Run) -> bool:
    """Dead mounts of others are listed, too."""
    left = run("status", "--json").json
    return not left["mounts"] and not left["working_copies"]


@pytest.mark.parametrize("is_unmounted", [False, True])
@pytest.mark.parametrize("path", ["data", "elsewhere"])
@pytest.mark.parametrize("mode", ["copy", "auto"])
def test_a_volume_is_mounted_again_when_the_folder_of_its_copy_is_gone(
    run: Run, copied: Path, home: Path, is_unmounted: bool, path: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert run("commit", "data").code == 0
    shutil.rmtree(copied)
    status = run("status")
    assert "uncommitted" not in status.out
    assert ("folder is gone" in status.out, "mount data PATH" in status.err) == (True, True)
    refused = run("commit", "data")
    assert (refused.code, "cowfs mount data PATH" in refused.err) == (14, True)
    if is_unmounted:
        said = run("unmount", "data", "--json")
        assert (said.code, said.json["has_uncommitted"]) == (0, False)
        assert f"{copied}, is gone, and with it what was written there since the last commit" in caplog.text
        assert "folder is gone" in run("status").out
    caplog.clear()
    again = home / "mnt" / path
    assert run("mount", "data", str(again), "--mode", mode).code == 0
    assert "The mount begins with what was committed" in caplog.text
    assert (again / "file").read_text() == "one"
    (again / "later").write_text("is committed")
    assert run("commit", "data").code == 0
    assert len(run("status", "--json").json["mounts"]) == 1
    assert run("unmount", str(again)).code == 0
    assert nothing_is_left(run)


@pytest.mark.parametrize("is_unmounted", [False, True])
@pytest.mark.parametrize("by", ["name", "path"])
def test_a_copy_whose_folder_is_gone_is_dropped(
    run: Run, copied: Path, is_unmounted: bool, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(copied)
    target = "data" if by == "name" else str(copied)
    if is_unmounted:
        said = run("unmount", target)
        assert (said.code, "work is kept" in said.err) == (0, False)
    caplog.clear()
    said = run("unmount", target, "--discard", "--json")
    assert (said.code, said.json["is_discarded"]) == (0, False), "nobody knows what it had"
    assert f"{copied}, is gone" in caplog.text
    assert nothing_is_left(run)
    assert not run("status", "--json").json["working_copies"]


def test_a_folder_that_comes_back_is_gone_on_with(run: Run, copied: Path) -> None:
    """That of a disk, say, which was not attached for a while."""
    away = copied.with_name("away")
    copied.rename(away)
    assert run("unmount", "data").code == 0
    away.rename(copied)
    assert run("status").out.splitlines()[1].split()[:4] == ["data", "not", "mounted", "uncommitted"]
    assert run("mount", "data", str(copied)).code == 0
    assert (copied / "file").read_text() == "one"


def test_kept_work_is_dropped_by_the_path_that_is_shown(run: Run, copied: Path) -> None:
    assert "uncommitted work is kept" in run("unmount", "data").err
    said = run("unmount", str(copied), "--discard")
    assert (said.code, "Dropped uncommitted work of data" in said.err) == (0, True)
    assert os.listdir(copied) == ["file"], "it is in no version"
    assert nothing_is_left(run)


def test_a_mount_of_another_pid_namespace_is_not_said_to_be_none(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(home / "mnt" / "data")
    options = frozenset({f"user_id={os.geteuid()}"})
    seen = mount_table.MountInfo(1, "0:40", path, "fuse.cowfs", "cowfs:data", options)
    monkeypatch.setattr(mount_table, "mount_at", lambda at: seen if at == path else None)
    said = run("unmount", path)
    assert (said.code, "no volume is mounted" in said.err) == (3, False)
    assert "data is mounted at" in said.err
    assert "another container or pid namespace" in said.err


@pytest.mark.parametrize("is_unmounted", [False, True])
@pytest.mark.parametrize("by", ["name", "path"])
def test_a_copy_of_another_container_is_dropped_by_force_alone(
    run: Run, copied: Path, is_unmounted: bool, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_unmounted:
        assert run("unmount", "data").code == 0
    copied.rename(away := copied.with_name("away"))
    monkeypatch.setattr(processes, "machine_id", lambda: "another pid:[4026531999]")
    target = "data" if by == "name" else str(copied)
    status = run("status")
    assert ("its folder is in another container" in status.out, "is gone" in status.out) == (True, False)
    assert "`cowfs unmount data --discard --force` forgets" in status.err
    commands = [["unmount", target, "--discard"]]
    commands += [["unmount", target], ["unmount", target, "--commit"]] if not is_unmounted else []
    for command in commands:
        said = run(*command)
        assert (said.code in (4, 14), "another container" in said.err) == (True, True), said
    mounted = run("mount", "data", str(copied), "--mode", "copy")
    assert (mounted.code, "--take-over" in mounted.err) == (5, True)
    said = run("unmount", target, "--discard", "--force", "--json")
    assert (said.code, said.json["is_discarded"]) == (0, False), "nobody knows what it had"
    assert nothing_is_left(run)
    assert (away / "file").read_text() == "one"
