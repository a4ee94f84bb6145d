"""The command line end to end: real daemons, real mounts, as a user at a shell would have it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cowfs.api.mounts.base import mount_of
from cowfs.blocking import Volume
from cowfs.control import live_mount
from cowfs.errors import InvalidInputError, InvalidStateError, NotFoundError, UnavailableError
from cowfs.machine import mount_table, mounting, registry
from cowfs.machine.processes import wait_gone
from tests.api.conftest import place
from tests.api.test_volumes_live import another_machine
from tests.cli.conftest import Said
from tests.forked_commands import run_command

pytestmark = pytest.mark.mount

__all__ = ["place"]

Command = Callable[..., Said]

ANOTHERS_PROC = ("unshare", "--pid", "--fork")
NO_PROC = ("unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh")
LATER = ("unshare", "--time", "--fork", "--boottime", "100000")
has_time_namespaces = pytest.mark.skipif(not Path("/proc/self/ns/time").exists(), reason="a kernel without them")


@pytest.fixture
def run(place: Path) -> Command:
    """`cowfs` in a process of its own, started below the machine's root. through: the words of
    another program that starts it."""

    def runner(*arguments: str | Path, cwd: Path | None = None, through: Sequence[str] = ()) -> Said:
        words = list(map(str, arguments))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        if through:
            program = [*through, sys.executable, "-m", "cowfs.cli", *words]
            done = subprocess.run(
                program,
                capture_output=True,
                text=True,
                timeout=180,
                cwd=cwd or place,
                stdin=subprocess.DEVNULL,
                env=environment,
                check=False,
            )
        else:
            done = run_command(words, cwd=cwd or place, environment=environment)
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    return runner


@pytest.fixture
def mounted(run: Command, place: Path) -> Path:
    """Volume "data", mounted with one file."""
    run("create", "data")
    path = place / "mnt" / "data"
    assert run("mount", "data", path).out == f"{path}\n"
    (path / "file").write_text("one")
    return path


def test_a_detached_mount_is_shown_as_such_and_ends_by_force(run: Command, mounted: Path) -> None:
    with (mounted / "file").open("a") as file:
        assert run("unmount", mounted, "--commit").code == 0
        (entry,) = registry.list_mounts()
        said = run("show", "data")
        assert "mounted " not in said.out
        assert f"detached      from {mounted}; process {entry.pid}" in said.out
        (shown,) = json.loads(run("show", "data", "--json").out)["mounts"]
        assert shown["is_detached"]
        file.write("two")
        file.flush()
        said = run("unmount", "data")
        assert said.code == 4
        assert "off its path" in said.err
        assert "`cowfs unmount data --force`" in run("mount", "data", mounted).err
        said = run("unmount", "data", "--force")
        assert said.code == 0
        assert "uncommitted work is kept" in said.err
        assert registry.list_mounts() == []
        with contextlib.suppress(OSError):
            file.close()
    assert run("unmount", "data", "--force").code == 3
    assert run("mount", "data", mounted).code == 0
    assert (mounted / "file").read_text() == "onetwo"
    assert run("unmount", mounted, "--discard").code == 0


def overtake(run: Command, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine takes "data" over and makes a version of it."""
    path = place / "mnt" / "theirs"
    with monkeypatch.context() as elsewhere:
        for variable, value in another_machine(place).items():
            elsewhere.setenv(variable, value)
        assert run("mount", "data", path, "--take-over").code == 0
        (path / "theirs").write_text("published")
        assert run("unmount", path, "--commit", "-m", "theirs").code == 0


def test_a_mount_in_a_mount_is_what_keeps_it_in_use(run: Command, mounted: Path) -> None:
    inner = mounted / "inner"
    run("create", "other")
    assert run("mount", "other", inner).code == 0
    refused = run("unmount", "data")
    assert refused.code == 4
    assert f"{inner} is mounted in it" in refused.err
    refused = run("unmount", "data", "--commit")
    assert (refused.code, f"{inner} is mounted in it" in refused.err) == (4, True)
    assert run("unmount", "other").code == 0
    assert run("unmount", "data").code == 0


def test_mounting_again_finds_the_mount(run: Command, mounted: Path) -> None:
    again = run("mount", "data", mounted, "--json")
    assert again.code == 0, again.err
    record = json.loads(again.out)
    entry = registry.find_by_path(mounted)
    assert entry is not None
    assert (record["mount_path"], record["pid"], record["lost_files"]) == (str(mounted), entry.pid, [])


