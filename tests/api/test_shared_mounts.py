"""Several processes of one user mount one volume: they share the mount. And what a writer learns
that comes back after somebody else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cowfs.api.mounts import launch, overview
from cowfs.blocking import ROVolume, Volume
from cowfs.control import live_mount
from cowfs.errors import ConflictError, InvalidStateError, LeaseHeldError, LeaseLostError
from cowfs.machine import lock, registry, sharing
from cowfs.machine.lock import LockHolder
from cowfs.machine.processes import wait_gone
from cowfs.machine.working_copy import WorkingCopy
from tests.api.test_volumes_live import another_machine, elsewhere

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]

WORKERS = 4
WATCHDOG_S = 180

MOUNT = """
import sys
from collections.abc import Iterator
from cowfs.blocking import Volume
volume = Volume.open("shared")
volume.resolve()
print("ready", flush=True)
sys.stdin.readline()
path = volume.mount()
(path / f"by-{sys.argv[1]}").write_text("here")
print(path, flush=True)
"""


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_processes_that_mount_at_once_share_the_mount() -> None:
    Volume.new("shared").resolve()
    workers = [started(MOUNT, str(number)) for number in range(WORKERS)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = [worker.communicate(timeout=WATCHDOG_S) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * WORKERS, said
    assert len({out for out, _ in said}) == 1
    assert len(registry.list_mounts()) == 1
    version = Volume.open("shared").finalize()
    assert version.stats.files == WORKERS


WORK = """
import sys
from collections.abc import Iterator
from cowfs.blocking import Volume
with Volume.open("shared") as volume:
    path = volume.path
    (path / f"by-{sys.argv[1]}").write_text("here")
    print("written", flush=True)
    sys.stdin.readline()
    (path / f"more-{sys.argv[1]}").write_text("here")
    if sys.argv[2] == "fails":
        raise ValueError("mine")
