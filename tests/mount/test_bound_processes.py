"""Mounts that are bound to a process: their daemons end them when it is gone, also by kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cowfs import store as stores
from cowfs.api.mounts import overview, process_binding
from cowfs.blocking import ROVolume, Volume
from cowfs.control.binding import Binding
from cowfs.daemon.bound_processes import BoundProcesses
from cowfs.daemon.leaving import FORK_S
from cowfs.machine import processes, registry
from cowfs.machine.processes import wait_gone
from cowfs.store.refs import leases
from tests.api.conftest import place
from tests.api.test_volumes_live import another_machine, elsewhere
from tests.mount.daemons import Place
from tests.mount.test_transport import cpu_s

__all__ = ["place"]

pytestmark = pytest.mark.mount

WAIT_S = 60
PRELUDE = """
import os, subprocess, sys
from cowfs.api.mounts import process_binding
from cowfs.blocking import Volume
def say(text="ready"):
    print(text, flush=True)
    return sys.stdin.readline()
def die():
    os.kill(os.getpid(), 9)
"""
SOURCES = {
    "rw": "volume = Volume.open('data')\npath = volume.mount()",
    "ro": "path = Volume.version('data').mount()",
    "scratch": "path = Volume.version('data').mount(scratch=True)",
}


class Program:
    """A program on this machine, which says "ready" and then waits for a line."""

    def __init__(self, code: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code], env=environment, stdin=pipe, stdout=pipe, text=True
        )

    def wait_ready(self) -> str:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        assert said, "it ended"
        return said

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> int:
        self.process.communicate(timeout=WAIT_S)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.end()


def killed(code: str) -> None:
    program = Program(f"{code}\ndie()")
    assert program.end() == -signal.SIGKILL


def bound(on_error: str, source: str = SOURCES["rw"]) -> str:
    inner = source.replace("\n", "\n    ")
    return f"with process_binding.bind({on_error!r}):\n    {inner}\n"


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s, what
        time.sleep(0.02)


def wait_ended() -> None:
    for entry in registry.list_mounts():
        assert wait_gone(entry.pid, WAIT_S), f"{entry.mount_path} is still served"
    assert registry.list_mounts() == []


def lease_state(place: Path) -> str | None:
    """What the store alone says: another machine cannot see the holder's process."""
    store = stores.open_store((place / "store").as_uri())
    try:
        stores.load_record(store)
        lease = leases.read(store, "data")
    finally:
        store.close()
    return lease.state if lease is not None else None


@pytest.fixture
def version(place: Path) -> ROVolume:
    with Volume.new("data") as volume:
        (volume / "file").write_text("one")
        return volume.finalize("one")


@pytest.mark.parametrize("on_error", ["keep", "commit", "discard"])
@pytest.mark.parametrize("mode", ["rw", "ro", "scratch"])
def test_a_mount_ends_with_its_process(version: ROVolume, place: Path, mode: str, on_error: str) -> None:
    writes = "" if mode == "ro" else "(path / 'file').write_text('two')"
    killed(f"{bound(on_error, SOURCES[mode])}{writes}")
    wait_ended()
    wait_until(lambda: lease_state(place) == "released", "other machines need not wait for the lease to run out")
    other = elsewhere(
        "volume = Volume.open('data')\nprint((volume.mount() / 'file').read_text())\nvolume.unmount()",
        **another_machine(place),
    )
    is_published = mode == "rw" and on_error == "commit"
    assert other == ("two" if is_published else "one")
    last = Volume.version("data")
    assert (last.message, last.labels) == (
        ("after the process ended", {"cowfs.error": "process ended"}) if is_published else ("one", {})
    )
    is_kept = mode == "rw" and on_error == "keep"
    status = overview.status()
    assert [each.has_uncommitted for each in status.working_copies if each.has_uncommitted] == (
        [True] if is_kept else []
    )
    if is_kept:
        (advice,) = status.advice
        assert advice.problem == "left"
        assert "its uncommitted work, if there is any, is kept" in advice.text
        assert "`cowfs mount data PATH`" in advice.text
        log = Path(status.working_copies[0].working_copy, "daemon.log").read_text()
        assert "which used the mount" in log
        with Volume.open("data") as volume:
            assert (volume / "file").read_text() == "two"
            status = overview.status()
        assert [each.note for each in overview.status().working_copies if each.note] == [], "a writer has opened it"
    elif is_published:
        (left,) = status.working_copies
        assert left.note is not None
        assert f"its work was committed as version {last.id[:12]}" in left.note