def test_commit_prints_a_locator_that_mounts_read_only_anywhere(
    run: Command, place: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locator = run("commit", mounted, "-m", "first").out.strip()
    assert locator.startswith("cowfs+file:///")
    assert run("commit", "data").out.strip() == locator, "nothing changed"
    assert run("commit", ".", cwd=mounted).out.strip() == locator, "from inside"
    (mounted / "dir").mkdir()
    assert run("commit", "dir", cwd=mounted).code == 3, "a bare word is a name"
    assert run("commit", "./dir", cwd=mounted).out.strip() != locator, "a path inside means the mount around it"

    for variable in ("COWFS_STATE_DIR", "COWFS_CACHE_DIR"):
        monkeypatch.setenv(variable, str(place / "elsewhere"))
    (place / "run2").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "run2"))
    for source in (locator, f"data@{locator.rpartition('@')[2][:8]}"):
        path = place / "mnt" / "back"
        record = run("mount", source, path, "--json").json
        assert (record["is_read_only"], record["locator"]) == (True, locator)
        assert [each.name for each in path.iterdir()] == ["file"]
        assert run("commit", path).code == 7
        assert run("unmount", path).code == 0
    assert run("mount", "data", place / "mnt" / "again").code == 5, "one writer, also across machines"
    assert run("mount", "data", place / "mnt" / "again", "--read-only").code == 0
    assert run("unmount", place / "mnt" / "again").code == 0


def test_log_ls_and_fork(run: Command, place: Path, mounted: Path) -> None:
    first = run("commit", mounted, "-m", "first\x1b[31m", "--label", "a=b", "--author", "Ada", "--json").json
    (mounted / "file").write_text("two")
    versions = run("log", "data", "--json").json["versions"]
    assert [each["message"] for each in versions] == ["first\x1b[31m"]
    assert (versions[0]["labels"], versions[0]["author"]) == ({"a": "b"}, "Ada")
    assert "\x1b" not in run("log", "data").out, "a message does not drive the terminal"

    assert run("fork", f"data@{first['version'][:8]}", "old").out == "old\n"
    assert run("fork", "data", "new", "--json").json["volume"] == "new"
    assert run("fork", "data", "new").code == 4
    assert len(run("log", "new", "--json").json["versions"]) == 2, "the fork of a mounted volume commits it first"
    assert len(run("log", "old", "--json").json["versions"]) == 1
    assert len(run("log", "new", "-n", "1").out.splitlines()) == 2

    listed = {each["volume"]: each for each in run("ls", "--json").json["volumes"]}
    assert listed["data"]["writer"].endswith(str(mounted))
    assert (listed["new"]["files"], listed["new"]["bytes"], listed["new"]["writer"]) == (1, 3, None)


def test_unmount_keeps_commits_or_discards(run: Command, place: Path, mounted: Path) -> None:
    said = run("unmount", mounted)
    assert said.code == 0
    assert "uncommitted work is kept" in said.err
    kept = run("status", "--json").json["working_copies"]
    assert [(each["volume"], each["has_uncommitted"]) for each in kept] == [("data", True)]
    assert run("unmount", mounted).code == 3
    assert "`cowfs commit data` publishes what is uncommitted" in run("unmount", "data", "--commit").err

    run("mount", "data", mounted)
    assert (mounted / "file").read_text() == "one"
    status = run("status", "--json").json
    assert [(each["volume"], each["has_uncommitted"]) for each in status["mounts"]] == [("data", True)]
    assert status["working_copies"] == []
    labels = ("--label", "by=name", "--author", "ada")
    assert run("unmount", "data", *labels).code == 2
    locator = run("unmount", "data", "--commit", "-m", "by name", *labels).out.strip()
    assert run("show", locator, "--json").json["labels"] == {"by": "name"}
    assert run("log", locator, "--json").json["versions"][0]["message"] == "by name"

    run("mount", "data", mounted)
    (mounted / "file").write_text("dropped")
    assert run("unmount", mounted, "--discard").code == 0
    run("mount", "data", mounted)
    assert (mounted / "file").read_text() == "one"
    (mounted / "file").write_text("dropped")
    run("unmount", mounted)
    assert run("unmount", "data", "--discard").code == 0, "a working copy that is not mounted"
    run("mount", "data", mounted)
    assert (mounted / "file").read_text() == "one"


def test_commit_of_a_volume_that_is_not_mounted(run: Command, place: Path, mounted: Path) -> None:
    run("unmount", mounted)
    locator = run("commit", "data", "-m", "kept work").out.strip()
    assert run("log", locator, "--json").json["versions"][0]["stats"]["files"] == 1
    assert registry.list_mounts() == []
    assert run("status", "--json").json["working_copies"] == [], "nothing is left of it"


def test_unmount_of_a_busy_mount_names_who_uses_it(run: Command, mounted: Path) -> None:
    descriptor = os.open(mounted / "file", os.O_RDONLY)
    said = run("unmount", mounted)
    assert said.code == 4
    assert str(os.getpid()) in said.err
    assert run("unmount", mounted, "--force").code == 0
    assert not os.path.ismount(mounted)
    with contextlib.suppress(OSError):  # its mount is gone
        os.close(descriptor)


def test_unmount_of_a_busy_mount_with_commit_publishes_and_says_who_uses_it(run: Command, mounted: Path) -> None:
    entry = registry.list_mounts()[0]
    descriptor = os.open(mounted / "file", os.O_RDONLY)
    said = run("unmount", mounted, "--commit", "-m", "busy")
    assert said.code == 0
    assert str(os.getpid()) in said.err
    assert not os.path.ismount(mounted)
    assert os.read(descriptor, 3) == b"one", "what is open goes on"
    os.close(descriptor)
    assert wait_gone(entry.pid, 60)
    assert run("log", said.out.strip(), "--json").json["versions"][0]["message"] == "busy"


