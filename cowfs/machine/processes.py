"""Identifies processes: a pid alone is not enough, since it is used again after a death, a reboot,
or in another container.

A process is identified by machine (its id and the pid namespace, since every container counts its
own pids), boot, pid and start time. Only processes that would be visible in /proc here are judged.
Start times are those of the machine's first time namespace, so that all namespaces record and
expect the same. Linux only: reads /proc and /etc/machine-id.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from cowfs.base import clock, interruptible, log
from cowfs.base.fast_dataclass import dataclass
from cowfs.machine import proc

CAP_SYS_ADMIN = 21  # linux/capability.h
PR_SET_DUMPABLE = 4  # linux/prctl.h
LOOK_S = 0.02
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_logger = log.get("machine")


@dataclass(frozen=True)
class ProcessIdentity:
    host: str
    boot_id: str
    pid: int
    started: int

    @property
    def is_foreign(self) -> bool:
        """Whether it ran on another machine or in another container, or /proc is of another pid
        namespace, so that its state is unknown here."""
        return not can_judge(self.host)

    @property
    def where(self) -> str:
        """The place of a foreign process, for messages: its pid means another process here."""
        return f"another container or pid namespace{'' if self.boot_id == boot_id() else ', or on another machine'}"

    @property
    def is_alive(self) -> bool:
        """Whether exactly this process still runs; a foreign one counts as alive."""
        return self.is_foreign or (self.boot_id == boot_id() and is_running(self.pid, self.started))

    @property
    def is_there(self) -> bool:
        """As `is_alive`, but until its last thread has exited: a process counts as dead with its
        first thread, and its files are closed with the last one."""
        return self.is_foreign or (self.boot_id == boot_id() and _is_it(_stat(self.pid), self.pid, self.started))

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it. A frozen control group does not show."""
        return not self.is_foreign and self.is_alive and (_stat(self.pid) or ("", 0))[0] in ("T", "t")

    def kill(self) -> bool:
        """Ends exactly this process, also a stopped one. False: that is not permitted, or not
        possible from here."""
        if self.is_foreign:
            return False
        try:
            descriptor = descriptor_of(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.is_alive:
                return True
            if _stat(self.pid) is None:  # hidden, so it may be another process, or has just ended
                return not _is_taken(self.pid)
            if descriptor is None:
                os.kill(self.pid, signal.SIGKILL)
            else:  # the process is this one
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return True

    def to_record(self) -> dict[str, Any]:
        return {"host": self.host, "boot_id": self.boot_id, "pid": self.pid, "pid_started": self.started}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> ProcessIdentity:
        return cls(str(record["host"]), str(record["boot_id"]), int(record["pid"]), int(record["pid_started"]))


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Waits until process `pid` has ended (reaped or not); False when it still runs after
    timeout_s.

    Call it only for a pid just learnt from the process itself: a number may be used again.
    """
    try:
        descriptor = descriptor_of(pid)
    except ProcessLookupError:
        return True
    if descriptor is None:
        ends_s = clock.monotonic_s() + timeout_s
        while not _is_gone(pid):
            if clock.monotonic_s() >= ends_s:
                return False
            interruptible.require_wanted()
            clock.sleep_s(LOOK_S)
        return True
    try:
        waiter = select.poll()
        waiter.register(descriptor, select.POLLIN)
        ends_s = clock.monotonic_s() + timeout_s
        while not waiter.poll(1000 * min(interruptible.LOOK_S, max(ends_s - clock.monotonic_s(), 0))):
            if clock.monotonic_s() >= ends_s:
                return False
            interruptible.require_wanted()
        return True
    finally:
        os.close(descriptor)


def descriptor_of(pid: int) -> int | None:
    """A descriptor of a process that becomes readable once the process has ended. None: the kernel
    has none, or a sandbox forbids it. ProcessLookupError: there is no such process."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        _logger.debug("process %d is polled: %s", pid, error)
        return None


def _is_gone(pid: int) -> bool:
    """Whether its last thread has exited."""
    if start_time(pid) is not None:
        return False
    try:
        return len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return not _is_taken(pid)


def this_process() -> ProcessIdentity:
    pid = os.getpid()
    return ProcessIdentity(machine_id(), boot_id(), pid, start_time(pid) or 0)


def can_judge(machine: str) -> bool:
    """Whether processes of that machine and pid namespace (`machine_id`) are visible here."""
    return proc.is_own() and machine == machine_id()


def machine_id() -> str:
    """The machine and our pid namespace. In a container without a machine id, the host's name
    replaces it."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    with proc.require_readable():
        return f"{machine or socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"


def boot_id() -> str:
    with proc.require_readable():
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Start of the process in clock ticks since boot; None: there is no such process, it is hidden
    from us, or it is only waiting to be reaped."""
    found = _stat(pid)
    return None if found is None or found[0] in "ZX" else found[1] - _shift_ticks()


def is_running(pid: int, started: int) -> bool:
    """Whether the process of this machine (`can_judge`) with the pid and that `start_time` still
    runs. If the process with the pid is hidden from us (hidepid), it counts as the same one."""
    found = _stat(pid)
    return (found is None or found[0] not in "ZX") and _is_it(found, pid, started)


def _is_it(found: tuple[str, int] | None, pid: int, started: int) -> bool:
    """found: the result of `_stat`. If the shift of the time namespace is not a whole number of
    ticks, a start differs by one."""
    return _is_taken(pid) if found is None else abs(found[1] - _shift_ticks() - started) <= 1


def _is_taken(pid: int) -> bool:
    """Whether a process with the pid exists, according to the kernel and not to /proc."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


def _shift_ticks() -> int:
    """How much later start times appear in /proc than in the machine's first time namespace."""
    try:
        if os.readlink("/proc/self/ns/time") != os.readlink("/proc/self/ns/time_for_children"):
            return 0  # the offset below is that of another namespace, for our children
        lines = Path("/proc/self/timens_offsets").read_text().splitlines()
    except OSError:  # a kernel without time namespaces, or a sandbox that shows none
        return 0
    found = (map(int, line.split()[1:]) for line in lines if line.startswith("boottime"))
    seconds, nanoseconds = next(found, (0, 0))
    return (seconds * 1_000_000_000 + nanoseconds) // TICK_NS


def _stat(pid: int) -> tuple[str, int] | None:
    """(state, start time in our time namespace). None: there is no such process, or it is hidden
    from us."""
    try:
        text = Path(f"/proc/{'self' if pid == os.getpid() else pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the command in parentheses may hold spaces and parentheses
    return fields[0], int(fields[19])


def has_capability(number: int, of: str = "CapEff") -> bool:
    """Whether this process has the capability, in its user namespace. of: the set to look in;
    CapBnd limits what a setuid program can have."""
    return bool(int(_status(of), 16) >> number & 1)


def has_no_new_privileges() -> bool:
    """Whether setuid programs keep the privileges of their caller."""
    return _status("NoNewPrivs") == "1"


def hide_memory() -> None:
    """Prevents core dumps of this process, and keeps other processes of the same user from reading
    its memory (ptrace, /proc/<pid>/mem): a debugger needs CAP_SYS_PTRACE. The files below
    /proc/<pid> then belong to root; world-readable ones stay readable."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        _logger.warning(
            "other processes of this user can read the keys of this one: %s", os.strerror(ctypes.get_errno())
        )


def _status(field: str) -> str:
    with proc.require_readable():
        lines = Path("/proc/self/status").read_text().splitlines()
    return next((line.split()[1] for line in lines if line.startswith(f"{field}:")), "0")


def has_processor_quota(root: Path = Path("/")) -> bool:
    """Whether a control group of this process, or one above it, limits its processor time, as
    containers with a CPU limit do."""
    return any(_is_limited(directory) for directory in _control_groups(root, "cpu"))


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The memory limit of this process's control groups, as in containers with a memory limit;
    None: they set no limit."""
    limits = (_memory_limit(directory) for directory in _control_groups(root, "memory"))
    return min((limit for limit in limits if limit is not None), default=None)


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of the groups with this controller. In a container, names may be the host's and
    lie outside of the visible tree."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        group = PurePosixPath(path.lstrip("/"))
        for parent in (group, *group.parents):
            yield root / "sys/fs/cgroup" / controllers / parent


def _is_limited(directory: Path) -> bool:
    for name, unlimited in (("cpu.max", "max"), ("cpu.cfs_quota_us", "-1")):
        try:
            return (directory / name).read_text().split()[0] != unlimited
        except (OSError, IndexError):
            continue
    return False


def _memory_limit(directory: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (directory / name).read_text().strip()
        except OSError:
            continue
        # Version 1 shows a number near 2**63 for no limit.
        return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None
