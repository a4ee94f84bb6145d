"""A supervised mount whose daemon is killed: programs wait for the next one, and notice nothing."""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cowfs.supervisor import client, wire
from tests import supervisors
from tests.system.machine import CommandFailed, Machine, mounted_below, wait_until_gone

pytestmark = [pytest.mark.mount, pytest.mark.slow]

PATIENCE_S = 120
PIDFD_GETFD = 438  # a system call
STARTING = "its daemon is being started already"


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def status(machine: Machine) -> dict[str, object]:
    found: dict[str, object] = machine.json("status")["mounts"][0]["details"]
    return found


@pytest.fixture
def path(machine: Machine) -> Path:
    machine.create("v")
    return machine.mount("v", "--supervise")


def test_open_files_go_on(machine: Machine, path: Path) -> None:
    (path / "old").write_bytes(b"committed")
    machine.commit(path)
    directory = os.open(path, os.O_RDONLY)
    with (
        (path / "named").open("w+b", buffering=0) as named,
        (path / "nameless").open("w+b", buffering=0) as nameless,
        (path / "old").open("r+b", buffering=0) as old,
        (path / "mapped").open("w+b", buffering=0) as mapped,
    ):
        os.unlink(path / "nameless")
        os.unlink(path / "old")
        mapped.truncate(4096)
        fcntl.flock(named, fcntl.LOCK_EX)
        with mmap.mmap(mapped.fileno(), 4096) as memory:
            for kill in range(3):
                named.write(b"n%d" % kill)
                nameless.write(b"l%d" % kill)
                memory[kill] = 65 + kill
                machine.kill_daemon(path)
                assert os.pread(named.fileno(), 100, 0) == b"n0n1n2"[: 2 * kill + 2]
                assert os.pread(nameless.fileno(), 100, 0) == b"l0l1l2"[: 2 * kill + 2]
                assert os.pread(old.fileno(), 100, 0) == b"committed"
                assert sorted(os.listdir(directory)) == ["mapped", "named"]
                with (path / "named").open() as other, pytest.raises(BlockingIOError):
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locator = machine.commit(path)
            assert machine.cowfs("cat", f"{locator}/mapped").stdout[:3] == "ABC"
    os.close(directory)
    assert status(machine)["unsupervised"] is None
    machine.unmount(path)
    assert machine.json("status")["mounts"] == []


def test_a_daemon_that_dies_again_and_again_is_given_up(machine: Machine, path: Path) -> None:
    (path / "f").write_text("kept")
    (working_copy,) = (machine.root / "c" / "state" / "working").iterdir()
    os.rename(working_copy / "state.json", working_copy / "aside")
    machine.kill_daemon(path)
    until(lambda: not list(mounted_below(machine.root)), "the mount was not taken off")
    os.rename(working_copy / "aside", working_copy / "state.json")
    (left,) = machine.json("status")["working_copies"]
    assert "its daemon died" in left["note"]
    assert "state.json" in left["note"]
    assert machine.json("status")["mounts"] == []
    assert (machine.mount("v") / "f").read_text() == "kept"


def test_a_mount_that_is_given_up_hangs_nobody(machine: Machine, path: Path) -> None:
    """Also while a process has the device that was killed and cannot end, here this one."""
    (path / "f").write_text("kept")
    daemon = machine.daemon_pid(path)
    (number,) = [int(each.name) for each in Path(f"/proc/{daemon}/fd").iterdir() if os.readlink(each) == "/dev/fuse"][
        :1
    ]
    process = os.pidfd_open(daemon)
    device = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, number, 0)
    assert device >= 0, os.strerror(ctypes.get_errno())
    try:
        (working_copy,) = (machine.root / "c" / "state" / "working").iterdir()
        os.rename(working_copy / "state.json", working_copy / "aside")
        machine.kill_daemon(path)
        with pytest.raises(OSError, match=r"not connected|connection abort"):
            os.statvfs(path)
        until(lambda: not list(mounted_below(machine.root)), "the mount was not taken off")
    finally:
        os.close(device)
        os.close(process)


def test_the_next_supervisor_is_found(machine: Machine, path: Path) -> None:
    pid = supervisors.pid_of(machine.root / "run")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    assert status(machine)["unsupervised"] == "its supervisor is gone"
    machine.create("w")
    other = machine.mount("w", "--supervise")
    until(
        lambda: all(each["details"]["unsupervised"] is None for each in machine.json("status")["mounts"]), "not found"
    )
    machine.kill_daemon(path)
    (path / "f").write_text("after")
    machine.unmount(path)
    machine.unmount(other)