def test_a_mount_of_a_volume_of_another_store_is_named(run: Command, mounted: Path, tmp_path: Path) -> None:
    path = mounted.with_name("there")
    run("create", "elsewhere", "--store", tmp_path / "other")
    run("mount", "elsewhere", path, "--store", tmp_path / "other")
    for command in ("commit", "unmount"):
        said = run(command, "elsewhere")
        assert said.code == NotFoundError.exit_code
        assert f"mounted here is {path} (of file://{tmp_path}/other)" in said.err
    assert run("unmount", path).code == 0


def test_an_unchanged_volume_is_said_to_be_unchanged(run: Command, mounted: Path) -> None:
    first = run("commit", mounted, "-m", "one", "--json").json
    assert first["is_new"]
    said = run("commit", mounted)
    assert "Nothing has changed" in said.err
    assert said.out.strip() == first["locator"]
    again = run("commit", mounted, "-m", "one", "--json").json
    assert (again["locator"], again["is_new"]) == (first["locator"], False)
    labelled = run("commit", mounted, "--label", "best=yes", "--json").json
    assert (labelled["is_new"], labelled["labels"]) == (True, {"best": "yes"})
    assert labelled["stats"]["uploaded_bytes"] == 0
    run("unmount", mounted)
    assert "This machine has no uncommitted work of data: version" in run("commit", "data").err


def test_a_fork_says_that_it_committed(run: Command, mounted: Path) -> None:
    said = run("fork", "data", "new")
    assert "Committed uncommitted work of data first: cowfs+file://" in said.err
    assert run("fork", "data", "another").err == "Made volume another from data\n"
    (mounted / "file").write_text("two")
    assert run("fork", "data", "third", "--json").json["committed_locator"] == run("commit", mounted).out.strip()


def test_a_fork_of_what_has_no_version_says_that_it_made_an_empty_one(run: Command, place: Path) -> None:
    for name, is_mounted in (("unmounted", False), ("untouched", True)):
        run("create", name)
        if is_mounted:
            assert run("mount", name, place / "mnt" / name).code == 0
        said = run("fork", name, f"{name}-fork")
        assert f"Made a first, empty version of {name}, which had none: cowfs+file://" in said.err
        assert "ncommitted" not in said.err
        assert run("find", f"{name}-fork").out == run("find", name).out == ""


@pytest.mark.parametrize("has_version", [True, False])
def test_a_fork_says_that_overtaken_work_has_moved(
    run: Command, place: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch, has_version: bool
) -> None:
    if has_version:
        run("commit", mounted)
    (mounted / "mine").write_text("not published")
    overtake(run, place, monkeypatch)
    assert run("commit", mounted).code == 6
    said = run("fork", "data", "saved")
    assert (said.code, said.out) == (0, "saved\n")
    assert "uncommitted work of data, which another writer has, is now that of saved" in said.err
    assert f"The mount at {mounted} has ended" in said.err
    assert "data" not in [each.volume for each in registry.list_mounts()]
    assert run("mount", "saved", mounted).code == 0
    assert (mounted / "mine").read_text() == "not published"


