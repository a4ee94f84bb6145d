"""Mounting inside a container: who may, what is said to those who may not, and what a killed
container leaves.

A container is made of what the kernel makes one of: `unshare` gives a program its own processes and
mounts, `setpriv` takes its rights. The guide's image and pod are run by hand
(docs/guide/containers.md).
"""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.daemons import ROOT, WAIT_S, Place

pytestmark = [
    pytest.mark.mount,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a container"),
]

CONTAINED = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]

TASK = """
import os, sys
from pathlib import Path
from cowfs.blocking import Volume
volume = Volume.open("v")
steps = volume.mount(sys.argv[1], fast_lane=sys.argv[2] == "True") / "steps"
print(steps.read_text() if steps.exists() else "nothing", flush=True)
steps.write_text("written by the first")
print("wrote", flush=True)
sys.stdin.read()
volume.unmount()
"""


def start_task(place: Place, path: Path, fast_lane: bool) -> subprocess.Popen[str]:
    """TASK as process 1 of a container of its own; killing `unshare` kills it."""
    return subprocess.Popen(
        [*CONTAINED, sys.executable, "-c", TASK, path, str(fast_lane)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **place.environment, "COWFS_STORE": place.store_url},
        text=True,
    )


def state_on(place: Place, file_system: str, options: str = "") -> None:
    """Puts the state directory on a file system of its own; the place unmounts it."""
    path = Path(place.environment["COWFS_STATE_DIR"])
    path.mkdir()
    subprocess.run(["mount", "-t", file_system, "none", path, *(["-o", options] if options else [])], check=True)


def said_by_the_next_container(place: Place, *, fast_lane: bool) -> subprocess.CompletedProcess[str]:
    """After one that wrote was killed."""
    path = place.root / "mnt" / "task"
    first = start_task(place, path, fast_lane)
    assert first.stdin is not None
    assert first.stdout is not None
    assert first.stderr is not None
    with first.stdin, first.stdout, first.stderr:
        assert [first.stdout.readline() for _ in range(2)] == ["nothing\n", "wrote\n"]
        with open(f"/proc/{first.pid}/ns/pid_for_children"):  # held, or the second one may get its number
            first.kill()
            first.wait(WAIT_S)
            second = start_task(place, path, fast_lane)
            said, errors = second.communicate(timeout=WAIT_S)
    return subprocess.CompletedProcess([], second.returncode, said, errors)


@pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
def test_the_next_container_goes_on_with_the_work_of_a_killed_one(place: Place, fast_lane: bool) -> None:
    """At once: the state directory proves that the writer is dead, whose processes were never to be
    seen."""
    state_on(place, "tmpfs")
    second = said_by_the_next_container(place, fast_lane=fast_lane)
    assert second.stdout.splitlines() == ["written by the first", "wrote"], second.stderr
    assert second.returncode == 0


def test_a_state_directory_whose_locks_prove_nothing_is_waited_for(place: Place) -> None:
    """Two mounts of an overlay, as of a network's file system, may each have locks of their own."""
    layers = place.root / "run"
    subprocess.run(["mount", "-t", "tmpfs", "none", layers], check=True)  # the machine's own may be an overlay
    for name in ("lower", "upper", "work"):
        (layers / name).mkdir()
    state_on(place, "overlay", f"lowerdir={layers}/lower,upperdir={layers}/upper,workdir={layers}/work")
    second = said_by_the_next_container(place, fast_lane=True)
    assert second.returncode != 0
    assert "LeaseHeldError: volume v is being written by" in second.stderr


MOUNTING = """
from cowfs.errors import MountFailedError
from tests.mount.daemons import Place
with Place() as place:
    place.volume("v")
    try:
        place.mount("v")
    except MountFailedError as error:
        print(error, error.hint, sep="\\n")
"""

REFUSING = """
import ctypes, errno, os, platform
ARGUMENTS = 16
LOAD, AND, EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06  # linux/bpf_common.h
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
MOUNT, OPENAT = (165, 257) if platform.machine() == "x86_64" else (40, 56)
class Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("steps", ctypes.POINTER(Step))]
def confine(*steps):
    array = (Step * len(steps))(*(Step(*step) for step in steps))
    PR_SET_SECCOMP, FILTER = 22, 2
    program = Program(len(steps), array)
    assert ctypes.CDLL(None).prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0
"""
"""A seccomp filter, as a container's profile is one; root may set it."""

NO_MOUNTING = "confine((LOAD, 0, 0, 0), (EQUAL, 0, 1, MOUNT), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW))"

NO_DEVICES = """
confine(
    (LOAD, 0, 0, 0), (EQUAL, 0, 4, OPENAT),
    (LOAD, 0, 0, ARGUMENTS + 8 * 2), (AND, 0, 0, os.O_ACCMODE), (EQUAL, 0, 1, os.O_RDWR),
    (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW),
)
"""
"""What a container's device rules answer: EPERM to root. Of opening for reading and writing,
whatever the file is."""