@pytest.mark.parametrize("on_error", ["keep", "discard"])
def test_a_commit_under_way_finishes_first(version: ROVolume, place: Path, on_error: str) -> None:
    killed(
        f"{bound(on_error)}(path / 'large').write_bytes(os.urandom(32 << 20))\n"
        "volume.commit('mine', progress=lambda _: die())"
    )
    wait_ended()
    assert Volume.version("data").message == "mine"
    wait_until(lambda: lease_state(place) == "released", "other machines need not wait for the lease to run out")
    assert overview.status().advice == []


def test_work_that_cannot_be_committed_is_kept(version: ROVolume, place: Path) -> None:
    """The other machine takes the volume over meanwhile."""
    program = Program(f"{bound('commit')}(path / 'file').write_text('two')\nsay()")
    program.wait_ready()
    elsewhere(
        "volume = Volume.open('data')\nvolume.mount(take_over=True)\n(volume / 'file').write_text('theirs')\n"
        "volume.finalize('theirs')",
        **another_machine(place),
    )
    program.kill()
    wait_ended()
    (advice,) = overview.status().advice
    assert "could not be committed and was kept" in advice.text
    assert Volume.version("data").message == "theirs"
    assert Volume.open("data").resolve().has_changes()


def test_programs_with_open_files_lose_them(version: ROVolume) -> None:
    program = Program(f"{bound('keep')}(path / 'file').write_text('two')\nsay(path)")
    path = Path(program.wait_ready())
    with (path / "file").open("rb") as file:
        program.kill()
        wait_ended()
        with pytest.raises(OSError, match=r"endpoint|abort"):
            os.fsync(file.fileno())
    assert not os.path.ismount(path)


def test_a_forked_child_does_not_keep_the_mount(version: ROVolume) -> None:
    program = Program(
        f"{bound('keep')}reads, writes = os.pipe()\nchild = os.fork()\n"
        "if not child:\n    os.close(writes)\n    os.close(1)\n    os.read(0, 1)\n    os._exit(0)\nsay()"
    )
    program.wait_ready()
    program.process.kill()
    program.process.wait(WAIT_S)
    wait_ended()
    program.end()  # closes the child's input


@pytest.mark.parametrize("other_is_bound", [False, True])
def test_a_mount_stays_while_others_share_it(version: ROVolume, *, other_is_bound: bool) -> None:
    first = Program(f"{bound('discard')}say()")
    first.wait_ready()
    second = Program(
        f"{bound('keep') if other_is_bound else SOURCES['rw']}\nsay()\n(path / 'file').write_text('2')\nsay()"
    )
    second.wait_ready()
    (entry,) = registry.list_mounts()
    first.kill()
    second.go_on()
    second.wait_ready()
    assert [each.id for each in registry.list_mounts()] == [entry.id]
    if not other_is_bound:
        time.sleep(2 * FORK_S)
    second.kill()
    if other_is_bound:
        wait_ended()
    else:
        time.sleep(1)
        assert [each.id for each in registry.list_mounts()] == [entry.id], "it was never bound"
    assert Volume.open("data").resolve().has_changes()


def test_a_binding_ends_with_the_use_of_the_mount(version: ROVolume) -> None:
    """The second program has left the mount to the first, which is not bound: its mount stays when
    it is killed, as it always did."""
    first = Program(f"{SOURCES['rw']}\nsay()")
    first.wait_ready()
    second = Program(
        "mine = Volume.open('data')\nmine.mount()\n"
        f"{bound('discard')}say()\nvolume.unmount()\nsay()\nmine.unmount()\nsay()"
    )
    second.wait_ready()
    for _ in range(2):
        second.go_on()
        second.wait_ready()
    (entry,) = registry.list_mounts()
    first.kill()
    second.kill()
    time.sleep(1)
    assert [each.id for each in registry.list_mounts()] == [entry.id]