def test_a_program_learns_that_overtaken_work_has_moved(
    run: Command, place: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("commit", mounted)
    (mounted / "mine").write_text("not published")
    overtake(run, place, monkeypatch)
    forked = run("fork", "data", "saved", "--json").json
    assert (forked["has_uncommitted"], forked["committed_locator"]) == (True, None)


def test_a_dead_daemon_is_shown_and_its_mount_taken_off(run: Command, mounted: Path) -> None:
    entry = registry.list_mounts()[0]
    os.kill(entry.pid, signal.SIGKILL)
    assert wait_gone(entry.pid, 60)
    status = run("status", "--json").json
    assert str(mounted) in [each["mount_path"] for each in status["dead_mounts"]]
    assert status["mounts"] == []
    assert [(each["volume"], each["has_uncommitted"]) for each in status["working_copies"]] == [("data", True)]
    assert run("status").code == 0
    assert run("unmount", mounted, "--commit").code == 14
    assert run("unmount", mounted).code == 0
    assert not os.path.ismount(mounted)
    run("mount", "data", mounted)
    assert (mounted / "file").read_text() == "one"


def waiting(place: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    """`cowfs`, once it has said that a daemon does not answer."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-m", "cowfs.cli", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=place, env=environment)
    assert process.stderr is not None
    said = process.stderr.readline()
    assert "does not answer (it is stopped); still waiting. `kill -CONT" in said
    assert "cowfs unmount --force" in said
    return process


def test_a_daemon_that_stands_still_is_told_of_and_waited_for(run: Command, place: Path, mounted: Path) -> None:
    entry = registry.find_by_path(mounted)
    assert entry is not None
    os.kill(entry.pid, signal.SIGSTOP)
    try:
        with waiting(place, "commit", "data", "--progress", "none") as commit:
            assert commit.poll() is None
            found = run("mount", "data", mounted)
            assert (found.code, "Found" in found.err) == (8, False)
            assert f"process {entry.pid} of the mount at {mounted} does not answer (it is stopped)" in found.err
            os.kill(entry.pid, signal.SIGCONT)
            assert commit.wait(60) == 0
    finally:
        os.kill(entry.pid, signal.SIGCONT)
    assert Volume.version("data").files.read("file") == b"one"


def test_force_ends_a_daemon_that_stands_still(run: Command, place: Path, mounted: Path) -> None:
    entry = registry.find_by_path(mounted)
    assert entry is not None
    os.kill(entry.pid, signal.SIGSTOP)
    try:
        with waiting(place, "unmount", mounted) as unmount:
            refused = run("unmount", mounted, "--force", "--discard")
            assert (refused.code, f"process {entry.pid} of" in refused.err) == (8, True)
            forced = run("unmount", mounted, "--force")
            assert (forced.code, "and is being killed" in forced.err) == (0, True)
            assert f"Unmounted {mounted}; uncommitted work is kept" in forced.err
            assert unmount.wait(60) != 0
    finally:
        entry.process.kill()
    assert not entry.process.is_alive
    assert os.listdir(mounted) == []
    assert run("mount", "data", mounted).code == 0
    assert (mounted / "file").read_text() == "one"


@pytest.mark.parametrize("option", [None, "--discard"])
def test_force_ends_a_scratch_whose_daemon_stands_still(
    run: Command, place: Path, mounted: Path, option: str | None
) -> None:
    assert run("unmount", mounted, "--commit").code == 0
    path = place / "mnt" / "scratch"
    assert run("mount", "data", path, "--scratch").code == 0
    (path / "file").write_text("of no version")
    (entry,) = registry.list_mounts()
    os.kill(entry.pid, signal.SIGSTOP)
    try:
        forced = run("unmount", path, "--force", *([option] if option else []))
        assert (forced.code, "and is being killed" in forced.err) == (0, True)
        assert f"Unmounted {path}; a scratch leaves nothing" in forced.err
    finally:
        entry.process.kill()
    assert not entry.process.is_alive
    assert mount_table.mount_at(str(path)) is None
    assert run("mount", "data", path).code == 0
    assert (path / "file").read_text() == "one"


def test_a_mount_made_with_other_directories_is_shown_and_unmounted(
    run: Command, place: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("COWFS_STATE_DIR", "COWFS_CACHE_DIR"):
        monkeypatch.setenv(variable, str(place / "elsewhere"))
    assert [each["mount_path"] for each in run("status", "--json").json["mounts"]] == [str(mounted)]
    assert run("commit", mounted).code == 0
    assert run("unmount", mounted).code == 0
    assert not os.path.ismount(mounted)


def test_working_copies_without_work_do_not_pile_up(run: Command, place: Path, mounted: Path) -> None:
    assert run("commit", mounted).code == 0
    assert run("unmount", mounted).code == 0
    assert run("status", "--json").json["working_copies"] == []
    run("mount", "data", mounted)
    assert run("unmount", mounted, "--commit").code == 0
    assert run("status", "--json").json["working_copies"] == []
    run("mount", "data", mounted)
    (mounted / "file").write_text("two")
    assert run("unmount", mounted).code == 0
    assert "uncommitted" in run("status").out
    assert run("commit", "data").code == 0
    assert list((place / "c" / "state" / "working").iterdir()) == []


def test_a_live_mount_of_another_registry_is_left_alone(
    run: Command, place: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        (place / "run2").mkdir(mode=0o700)
        for variable in ("COWFS_STATE_DIR", "COWFS_CACHE_DIR"):
            elsewhere.setenv(variable, str(place / "elsewhere"))
        elsewhere.setenv("XDG_RUNTIME_DIR", str(place / "run2"))
        assert run("unmount", mounted).code == 3
        assert str(mounted) not in run("status", "--json").json["dead_mounts"]
    assert (mounted / "file").read_text() == "one"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_foreground_stays_until_told_to_end(run: Command, place: Path, number: signal.Signals) -> None:
    run("create", "front")
    path = place / "mnt" / "front"
    command = [sys.executable, "-m", "cowfs.cli", "mount", "front", str(path), "--foreground"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == f"{path}\n"
        (path / "file").write_text("kept")
        process.send_signal(number)
        told = process.stderr.read()
        assert process.wait(60) == 0, told
    assert f"{signal.Signals(number).name}: unmounting" in told
    assert f"Unmounted {path}; uncommitted work" in told
    assert not os.path.ismount(path)
    run("mount", "front", path)
    assert (path / "file").read_text() == "kept"


@pytest.fixture
def device(place: Path) -> Iterator[tuple[int, Path]]:
    """A /dev/fuse descriptor mounted by hand, as a supervisor would hand it in."""
    import ctypes

    path = place / "mnt" / "handed"
    path.mkdir()
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.mount(b"cowfs:handed", os.fsencode(path), b"fuse.cowfs", 0, options)
    assert failed == 0, os.strerror(ctypes.get_errno())
    try:
        yield descriptor, path
    finally:
        os.close(descriptor)
        libc.umount2(os.fsencode(path), 2)


def test_a_descriptor_handed_in(run: Command, place: Path, device: tuple[int, Path]) -> None:
    descriptor, path = device
    run("create", "handed")
    command = [sys.executable, "-m", "cowfs.cli", "mount", "handed", str(path), "--fuse-fd", str(descriptor)]
    done = subprocess.run(command, pass_fds=[descriptor], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (path / "file").write_text("through a handed-in descriptor")
    assert run("commit", path).code == 0
    assert run("unmount", path).code == 0
    assert run("log", "handed", "--json").json["versions"][0]["stats"]["files"] == 1


@pytest.mark.parametrize("may", ["abort", "unmount", "neither"])
def test_force_takes_off_a_mount_whose_device_somebody_else_has_open(
    run: Command, place: Path, device: tuple[int, Path], may: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever uses it would wait for ever."""
    descriptor, path = device
    run("create", "handed")
    command = [sys.executable, "-m", "cowfs.cli", "mount", "handed", str(path), "--fuse-fd", str(descriptor)]
    done = subprocess.run(command, pass_fds=[descriptor], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (path / "file").write_text("kept")
    (entry,) = registry.list_mounts()
    os.kill(entry.pid, signal.SIGSTOP)
    try:
        if may == "abort":
            forced = run("unmount", path, "--force")
            assert (forced.code, f"Unmounted {path}; uncommitted work is kept" in forced.err) == (0, True)
        else:
            monkeypatch.setattr(live_mount, "STATUS_TIMEOUT_S", 1.0)
            monkeypatch.setattr(mount_table, "abort", lambda mount: False)
            monkeypatch.setattr(mounting, "may_unmount", lambda mount: may == "unmount")
            with pytest.raises(UnavailableError) if may == "neither" else contextlib.nullcontext() as told:
                mount_of(entry).unmount(force=True)
            assert told is None or "but the mount stays" in str(told.value)
    finally:
        entry.process.kill()
    assert (mount_table.mount_at(str(path)) is not None) == (may == "neither")
    again = place / "mnt" / "again"
    assert run("mount", "handed", again).code == 0
    assert (again / "file").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_bind_mount_is_told_as_such(run: Command, mounted: Path) -> None:
    (mounted / "directory").mkdir()
    (daemon,) = [entry.pid for entry in registry.list_mounts()]
    bound, below = mounted.with_name("bound"), mounted.with_name("below")
    for source, target in ((mounted, bound), (mounted / "directory", below)):
        target.mkdir()
        subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        for command in ("commit", "unmount"):
            for named in (bound, below, bound.name):
                refused = run(command, named, cwd=mounted.parent)
                assert refused.code == NotFoundError.exit_code
                assert f"is a bind mount of volume data at {mounted}" in refused.err
        subprocess.run(["umount", mounted], check=True)
        off = run("commit", bound)
        assert (off.code, "this was moved, or is a bind mount" in off.err) == (NotFoundError.exit_code, True)
    finally:
        for target in (bound, below):
            subprocess.run(["umount", target], check=True)
    assert wait_gone(daemon, 60), "it ends with its last mount"


def test_unmount_takes_the_default_directory_away(run: Command, place: Path) -> None:
    """Whoever goes on writing there would write to the local disk, and the next mount would be
    refused."""
    path = Volume.new("default").mount()  # this process shares the mount: --force
    assert run("unmount", path, "--force").code == 0
    assert not path.exists()
    assert Volume.open("default").mount() == path
    assert run("unmount", "default", "--commit", "--force").code == 0
    assert not path.exists()


def test_a_scratch_from_the_command_line(run: Command, place: Path, mounted: Path) -> None:
    locator = run("commit", mounted).out.strip()
    path = place / "mnt" / "scratch"
    record = run("mount", "data", path, "--scratch", "--json").json
    assert (record["is_read_only"], record["kind"], record["locator"]) == (False, "scratch", locator)
    (path / "file").write_text("two")
    shown = [line.split() for line in run("status").out.splitlines()]
    assert [line[1:3] for line in shown if line[-1] == str(path)] == [["scratch", "-"]]
    assert run("commit", mounted, "--name", "no").code == 2
    assert run("commit", path, "--name", "data").code == 4
    made = run("commit", path, "-m", "made", "--name", "made", "--json").json
    assert (made["volume"], made["message"], made["is_new"]) == ("made", "made", True)
    (path / "file").write_text("three")
    said = run("unmount", path)
    assert (said.code, "leaves nothing" in said.err) == (0, True)
    assert run("mount", "made", path).code == 0
    assert ((path / "file").read_text(), (mounted / "file").read_text()) == ("two", "one")
    assert run("unmount", path).code == 0
    assert run("mount", "data", path, "--scratch", "--read-only").code == 2
    run("mount", "data", path, "--scratch")
    assert "leaves nothing" in run("unmount", path, "--discard").err
    run("mount", "data", path, "--scratch")
    (path / "file").write_text("kept")
    kept = run("unmount", path, "--commit", "-m", "at the end").out.strip()
    assert run("cat", f"{kept}/file").out == "kept"

    pid = run("mount", locator, path, "--scratch", "--json").json["pid"]
    os.kill(pid, signal.SIGKILL)
    assert wait_gone(pid, 60)
    assert run("unmount", path).code == 0
    assert str(path) not in run("status", "--json").json["dead_mounts"]


def test_a_scratch_that_has_become_a_volume_is_meant_by_its_name(run: Command, place: Path, mounted: Path) -> None:
    run("commit", mounted)
    path, local = place / "mnt" / "scratch", place / "x"
    local.write_text("x")
    run("mount", "data", path, "--scratch")
    first = run("commit", path, "--name", "made").out
    (path / "two").write_text("2")
    assert [line.split()[1] for line in run("diff", "made").out.splitlines()] == ["/two"]
    assert run("cp", local, "made:x").code == 0
    assert (path / "x").read_text() == "x"
    second = run("commit", "made", "-m", "second")
    assert (second.code, second.out != first, "no uncommitted work" in second.err) == (0, True, False)
    (path / "three").write_text("3")
    assert run("fork", "made", "branch").code == 0
    assert run("cat", "branch:three", "branch:x").out == "3x"
    refused = run("mount", "made", place / "mnt" / "made")
    assert (refused.code, "scratch of this machine" in refused.err) == (5, True)
    said = run("unmount", "made")
    assert (said.code, "dropped" in said.err, "leaves nothing" in said.err) == (0, False, True)

    for name, target in (("one", "one"), ("other", path)):
        run("mount", "made", path, "--scratch")
        run("commit", path, "--name", name)
        (path / "dropped").write_text("x")
        gone = run("unmount", target, "--json").json
        assert (gone["volume"], gone["has_uncommitted"], gone["is_discarded"]) == (name, False, True)
    run("mount", "made", path, "--scratch")
    run("commit", path, "--name", "end")
    (path / "four").write_text("4")
    with (path / "four").open():
        kept = run("unmount", "end", "--commit")
    assert (kept.code, "uncommitted work of" in kept.err, "is gone then" in kept.err) == (0, False, True)
    assert run("cat", "end:four").out == "4"


def test_a_name_unmounts_a_read_only_mount(run: Command, place: Path, mounted: Path) -> None:
    run("commit", mounted)
    paths = [place / "mnt" / name for name in ("first", "second")]
    for path in paths:
        assert run("mount", "data", path, "--read-only").code == 0
    assert run("unmount", "data").code == 0
    assert not os.path.ismount(mounted), "the writable one is meant"
    said = run("unmount", "data")
    assert said.code == 2
    assert all(str(path) in said.err for path in paths)
    assert run("unmount", paths[0]).code == 0
    assert run("unmount", "data", "--json").json["mount_path"] == str(paths[1])
    assert run("unmount", "data").code == 3


def test_discarding_says_whether_there_was_anything(run: Command, mounted: Path) -> None:
    run("commit", mounted)
    said = run("unmount", mounted, "--discard")
    assert "nothing was uncommitted" in said.err
    assert "no uncommitted work" in run("unmount", "data", "--discard").err
    run("mount", "data", mounted)
    (mounted / "file").write_text("two")
    assert "dropped uncommitted work" in run("unmount", mounted, "--discard").err
    run("mount", "data", mounted)
    (mounted / "file").write_text("two")
    run("unmount", mounted)
    assert run("unmount", "data", "--discard", "--json").json["is_discarded"] is True


def test_status_names_the_volume_of_a_dead_daemon_and_says_what_to_do(run: Command, mounted: Path) -> None:
    entry = registry.list_mounts()[0]
    os.kill(entry.pid, signal.SIGKILL)
    assert wait_gone(entry.pid, 60)
    said = run("status")
    row = next(line for line in said.out.splitlines() if "daemon died" in line and str(mounted) in line)
    assert row.split()[0] == "data"
    assert "cowfs mount data PATH" in said.err
    assert f"cowfs unmount {mounted}" in said.err
    assert run("unmount", mounted).code == 0


def test_a_mount_whose_daemon_died_is_taken_off_by_name(run: Command, mounted: Path) -> None:
    def die() -> None:
        for entry in registry.list_mounts():
            os.kill(entry.pid, signal.SIGKILL)
            assert wait_gone(entry.pid, 60)

    run("commit", "data")
    die()
    gone = run("unmount", "data", "--json").json
    assert (gone["mount_path"], gone["was_dead"]) == (str(mounted), True)
    assert str(mounted) not in run("status", "--json").json["dead_mounts"]
    assert run("unmount", "data").code == NotFoundError.exit_code
    others = [mounted.with_name(name) for name in ("one", "two")]
    for path in others:
        run("mount", "data@{0}", path)
        die()
    refused = run("unmount", "data")
    assert refused.code == InvalidInputError.exit_code
    assert all(str(path) in refused.err for path in others)
    run("mount", "data", mounted)
    assert run("unmount", "data", "--json").json["was_dead"] is False, "a live one is meant before dead ones"
    for path in others:
        ended = run("unmount", path)
        assert (ended.code, "work" in ended.err) == (0, False), "a read-only mount has none"
    run("mount", "data", mounted)
    die()
    assert "nothing is uncommitted" in run("unmount", mounted).err
    run("mount", "data", mounted)
    (mounted / "file").write_text("two")
    die()
    assert "uncommitted work comes back at the volume's next mount" in run("unmount", mounted).err


def test_a_mount_whose_daemon_died_is_one_of_its_store(run: Command, place: Path, mounted: Path) -> None:
    """Work of a volume of that name of another store is kept here, and does not count."""
    other = (place / "other").as_uri()
    run("create", "data", "--store", other)
    there = place / "mnt" / "there"
    run("mount", "data", there, "--store", other)
    (there / "file").write_text("other")
    assert run("unmount", there).code == 0
    (entry,) = registry.list_mounts()
    os.kill(entry.pid, signal.SIGKILL)
    assert wait_gone(entry.pid, 60)
    said = run("status", "--json").json
    assert [each["store_url"] for each in said["dead_mounts"] if each["mount_path"] == str(mounted)] == [
        entry.store_url
    ]
    assert "`cowfs mount data PATH`" in run("status").err
    for cwd in (place, mounted.parent):  # there the mount is ./data, too
        assert run("unmount", "data", "--store", other, cwd=cwd).code == NotFoundError.exit_code
    assert str(mounted) in [each["mount_path"] for each in run("status", "--json").json["dead_mounts"]]
    run("mount", "data", there, "--store", other)
    gone = run("unmount", "data", "--json").json
    assert (gone["mount_path"], gone["was_dead"]) == (str(mounted), True), "one of another store lives"
    assert [each.store_url for each in registry.list_mounts()] == [other]
    assert registry.find_dead(str(mounted)) is None, "its entry goes with it"
    assert run("unmount", "data", "--store", other, "--discard").code == 0


def test_status_of_a_store_that_is_not_there(run: Command, place: Path, mounted: Path) -> None:
    said = run("status", "--store", place / "nowhere")
    assert said.code == 3
    assert "nowhere" in said.err
    assert run("status", "--store", place / "store").code == 0


def test_status_shows_a_lost_line_and_what_to_do(
    run: Command, place: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("commit", mounted)
    (mounted / "mine").write_text("not published")
    overtake(run, place, monkeypatch)
    assert run("commit", mounted).code == 6
    said = run("status")
    assert "uncommitted, overtaken" in said.out or "uncommitted, lease lost" in said.out, "the heartbeat notices, too"
    assert "cowfs fork data NAME" in said.err
    run("unmount", mounted)
    back = run("mount", "data", mounted)
    assert back.code == 0
    assert "another writer has made version" in back.err
    said = run("status")
    assert "uncommitted, overtaken" in said.out
    assert "cowfs unmount data --discard" in said.err
    assert run("unmount", mounted, "--discard").code == 0


def test_work_below_a_meta_dir_is_shown_and_committed(run: Command, place: Path, mounted: Path) -> None:
    run("unmount", mounted, "--commit")
    run("mount", "data", mounted, "--meta-dir", place / "meta")
    (mounted / "file").write_text("two")
    run("unmount", mounted)
    kept = run("status", "--json").json["working_copies"]
    assert [(each["volume"], each["has_uncommitted"]) for each in kept] == [("data", True)]
    assert kept[0]["working_copy"].startswith(str(place / "meta"))
    assert run("commit", "data", "--json").json["is_new"] is True

    run("mount", "data", mounted, "--meta-dir", place / "meta")
    (mounted / "file").write_text("three")
    run("unmount", mounted)
    (place / "meta").rename(place / "unplugged")
    assert "not there" in run("status").out
    refused = run("commit", "data")
    assert refused.code == 8
    assert str(place / "meta") in refused.err
    assert run("unmount", "data", "--discard").code == 0
    assert run("commit", "data", "--json").json["is_new"] is False


def test_a_directory_where_nothing_is_mounted_is_told_of(run: Command, place: Path) -> None:
    run("create", "data")
    (place / "m").mkdir()
    for target in ("m", "./m"):
        for command in ("commit", "unmount"):
            said = run(command, target)
            assert said.code == NotFoundError.exit_code
            assert "mounted at ./m" in said.err
            assert "`cowfs status` lists mounts" in said.err


def test_paths_in_a_dead_mount_are_told_of(run: Command, mounted: Path) -> None:
    (mounted / "folder").mkdir()
    (mounted / "file").write_text("kept")
    entry = registry.find_by_path(mounted)
    assert entry is not None
    os.kill(entry.pid, signal.SIGKILL)
    assert wait_gone(entry.pid, 60)
    inside = mounted / "folder"
    asked = [("commit", inside), ("unmount", inside), ("commit", mounted), ("mount", "data", inside / "inner")]
    for command in (*asked, ("unmount", mounted, "--commit")):
        said = run(*command)
        assert said.code == InvalidStateError.exit_code, command
        assert f"the daemon of the mount {mounted} has died" in said.err
        assert f"`cowfs unmount {mounted}` takes it off" in said.err
    for command in (("cp", mounted / "file", "data:copied"), ("upload", inside, "other")):
        said = run(*command)
        assert said.code == InvalidStateError.exit_code
        assert "lies in a mount whose daemon has died" in said.err
    bare = mounted.with_name("other")
    run("create", "more")
    run("mount", "more", bare)
    os.kill(run("status", "--json").json["mounts"][0]["pid"], signal.SIGKILL)
    assert f"the daemon of the mount {bare} has died" in run("commit", "other", cwd=bare.parent).err
    assert run("unmount", bare).code == 0
    assert run("unmount", mounted).code == 0
    said = run("unmount", mounted)
    assert said.code == NotFoundError.exit_code
    assert "died" not in said.err
    run("mount", "data", mounted)
    assert (mounted / "file").read_text() == "kept"


def test_a_mount_in_use_is_not_said_to_be_used_by_the_command_that_asks(run: Command, mounted: Path) -> None:
    (mounted / "folder").mkdir()
    with (mounted / "open").open("w"):
        refused = run("unmount", mounted, "--json", cwd=mounted / "folder").json["error"]
    assert refused["kind"] == "conflict"
    assert refused["details"]["pids"] == [os.getpid()]
    assert run("unmount", mounted, cwd=mounted / "folder").code == 0


def test_what_a_killed_scratch_had_is_said_to_be_gone_once(run: Command, mounted: Path) -> None:
    run("commit", "data")
    path = mounted.with_name("scratch")
    run("mount", "data", path, "--scratch")
    (path / "new").write_text("lost")
    entry = next(entry for entry in registry.list_mounts() if entry.mount_path == str(path))
    os.kill(entry.pid, signal.SIGKILL)
    assert wait_gone(entry.pid, 60)
    assert f"cowfs unmount {path} (what was written to a scratch is gone)" in run("doctor").out
    assert f"{path} has died; what was not committed there is gone" in run("status").err
    assert "is gone" not in run("status").err
    run("unmount", "data")


@pytest.mark.parametrize(
    ("through", "message"), [(NO_PROC, "cowfs needs /proc"), (ANOTHERS_PROC, "/proc is that of another pid namespace")]
)
def test_nothing_is_made_without_a_proc_that_shows_our_processes(
    run: Command, place: Path, through: Sequence[str], message: str
) -> None:
    run("create", "data")
    (place / "files").mkdir()
    (place / "files" / "file").write_text("one")
    assert run("upload", place / "files", "data").code == 0
    path = place / "mnt" / "data"
    for command in (
        ("mount", "data", path),
        ("mount", "data", path, "--mode", "copy"),
        ("mount", "data", path, "--read-only"),
        ("status",),
        ("unmount", "data"),
        ("upload", place / "files", "data"),
    ):
        said = run(*command, through=through)
        assert said.code == InvalidStateError.exit_code, command
        assert said.err.startswith(f"cowfs: {message}"), command
        assert "unshare --pid --fork --mount-proc" in said.err, command
    assert not path.exists()
    said = run("status")
    assert (said.code, str(place) in said.out) == (0, False)  # dead mounts of others are shown, too
    said = run("doctor", "--json", through=through)
    assert said.code == InvalidStateError.exit_code
    (failed,) = [check for check in said.json["checks"] if check["state"] == "fail"]
    assert failed["check"] == "/proc"
    assert failed["message"].startswith(message)
    assert run("mount", "data", path).code == 0
    for reading in (
        ("ls",),
        ("log", "data"),
        ("show", "data"),
        ("show", "data@{0}"),
        ("cp", "data:file", place / "read"),
    ):
        assert run(*reading, through=through).code == 0, reading
    assert (place / "read").read_text() == "one"
    assert run("unmount", "data").code == 0


@has_time_namespaces
def test_a_mount_is_seen_from_another_time_namespace(run: Command, mounted: Path, place: Path) -> None:
    """Where the start of its daemon is shown as another one."""
    (entry,) = registry.list_mounts()
    (shown,) = json.loads(run("status", "--json", through=LATER).out)["mounts"]
    assert (shown["mount_path"], shown["pid"]) == (str(mounted), entry.pid)
    assert run("commit", "data", through=LATER).code == 0
    elsewhere = [f"{name}={value}" for name, value in another_machine(place).items()]
    said = run("mount", "data", place / "second", through=(*LATER, "env", *elsewhere))
    assert said.code == 5
    assert f"at {mounted} (pid {entry.pid})" in said.err
    (mounted / "more").write_text("two")
    assert run("commit", "data").code == 0
    assert registry.list_mounts() == [entry]


@has_time_namespaces
def test_a_mount_that_was_made_in_another_time_namespace_is_seen(run: Command, place: Path) -> None:
    run("create", "data")
    path = place / "mnt" / "data"
    assert run("mount", "data", path, through=LATER).code == 0
    (entry,) = registry.list_mounts()
    assert entry.mount_path == str(path)
    assert entry.process.is_alive
    assert run("unmount", "data").code == 0
    assert wait_gone(entry.pid, 60)
