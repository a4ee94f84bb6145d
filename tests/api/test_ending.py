"""How a volume ends: what finalize and a block that is left say is what is so."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading

import pytest

from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.mounts import volume_mount
from cowfs.blocking import Volume
from cowfs.control import live_mount
from cowfs.control.messages import Left
from cowfs.errors import ConflictError, CowfsError
from cowfs.machine import registry
from cowfs.machine.processes import wait_gone
from cowfs.machine.registry import MountEntry

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]

WATCHDOG_S = 120


def elsewhere(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program in another process, with these environment variables changed."""
    prelude = "import os, signal, sys, threading, time\nfrom cowfs.blocking import Volume\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        [sys.executable, "-c", prelude + code], env=environment, capture_output=True, text=True, timeout=WATCHDOG_S
    )


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


def kill(entry: MountEntry) -> None:
    os.kill(entry.pid, signal.SIGKILL)
    assert wait_gone(entry.pid, WATCHDOG_S)


def test_nothing_is_said_of_work_when_there_is_none() -> None:
    with pytest.raises(ZeroDivisionError) as caught, Volume.new("empty"):
        raise ZeroDivisionError
    assert notes(caught.value) == ""


def test_nothing_is_said_of_work_that_was_committed() -> None:
    with pytest.raises(ZeroDivisionError) as caught, Volume.new("committed") as vol:  # noqa: PT012
        (vol / "file").write_text("x")
        version = vol.commit("in the block")
        raise ZeroDivisionError
    assert notes(caught.value) == ""
    assert vol.locator == version.locator


@pytest.mark.parametrize("how", ["raise ValueError('mine')", "sys.exit(3)"])
def test_uncommitted_work_is_told_of_once(how: str) -> None:
    said = elsewhere(f"with Volume.new('half') as vol:\n    (vol / 'file').write_text('x')\n    {how}")
    assert said.returncode != 0
    assert said.stderr.count("was not published") == 1, said.stderr


def test_a_mount_that_stays_says_what_is_uncommitted() -> None:
    with pytest.raises(ZeroDivisionError) as caught, Volume.new("busy") as vol:  # noqa: PT012
        (vol / "file").write_text("x")
        vol.commit()
        file = (vol / "file").open()
        raise ZeroDivisionError
    assert "still mounted" in notes(caught.value)
    assert "was not published" not in notes(caught.value)
    file.close()
    vol.unmount()


def test_an_interrupted_commit_that_completed_is_told_as_such() -> None:
    """The daemon goes on when whoever asked it has gone; leaving the block waits for it."""
    code = (
        "with Volume.new('interrupted') as vol:\n"
        "    (vol / 'file').write_bytes(os.urandom(8 << 20))\n"
        "    interrupt = lambda progress: os.kill(os.getpid(), signal.SIGINT)\n"
        "    vol.commit('all the same', progress=interrupt)\n"
    )
    said = elsewhere(code)
    assert "KeyboardInterrupt" in said.stderr
    assert "was not published" not in said.stderr
    version = Volume.open("interrupted").commit()
    assert version.message == "all the same"
    assert said.stderr.count(version.locator) == 1


def test_finalize_returns_what_is_published_although_the_daemon_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    release = live_mount.release

    def die_first(entry: MountEntry, *, force: bool = False) -> live_mount.Released:
        kill(entry)
        return release(entry, force=force)

    monkeypatch.setattr(live_mount, "release", die_first)
    with Volume.new("dying") as vol:
        path = vol.path
        (path / "file").write_text("x")
        version = vol.finalize("published")
    assert vol.locator == version.locator
    assert version.stats.files == 1
    assert not path.exists()
    assert registry.list_mounts() == []


@pytest.mark.parametrize("point", ["commit-before-packs", "commit-before-head", "commit-after-head"])
def test_a_commit_whose_daemon_dies_is_found_or_made(point: str) -> None:
    """The daemon has its starter's environment, and dies where that says."""
    code = (
        "vol = Volume.new('killed')\n"
        f"os.environ['COWFS_FAILPOINT'] = {point!r}\n"
        "path = vol.mount()\n"
        "del os.environ['COWFS_FAILPOINT']\n"
        "(path / 'file').write_text('x')\n"
        "version = vol.finalize('once')\n"
        "assert version.message == 'once' and vol.locator == version.locator\n"
        "print(len(version.history()), version.stats.files, path.exists(), version.is_new, vol_is_same)"
    ).replace("print(", "vol_is_same = Volume.open('killed').commit().is_new\nprint(")
    said = elsewhere(code)
    assert said.stdout.split() == ["1", "1", "False", "True", "False"], said.stderr