print(volume.locator, volume.is_mounted, flush=True)
"""


@pytest.mark.parametrize("how", ["works", "fails"])
def test_the_last_of_several_processes_unmounts(how: str) -> None:
    Volume.new("shared").resolve()
    workers = [started(WORK, str(number), how) for number in range(3)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "written\n"
    for worker in workers:  # one after the other: those that are left go on writing
        assert len(registry.list_mounts()) == 1
        said, errors = worker.communicate("go\n", timeout=WATCHDOG_S)
        assert "OSError" not in errors
        assert ("mine" in errors) is (how == "fails")
        assert said.endswith("False\n" if worker is workers[-1] else "True\n") or how == "fails", errors
    assert registry.list_mounts() == []
    volume = Volume.open("shared").resolve()
    assert volume.has_changes() is (how == "fails")
    assert volume.commit().stats.files == 6


@pytest.mark.parametrize("how", ["finalize", "unmount", "block", "fails"])
def test_the_last_of_several_objects_of_a_process_unmounts(how: str) -> None:
    """Each by a thread of its own: one after the other, the others go on writing."""
    Volume.new("shared").resolve()
    volumes = [Volume.open("shared") for _ in range(3)]
    written, turns = threading.Barrier(len(volumes) + 1), [threading.Event() for _ in volumes]

    def work(number: int) -> None:
        volume = volumes[number]
        with volume if how in ("block", "fails") else contextlib.nullcontext():
            path = volume.mount()
            (path / f"by-{number}").write_text("here")
            written.wait(WATCHDOG_S)
            assert turns[number].wait(WATCHDOG_S)
            (path / f"more-{number}").write_text("here")
            if how == "fails":
                raise ValueError("mine")
        if how == "finalize":
            volume.finalize()
        elif how == "unmount":
            volume.unmount()

    with ThreadPoolExecutor(len(volumes)) as threads:
        working = [threads.submit(work, number) for number in range(len(volumes))]
        written.wait(WATCHDOG_S)
        for number, turn in enumerate(turns):
            assert len(registry.list_mounts()) == 1
            turn.set()
            assert isinstance(working[number].exception(WATCHDOG_S), ValueError if how == "fails" else type(None))
    assert registry.list_mounts() == []
    version = Volume.open("shared").commit()
    assert version.stats.files == 6
    assert {entry.name for entry in version.files.ls("/")} >= {"more-2"}


def test_an_object_does_not_discard_the_work_of_others() -> None:
    Volume.new("shared").resolve()
    one, other = Volume.open("shared"), Volume.open("shared")
    one.mount()
    (other.mount() / "a").write_text("1")
    with pytest.raises(ConflictError, match="other objects"):
        one.discard()
    assert one.is_mounted
    assert other.commit().stats.files == 1
    other.unmount()
    one.discard()
    assert registry.list_mounts() == []


def test_an_object_that_does_not_use_the_mount_may_end_it() -> None:
    volume = Volume.new("shared")
    (volume.mount() / "a").write_text("1")
    assert Volume.open("shared").finalize().stats.files == 1
    assert volume.is_mounted, "it is left to who uses it"
    Volume.open("shared").unmount()
    assert registry.list_mounts() == []
    with pytest.raises(InvalidStateError, match="has ended"):
        volume.commit()


def test_force_ends_a_shared_mount() -> None:
    volume = Volume.new("shared")
    path = volume.mount()
    worker = started(MOUNT + "sys.stdin.readline()\n", "worker")
    assert worker.stdout is not None
    assert worker.stdin is not None
    assert worker.stdout.readline() == "ready\n"
    worker.stdin.write("go\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == f"{path}\n"
    again = Volume.open("shared")
    again.mount()
    again.finalize()
    assert len(registry.list_mounts()) == 1
    volume.finalize(force=True)
    assert registry.list_mounts() == []
    worker.communicate("end\n", timeout=WATCHDOG_S)


def test_a_turn_is_given_back_by_a_process_that_is_killed() -> None:
    volume = Volume.new("shared").resolve()
    assert volume.store_url is not None
    script = (
        "import sys\nfrom cowfs.blocking import Volume\nfrom cowfs.api.mounts import launch\n"
        "def hang(*a, **k):\n    print('mounting', flush=True)\n    sys.stdin.readline()\n"
        "launch.start = hang\nVolume.open('shared').mount()"
    )
    stuck = started(script)
    assert stuck.stdout is not None
    assert stuck.stdout.readline() == "mounting\n"
    waiting = started(MOUNT, "second")
    assert waiting.stdout is not None
    assert waiting.stdin is not None
    assert waiting.stdout.readline() == "ready\n"
    waiting.stdin.write("go\n")
    waiting.stdin.flush()
    stuck.kill()
    stuck.communicate()
    _, errors = waiting.communicate(timeout=WATCHDOG_S)
    assert waiting.returncode == 0, errors


KILLED = """
import os, signal, sys
from cowfs.base import clock
from cowfs.api.mounts import launch
from cowfs.blocking import Volume
from cowfs.machine.working_copy import WorkingCopy
volume = Volume.open("shared").resolve()
working_copy = WorkingCopy.locate(volume._handle.store.record.store_id, "shared")
def told(process, spec, handover, *_):
    process.stdin.write(spec.to_json().encode() + b"\\n" + handover.to_line())
    process.stdin.close()
    while (holder := working_copy.holder()) is None:
        clock.sleep_s(0.001)
    os.kill(holder.process.pid, signal.SIGSTOP)
    print(holder.process.pid, flush=True)
    sys.stdin.readline()