def said_in(container: list[str], program: str = MOUNTING) -> list[str]:
    """What a program prints in a mount namespace of its own, below the command line `container`."""
    done = subprocess.run(
        ["unshare", "--mount", *container, sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def shell(commands: str) -> list[str]:
    return ["sh", "-ec", f'{commands}\nexec "$@"', "sh"]


OPEN_DEVICE = shell("mount -t tmpfs none /mnt; mknod -m 666 /mnt/fuse c 10 229; mount --bind /mnt/fuse /dev/fuse")
USER = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+dac_read_search"]
USER += ["--ambient-caps=+dac_read_search"]  # the checkout may be root's alone
NAMELESS = ["--reuid=54321", *USER[1:]]


@pytest.mark.parametrize(
    ("container", "said", "advised"),
    [
        (
            shell("mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3"),
            "there is no /dev/fuse",
            "--device /dev/fuse",
        ),
        (["setpriv", "--bounding-set=-sys_admin"], "root here may not mount", "--cap-add SYS_ADMIN"),
        ([*OPEN_DEVICE, "setpriv", "--no-new-privs", *USER], "no_new_privs is set", "allowPrivilegeEscalation: true"),
        ([*OPEN_DEVICE, "setpriv", "--bounding-set=-sys_admin", *USER], "may not mount here", "--cap-add SYS_ADMIN"),
        ([*OPEN_DEVICE, "setpriv", *NAMELESS], "uid 54321 has none here", "/etc/passwd"),
    ],
    ids=["no-device", "no-capability", "no-new-privs", "no-capability-to-gain", "no-name"],
)
def test_a_container_that_may_not_mount_is_told_what_it_lacks(container: list[str], said: str, advised: str) -> None:
    message, hint = said_in(container)
    assert said in message
    assert advised in hint


def test_a_device_that_the_container_may_see_and_not_open(tmp_path: Path) -> None:
    checking = """
from cowfs.errors import MountFailedError
from cowfs.machine import mounting
try:
    mounting.check_device()
except MountFailedError as error:
    print(error, error.hint, sep="\\n")
"""
    message, hint = said_in([], checking.replace("try:", REFUSING + NO_DEVICES + "\ntry:"))
    assert message == "the rules of this container do not let /dev/fuse be opened"
    assert "bind mount" in hint
    assert "--device /dev/fuse" in hint


def test_a_security_profile_that_forbids_mounting() -> None:
    message, hint = said_in([], REFUSING + NO_MOUNTING + MOUNTING)
    assert message.endswith("cannot be mounted: Operation not permitted")
    assert "--security-opt apparmor=unconfined, seccomp=unconfined" in hint


GUIDE = (ROOT / "docs/guide/containers.md").read_text(encoding="utf-8")
HELPER, HANDED_IN = re.findall(r"^```text\n(import .*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)[1:]


def is_listened_to(path: Path) -> bool:
    """The kernel's table says so: a socket is there before anybody may connect, and a connection
    would be one that the helper serves."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return any(row[3] == "00010000" and row[-1] == str(path) for row in rows)  # __SO_ACCEPTCON


@pytest.fixture
def seen(place: Place) -> Iterator[Path]:
    """A directory below which containers see what is mounted outside."""
    path = place.root / "seen"
    (path / "mounts").mkdir(parents=True)
    subprocess.run(["mount", "--bind", path, path], check=True)
    subprocess.run(["mount", "--make-shared", path], check=True)
    helper = subprocess.Popen([sys.executable, "-c", HELPER, path / "socket", path / "mounts/data"])
    try:
        while not is_listened_to(path / "socket"):
            assert helper.poll() is None
            time.sleep(0.01)
        yield path
    finally:
        helper.kill()
        helper.wait(WAIT_S)
        subprocess.run(["umount", "--lazy", path / "mounts/data", path], check=True)


def unprivileged(place: Place, seen: Path, program: str, *, sees: str = "slave") -> subprocess.CompletedProcess[str]:
    """A program in a container without any privilege, /dev/fuse included. sees: the kind of the
    mounts it has from outside; "private": none that come later."""
    bare = shell("mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/urandom c 1 9")
    powerless = ["setpriv", "--bounding-set=-all", "--no-new-privs"]
    task = [sys.executable, "-c", program.replace("/run/task", str(seen))]
    return subprocess.run(
        [*CONTAINED, f"--propagation={sees}", *bare, *powerless, *task],
        env={**os.environ, "PYTHONPATH": str(ROOT), **place.environment, "COWFS_STORE": place.store_url},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def printed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "nothing is left to be told"
    return done.stdout


def test_a_descriptor_is_handed_in_as_the_guide_says(place: Place, seen: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(str(seen / "socket"))
    printed(unprivileged(place, seen, HANDED_IN))
    locator = printed(unprivileged(place, seen, HANDED_IN)).strip()
    with place.mount("results", locator.rpartition("@")[2]).path.joinpath("numbers.txt").open() as numbers:
        assert numbers.read() == "one more\n" * 2


def test_a_mount_that_the_container_does_not_see_is_an_error(place: Place, seen: Path) -> None:
    """Its programs would write to the directory below, and that would be in no version."""
    (seen / "mounts/data").mkdir()
    done = unprivileged(place, seen, HANDED_IN, sees="private")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"is not at {seen}/mounts/data in this mount namespace" in done.stderr
    assert "`rslave`" in done.stderr
    printed(unprivileged(place, seen, HANDED_IN))


KILLED = """
for pid in filter(str.isdigit, os.listdir("/proc")):
    if "cowfs.daemon" in open(f"/proc/{pid}/cmdline").read():
        os.kill(int(pid), signal.SIGKILL)
try:
    os.listdir(path)
except OSError as error:
    print(error.errno)
"""


def test_a_daemon_that_dies_on_a_descriptor_handed_in_leaves_errors_and_no_waiting(place: Place, seen: Path) -> None:
    began, written = HANDED_IN.split("print(volume.finalize")[0], KILLED
    assert int(printed(unprivileged(place, seen, began + written))) in (errno.ENOTCONN, errno.ECONNABORTED)
    done = unprivileged(place, seen, HANDED_IN)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert done.stderr.startswith("uncommitted work of volume results is back: 1 file, 9 B")
    assert (place.mount("results").path / "numbers.txt").read_text() == "one more\n" * 2