def test_force_takes_the_files_of_others_away() -> None:
    vol = Volume.new("forced")
    path = vol.mount()
    (path / "file").write_text("x")
    descriptor = os.open(path / "file", os.O_RDWR)
    with pytest.raises(ConflictError):
        vol.unmount()
    vol.unmount(force=True)
    with pytest.raises(OSError, match=r"."):
        os.write(descriptor, b"y")
    os.close(descriptor)
    vol.mount()
    descriptor = os.open(path / "file", os.O_RDWR)
    version = vol.finalize(force=True)
    with pytest.raises(OSError, match=r"."):
        os.write(descriptor, b"y")
    os.close(descriptor)
    assert registry.list_mounts() == []
    version.mount()
    descriptor = os.open(version / "file", os.O_RDONLY)
    with pytest.raises(ConflictError):
        version.unmount()
    version.unmount(force=True)
    os.close(descriptor)
    fork = version.fork("dropped")
    fork.mount()
    descriptor = os.open(fork / "file", os.O_RDWR)
    with pytest.raises(ConflictError):
        fork.discard()
    fork.discard(force=True)
    os.close(descriptor)
    assert registry.list_mounts() == []


def test_an_interrupt_between_commit_and_unmount_leaves_no_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(volume: VolumeHandle, *, force: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(volume_mount, "release", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught, Volume.new("between") as vol:
        (vol / "file").write_text("x")
    assert not vol.is_mounted
    assert vol.locator is not None
    assert "was not published" not in notes(caught.value)


def test_what_goes_wrong_behind_a_published_version_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(entry: MountEntry, *, force: bool = False) -> Left:
        raise CowfsError("no way", hint="None.")

    vol = Volume.new("stuck")
    (vol.mount() / "file").write_text("x")
    with monkeypatch.context() as stuck:
        stuck.setattr(live_mount, "unmount", refuse)
        version = vol.finalize()
    assert vol.locator == version.locator
    assert "no way" in caplog.text


def test_two_threads_finalize_once() -> None:
    vol = Volume.new("shared")
    (vol.mount() / "file").write_text("x")
    outcomes: list[object] = []

    def finalize() -> None:
        try:
            outcomes.append(vol.finalize("once"))
        except CowfsError as error:
            outcomes.append(error.kind)

    threads = [threading.Thread(target=finalize) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WATCHDOG_S)
    assert "invalid_state" in outcomes
    assert len(outcomes) == 2


def test_a_version_whose_files_are_open_still_leaves_its_path() -> None:
    with Volume.new("data") as vol:
        (vol / "weights").write_bytes(b"w" * 300_000)
    with Volume.version("data") as version:
        path = version.path
        file = (path / "weights").open("rb")
        held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    (entry,) = registry.list_mounts()
    assert not os.path.ismount(path)
    assert held[-10:] == b"w" * 10
    held.close()
    file.close()
    assert wait_gone(entry.pid, WATCHDOG_S)
    assert not version.is_mounted


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a mount namespace")
def test_a_version_that_another_namespace_has_goes_off_its_path(caplog: pytest.LogCaptureFixture) -> None:
    with Volume.new("data") as vol:
        (vol / "file").write_text("1")
    with Volume.version("data") as version:
        path = version.path
        holds = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"cd {path}; echo held; read gone"]
        holder = subprocess.Popen(holds, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
    assert not path.exists()
    assert "it is off its path" in caplog.text
    assert "It ends when the last of them is gone" in caplog.text
    assert "stays mounted" not in caplog.text
    holder.communicate("\n", timeout=WATCHDOG_S)


def test_a_version_that_another_process_reads_stays(caplog: pytest.LogCaptureFixture) -> None:
    with Volume.new("data") as vol:
        (vol / "one").write_text("1")
        (vol / "two").write_text("2")
    loader = (
        "import sys; held = open(sys.argv[1] + '/one'); print(held.read(), flush=True); "
        "input(); print(open(sys.argv[1] + '/two').read())"
    )
    with Volume.version("data") as version:
        path = version.path
        child = subprocess.Popen(
            [sys.executable, "-c", loader, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
    assert "stays mounted" in caplog.text
    assert str(child.pid) in caplog.text
    assert child.communicate("\n", timeout=WATCHDOG_S)[0] == "2\n"
    (entry,) = registry.list_mounts()
    live_mount.unmount(entry)


def test_a_scratch_with_an_open_file_is_not_thrown_away_at_the_end_of_a_block() -> None:
    with Volume.new("data") as vol:
        (vol / "one").write_text("1")
    version = Volume.version("data")
    version.mount(scratch=True)
    with pytest.raises(ConflictError, match="is in use"), version:  # noqa: PT012
        file = (version.path / "new").open("w")
        file.write("x")
        file.flush()
    file.close()
    assert (version.path / "new").read_text() == "x"
    version.unmount()