launch._exchange = told
volume.mount()
"""


def test_a_daemon_whose_starter_was_killed_is_waited_for() -> None:
    """It has the volume until it would be ready, and goes then."""
    Volume.new("shared").resolve()
    with started(KILLED) as starter, ThreadPoolExecutor(1) as threads:
        assert starter.stdout is not None
        daemon = int(starter.stdout.readline())
        starter.kill()
        volume = Volume.open("shared")
        mounting = threads.submit(volume.mount)
        try:
            with pytest.raises(TimeoutError):
                mounting.result(2)
        finally:
            os.kill(daemon, signal.SIGCONT)
        (mounting.result(WATCHDOG_S) / "file").write_text("here")
    assert volume.finalize().stats.files == 1
    assert wait_gone(daemon, WATCHDOG_S)


def test_a_process_that_is_stopped_while_it_mounts_keeps_nobody_from_the_mount() -> None:
    Volume.new("shared").resolve()
    script = (
        "import os, signal\nfrom cowfs.blocking import Volume\nfrom cowfs.api.mounts import launch\nstart = launch.start\n"
        "def stopped(*a, **k):\n    found = start(*a, **k)\n    print('mounted', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n    return found\n"
        "launch.start = stopped\nVolume.open('shared').mount()"
    )
    stopped = started(script)
    try:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "mounted\n"
        second = Volume.open("shared")
        (second.mount() / "file").write_text("here")
        assert second.finalize().stats.files == 1
    finally:
        stopped.kill()
        stopped.communicate()


def test_kept_work_is_forked_while_another_writer_is_at_the_volume(place: Path) -> None:
    volume = Volume.new("line")
    (volume.mount() / "base").write_text("both have it")
    volume.commit()
    (volume.path / "mine").write_text("not published")
    volume.unmount()
    theirs = another_machine(place)
    where = place / "mnt" / "theirs"
    assert elsewhere(f"print(Volume.open('line').mount({str(where)!r}))", **theirs) == str(where)
    try:
        with pytest.raises(LeaseHeldError):
            Volume.open("line").commit()
        saved = Volume.open("line").fork("saved")
        assert not Volume.open("line").has_changes(), "it has moved"
        with saved:
            assert sorted(each.name for each in saved.path.iterdir()) == ["base", "mine"]
    finally:
        elsewhere("Volume.open('line').unmount()", **theirs)
    assert [each.name for each in Volume.open("line").history()[:1]] == ["line"]


@pytest.mark.parametrize("ends", ["(v.path / 'mine').write_text('dropped'); v.discard()", "v.unmount()"])
def test_an_end_that_is_killed_while_it_tidies_leaves_nothing_to_replay(place: Path, ends: str) -> None:
    """The journal was there, its state was not: what was dropped came back, in files of another
    machine's version, or the volume could not be mounted to write any more."""
    code = "from cowfs.blocking import Volume; v = Volume.open('line', create=True); (v.mount() / 'mine').write_text('x' * 9)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COWFS_FAILPOINT": "work-deleted"}
    killed = subprocess.run([sys.executable, "-c", f"{code}; v.commit(); {ends}"], env=environment, check=False)
    assert killed.returncode != 0, "it was killed, or the daemon"
    elsewhere(
        "v = Volume.open('line'); (v.mount() / 'theirs').write_text('y' * 9); v.finalize()", **another_machine(place)
    )
    with Volume.open("line") as line:
        assert {each.name: each.read_text() for each in line.path.iterdir()} == {"mine": "x" * 9, "theirs": "y" * 9}
        assert not line.has_changes()


@pytest.mark.parametrize("meta_dir", [None, "meta"])
def test_work_that_has_lost_its_state_is_told_of_until_it_is_dropped(place: Path, meta_dir: str | None) -> None:
    where = None if meta_dir is None else place / meta_dir
    volume = Volume.new("line")
    (volume.mount(meta_dir=where) / "mine").write_text("kept")
    volume.unmount()
    [kept] = overview.status(meta_dir=where).working_copies
    Path(kept.working_copy, "state.json").unlink()
    [lost] = overview.status(meta_dir=where).working_copies
    assert lost.problem is not None
    assert "state.json" in lost.problem
    for use in (lambda: volume.mount(meta_dir=where), volume.commit):
        with pytest.raises(InvalidStateError, match=r"state\.json") as caught:
            use()
        assert "--discard" in caught.value.hint
    volume.discard(meta_dir=where)
    assert overview.status(meta_dir=where).working_copies == []
    assert list(volume.mount(meta_dir=where).iterdir()) == []
    volume.unmount()


def fork_killed_at(point: str, place: Path, meta_dir: Path | None) -> ROVolume:
    """Of volume "line", whose work another machine has overtaken, to "saved". The version that the
    work stands on."""
    volume = Volume.new("line")
    (volume.mount(meta_dir=meta_dir) / "base").write_text("both have it")
    base = volume.commit()
    (volume.path / "mine").write_text("not published")
    volume.unmount()
    elsewhere("v = Volume.open('line'); (v.mount() / 'theirs').write_text('x'); v.finalize()", **another_machine(place))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COWFS_FAILPOINT": point}
    code = "from cowfs.blocking import Volume; Volume.open('line').fork('saved')"
    killed = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    return base


