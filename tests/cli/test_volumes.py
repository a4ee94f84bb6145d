"""Commands that need no mount, on a real directory store."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socketserver
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cowfs.api.mounts import targets
from cowfs.blocking import Store, Volume
from cowfs.errors import InvalidInputError, LeaseHeldError, NotFoundError, UnavailableError
from cowfs.format import canonical
from cowfs.format.fields import ENVELOPE, seal
from cowfs.machine import dead_mounts, registry
from cowfs.machine import state as states
from cowfs.machine.lock import LockHolder
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store.reliability.patience import CLOSING_S
from tests.cli.conftest import Run
from tests.store.conftest import PatientClock, patient_clock

__all__ = ["patient_clock"]


@pytest.mark.quick
def test_create_is_strict_and_prints_the_name(run: Run) -> None:
    assert run("create", "a").out == "a\n"
    said = run("create", "a")
    assert said.code == 4
    assert "'a'" in said.err
    assert run("create", "b", "--json").json["volume"] == "b"
    run("create", "a-b")
    assert [each["volume"] for each in run("ls", "--json").json["volumes"]] == ["a", "a-b", "b"]
    assert run("ls").out.splitlines()[1].startswith("a ")


@pytest.mark.quick
def test_a_quota_is_shown_set_and_removed(run: Run) -> None:
    run("create", "a")
    assert run("quota", "a").out == "none\n"
    assert run("quota", "a", "1.5M").out == ""
    assert run("quota", "a").out == "1.5 MiB\n"
    assert run("show", "a", "--json").json["quota_bytes"] == 3 << 19
    assert run("quota", "a", "none", "--json").json["quota_bytes"] is None
    for wrong in ("much", "10", "1.5", "1KK"):
        assert run("quota", "a", wrong).code == 2
    for size, size_bytes in (("1kB", 1000), ("1KiB", 1024), ("1k", 1024), ("0.5MB", 500_000), ("7B", 7)):
        assert run("quota", "a", size, "--json").json["quota_bytes"] == size_bytes
    assert run("quota", "b", "1M").code == 3


@pytest.mark.quick
@pytest.mark.parametrize("what", ["head", "meta", "versions", "lease", "heartbeat"])
def test_a_damaged_volume_hides_no_other(run: Run, home: Path, what: str) -> None:
    (home / "source").mkdir()
    (home / "source" / "f").write_bytes(b"abc")
    for name in "abc":
        assert run("upload", str(home / "source"), name).code == 0
    version = run("show", "b", "--json").json["version"]
    place = home / "store" / (f"versions/{version[:2]}" if what == "versions" else f"volumes/b/{what}")
    (place / version if what == "versions" else min(place.iterdir())).write_bytes(b"")
    said = run("ls", "--json")
    assert [each["volume"] for each in said.json["volumes"]] == ["a", "b", "c"]
    is_hidden = [what not in ("lease", "heartbeat") and each["volume"] == "b" for each in said.json["volumes"]]
    assert [each["problem"] is not None for each in said.json["volumes"]] == is_hidden
    said = run("ls")
    assert [line.split()[0] for line in said.out.splitlines()] == ["NAME", "a", "b", "c"]
    if what in ("lease", "heartbeat"):
        assert said.code == 0
        return
    assert said.code == 10
    assert "(damaged)" in said.out.splitlines()[2]
    assert str((place / version if what == "versions" else min(place.iterdir())).name) in said.err
    assert run("show", "b").code == 10


@pytest.mark.quick
@pytest.mark.parametrize("what", ["head", "meta", "lease"])
def test_a_volume_of_a_newer_cowfs_hides_no_other(run: Run, home: Path, what: str) -> None:
    (home / "source").mkdir()
    for name in "abc":
        assert run("upload", str(home / "source"), name).code == 0
    newest = min((home / "store" / "volumes" / "b" / what).iterdir())
    record = canonical.decode(newest.read_bytes(), what=what)
    body = {field: value for field, value in record.items() if field not in ENVELOPE}
    newest.write_bytes(seal(record["record"], 99, body))
    said = run("ls", "--json")
    assert said.code == 11
    assert [(each["volume"], each["is_newer"]) for each in said.json["volumes"]] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    assert "format 99" in said.json["volumes"][1]["problem"]
    said = run("ls")
    assert said.code == 11
    assert "b (of a newer cowfs)" in said.out
    assert "b was written by a newer cowfs" in said.err
    assert run("show", "b").code == 11
    min((home / "store" / "volumes" / "a" / "head").iterdir()).write_bytes(b"")
    assert run("ls").code == 10, "damage is worse"


@pytest.mark.quick
@pytest.mark.parametrize("command", ["upload", "import"])
def test_a_source_that_cannot_be_used_makes_no_volume(run: Run, home: Path, command: str) -> None:
    """One that is missing, and a directory that the store lies in."""
    assert run("create", "other").code == 0
    for source, code in ((home / "missing", 3), (home, 2)):
        said = run(command, str(source), "my-data", "--json")
        assert said.code == code, said
        assert "empty" not in said.json["error"]["hint"]
        assert [each["volume"] for each in run("ls", "--json").json["volumes"]] == ["other"]


@pytest.mark.quick
def test_the_first_special_files_that_are_left_out_are_named(run: Run, home: Path) -> None:
    (home / "source" / "sub").mkdir(parents=True)
    (home / "source" / "f").write_bytes(b"abc")
    os.mkfifo(home / "source" / "sub" / "pipe")
    assert "left out what is no file, directory or link: 1 (sub/pipe)" in run("upload", str(home / "source"), "a").err
    assert "left out what is no file, directory or link: 1 (sub/pipe)" in run("cp", f"{home}/source", "a:/new").err
    for number in range(9):
        os.mkfifo(home / "source" / f"pipe {number}")
    said = run("upload", str(home / "source"), "a", "--json").json
    assert (said["skipped"], len(said["skipped_paths"])) == (10, 5)
    assert ", …)" in run("upload", str(home / "source"), "a").err


@pytest.mark.quick
def test_a_store_is_verified_by_its_path(run: Run, home: Path) -> None:
    store = home / "mirror"
    assert run("create", "a", "--store", str(store)).code == 0
    for named in (str(store), store.as_uri()):
        assert run("verify", "--store", named).code == 0
        said = run("verify", named)
        assert (said.code, f"`cowfs verify --store {named}`" in said.err) == (2, True)
    assert run("verify", "--store", "./missing").code == 3


@pytest.mark.quick
def test_a_place_that_can_be_no_directory_is_refused_with_what_is_there(run: Run, home: Path) -> None:
    Volume.new("a").commit()
    file = home / "file"
    file.touch()
    for store in (file, file / "below"):
        for arguments in (("ls",), ("create", "b"), ("show", "b")):
            said = run(*arguments, "--store", str(store))
            assert (said.code, f"{file} is not a directory\nhint: " in said.err) == (2, True)
        said = run("push", "a", str(store))
        assert (said.code, f"{file} is not a directory\nhint: " in said.err) == (2, True)
    said = run("push", "a", "/proc/missing")
    assert (said.code, "/proc/missing cannot be made\nhint: " in said.err) == (9, True)
    said = run("mount", "a", str(file / "below" / "mnt"))
    assert (said.code, f"{file} is not a directory\nhint: " in said.err) == (2, True)


@pytest.mark.mount
def test_a_mount_path_that_cannot_be_made_says_so(run: Run) -> None:
    Volume.new("a").commit()
    said = run("mount", "a", "/proc/missing")
    assert (said.code, "cowfs: /proc/missing cannot be made: " in said.err) == (9, True)
    assert "mkdir" not in said.err


@pytest.mark.quick
def test_a_fork_that_is_refused_publishes_nothing(run: Run) -> None:
    assert run("create", "a").code == 0
    assert run("create", "b").code == 0
    volume = Volume.open("a")
    volume.files.write("file", b"work")
    volume.unmount()
    for name, code in (("b", 4), ("no/name", 2)):
        assert run("fork", "a", name).code == code
        assert run("log", "a", "--json").json["versions"] == []
    assert run("fork", "a", "c").code == 0


@pytest.mark.quick
def test_work_of_a_store_that_is_gone_is_shown_with_it_and_dropped(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_mounts, "find", list)  # other tests' would be shown, and with their stores
    for name, store in (("a", "here"), ("b", "gone")):
        volume = Volume.new(name, store=home / store)
        volume.files.write("file", b"work")
        volume.unmount()
    shutil.rmtree(home / "gone")
    said = run("status")
    assert said.out.splitlines()[0].split()[-2:] == ["STORE", "WHERE"]
    [kept] = [each["working_copy"] for each in run("status", "--json").json["working_copies"] if each["volume"] == "b"]
    assert run("unmount", str(home), "--discard").code == 3, "no work lies there"
    assert run("unmount", kept, "--discard").code == 0
    assert [each["volume"] for each in run("status", "--json").json["working_copies"]] == ["a"]
    assert (home / "here").as_uri() in run("status").out, "a name alone would be taken for one of the default store"
    assert run("unmount", "a", "--discard", "--store", str(home / "here")).code == 0
    volume = Volume.new("c")
    volume.files.write("file", b"work")
    volume.unmount()
    assert "STORE" not in run("status").out


@pytest.mark.quick
def test_work_that_its_name_does_not_lead_to_is_dropped_as_the_hint_says(run: Run, home: Path) -> None:
    run("create", "other")
    elsewhere = (home / "else where").as_uri()
    for is_deleted in (False, True):
        volume = Volume.new(f"data{is_deleted}", store=elsewhere)
        volume.files.write("file", b"work")
        volume.unmount()
        if is_deleted:
            Store(elsewhere).delete(volume.name, force=True)
        refused = run("unmount", volume.name, "--discard")
        assert f"--store {shlex.quote(elsewhere)} (store=)" in refused.err
        if is_deleted:
            refused = run("unmount", volume.name, "--discard", "--store", elsewhere)
            assert "(store=)" not in refused.err
        assert refused.code == 3
        [command] = re.findall("`cowfs (unmount [^`]*--discard)`", refused.err)
        assert run(*shlex.split(command)).code == 0
        assert run("status", "--json").json["working_copies"] == []
        assert "kept here" not in run("unmount", volume.name, "--discard").err


@pytest.mark.quick
@pytest.mark.parametrize("by_path", [True, False])
def test_work_without_a_state_is_dropped(run: Run, by_path: bool) -> None:
    volume = Volume.new("data")
    volume.files.write("file", b"work")
    volume.unmount()
    [kept] = [each["working_copy"] for each in run("status", "--json").json["working_copies"]]
    Path(kept, "state.json").unlink()
    target = kept if by_path else "data"
    with WorkingCopy(Path(kept)).lock(LockHolder.this_process("/mnt")):
        assert run("unmount", target, "--discard").code == LeaseHeldError.exit_code
    assert run("unmount", target, "--discard").code == 0
    assert not Path(kept).exists()
    assert run("unmount", kept, "--discard").code == 3, "no work lies there"


@pytest.mark.quick
def test_dropping_work_waits_for_its_store_for_seconds_only(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    patient_clock: PatientClock,
    caplog: pytest.LogCaptureFixture,
    silent: Callable[[], None],
) -> None:
    volume = Volume.new("data")
    volume.files.write("file", b"work")
    volume.unmount()
    [kept] = run("status", "--json").json["working_copies"]
    state = Path(kept["working_copy"], "state.json")
    silent()
    states.store(state, replace(states.load(state), store_url=os.environ["COWFS_STORE"]))
    patient_clock.waited_s.clear()
    assert run("unmount", kept["working_copy"], "--discard").code == 0
    assert "stays in the store" in caplog.text
    assert 0 < sum(patient_clock.waited_s) <= CLOSING_S
    assert run("status", "--json").json["working_copies"] == []


@pytest.mark.quick
@pytest.mark.parametrize("command", [("ls",), ("create", "data"), ("mount", "data", "data")])
def test_a_command_waits_for_a_store_as_long_as_the_user_said(
    run: Run,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    patient_clock: PatientClock,
    caplog: pytest.LogCaptureFixture,
    silent: Callable[[], None],
    command: tuple[str, ...],
) -> None:
    silent()
    monkeypatch.setenv("COWFS_STORE_TIMEOUT", "15")
    monkeypatch.chdir(home)
    refused = run(*command)
    assert refused.code == UnavailableError.exit_code
    assert 0 < sum(patient_clock.waited_s) < 20, "two may wait beside each other"
    assert "for up to 15 s" in caplog.text


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Makes a server that closes each connection without an answer the default store."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def choose() -> None:
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.setenv(name, "none")
            endpoint = f"http%3A%2F%2F127.0.0.1%3A{server.server_address[1]}"
            monkeypatch.setenv("COWFS_STORE", f"s3://bucket;endpoint={endpoint};region=us-east-1")

        yield choose
        server.shutdown()


def test_a_command_does_not_wait_where_no_server_listens(
    run: Run, monkeypatch: pytest.MonkeyPatch, patient_clock: PatientClock, silent: Callable[[], None]
) -> None:
    silent()
    monkeypatch.setenv("COWFS_STORE", "s3://bucket;endpoint=http%3A%2F%2F127.0.0.1%3A9;region=us-east-1")
    refused = run("ls")
    assert (refused.code, "Connection refused" in refused.err) == (UnavailableError.exit_code, True)
    assert "No server listens at this endpoint" in refused.err
    assert patient_clock.waited_s == []


@pytest.mark.quick
def test_what_is_not_there_is_not_found(run: Run, home: Path) -> None:
    assert run("ls").code == 3, "no store yet"
    run("create", "a")
    for arguments in (("log", "b"), ("log", "a@tag"), ("log", "a@" + "0" * 8), ("fork", "b", "c"), ("commit", "b")):
        assert run(*arguments).code == 3, arguments
    assert run("unmount", "a").code == 3
    assert run("unmount", str(home / "x")).code == 3
    assert run("commit", ".").code == 3


@pytest.mark.quick
def test_a_verbose_list_shows_everything_in_full(run: Run, home: Path) -> None:
    tree = home / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(bytes(2048))
    said = run("import", str(tree), "a")
    assert said.code == 0, said
    locator = said.out.strip()
    header, row = run("ls", "-v").out.splitlines()
    assert header.split()[-2:] == ["MOUNTED", "LOCATOR"]
    assert (row.split()[1], row.split()[-1]) == ("2048", locator)
    header, row = run("ls", "-v", "a:").out.splitlines()
    assert (header.split()[-1], row.split()[1], row.split()[-1]) == ("PATH", "2048", "/file")


def test_a_watched_list_is_shown_again_when_it_has_changed(run: Run, home: Path) -> None:
    run("create", "a")
    command = [sys.executable, "-c", "from cowfs.cli.start import main; main()", "ls", "--watch", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            assert [each["volume"] for each in json.loads(watching.stdout.readline())["volumes"]] == ["a"]
            run("create", "b")
            assert [each["volume"] for each in json.loads(watching.stdout.readline())["volumes"]] == ["a", "b"]
        finally:
            watching.send_signal(signal.SIGINT)
    assert watching.returncode == 130


@pytest.mark.quick
def test_log_of_a_volume_without_versions(run: Run) -> None:
    run("create", "a")
    said = run("log", "a")
    assert (said.code, said.out) == (0, "")
    assert run("log", "a", "--json").json == {"format": 1, "volume": "a", "versions": [], "changes_by_version": {}}


@pytest.mark.quick
def test_show_tells_what_is_known_of_one_volume(run: Run, home: Path) -> None:
    run("create", "a")
    assert "version       none yet" in run("show", "a").out
    empty = run("show", "a", "--json").json
    assert (empty["version"], empty["message"], empty["labels"]) == (None, None, {})
    run("commit", "a", "-m", "first", "--label", "k=v")
    found = run("show", "a", "--json").json
    listed = run("ls", "--json").json["volumes"]
    assert listed[0].items() <= found.items()
    assert (found["message"], found["labels"], found["mounts"], found["declared"]) == ("first", {"k": "v"}, [], [])
    declared = home / "a.cowfs.yml"
    declared.write_text("volumes:\n  - {name: a, path: /a}\n")
    assert run("apply", "-y", "--no-mount", "-f", str(declared)).code == 0
    found = run("show", "a", "--json").json
    assert found["declared"] == [{"file": str(declared), "mount_path": "/a", "made": "registered"}]
    said = run("show", "a").out
    assert "message       first\n" in said
    assert f"declared      in {declared}, at /a (registered)" in said
    assert run("show", "b").code == 3


@pytest.mark.quick
def test_locator_and_store_must_agree(run: Run, home: Path) -> None:
    run("create", "a")
    locator = f"cowfs+file://{home}/store/-/a@{'0' * 64}"
    assert run("log", locator, "--store", "file:///elsewhere").code == 2
    assert run("log", locator, "--store", (home / "store").as_uri()).code == 3


@pytest.mark.quick
def test_a_word_that_is_a_mount_and_a_volume_is_not_guessed(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("create", "both")
    monkeypatch.chdir(home)
    store_id = json.loads((home / "store" / "cowfs.json").read_bytes())["store_id"]
    places = {"both": "other", str(home / "elsewhere"): "both"}
    for path, volume in places.items():
        registry.register(
            registry.new_id(),
            mount_path=Path(path),
            socket=home / "none.sock",
            store_url=(home / "store").as_uri(),
            store_id=store_id,
            volume=volume,
            version_id=None,
            read_only=False,
            working_copy=home / "w",
        )
    said = run("commit", "both")
    assert said.code == 2
    assert "./both" in said.err
    assert run("commit", "./both").code == 8, "unambiguous: the daemon of this made-up entry does not answer"


def entered(home: Path, path: str, volume: str, store_url: str | None = None, **changed: Any) -> MountEntry:
    """A made-up mount, of the default store if none is named."""
    entry = registry.register(
        registry.new_id(),
        mount_path=Path(path),
        socket=home / "none.sock",
        store_url=store_url or os.environ["COWFS_STORE"],
        store_id=("1" if store_url else "0") * 32,
        volume=volume,
        version_id=None,
        read_only=False,
        working_copy=None,
    )
    registry.enter(entry := replace(entry, **changed))
    return entry


@pytest.mark.quick
def test_a_word_that_is_a_mount_and_a_detached_volume_is_not_guessed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    left = entered(home, "data", "data", is_detached=True)

    def find(target: str) -> targets.Mounted | targets.Unmounted:
        return targets.find(target, None, read_only=True, detached=True)

    assert isinstance(found := find("data"), targets.Mounted)
    assert found.path == left.mount_path
    for volume, store_url in (("other", None), ("data", "file:///elsewhere")):
        here = entered(home, "data", volume, store_url)
        with pytest.raises(InvalidInputError) as said:
            find("data")
        for named in (f"{volume} of {here.store_url}", left.mount_path, f"process {left.pid}"):
            assert named in said.value.message
        assert "./data" in said.value.hint
        assert isinstance(found := find("./data"), targets.Mounted)
        assert found.volume == volume
        registry.unregister(here)
    here = entered(home, "data", "data")
    assert isinstance(found := find("data"), targets.Mounted)
    assert found._entry.id == here.id, "the same volume is at a path again"


@pytest.mark.quick
def test_a_detached_mount_is_found_beside_a_volume_of_that_name_of_another_store(home: Path) -> None:
    def find(store: str | None) -> str:
        found = targets.find("data", store, read_only=True, detached=True)
        assert isinstance(found, targets.Mounted)
        return found._entry.id

    left = entered(home, str(home / "m"), "data", is_detached=True)
    other = entered(home, str(home / "other"), "data", "file:///elsewhere")
    assert find(None) == left.id
    assert find(left.store_url) == left.id
    assert find(other.store_url) == other.id
    registry.enter(replace(other, is_detached=True))
    assert (find(None), find(other.store_url)) == (left.id, other.id)
    same = entered(home, str(home / "again"), "data", store_id=left.store_id)
    assert find(None) == same.id, "it is at a path"


@pytest.mark.quick
def test_a_mount_is_found_without_its_store(
    home: Path, monkeypatch: pytest.MonkeyPatch, patient_clock: PatientClock, silent: Callable[[], None]
) -> None:
    monkeypatch.chdir(home)
    silent()
    for path, volume, is_version in (("word", "other", False), ("elsewhere", "data", False), ("old", "seen", True)):
        registry.register(
            registry.new_id(),
            mount_path=Path(path),
            socket=home / "none.sock",
            store_url=os.environ["COWFS_STORE"],
            store_id="0" * 32,
            volume=volume,
            version_id="0" * 64 if is_version else None,
            read_only=is_version,
            working_copy=None,
        )
    for target, path in (("word", "word"), ("data", "elsewhere"), ("seen", "old")):
        found = targets.find(target, None, read_only=True)
        assert isinstance(found, targets.Mounted)
        assert found.path == str(home / path)
    assert patient_clock.waited_s == []
    with pytest.raises(UnavailableError):
        targets.find("seen", None)
    with pytest.raises(UnavailableError):
        targets.find("unknown", None, read_only=True)


@pytest.mark.quick
def test_status_survives_daemons_that_do_not_answer(run: Run, home: Path) -> None:
    said = run("status", "--json").json
    assert (said["mounts"], said["working_copies"]) == ([], [])
    assert not [
        path for path in said["dead_mounts"] if path.startswith(f"{home}/")
    ]  # others may have left some elsewhere
    entry = registry.register(
        registry.new_id(),
        mount_path=home / "m",
        socket=home / "none.sock",
        store_url="file:///store",
        store_id="0" * 32,
        volume="v",
        version_id=None,
        read_only=False,
        working_copy=home / "w",
    )
    found = run("status", "--json").json["mounts"][0]
    assert (found["mount_path"], found["pid"]) == (str(home / "m"), os.getpid())
    assert found["problem"]
    assert run("status").code == 0
    registry.unregister(entry)


@pytest.mark.quick
def test_status_shows_working_copies_it_cannot_read(run: Run, home: Path) -> None:
    place = home / "c" / "state" / "working" / f"{'0' * 16}-kept"
    place.mkdir(parents=True)
    (place / "state.json").write_text('{"format": 99}')
    found = run("status", "--json").json["working_copies"][0]
    assert found["volume"] == "kept"
    assert "99" in found["problem"]


@pytest.mark.quick
def test_doctor_on_a_sound_machine(run: Run) -> None:
    run("create", "a")
    said = run("doctor", "--json")
    states = {check["check"]: check["state"] for check in said.json["checks"]}
    assert states["store"] == states["store writable"] == states["store keeps writers apart"] == "ok"
    assert states["cache directory"] == states["native engine"] == "ok"
    for check in said.json["checks"]:
        assert check["state"] == "ok" or check["hint"] or "not " in check["message"]


@pytest.mark.quick
def test_doctor_makes_no_store(run: Run, home: Path) -> None:
    assert run("doctor", "--json").json["is_ok"]
    assert not (home / "store").exists()


@pytest.mark.quick
def test_doctor_fails_on_an_unreachable_store(run: Run, home: Path) -> None:
    (home / "file").write_text("")
    said = run("doctor", "--store", (home / "file").as_uri())
    assert said.code != 0
    assert "fail  store" in said.out
    assert "hint: " in said.out


@pytest.mark.quick
def test_doctor_fails_on_a_state_directory_that_is_a_file(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COWFS_STATE_DIR", str(home / "file" / "state"))
    (home / "file").write_text("")
    said = run("doctor", "--json")
    assert said.code == 9
    assert {check["kind"] for check in said.json["checks"] if check["state"] == "fail"} == {"access_denied"}


def test_a_mount_daemon_that_cannot_start_says_why(home: Path, run: Run) -> None:
    """The whole way: command, daemon in a process of its own, its error back as ours, and nothing
    left."""
    run("create", "a")
    (home / "full").mkdir()
    (home / "full" / "file").write_text("mine")
    command = [sys.executable, "-m", "cowfs.cli", "mount", "a", str(home / "full"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stdout)["error"]["kind"] == "conflict"
    assert stat.S_ISREG((home / "full" / "file").stat().st_mode)
    assert registry.list_mounts() == []


@pytest.mark.quick
def test_a_deleted_volume_is_listed_apart_and_brought_back(run: Run) -> None:
    run("create", "a")
    run("create", "b")
    assert "nobody can be asked" in run("delete", "a").err
    assert run("delete", "a", "-y").code == 0
    assert [each["volume"] for each in run("ls", "--json").json["volumes"]] == ["b"]
    assert [each["volume"] for each in run("ls", "--deleted", "--json").json["volumes"]] == ["a"]
    for arguments in (("log", "a"), ("delete", "a", "-y"), ("fork", "a", "c")):
        said = run(*arguments)
        assert (said.code, "undelete" in said.err) == (3, True), arguments
    said = run("create", "a")
    assert (said.code, "undelete" in said.err) == (4, True)
    said = run("undelete", "a")
    assert (said.code, said.out, said.err) == (0, "a\n", "Volume a is there again\n")
    said = run("undelete", "a")
    assert (said.code, said.out, said.err) == (0, "a\n", "Volume a is not deleted: there is nothing to do\n")
    assert run("undelete", "never").code == 3
    assert run("log", "a").code == 0
    assert run("delete", "never", "-y").code == 3
    assert run("delete", "a", "b", "-y", "--json").json == {"format": 1, "volume_names": ["a", "b"]}
    assert run("ls").out == ""


@pytest.mark.quick
def test_what_is_said_about_a_mount_or_a_volume_names_its_store(home: Path) -> None:
    near = f"file://{home / 'near'}"
    volume = Store(near).create("data")
    volume.files.write("a", b"1")
    volume.unmount()
    with pytest.raises(NotFoundError) as caught:
        targets.find("data", near).unmount()
    assert f"`cowfs commit data --store {near}`" in caught.value.hint
    mounted = targets.Mounted(entered(home, str(home / "m"), "data", near))
    assert f"`cowfs log data --store {near}`" in mounted.describe_interrupted_commit(None)
