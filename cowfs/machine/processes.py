"""Which process is meant: a pid alone is no name; it is used again after a death, a reboot, in
another container.

A process is identified by machine (its id and the pid namespace, since every container counts its
own pids), boot, pid and start time. Only processes that could be seen in /proc here are judged.
Start times are those that the machine's first time namespace shows, so that all namespaces record
and expect the same. Linux only: reads /proc and /etc/machine-id.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from cowfs import apart, clock, log
from cowfs.machine import proc
from cowfs.values import dataclass

CAP_SYS_ADMIN = 21  # linux/capability.h
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
        """Whether it ran on another machine or in another container, or /proc is not ours, so that
        nothing can be said about it here."""
        return not can_judge(self.host)

    @property
    def where(self) -> str:
        """Of a foreign one, as messages name it: its pid means another process here."""
        return f"another container or pid namespace{'' if self.boot_id == boot_id() else ', or on another machine'}"

    @property
    def is_alive(self) -> bool:
        """Whether exactly this process still runs; a foreign one counts as alive."""
        return self.is_foreign or (self.boot_id == boot_id() and is_running(self.pid, self.started))

    @property
    def is_there(self) -> bool:
        """As `is_alive`, but for its last threads too: with the first one a process is dead for all
        to see, with the last one its files are closed."""
        return self.is_foreign or (self.boot_id == boot_id() and _is_it(_stat(self.pid), self.pid, self.started))

    @property
    def is_stopped(self) -> bool:
        """By a signal or a debugger. A frozen control group does not show."""
        return not self.is_foreign and self.is_alive and (_stat(self.pid) or ("", 0))[0] in ("T", "t")

    def kill(self) -> bool:
        """Ends exactly this process, also one that is stopped; False: it may not be ended, or not
        from here."""
        if self.is_foreign:
            return False
        try:
            descriptor = descriptor_of(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.is_alive:
                return True
            if _stat(self.pid) is None:  # it is hidden, so it may be another one, or has just ended
                return not _is_taken(self.pid)
            if descriptor is None:
                os.kill(self.pid, signal.SIGKILL)
            else:  # its process is this one
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
            apart.require_wanted()
            clock.sleep_s(LOOK_S)
        return True
    try:
        waiter = select.poll()
        waiter.register(descriptor, select.POLLIN)
        ends_s = clock.monotonic_s() + timeout_s
        while not waiter.poll(1000 * min(apart.LOOK_S, max(ends_s - clock.monotonic_s(), 0))):
            if clock.monotonic_s() >= ends_s:
                return False
            apart.require_wanted()
        return True
    finally:
        os.close(descriptor)


def descriptor_of(pid: int) -> int | None:
    """Of a process, readable once it has ended. None: the kernel has none to give, or a sandbox
    forbids it. ProcessLookupError: there is no such process."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        _logger.debug("process %d is looked at again and again: %s", pid, error)
        return None


def _is_gone(pid: int) -> bool:
    """With its last thread."""
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
    """Whether processes of that machine and pid namespace (`machine_id`) can be seen here."""
    return proc.is_own() and machine == machine_id()


def machine_id() -> str:
    """The machine and the pid namespace we see; the host's name stands in where a container has no
    machine id."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    with proc.needed():
        return f"{machine or socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"


def boot_id() -> str:
    with proc.needed():
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Start of the process in clock ticks since boot; None when there is none, it is hidden from
    us, or it is only waiting to be reaped."""
    found = _stat(pid)
    return None if found is None or found[0] in "ZX" else found[1] - _shift_ticks()


def is_running(pid: int, started: int) -> bool:
    """Whether the process of this machine (`can_judge`) that had the pid and that `start_time`
    still runs. While a process has the pid that is hidden from us (hidepid), it counts as it."""
    found = _stat(pid)
    return (found is None or found[0] not in "ZX") and _is_it(found, pid, started)


def _is_it(found: tuple[str, int] | None, pid: int, started: int) -> bool:
    """found: what `_stat` says of the pid. A shift that is no whole number of ticks makes a start
    one more or less; earlier versions recorded what their own time namespace showed."""
    if found is None:
        return _is_taken(pid)
    return any(abs(shown - started) <= 1 for shown in (found[1], found[1] - _shift_ticks()))


def _is_taken(pid: int) -> bool:
    """Whether there is such a process, by the kernel's word and not by /proc."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


def _shift_ticks() -> int:
    """What start times that /proc shows us have more than in the machine's first time
    namespace."""
    try:
        if os.readlink("/proc/self/ns/time") != os.readlink("/proc/self/ns/time_for_children"):
            return 0  # the shift below is that of another namespace, which our children will be in
        lines = Path("/proc/self/timens_offsets").read_text().splitlines()
    except OSError:  # a kernel without time namespaces, or a sandbox that shows none
        return 0
    found = (map(int, line.split()[1:]) for line in lines if line.startswith("boottime"))
    seconds, nanoseconds = next(found, (0, 0))
    return (seconds * 1_000_000_000 + nanoseconds) // TICK_NS


def _stat(pid: int) -> tuple[str, int] | None:
    """(state, start time as our time namespace has it). None: there is no such process, or it is
    hidden from us."""
    try:
        text = Path(f"/proc/{'self' if pid == os.getpid() else pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the command in parentheses may hold spaces and parentheses itself
    return fields[0], int(fields[19])


def has_capability(number: int, of: str = "CapEff") -> bool:
    """Whether this process has it, in whatever user namespace it runs. of: the set that is asked;
    CapBnd is what a setuid program can have at most."""
    return bool(int(_status(of), 16) >> number & 1)


def has_no_new_privileges() -> bool:
    """Whether setuid programs stay what they were started as."""
    return _status("NoNewPrivs") == "1"


def _status(field: str) -> str:
    with proc.needed():
        lines = Path("/proc/self/status").read_text().splitlines()
    return next((line.split()[1] for line in lines if line.startswith(f"{field}:")), "0")


def has_processor_quota(root: Path = Path("/")) -> bool:
    """Whether a control group of this process, or one above it, limits its processor time, as
    containers with a CPU limit do."""
    return any(_is_limited(directory) for directory in _control_groups(root))


def _control_groups(root: Path) -> Iterator[Path]:
    """Directories of the groups that ration processor time. In a container names may be the host's,
    below what is visible."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
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
