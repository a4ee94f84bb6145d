"""How a mount begins and ends: readiness, errors, unmounting, signals, crashes, stale mounts; and
that nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cowfs import store as stores
from cowfs.blocking import Volume
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    MountFailedError,
    NoSpaceError,
    NotFoundError,
    UnavailableError,
)
from cowfs.machine import mount_table
from cowfs.store.refs import leases
from tests.mount.daemons import WAIT_S, Mount, Place, is_mounted, mounted_below

pytestmark = pytest.mark.mount


def nothing_is_left(place: Place) -> None:
    assert mounted_below(place.root) == []
    assert place.registered() == []
    assert list((place.root / "run").glob("*.sock")) == []


def lease_state(place: Place, volume: str = "v") -> str | None:
    found = leases.read(place.store, volume)
    return None if found is None else found.state


@contextlib.contextmanager
def files_of_at_most(soft_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# -- beginning


def test_ready_says_where_and_who(place: Place, mount: Mount) -> None:
    assert mount.ready["pid"] == mount.process.pid == mount.call("ping")["pid"]
    assert mount.ready["mount_path"] == str(mount.path)
    assert mount.ready["version"] is None
    status = mount.call("status")
    assert (status["volume"], status["read_only"], status["writer"]["is_dirty"]) == ("v", False, False)
    assert place.registered() == [str(mount.path)]


def test_the_mount_is_checked_by_the_kernel_and_reads_ahead(mount: Mount) -> None:
    line = next(
        line
        for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
        if str(mount.path) in line
    )
    assert "default_permissions" in line
    assert "allow_other" in line
    device = line.split()[2]
    assert Path(f"/sys/class/bdi/{device}/read_ahead_kb").read_text().strip() == "4096"


def test_the_daemon_leaves_its_starter(place: Place, mount: Mount) -> None:
    process = Path(f"/proc/{mount.process.pid}")
    assert os.readlink(process / "cwd") == "/"
    assert os.readlink(process / "fd" / "0") == "/dev/null"
    assert os.readlink(process / "fd" / "2") == mount.spec.log
    assert os.getsid(mount.process.pid) == mount.process.pid


def test_in_the_foreground_it_stays_with_its_starter(place: Place) -> None:
    mount = place.mount("v", foreground=True)
    assert os.readlink(f"/proc/{mount.process.pid}/fd/2") == mount.spec.log  # what the test gave it
    assert os.readlink(f"/proc/{mount.process.pid}/fd/0").startswith("pipe:")
    mount.process.send_signal(signal.SIGINT)
    mount.wait_clean_end()


def test_a_log_that_cannot_be_written_is_an_error_and_nothing_stays_mounted(place: Place) -> None:
    spec = place.spec()
    log = place.root / "run" / "file" / "log"
    log.parent.touch()
    process = place.spawn(place.spec(mount_path=spec.mount_path, log=str(log)).to_json().encode())
    assert process.stdout is not None
    assert json.loads(process.stdout.read())["error"]["kind"] == "access_denied"
    assert process.wait(WAIT_S) == 1
    nothing_is_left(place)


def test_a_missing_mount_point_is_made(place: Place) -> None:
    mount = place.mount("v", mount_path=str(place.root / "mnt" / "new"))
    assert is_mounted(mount.path)


@pytest.mark.parametrize("data", [b"", b"garbage", b"{}", b'{"format": 99}'])
def test_a_specification_that_is_none_is_an_error_line(place: Place, data: bytes) -> None:
    process = place.spawn(data)
    assert process.stdout is not None
    reply = json.loads(process.stdout.read())
    assert reply["error"]["kind"] == "invalid_input"
    assert process.wait(WAIT_S) == 1


def bad_parent(place: Place) -> dict[str, Any]:
    return {"mount_path": str(place.root / "absent" / "below")}


def a_file(place: Place) -> dict[str, Any]:
    (place.root / "file").touch()
    return {"mount_path": str(place.root / "file")}


def below_a_file(place: Place) -> dict[str, Any]:
    (place.root / "file").touch()
    return {"mount_path": str(place.root / "file" / "below")}


def not_empty(place: Place) -> dict[str, Any]:
    return {"mount_path": str(place.root)}


def busy(place: Place) -> dict[str, Any]:
    place.volume("other")
    return {"mount_path": str(place.mount("other").path)}


def through_a_link(place: Place) -> dict[str, Any]:
    (place.root / "link").symlink_to(place.root / "mnt")
    return {"mount_path": str(place.root / "link" / "m")}


def unknown_volume(place: Place) -> dict[str, Any]:
    return {"volume": "absent", "working_copy": str(place.root / "c" / "state" / "working" / "x-absent")}


def no_store(place: Place) -> dict[str, Any]:
    return {"store_url": (place.root / "nothing-here").as_uri()}


def not_a_store(place: Place) -> dict[str, Any]:
    (place.root / "plain").mkdir()
    return {"store_url": (place.root / "plain").as_uri()}


def cache_is_a_file(place: Place) -> dict[str, Any]:
    (place.root / "not-a-cache").touch()
    return {"cache_dir": str(place.root / "not-a-cache")}


@pytest.mark.parametrize(
    ("arrange", "error"),
    [
        (bad_parent, NotFoundError),
        (a_file, InvalidInputError),
        (below_a_file, (InvalidInputError, NotFoundError)),
        (not_empty, ConflictError),
        (busy, ConflictError),
        (through_a_link, InvalidInputError),
        (unknown_volume, NotFoundError),
        (no_store, NotFoundError),
        (not_a_store, NotFoundError),
        (cache_is_a_file, AccessDeniedError),
    ],
)
def test_what_cannot_be_mounted_is_an_error_with_a_hint_and_leaves_nothing(
    place: Place, arrange: Callable[[Place], dict[str, Any]], error: type[CowfsError]
) -> None:
    fields = arrange(place)
    before = mounted_below(place.root), place.registered()
    with pytest.raises(error) as caught:
        place.start(place.spec(**fields))
    assert caught.value.hint
    assert (mounted_below(place.root), place.registered()) == before
    assert lease_state(place) in (None, "released")


def test_a_failure_after_the_lease_gives_it_back(place: Place) -> None:
    """A socket path that is too long is found out late."""
    spec = place.spec(mount_path=str(place.root / "mnt" / "new"))
    long = place.root / ("d" * 90)
    long.mkdir(mode=0o700)
    with pytest.raises(InvalidInputError, match="socket"):
        place.start(place.spec(mount_path=spec.mount_path, socket=str(long / "control.sock")))
    assert lease_state(place) == "released"
    assert not Path(spec.mount_path).exists()
    nothing_is_left(place)
    place.mount("v")


def test_a_starter_that_has_gone_gets_no_mount(place: Place) -> None:
    process = place.spawn(place.spec().to_json().encode())
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(WAIT_S) == 1
    nothing_is_left(place)


def test_a_second_writer_is_refused_and_told_who(place: Place, mount: Mount) -> None:
    with pytest.raises(LeaseHeldError) as caught:
        place.mount("v")
    assert str(mount.path) in caught.value.message
    assert caught.value.details["pid"] == mount.process.pid
    (mount.path / "still").write_text("works")


def test_a_writer_with_another_working_copy_is_refused_by_the_lease(place: Place, mount: Mount) -> None:
    with pytest.raises(LeaseHeldError) as caught:
        place.mount("v", working_copy=str(place.root / "c" / "state" / "working" / "elsewhere-v"))
    assert str(mount.path) in caught.value.message
    assert is_mounted(mount.path)


def test_one_of_many_racing_mounts_wins(place: Place) -> None:
    outcomes: list[Mount | CowfsError] = []

    def race(number: int) -> None:
        try:
            copy = str(place.root / "c" / "state" / "working" / f"{number}-v")
            outcomes.append(place.mount("v", working_copy=copy))
        except CowfsError as error:
            outcomes.append(error)

    racers = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(WAIT_S)
    winners = [outcome for outcome in outcomes if isinstance(outcome, Mount)]
    assert len(outcomes) == 4
    assert len(winners) == 1
    assert all(isinstance(outcome, LeaseHeldError) for outcome in outcomes if outcome not in winners)


def test_the_limit_of_file_sizes_of_who_mounts_is_none_of_the_mounts(place: Place) -> None:
    with files_of_at_most(1 << 20):
        mount = place.mount()
    content = os.urandom(5 << 20)
    (mount.path / "large").write_bytes(content)
    mount.unmount(commit=True)
    again = place.mount()
    assert (again.path / "large").read_bytes() == content
    again.unmount()


def test_nothing_is_written_where_files_may_not_be_long_enough(place: Place) -> None:
    volume = Volume.open(place.volume("w"), store=place.store_url)
    with files_of_at_most(1 << 20), pytest.raises(NoSpaceError, match="working copy cannot be opened") as refused:
        volume.files.write("a", b"1")
    assert "ulimit -f" in refused.value.hint
    volume.files.write("a", b"2")
    assert volume.files.read("a") == b"2"
    volume.discard()


# -- ending


def test_unmounting_keeps_work_and_leaves_nothing_else(place: Place, mount: Mount) -> None:
    (mount.path / "kept").write_text("uncommitted")
    assert mount.unmount()["is_dirty"] is True
    nothing_is_left(place)
    assert lease_state(place) == "released"
    again = place.mount("v")
    assert (again.path / "kept").read_text() == "uncommitted"
    assert again.ready["resumed_records"] > 0


def test_unmounting_with_a_commit_publishes(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("published")
    result = mount.unmount(commit=True, message="done")
    assert result["is_dirty"] is False
    reader = place.mount("v", version=result["version"])
    assert (reader.path / "f").read_text() == "published"


def lose(held: int) -> None:
    """Closes a file whose mount is gone. Only a write must fail: closing asks the fast lane
    nothing."""
    with pytest.raises(OSError, match=r"not connected|connection abort|canceled"):
        os.write(held, b"x")
    with contextlib.suppress(OSError):
        os.close(held)


def test_a_mount_in_use_is_not_unmounted_unless_forced(place: Place, mount: Mount) -> None:
    held = os.open(mount.path / "open", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(ConflictError, match=str(os.getpid())) as caught:
        mount.call("unmount")
    assert caught.value.details["pids"] == [os.getpid()]
    os.write(held, b"still works")
    mount.unmount(force=True)
    lose(held)
    nothing_is_left(place)
    assert (place.mount("v").path / "open").read_text() == "still works"


WORKS_ELSEWHERE = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
    mapped[:6] = b"stored"
    print("ready", flush=True)
    sys.stdin.readline()
    file.seek(4096)
    file.write(b"written")
    mapped[6:12] = b"stored"
"""
ELSEWHERE = {
    "bind": 'mount --bind "$1" "$2"; exec "$3" -c "$4" "$2/file"',
    "overlay": 'mkdir "$1/w"; mount -t overlay none -o lowerdir=/mnt,upperdir="$1",workdir="$1/../work" "$2"; '
    'exec "$3" -c "$4" "$2/file"',
    "namespace": 'exec unshare --mount --propagation private "$3" -c "$4" "$1/file"',
}


