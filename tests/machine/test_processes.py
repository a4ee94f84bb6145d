"""Whoever waits for a process, or ends one, needs no descriptor of it: sandboxes forbid them, and
old kernels have none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cowfs.errors import InvalidStateError
from cowfs.machine import mount_table, proc, processes
from cowfs.machine.processes import ProcessIdentity

WATCHDOG_S = 60
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

# The first thread ends, which makes it a zombie; another one goes on until something is written.
LAST_THREAD = """
import ctypes, os, sys, threading
def last():
    print("ready", flush=True)
    sys.stdin.readline()
    os._exit(0)
threading.Thread(target=last).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def program(process_descriptors: None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", LAST_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        yield program
        program.kill()


def identity(program: subprocess.Popen[str]) -> ProcessIdentity:
    started = processes._stat(program.pid)
    assert started is not None
    return ProcessIdentity(processes.machine_id(), processes.boot_id(), program.pid, started[1])


def test_a_process_is_gone_with_its_last_thread(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    assert not processes.wait_gone(program.pid, 0.1)
    program.stdin.write("\n")
    program.stdin.flush()
    assert processes.wait_gone(program.pid, WATCHDOG_S), "though nobody has reaped it"
    program.wait()
    assert processes.wait_gone(program.pid, 0)


@pytest.mark.usefixtures("process_descriptors")
def test_exactly_the_process_that_is_meant_is_ended() -> None:
    with subprocess.Popen(["sleep", "600"], text=True) as program:
        whole = identity(program)
        other = ProcessIdentity(whole.host, whole.boot_id, whole.pid, whole.started - 2)
        assert other.kill(), "it has ended before"
        assert program.poll() is None
        assert whole.kill()
        assert processes.wait_gone(program.pid, WATCHDOG_S)
    assert whole.kill()


SHIFTS = [(0, 0), (100_000, 0), (-3, 990_000_000), (7, 123_456_789)]


@pytest.mark.quick
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("recorded", SHIFTS)
def test_a_process_is_the_same_in_every_time_namespace(
    monkeypatch: pytest.MonkeyPatch, shift: tuple[int, int], recorded: tuple[int, int]
) -> None:
    """Each shows when it started by a clock of its own."""
    pid, start_ns = os.getpid(), 5_000_017_654_321
    read_text = Path.read_text

    def enter(shift: tuple[int, int]) -> None:
        seconds, nanoseconds = shift
        ticks = (start_ns + seconds * 1_000_000_000 + nanoseconds) // TICK_NS
        offsets = f"monotonic           {seconds}         0\nboottime       {seconds}         {nanoseconds}\n"
        shown = {"/proc/self/stat": f"1 (a b) {'S 0 ' + '0 ' * 17}{ticks}\n", "/proc/self/timens_offsets": offsets}
        monkeypatch.setattr(Path, "read_text", lambda path, **how: shown.get(str(path)) or read_text(path, **how))

    enter(recorded)
    process = processes.this_process()
    enter(shift)
    assert process.pid == pid
    assert process.is_alive
    assert process.is_there
    for ticks in (10, -10):
        other = replace(process, started=process.started + ticks)
        assert not other.is_alive
        assert not other.is_there


@pytest.mark.quick
@pytest.mark.usefixtures("process_descriptors")
@pytest.mark.parametrize("refusal", [FileNotFoundError, PermissionError])
def test_a_process_that_is_hidden_from_us_counts_as_alive_and_is_not_ended(
    monkeypatch: pytest.MonkeyPatch, refusal: type[OSError]
) -> None:
    """/proc that is mounted with hidepid shows nobody the processes of others."""
    read_text = Path.read_text
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as program:  # ends with the block
        hidden = f"/proc/{program.pid}/stat"

        def read(path: Path, **how: str) -> str:
            if str(path) == hidden:
                raise refusal(hidden)
            return read_text(path, **how)

        def listed(path: str) -> list[str]:
            raise refusal(path)

        monkeypatch.setattr(Path, "read_text", read)
        monkeypatch.setattr(os, "listdir", listed)
        process = ProcessIdentity(processes.machine_id(), processes.boot_id(), program.pid, 1)
        assert process.is_alive
        assert process.is_there
        assert not process.kill()
        assert not processes.wait_gone(program.pid, 0)
        assert program.poll() is None
        program.kill()
    for pid in (program.pid, 0, -1, 1 << 40):
        nobody = replace(process, pid=pid)
        assert not nobody.is_alive
        assert not nobody.is_there


@pytest.mark.quick
@pytest.mark.parametrize("shown", ["", str(os.getpid() + 1)], ids=["missing", "another"])
def test_by_the_proc_of_another_pid_namespace_nobody_is_judged(monkeypatch: pytest.MonkeyPatch, shown: str) -> None:
    """There a pid is another process', or none is. Where ours does not show, /proc/self is missing,
    too."""
    dead = replace(processes.this_process(), started=1)
    assert not dead.is_alive
    readlink = os.readlink

    def read(path: str) -> str:
        if path == "/proc/self" and not shown:
            raise FileNotFoundError(2, "No such file or directory", path)
        return shown if path == "/proc/self" else readlink(path)

    monkeypatch.setattr(os, "readlink", read)
    process = replace(dead)
    assert process.is_foreign
    assert process.is_alive
    assert not process.kill()
    with pytest.raises(InvalidStateError, match=r"/proc") as caught:
        mount_table.mounts()
    assert caught.value.hint == proc.HINT


HIDDEN = """
import os, resource, sys
from cowfs.machine import mount_table, processes
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
processes.hide_memory()
fd = os.open("/", os.O_RDONLY)
assert mount_table.mount_of(fd) is not None
assert mount_table.device_served(fd) is None
assert os.path.samefile(f"/proc/self/fd/{fd}", "/")
assert processes.is_running(os.getpid(), processes.start_time(os.getpid()))
assert not processes.has_capability(processes.CAP_SYS_ADMIN)
assert os.stat("/proc/self/environ").st_uid == 0
os.abort()
"""


def test_a_process_that_hides_its_memory_leaves_no_core_and_reads_its_own_proc(tmp_path: Path) -> None:
    """Also where it is not root, to whom the files below its /proc/<pid> belong then."""
    tmp_path.chmod(0o777)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", HIDDEN], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT, done.stderr
    assert not list(tmp_path.iterdir())


WITHHELD = """
import ctypes, os, sys
from cowfs.machine import mount_table, processes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0  # CLONE_NEWNS
assert libc.mount(None, b"/", None, 0x44000, None) == 0  # MS_REC | MS_PRIVATE
assert libc.mount(sys.argv[1].encode(), f"/proc/{os.getpid()}/fdinfo".encode(), None, 0x1000, None) == 0  # MS_BIND
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
processes.hide_memory()
fd = os.open("/", os.O_RDONLY)
assert mount_table.mount_of(fd) is None
assert not mount_table.is_local(fd)
assert mount_table.device_served(fd) is None
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, and becomes another user")
def test_a_kernel_that_tells_a_hidden_process_nothing_of_its_files_is_no_error(tmp_path: Path) -> None:
    """As before Linux 5.14: the directory belongs to root, and nobody else may look into it."""
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o500)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-c", WITHHELD, str(hidden)]
    done = subprocess.run(program, cwd="/", env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