def test_an_unbound_object_of_the_process_keeps_the_work(version: ROVolume) -> None:
    killed(f"mine = Volume.open('data')\nmine.mount()\n{bound('discard')}(path / 'file').write_text('two')")
    wait_ended()
    assert Volume.open("data").resolve().has_changes()


def test_work_of_an_earlier_run_is_kept(version: ROVolume) -> None:
    killed(f"{SOURCES['rw']}\n(path / 'early').write_text('1')\nvolume.unmount()")
    killed(f"{bound('discard')}(path / 'late').write_text('2')")
    wait_ended()
    with Volume.open("data") as volume:
        assert (volume / "early").read_text() == "1"


def test_a_mount_by_command_stays(version: ROVolume, place: Path) -> None:
    command = str(Path(sys.executable).with_name("cowfs"))
    subprocess.run([command, "mount", "data", place / "mnt" / "data"], check=True, capture_output=True, timeout=WAIT_S)
    killed(bound("discard"))
    time.sleep(0.5)
    assert [each.mount_path for each in registry.list_mounts()] == [str(place / "mnt" / "data")]


def test_a_copy_is_left_as_it_is(version: ROVolume) -> None:
    killed(bound("discard", SOURCES["rw"].replace("mount()", "mount(mode='copy')")))
    (summary,) = overview.status().mounts
    assert summary.kind == "folder"
    Volume.open("data").finalize("goes on")


def test_a_reused_pid_is_not_taken_for_the_process(tmp_path: Path) -> None:
    with Place() as place:
        place.volume("v")
        ours = processes.this_process()
        mount = place.mount("v", binding=Binding(replace(ours, started=ours.started - 500), "keep"))
        mount.wait_clean_end()
        assert f"process {os.getpid()}, which used the mount" in mount.log()
        mount = place.mount("v", binding=Binding(ours, "keep"))
        time.sleep(0.5)
        assert mount.process.poll() is None
        mount.unmount()


def test_a_bound_mount_that_is_idle_uses_no_cpu() -> None:
    """As test_transport.py::test_an_idle_mount_uses_no_cpu."""
    with Place() as place:
        place.volume("v")
        mount = place.mount("v", binding=Binding(processes.this_process(), "keep"))
        time.sleep(1)
        before = cpu_s(mount.process.pid)
        time.sleep(6)
        assert cpu_s(mount.process.pid) - before <= 0.2 * 6 / 60
        mount.unmount()


@pytest.mark.parametrize("has_pidfds", [True, False])
def test_processes_are_watched(monkeypatch: pytest.MonkeyPatch, *, has_pidfds: bool) -> None:
    if not has_pidfds:
        monkeypatch.setattr(processes, "descriptor_of", lambda _: None)
    gone: list[int] = []
    answers = iter([False, True])  # as if another process was ending the mount, and gave up
    seen = threading.Event()

    def on_gone(binding: Binding) -> bool:
        gone.append(binding.process.pid)
        is_done = next(answers)
        if is_done:
            seen.set()
        return is_done

    children = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    machine, boot = processes.machine_id(), processes.boot_id()
    watch = BoundProcesses(on_gone)
    watch.start()
    for child in children:
        identity = processes.ProcessIdentity(machine, boot, child.pid, processes.start_time(child.pid) or 0)
        watch.bind(Binding(identity, "keep"))
        if child is children[1]:
            watch.bind(Binding(identity, None))
    for child in children:
        child.kill()
        child.communicate()
    assert seen.wait(WAIT_S)
    watch.end()
    assert gone == [children[0].pid] * 2


def test_bindings_of_one_process_are_merged() -> None:
    ours = processes.this_process()
    keep, discard = Binding(ours, "keep"), Binding(ours, "discard")
    merge = process_binding._merge
    assert merge([]) is None
    assert merge([None]) is None
    assert merge([discard, discard]) == discard
    assert merge([discard, None]) == keep
    assert merge([discard, keep]) == keep