def test_nonsense_costs_a_connection_and_no_mount(machine: Machine, path: Path) -> None:
    runtime = machine.root / "run"
    pid = supervisors.pid_of(runtime)
    for message in ({"restart": "x"}, {"keep": "x"}, {"restart": status(machine)["registration"], "arguments": 1}, {}):
        connection = client.find(str(runtime / "cowfs"))
        assert connection is not None
        with connection, suppress(ConnectionError):
            wire.send(connection, message)
            connection.send(b"no message")
            while connection.recv(1 << 16):
                pass
    assert supervisors.pid_of(runtime) == pid
    machine.kill_daemon(path)
    (path / "f").write_text("after")
    machine.unmount(path)


def test_a_forced_unmount_ends_a_silent_daemon_for_good(machine: Machine, path: Path) -> None:
    (path / "f").write_text("kept")
    pid = machine.daemon_pid(path)
    os.kill(pid, signal.SIGSTOP)
    machine.unmount(path, "--force")
    assert not list(mounted_below(machine.root))
    assert machine.json("status")["mounts"] == []
    assert (machine.mount("v") / "f").read_text() == "kept"


def test_a_restart_under_a_program(machine: Machine, path: Path) -> None:
    with (path / "f").open("w+b", buffering=0) as file:
        for number in range(3):
            before = machine.daemon_pid(path)
            (done,) = machine.json("restart", path)["restarted"]
            assert done["pid"] == machine.daemon_pid(path) != before
            file.write(b"%d" % number)
        machine.commit(path)
        assert os.pread(file.fileno(), 10, 0) == b"012"
    assert len(machine.json("restart", "--all")["restarted"]) == 1
    machine.unmount(path)
    assert machine.json("restart", "--all")["restarted"] == []


def test_a_restart_that_cannot_go_on_is_taken_back(machine: Machine, path: Path) -> None:
    (path / "f").write_text("kept")
    (entry,) = machine.mounts()
    for program in (["/bin/false"], ["/nonexistent"]):
        before = machine.daemon_pid(path)
        reason = STARTING
        while reason == STARTING:  # of the restart before
            reason = client.restart(str(machine.root / "run" / "cowfs"), entry["id"], program, {})
        assert reason
        assert (path / "f").read_text() == "kept"
        assert machine.daemon_pid(path) != before
    machine.cowfs("restart", path)
    machine.unmount(path)


def test_a_mount_that_is_not_supervised_is_not_restarted(machine: Machine) -> None:
    machine.create("v")
    path = machine.mount("v")
    with pytest.raises(CommandFailed, match="not supervised"):
        machine.cowfs("restart", path)
    with pytest.raises(CommandFailed, match="one of PATH and --all"):
        machine.cowfs("restart")
    machine.unmount(path)


def test_a_clean_end_is_an_end(machine: Machine, path: Path) -> None:
    os.kill(machine.daemon_pid(path), signal.SIGTERM)
    until(lambda: not list(mounted_below(machine.root)), "it is still mounted")
    until(lambda: machine.json("status")["mounts"] == [], "it is still known")
    assert machine.mount("v").is_dir()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--no-fast-lane"], "pyfuse3"),
        (["--transport", "uring"], "io_uring"),
        (["--foreground"], "foreground"),
        (["--read-only"], "writable"),
    ],
)
def test_what_cannot_be_supervised_is_refused(machine: Machine, options: list[str], reason: str) -> None:
    machine.create("v")
    machine.commit(machine.mount("v", at="first"))
    with pytest.raises(CommandFailed) as refused:
        machine.mount("v", "--supervise", *options, at="second")
    assert reason in refused.value.done.stderr


def test_by_default_where_the_environment_says_so(machine: Machine) -> None:
    machine.environment["COWFS_SUPERVISE"] = "1"
    machine.create("v")
    path = machine.mount("v")
    assert status(machine)["unsupervised"] is None
    machine.kill_daemon(path)
    assert os.listdir(path) == []
    version = json.loads(machine.cowfs("commit", path, "--json").stdout)["version"]
    read_only = machine.mount(f"v@{version}", at="ro")
    said = {each["mount_path"]: each["details"]["unsupervised"] for each in machine.json("status")["mounts"]}
    assert said[str(read_only)] == "only volumes that are mounted writable are"
    machine.unmount(read_only)
    machine.unmount(path)