@contextlib.contextmanager
def unmounted_afterwards(path: Path) -> Iterator[None]:
    try:
        yield
    finally:
        if mount_table.mount_at(str(path)) is not None:
            subprocess.run(["umount", path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
@pytest.mark.parametrize("how", ELSEWHERE)
@pytest.mark.parametrize("asked", ["unmount", "discard"])
def test_who_uses_a_mount_elsewhere_is_served_to_the_end(
    place: Place, mount: Mount, tmp_path: Path, how: str, asked: str
) -> None:
    """There the kernel refuses nobody to unmount it."""
    upper, other = mount.path / "upper", tmp_path / "other"
    for directory in (upper, mount.path / "work", other):
        directory.mkdir()
    (upper / "file").write_bytes(bytes(8192))
    command = ["sh", "-ec", ELSEWHERE[how], "sh", str(upper), str(other), sys.executable, WORKS_ELSEWHERE]
    with (
        unmounted_afterwards(other),
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as working,
    ):
        assert working.stdin is not None
        assert working.stdout is not None
        assert working.stdout.readline() == "ready\n"
        with pytest.raises(ConflictError, match="still used elsewhere") as caught:
            mount.call(asked)
        assert caught.value.details["pid"] == mount.ready["pid"]
        assert mount_table.mount_at(str(mount.path)) is None
        with pytest.raises(LeaseHeldError, match="serves them"):
            place.mount("v")
        working.stdin.write("\n")
    assert working.returncode == 0
    mount.wait_clean_end()
    content = (place.mount("v").path / "upper" / "file").read_bytes()
    assert content == b"stored" * 2 + bytes(4084) + b"written" + bytes(8192 - 4096 - 7)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_mount_that_is_mounted_over_stays(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("kept")
    with unmounted_afterwards(mount.path):
        subprocess.run(["mount", "-t", "tmpfs", "none", mount.path], check=True)
        with pytest.raises(ConflictError, match="another file system is mounted over"):
            mount.call("unmount")
    assert (mount.path / "f").read_text() == "kept"
    mount.unmount()


def test_a_refused_discard_discards_nothing(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("kept")
    with (mount.path / "f").open(), pytest.raises(ConflictError):
        mount.call("discard")
    mount.unmount()
    assert (place.mount("v").path / "f").read_text() == "kept"


def test_discarding_drops_the_working_copy(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("dropped")
    mount.call("discard")
    mount.wait_clean_end()
    assert not place.working_copy().path.exists()
    nothing_is_left(place)
    assert os.listdir(place.mount("v").path) == []


def test_unmounting_from_outside_is_a_clean_end(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("kept")
    log = Path(mount.spec.log)
    subprocess.run(["umount", mount.path], check=True)
    mount.wait_clean_end()
    assert "not unmounted by cowfs" in log.read_text(), "a daemon that was killed says nothing"
    nothing_is_left(place)
    assert lease_state(place) == "released"
    assert (place.mount("v").path / "f").read_text() == "kept"


def test_fusermount_from_outside_is_a_clean_end(place: Place, mount: Mount) -> None:
    subprocess.run(["fusermount3", "-u", mount.path], check=True)
    mount.wait_clean_end()
    nothing_is_left(place)


def test_a_lazy_unmount_serves_until_the_last_file_is_closed(place: Place, mount: Mount) -> None:
    with (mount.path / "f").open("w") as held:
        subprocess.run(["umount", "-l", mount.path], check=True)
        held.write("written after")
        held.flush()
        assert mount.process.poll() is None
    mount.wait_clean_end()
    assert (place.mount("v").path / "f").read_text() == "written after"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_unmount_cleanly_even_in_use(place: Place, mount: Mount, number: signal.Signals) -> None:
    held = os.open(mount.path / "f", os.O_WRONLY | os.O_CREAT)
    os.write(held, b"kept")
    mount.process.send_signal(number)
    mount.wait_clean_end()
    lose(held)
    nothing_is_left(place)
    assert lease_state(place) == "released"
    assert (place.mount("v").path / "f").read_text() == "kept"


def test_a_signal_while_opening_undoes_everything(place: Place) -> None:
    process = place.spawn(b"")  # its standard input ends: it answers; so keep one open instead
    process.wait(WAIT_S)
    waiting = subprocess.Popen(
        [sys.executable, "-m", "cowfs.daemon"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **place.environment},
        cwd=Path(__file__).parents[2],
    )
    assert waiting.stdin is not None
    assert waiting.stdout is not None
    status = Path(f"/proc/{waiting.pid}/status")
    end = time.monotonic() + WAIT_S
    caught = 0
    while not caught & (1 << (signal.SIGTERM - 1)) and time.monotonic() < end:  # until its handler stands
        caught = int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16)  # type: ignore[index]
        time.sleep(0.01)
    waiting.send_signal(signal.SIGTERM)
    output, _ = waiting.communicate(timeout=WAIT_S)
    assert json.loads(output)["error"]["kind"] == "mount_failed"
    assert waiting.returncode == 1


def test_requests_after_the_end_are_unavailable(mount: Mount) -> None:
    mount.unmount()
    with pytest.raises(UnavailableError):
        mount.call("ping")


def test_two_unmounts_at_once_both_hear_of_it(place: Place, mount: Mount) -> None:
    outcomes: list[object] = []

    def unmount() -> None:
        try:
            outcomes.append(mount.call("unmount"))
        except CowfsError as error:
            outcomes.append(error)

    callers = [threading.Thread(target=unmount) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(WAIT_S)
    mount.wait_clean_end()
    assert any(isinstance(outcome, dict) for outcome in outcomes)
    assert all(isinstance(outcome, dict | InvalidStateError | UnavailableError) for outcome in outcomes), outcomes


# -- crashing


def test_after_kill_9_everything_written_comes_back(place: Place, mount: Mount) -> None:
    data = os.urandom(3 << 20)
    (mount.path / "big").write_bytes(data)
    (mount.path / "d").mkdir()
    os.rename(mount.path / "big", mount.path / "d" / "renamed")
    (mount.path / "gone").touch()
    (mount.path / "gone").unlink()
    os.setxattr(mount.path / "d", "user.a", b"b")
    mount.kill()
    assert is_mounted(mount.path)
    again = place.mount("v", mount_path=str(mount.path))
    assert (again.path / "d" / "renamed").read_bytes() == data
    assert os.listdir(again.path) == ["d"]
    assert os.getxattr(again.path / "d", "user.a") == b"b"
    again.unmount()
    nothing_is_left(place)


def test_an_untouched_volume_looks_the_same_on_every_mount(place: Place, mount: Mount) -> None:
    before = os.stat(mount.path)
    mount.kill()
    again = place.mount("v", mount_path=str(mount.path))
    after = os.stat(again.path)
    assert (after.st_mode, after.st_uid, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_mode,
        before.st_uid,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_work_committed_before_a_crash_is_not_replayed_twice(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("one")
    first = mount.commit()
    (mount.path / "f").write_text("two")
    (mount.path / "g").write_text("new")
    mount.kill()
    again = place.mount("v")
    assert ((again.path / "f").read_text(), (again.path / "g").read_text()) == ("two", "new")
    second = again.commit()
    assert second != first
    assert again.commit() == second, "nothing changed, and yet another version"


def test_a_dead_mount_at_another_volumes_path_is_detached(place: Place, mount: Mount) -> None:
    mount.kill()
    place.volume("w")
    other = place.mount("w", mount_path=str(mount.path))
    (other.path / "f").write_text("served")
    other.unmount()
    nothing_is_left(place)


@pytest.mark.parametrize(
    "point",
    [
        "commit-mappings-flushed",
        "commit-before-packs",
        "commit-after-packs",
        "commit-after-index",
        "commit-after-manifest",
        "commit-before-head",
        "commit-after-head",
        "commit-after-published",
    ],
)
def test_dying_anywhere_in_a_commit_loses_nothing(place: Place, point: str) -> None:
    mount = place.start(place.spec(), environment={"COWFS_FAILPOINT": f"{point}:2"})
    (mount.path / "f").write_text("first")
    first = mount.commit()
    data = os.urandom(1 << 20)
    (mount.path / "f").write_bytes(data)
    (mount.path / "g").write_text("second")
    with pytest.raises(UnavailableError):
        mount.commit()
    assert mount.process.wait(WAIT_S) == -signal.SIGKILL
    again = place.mount("v", mount_path=str(mount.path))
    assert (again.path / "f").read_bytes() == data
    assert (again.path / "g").read_text() == "second"
    is_published = point in ("commit-after-head", "commit-after-published")
    assert (again.ready["version"] != first) == is_published
    version = again.commit()
    assert again.ready["version"] == version if is_published else version != first
    again.unmount()
    reader = place.mount("v", version=version)
    assert (reader.path / "f").read_bytes() == data


# -- descriptors handed in


def test_a_mount_on_a_descriptor_handed_in(place: Place) -> None:
    """Whoever has the right to mount does it; the daemon only serves the descriptor."""
    path = place.root / "mnt" / "handed-in"
    path.mkdir()
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
    mounting = "import ctypes, sys; l = ctypes.CDLL(None, use_errno=True); "
    mounting += "sys.exit(l.mount(b'cowfs:v', sys.argv[1].encode(), b'fuse.cowfs', 0, sys.argv[2].encode()) and 1)"
    subprocess.run([sys.executable, "-c", mounting, path, options], pass_fds=[fd], check=True)
    try:
        mount = place.start(place.spec(mount_path=str(path), fuse_fd=fd), pass_fds=[fd])
        (path / "f").write_text("through the descriptor")
        assert (path / "f").read_text() == "through the descriptor"
        mount.commit()
        (path / "g").write_text("kept")
        mount.call("unmount")
        assert mount.process.wait(WAIT_S) == 0
        assert is_mounted(path), "whoever mounted it unmounts it"
    finally:
        os.close(fd)
        subprocess.run(["umount", "-l", path], check=True)
    assert (place.mount("v").path / "g").read_text() == "kept"


def test_a_descriptor_that_is_not_mounted_is_an_error(place: Place) -> None:
    fd = os.open("/dev/null", os.O_RDWR)
    try:
        with pytest.raises(MountFailedError):
            place.start(place.spec(fuse_fd=fd), pass_fds=[fd])
    finally:
        os.close(fd)
    assert lease_state(place) in (None, "released")


def test_the_store_is_not_read_while_nothing_is_asked(place: Place) -> None:
    """A mount without writes leaves the store as it found it, but for lease, pin and heartbeat."""
    before = {info.key for info in place.store.list("")}
    place.mount("v").unmount()
    added = {info.key for info in stores.open_store(place.store_url).list("")} - before
    assert all("/lease/" in key or "/heartbeat/" in key or key.startswith("pins/") for key in added), added