@pytest.mark.parametrize("meta_dir", [None, "meta"])
@pytest.mark.parametrize(("point", "whose"), [("work-moving", "line"), ("work-moved", "saved")])
def test_work_that_is_being_moved_is_of_one_volume_or_the_other(
    place: Path, point: str, whose: str, meta_dir: str | None
) -> None:
    where = None if meta_dir is None else place / meta_dir
    fork_killed_at(point, place, where)
    assert Volume.open("saved").resolve().has_changes() is (whose == "saved" or where is not None), "or nobody can tell"
    assert Volume.open("line").resolve().has_changes() is (whose == "line" or where is not None)
    saved = Volume.open(whose) if whose == "saved" else Volume.open(whose).fork("again")
    with saved:
        assert sorted(each.name for each in saved.path.iterdir()) == ["base", "mine"]
    assert not Volume.open(saved.name).has_changes()


@pytest.mark.parametrize("meta_dir", [None, "meta"])
@pytest.mark.parametrize("again", ["saved", "another"])
@pytest.mark.parametrize("point", ["work-moving", "work-moved"])
def test_a_fork_that_was_killed_is_ended_by_the_same_again(
    place: Path, point: str, again: str, meta_dir: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    base = fork_killed_at(point, place, None if meta_dir is None else place / meta_dir)
    saved = Volume.open("line").fork(again, strict=True)
    has_gone = point == "work-moved" and again == "another"  # to the name that was asked for first
    assert saved.has_changes() is not has_gone
    assert ("is volume saved's now" in caplog.text) is has_gone
    if has_gone:
        saved = Volume.open("saved")
    else:
        assert saved.name == again
        assert saved.forked_from is not None
        assert saved.forked_from.id == base.id
    with saved:
        assert sorted(each.name for each in saved.path.iterdir()) == ["base", "mine"]
    caplog.clear()
    assert not Volume.open("line").has_changes()
    Volume.open("line").fork("third", strict=True)
    assert "now" not in caplog.text


def test_who_comes_back_after_somebody_else_is_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    volume = Volume.new("line")
    (volume.mount() / "base").write_text("both have it")
    volume.commit()
    (volume.path / "mine").write_text("not published")
    volume.unmount()
    code = "v = Volume.open('line'); (v.mount() / 'theirs').write_text('x'); print(v.finalize().id)"
    newer = elsewhere(code, **{**another_machine(place), "HOME": str(place / "run2")})

    assert "another writer" not in caplog.text
    volume.mount()
    assert f"another writer has made version {newer[:12]}" in caplog.text
    assert "cowfs fork line" in caplog.text
    status = volume.status()
    assert status is not None
    details = getattr(status, "details", None)
    assert details is not None
    assert details.writer.overtaken_by.hex() == newer
    with pytest.raises(LeaseLostError):
        volume.commit()
    volume.discard()
    caplog.clear()
    again = Volume.open("line")
    again.mount()
    assert "another writer" not in caplog.text
    again.unmount()


SHARER = """
import sys
from collections.abc import Iterator
from cowfs.blocking import Volume
volume = Volume.open("shared")
path = volume.mount()
(path / "theirs").write_text("here")
print("written", flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, str(error), flush=True)
"""


def asked(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline()


@pytest.fixture
def sharer() -> Iterator[subprocess.Popen[str]]:
    """Another process that has mounted the volume and evaluates what it is told."""
    Volume.new("shared").resolve()
    process = started(SHARER)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    yield process
    process.communicate(timeout=WATCHDOG_S)


@pytest.mark.parametrize("how", ["unmount", "discard", "remount"])
def test_who_loses_the_mount_is_told_before_a_version_lacks_work(sharer: subprocess.Popen[str], how: str) -> None:
    volume = Volume.open("shared")
    path = volume.mount()
    (path / "mine").write_text("here")
    assert asked(sharer, "volume.discard(force=True)" if how == "discard" else "volume.unmount(force=True)") == "None\n"
    if how == "remount":
        assert asked(sharer, "volume.mount()") == f"{path}\n"
    for publish in (volume.commit, volume.finalize, volume.finalize):
        with pytest.raises(InvalidStateError, match="has ended, and this object did not end it") as caught:
            publish()
        assert "mount() again" in caught.value.hint
    volume.mount()
    left = [] if how == "discard" else ["mine", "theirs"]
    assert sorted(each.name for each in path.iterdir()) == left
    assert volume.finalize().stats.files == len(left)


def test_the_end_of_a_block_tells_that_the_mount_was_lost(sharer: subprocess.Popen[str]) -> None:
    def lose() -> None:
        with Volume.open("shared") as volume:
            (volume / "mine").write_text("here")
            assert asked(sharer, "volume.unmount(force=True)") == "None\n"

    with pytest.raises(InvalidStateError, match="has ended") as caught:
        lose()
    assert "is kept on this machine" in "".join(caught.value.__notes__)
    assert Volume.open("shared").commit().stats.files == 2


def test_an_explicit_unmount_makes_up_for_a_lost_mount(sharer: subprocess.Popen[str]) -> None:
    volume = Volume.open("shared")
    volume.mount()
    assert asked(sharer, "volume.unmount(force=True)") == "None\n"
    with pytest.raises(InvalidStateError, match="has ended, and this object did not end it"):
        volume.unmount()
    volume.unmount()
    assert volume.commit().stats.files == 1


def test_a_mount_that_was_ended_before_its_maker_has_a_part_of_it_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = Volume.new("shared").resolve()
    end_at_once(monkeypatch)
    path = volume.mount()
    assert path.is_mount()
    (path / "mine").write_text("here")
    assert volume.finalize().stats.files == 1
    assert registry.list_mounts() == []


def end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first mount is found by somebody else, who is the last one that is done with it, before
    whoever made it goes on."""
    start, ended = launch.start, list[str]()

    def ended_at_once(*arguments: Any, **named: Any) -> launch.Started:
        found = start(*arguments, **named)
        if not ended:
            ended.append(found.ready.mount_path)
            done = cowfs("unmount", found.ready.mount_path)
            assert done.returncode == 0, done.stderr
        return found

    monkeypatch.setattr(launch, "start", ended_at_once)


def test_a_mount_is_shared_only_when_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, it goes with the process that makes it."""
    Volume.new("shared").resolve()
    exchange, found, joined = launch._exchange, threading.Event(), threading.Event()
    other = Volume.open("shared")

    def join() -> None:
        assert found.wait(WATCHDOG_S)
        other.mount()
        joined.set()

    def late(*arguments: Any) -> dict[str, Any]:
        answer = exchange(*arguments)
        [entry] = registry.list_mounts()
        with sharing.starting(entry):  # as its daemon does until it is ready
            found.set()
            assert not joined.wait(1)
        return answer

    monkeypatch.setattr(launch, "_exchange", late)
    with ThreadPoolExecutor(1) as threads:
        joining = threads.submit(join)
        with Volume.open("shared") as volume:
            joining.result(WATCHDOG_S)
            assert other.path == volume.path
        assert other.path.is_mount()
    other.unmount()


def test_a_daemon_does_not_end_a_mount_that_others_share_for_somebody_who_has_died() -> None:
    volume = Volume.new("shared").resolve()
    path = volume.mount()
    [entry] = registry.list_mounts()
    with pytest.raises(ConflictError, match="is used by other processes"):
        live_mount.unmount(entry)  # nobody is kept away: whoever asked would be dead
    assert path.is_mount()
    volume.unmount()
    assert registry.list_mounts() == []


def test_a_working_copy_is_tidied_while_the_next_daemon_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that has just unmounted: the directory is there, its log too, and nobody has the
    lock."""
    volume = Volume.new("shared").resolve()
    assert volume._handle.store is not None
    working_copy = WorkingCopy.locate(volume._handle.store.record.store_id, "shared")
    exchange, opened, deleted = launch._exchange, os.open, []

    def delete(*_: Any) -> None:
        working_copy.delete()
        deleted.append(working_copy.path.exists())

    def opened_late(path: Any, *arguments: Any, **named: Any) -> int:
        if path == working_copy.log_path and not deleted:
            delete()
        return opened(path, *arguments, **named)

    def exchange_late(*arguments: Any) -> dict[str, Any]:
        delete()
        return exchange(*arguments)

    monkeypatch.setattr(os, "open", opened_late)
    monkeypatch.setattr(launch, "_exchange", exchange_late)
    (volume.mount() / "mine").write_text("here")
    assert deleted == [False, False]
    [entry] = registry.list_mounts()
    assert os.path.samefile(f"/proc/{entry.pid}/fd/2", working_copy.log_path)
    assert volume.finalize().stats.files == 1


FORKER = """
import os, sys
from cowfs.blocking import Volume
from cowfs.errors import CowfsError
volume = Volume.open("shared") if sys.argv[1] == "writable" else Volume.version("shared")
where = sys.argv[2] or None
path = volume.mount(where)
done, go = os.pipe(), os.pipe()
if (pid := os.fork()) == 0:
    try:
        if sys.argv[3] == "block":
            volume.__enter__()
        elif sys.argv[3] == "mount":
            volume.mount(where)
        os.write(done[1], b"1")
        os.read(go[0], 1)
        if sys.argv[3] != "nothing":
            assert (path / "file").read_text() == "x" and path.is_mount()
            if sys.argv[1] == "writable":
                (path / "theirs").write_text("here")
        volume.unmount()
        os._exit(0)
    except CowfsError as error:
        print(error.message, flush=True)
    finally:
        os._exit(1)
os.read(done[0], 1)
volume.unmount()
print(path.is_mount(), flush=True)
os.write(go[1], b"1")
os.waitpid(pid, 0)
print(path.is_mount(), flush=True)
"""


@pytest.mark.parametrize("how", ["mount", "block"])
@pytest.mark.parametrize("where", ["", "there"])
@pytest.mark.parametrize("kind", ["writable", "version"])
def test_a_forked_child_that_mounts_has_a_part_of_its_own(place: Path, kind: str, where: str, how: str) -> None:
    with Volume.new("shared") as volume:
        (volume / "file").write_text("x")
    said, errors = started(FORKER, kind, where and str(place / "mnt" / where), how).communicate(timeout=WATCHDOG_S)
    assert said == "True\nFalse\n", errors
    files = Volume.open("shared").commit().stats.files
    assert files == (2 if kind == "writable" else 1)


@pytest.mark.parametrize("kind", ["writable", "version"])
def test_a_forked_child_is_told_that_its_parent_has_ended_the_mount(kind: str) -> None:
    with Volume.new("shared") as volume:
        (volume / "file").write_text("x")
    said, errors = started(FORKER, kind, "", "nothing").communicate(timeout=WATCHDOG_S)
    first, told, last = said.splitlines()
    assert (first, last) == ("False", "False"), errors
    assert "has ended, and this object did not end it" in told


def test_unmounting_leaves_a_mount_to_the_others(sharer: subprocess.Popen[str]) -> None:
    volume = Volume.open("shared")
    path = volume.mount()
    volume.unmount()
    assert asked(sharer, "(path / 'more').write_text('x')") == "1\n"
    assert len(registry.list_mounts()) == 1
    with pytest.raises(ConflictError, match=f"use the mount {path}, too"):
        volume.unmount()
    assert asked(sharer, "volume.finalize().stats.files") == "2\n"
    assert registry.list_mounts() == []


@pytest.mark.parametrize("options", [[], ["--discard"], ["--commit"]])
def test_the_command_unmounts_no_mount_that_processes_share(sharer: subprocess.Popen[str], options: list[str]) -> None:
    volume = Volume.open("shared")
    volume.mount()
    with pytest.raises(ConflictError, match="use the mount"):
        volume.discard()
    refused = cowfs("unmount", "shared", *options)
    assert refused.returncode != 0
    assert "too" in refused.stderr
    assert "--force" in refused.stderr
    assert asked(sharer, "volume.commit().stats.files") == "1\n"
    done = cowfs("unmount", "shared", *options, "--force")
    assert done.returncode == 0, done.stderr
    assert registry.list_mounts() == []
    assert asked(sharer, "volume.commit()").startswith("InvalidStateError")


def test_a_mount_in_the_foreground_is_unmounted_from_elsewhere(place: Path) -> None:
    Volume.new("shared").resolve()
    where = place / "mnt" / "there"
    command = [sys.executable, "-m", "cowfs.cli", "mount", "shared", str(where), "--foreground"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as foreground:
        assert foreground.stdout is not None
        assert foreground.stdout.readline() == f"{where}\n"
        done = cowfs("unmount", "shared")
        assert done.returncode == 0, done.stderr
        assert foreground.wait(WATCHDOG_S) == 0


@pytest.mark.parametrize("how", ["block", "finalize", "unmount", "error", "files"])
def test_a_mount_by_command_outlasts_those_that_join(place: Path, how: str) -> None:
    """A shell writes there."""
    Volume.new("shared").resolve()
    where = place / "mnt" / "there"
    assert cowfs("mount", "shared", str(where)).returncode == 0
    volume = Volume.open("shared")
    if how in ("block", "error"):
        with contextlib.suppress(ValueError), volume:
            (volume / "mine").write_text("here")
            if how == "error":
                raise ValueError
    elif how == "files":  # of an object that has not mounted it
        volume.files.write("mine", b"here")
        volume.unmount()
    else:
        (volume.mount() / "mine").write_text("here")
        getattr(volume, how)()
    assert len(registry.list_mounts()) == 1
    (where / "theirs").write_text("here")
    done = cowfs("unmount", "shared", "--commit")
    assert done.returncode == 0, done.stderr
    assert registry.list_mounts() == []
    assert Volume.open("shared").commit().stats.files == 2


def test_a_mount_whose_daemon_was_just_killed_is_made_anew() -> None:
    Volume.new("shared").resolve()
    for number in range(4):
        volume = Volume.open("shared")
        (volume.mount() / str(number)).write_text("here")
        os.kill(registry.list_mounts()[0].pid, signal.SIGKILL)
    volume = Volume.open("shared")
    volume.mount()
    assert volume.finalize().stats.files == 4


def test_a_mount_with_its_work_elsewhere_is_not_shared(place: Path) -> None:
    with Volume.new("shared") as first:
        again = Volume.open("shared")
        with pytest.raises(InvalidStateError, match="with its work in"):
            again.mount(meta_dir=place / "meta")
    first = Volume.open("shared")
    path = first.mount(meta_dir=place / "meta")
    assert Volume.open("shared").mount(meta_dir=place / "meta") == path
    assert Volume.open("shared").mount() == path
    first.unmount()


def cowfs(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cowfs.cli", *arguments], capture_output=True, text=True, timeout=WATCHDOG_S, check=False
    )


@pytest.mark.parametrize("ends", ["finalize", "unmount", "block"])
def test_attempts_that_failed_do_not_keep_the_mount_of_a_later_one(ends: str) -> None:
    """Somebody has their exceptions still, and so their frames and objects."""

    def attempt(number: int) -> None:
        volume = Volume.new("retried", exist_ok=True)
        path = volume.mount()
        (path / f"by-{number}").write_text("here")
        if number < 3:
            raise ValueError(f"attempt {number}")
        if ends == "finalize":
            volume.finalize()
        elif ends == "unmount":
            volume.unmount()
        else:
            with volume:
                pass

    errors = []
    for number in (1, 2, 3):
        try:
            attempt(number)
        except ValueError as error:
            errors.append(error)
    assert len(errors) == 2
    assert registry.list_mounts() == []
    assert Volume.open("retried").commit().stats.files == 3


def test_a_mount_that_is_made_elsewhere_meanwhile_is_a_conflict(place: Path) -> None:
    """The first daemon makes the directory, and waits for its working copy; the second mounts."""
    path = place / "both"
    first, second = Volume.new("first").resolve(), Volume.new("second").resolve()
    held = lock.acquire(first._handle.working_copy().lock_path, LockHolder.make_brief("the test"), volume="first")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(first.mount, path)
        end_s = time.monotonic() + WATCHDOG_S
        while not path.exists():
            assert time.monotonic() < end_s
            time.sleep(0.01)
        second.mount(path)
        lock.release(held)
        with pytest.raises(ConflictError, match="is a mount already"):
            waiting.result(WATCHDOG_S)
    assert second.is_mounted
    second.unmount()
