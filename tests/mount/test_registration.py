"""The runtime directory goes with a user's last login, and mounts stay: they are found and reached
again, and nothing of them is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cowfs.blocking import Volume
from cowfs.cli import main
from cowfs.control import live_mount
from cowfs.errors import ConflictError, UnavailableError
from cowfs.machine import mount_table, registry
from cowfs.machine.registry import MountEntry
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.mount

WAIT_S = 60.0
OTHER = "from cowfs.blocking import Volume; print(Volume.open('data').commit('of another').id)"


def found(path: Path) -> MountEntry:
    entry = registry.find_by_path(path)
    assert entry is not None
    return entry


def wait_for(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.1)


def wait_until_restored(path: Path) -> None:
    wait_for(lambda: os.path.exists(found(path).socket) and registry.sharing_file(found(path)).exists())


@pytest.fixture
def runtime(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory whose parent is as /run is to users: read-only once it is made."""
    above = place / "above"
    above.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", above], check=True)
    (above / "run").mkdir(mode=0o700)
    (place / "tmp").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(above / "run"))
    monkeypatch.setenv("TMPDIR", str(place / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield above / "run"
    subprocess.run(["umount", "-l", above], check=True)


def log_out(runtime: Path) -> None:
    def is_gone() -> bool:
        """The daemon may be making it again at this moment."""
        subprocess.run(["mount", "-o", "remount,bind,rw", runtime.parent], check=True)
        shutil.rmtree(runtime, ignore_errors=True)
        done = subprocess.run(["mount", "-o", "remount,bind,ro", runtime.parent], capture_output=True, check=False)
        return done.returncode == 0 and not runtime.exists()

    wait_for(is_gone)


def log_in(runtime: Path) -> None:
    subprocess.run(["mount", "-o", "remount,bind,rw", runtime.parent], check=True)
    runtime.mkdir(mode=0o700)


def test_a_socket_that_is_removed_is_made_again(place: Path) -> None:
    run = place / "run"
    volume = Volume.new("data")
    path = volume.mount()
    registry.mark_lasting(found(path))
    at_home = place / "c" / "state" / "mounts" / f"{found(path).id}.json"
    at_home.unlink()
    wait_for(at_home.exists)  # the daemon has looked: it knows that the mount is to last
    (path / "one").write_text("1")
    shutil.rmtree(run)
    with pytest.raises(UnavailableError) as caught:
        live_mount.status(found(path))
    assert ("try again" in caught.value.hint, f"`fusermount3 -u {path}`" in caught.value.hint) == (True, True)
    wait_until_restored(path)
    for directory in (run, run / "cowfs"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700, directory
    assert stat.S_IMODE(os.stat(found(path).socket).st_mode) == 0o600
    assert registry.is_lasting(found(path))
    other = subprocess.run([sys.executable, "-c", OTHER], capture_output=True, text=True, check=True)
    assert volume.history(limit=1)[0].id == other.stdout.strip()
    os.unlink(found(path).socket)
    wait_until_restored(path)
    (path / "two").write_text("2")
    assert main._run(["unmount", "data"], as_json=False) == 0
    assert mount_table.mount_at(str(path)) is None
    assert list((run / "cowfs").rglob("*.sock*")) == list((run / "cowfs" / "mounts").iterdir()) == []
    with volume:
        assert sorted(os.listdir(volume)) == ["one", "two"]


def test_who_shared_the_mount_shares_it_still(place: Path) -> None:
    one, other = Volume.new("data"), Volume.open("data")
    path = one.mount()
    assert other.mount() == path
    shutil.rmtree(place / "run")
    wait_until_restored(path)
    one.unmount()
    (path / "two").write_text("2")
    with other:
        assert (other / "two").read_text() == "2"
    assert mount_table.mount_at(str(path)) is None


SHARES = """
import sys
from cowfs.blocking import Volume
volume = Volume.open("data")
path = volume.mount(mode=sys.argv[1])
(path / "theirs").write_text("of the other")
print("wrote", flush=True)
sys.stdin.readline()
print(volume.commit().id, flush=True)
volume.unmount()
"""


@contextlib.contextmanager
def another(mode: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that shares the mount, has written to it, and does nothing. A line makes it
    commit."""
    command = [sys.executable, "-c", SHARES, mode]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "wrote\n"
        yield other


def test_the_work_of_an_idle_sharer_is_not_dropped(place: Path) -> None:
    """It holds a lock on an entry that was removed, and knows of no other."""
    volume = Volume.new("data")
    path = volume.mount()
    with another("fuse") as other:
        shutil.rmtree(place / "run")
        wait_until_restored(path)
        for end in (volume.discard, volume.unmount):
            with pytest.raises(ConflictError, match="used by other processes"):
                end()
        made, _ = other.communicate("go\n", timeout=WAIT_S)
    assert Volume.version("data").id == made.strip()
    volume.unmount()
    assert Volume.version("data").files.read("theirs") == b"of the other"


@pytest.mark.parametrize("is_removed", [False, True])
def test_sharers_of_a_copy_see_each_other_whatever_their_runtime_directories(place: Path, is_removed: bool) -> None:
    volume = Volume.new("data")
    path = volume.mount(mode="copy")
    (place / "other").mkdir(mode=0o700)
    with another("copy", XDG_RUNTIME_DIR=str(place / "other")) as other:
        if is_removed:
            for directory in (place / "run", place / "other"):
                shutil.rmtree(directory)
                directory.mkdir(mode=0o700)
        with pytest.raises(ConflictError, match="other processes of yours use"):
            volume.discard()
        assert main._run(["unmount", "data", "--discard"], as_json=False) == ConflictError.exit_code
        assert (path / "theirs").read_text() == "of the other"
        made, _ = other.communicate("go\n", timeout=WAIT_S)
    assert Volume.version("data").id == made.strip()
    volume.unmount()
    assert Volume.version("data").files.read("theirs") == b"of the other"
    assert [left for left in place.rglob("mounts/*") if left.is_file()] == []


@pytest.mark.parametrize("first", ["with", "without"])
def test_who_has_another_runtime_directory_shares_the_mount(
    place: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """As a terminal and a job of cron have."""
    (place / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "tmp"))
    run = os.environ["XDG_RUNTIME_DIR"]

    def switch(is_set: bool) -> None:
        if is_set:
            monkeypatch.setenv("XDG_RUNTIME_DIR", run)
        else:
            monkeypatch.delenv("XDG_RUNTIME_DIR")

    switch(first == "with")
    one = Volume.new("data")
    path = one.mount()
    switch(first != "with")
    other = Volume.open("data")
    assert other.mount(path) == path
    registry.mark_lasting(found(path))
    other.unmount()
    switch(first == "with")
    one.unmount()
    assert mount_table.mount_at(str(path)) is not None, "it was asked for by command, too"
    switch(first != "with")
    assert main._run(["unmount", "data"], as_json=False) == 0
    assert mount_table.mount_at(str(path)) is None
    assert [path for path in place.rglob("mounts/*") if path.suffix != ".log"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a runtime directory")
def test_without_a_runtime_directory_the_temporary_one_is_used(runtime: Path, place: Path) -> None:
    version = Volume.new("data").finalize()
    path = version.mount(scratch=True)
    version.commit_scratch(name="made")
    (path / "one").write_text("1")
    log_out(runtime)
    wait_until_restored(path)
    assert found(path).socket.startswith(f"{place}/tmp/cowfs-")
    made = Volume.open("made")
    assert (made.path, made.has_changes()) == (path, True)
    first = made.commit("logged out")
    log_in(runtime)
    wait_until_restored(path)
    (path / "two").write_text("2")
    assert [each.path for each in made.diff()] == ["/two"]
    made.commit("logged in")
    assert made.history(limit=2)[1] == first
    made.unmount()
    assert mount_table.mount_at(str(path)) is None
    assert [
        left for each in (runtime, place / "tmp") for kind in ("json", "sock") for left in each.rglob(f"*.{kind}*")
    ] == []
