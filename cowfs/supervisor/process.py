"""The supervisor's process: one loop, without threads.

    daemon dies        another is started, with the kept descriptors
    not ready in time  it is killed: READY_S from its start, and from each report of progress
    three in a row     the mount is given up: a program takes it off, and says why (`daemon.given_up`)

A daemon counts as dead when its process has ended, or when each of its threads has a SIGKILL
pending: a thread that waits in the kernel for an answer of the next daemon never runs again, but
cannot end before that answer.

The supervisor's death ends no mount: daemons have the device as well, and look for the next
supervisor. It exits when nothing has been kept for IDLE_S. Its descriptors come from processes of
this user or of root; the requests of others are refused.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import time
from contextlib import suppress
from typing import Any

from cowfs.supervisor import wire
from cowfs.supervisor.client import LOCK, SOCKET, peer

READY_S = 30.0
IDLE_S = 10.0
TICK_S = 0.25
"""How often daemons are looked at that are dying, or not ready in time."""
MOST_DEATHS = 3
FIRST_KEPT = 64
"""The lowest descriptor of kept ones: those below are given to daemons."""
PR_SET_DUMPABLE = 4  # linux/prctl.h
SIGKILL_BIT = 1 << (signal.SIGKILL - 1)


class Daemon:
    """A process that serves a mount, or is about to."""

    def __init__(self, pid: int, connection: socket.socket, *, is_child: bool) -> None:
        self.pid = pid
        self.process = os.pidfd_open(pid)
        self.connection = connection
        self.is_child = is_child
        self.is_ready = not is_child
        self.ready_by_s = time.monotonic() + READY_S
        self.error = ""

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.process, signal.SIGKILL)

    def is_dead(self) -> bool:
        if select.select([self.process], [], [], 0)[0]:
            return True
        states = _threads(self.pid)
        return bool(states) and all(state in "ZX" or pending & SIGKILL_BIT for state, pending in states)

    def close(self) -> None:
        os.close(self.process)
        self.connection.close()


class Restart:
    """A restart that was asked for. arguments, variables: of the program, in place of those that
    `start` names."""

    def __init__(self, asker: socket.socket, message: dict[str, Any]) -> None:
        self.asker = asker
        self.arguments = [str(each) for each in message["arguments"]]
        self.variables = {str(name): str(value) for name, value in message["variables"].items()}
        self.is_tried = False


class Mount:
    """What is kept of one mount. kept: descriptors, by the names of `wire.KEPT`. program: of the
    daemon, if `start` names another one."""

    def __init__(self, registration: str, kept: dict[str, int], daemon: Daemon) -> None:
        self.registration = registration
        self.kept = kept
        self.daemon = daemon
        self.deaths = 0
        self.error = ""
        """Of the last daemon in a row that has named one."""
        self.program: Restart | None = None
        self.restart: Restart | None = None


class Supervisor:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._mounts: dict[str, Mount] = {}
        self._connections: dict[int, socket.socket] = {}
        self._busy_s = time.monotonic()

    def run(self) -> None:
        while self._mounts or self._connections or time.monotonic() < self._busy_s + IDLE_S:
            for descriptor, _ in self._poll.poll(1000 * (TICK_S if self._mounts else IDLE_S)):
                if descriptor == self._listener.fileno():
                    self._accept()
                elif (connection := self._connections.get(descriptor)) is not None:
                    self._hear_safely(connection)
            for mount in list(self._mounts.values()):
                self._look_after(mount)
            _reap()

    # -- what others say

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            if peer(connection)[1] in (0, os.getuid()):
                self._listen_to(connection)
            else:
                connection.close()

    def _listen_to(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connections[connection.fileno()] = connection
        self._poll.register(connection, select.POLLIN)

    def _hear_safely(self, connection: socket.socket) -> None:
        """A message that is none, or a process that is gone already, costs its connection."""
        try:
            self._hear(connection)
        except (OSError, LookupError, TypeError, ValueError, AttributeError):
            self._hang_up(connection)

    def _hear(self, connection: socket.socket) -> None:
        try:
            received = wire.receive(connection)
        except BlockingIOError:
            return
        if received is None:
            self._hang_up(connection)
            return
        message, descriptors = received
        mount = next((each for each in self._mounts.values() if each.daemon.connection is connection), None)
        if "keep" in message:
            _answer(connection, self._keep(connection, message["keep"], descriptors))
            return
        if mount is not None and "start" in message and descriptors:
            os.close(mount.kept["start"])
            mount.program = None
            mount.kept["start"] = fcntl.fcntl(descriptors[0], fcntl.F_DUPFD_CLOEXEC, FIRST_KEPT)
        for descriptor in descriptors:
            os.close(descriptor)
        if "forget" in message:
            found = self._mounts.get(str(message["forget"]))
            if found is not None:
                self._end(found)
            _answer(connection, {"forgotten": found is not None})
        elif "restart" in message:
            self._restart(connection, message)
        elif mount is not None:
            self._hear_daemon(mount, message)

    def _hear_daemon(self, mount: Mount, message: dict[str, Any]) -> None:
        daemon = mount.daemon
        if "progress" in message:
            daemon.ready_by_s = time.monotonic() + READY_S
        elif "ready" in message:
            daemon.is_ready = True
            mount.deaths, mount.error = 0, ""
            if mount.restart is not None and mount.restart.is_tried:
                mount.program = mount.restart
                self._settle(mount, {"restarted": daemon.pid})
        elif "error" in message:
            daemon.error = _text_of(message["error"])
        elif "end" in message:
            self._end(mount)

    def _restart(self, connection: socket.socket, message: dict[str, Any]) -> None:
        mount = self._mounts.get(str(message["restart"]))
        if mount is None:
            _answer(connection, {"failed": "it is not supervised"})
        elif mount.restart is not None or not mount.daemon.is_ready:
            _answer(connection, {"failed": "its daemon is being started already"})
        else:
            mount.restart = Restart(connection, message)
            mount.daemon.kill()

    def _settle(self, mount: Mount, answer: dict[str, Any]) -> None:
        if mount.restart is not None:
            _answer(mount.restart.asker, answer)
            mount.restart = None

    def _keep(self, connection: socket.socket, registration: object, received: list[int]) -> dict[str, Any]:
        kept = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_KEPT) for descriptor in received]
        for descriptor in received:
            os.close(descriptor)
        pid, _ = peer(connection)
        reason = "a descriptor is missing" if len(kept) != len(wire.KEPT) else ""
        if not pid:
            reason = "it runs in a pid namespace that the supervisor does not see"
        if reason:
            return _refuse(kept, reason)
        try:
            daemon = Daemon(pid, connection, is_child=False)
        except OSError:
            return _refuse(kept, "its process is gone")
        if (earlier := self._mounts.get(str(registration))) is not None:
            self._end(earlier)
        self._poll.register(daemon.process, select.POLLIN)
        self._mounts[str(registration)] = Mount(str(registration), dict(zip(wire.KEPT, kept, strict=True)), daemon)
        return {"kept": os.getpid()}

    def _hang_up(self, connection: socket.socket) -> None:
        self._forget_connection(connection)
        connection.close()

    def _forget_connection(self, connection: socket.socket) -> None:
        if self._connections.pop(connection.fileno(), None) is not None:
            self._poll.unregister(connection)

    # -- daemons

    def _look_after(self, mount: Mount) -> None:
        daemon = mount.daemon
        if not daemon.is_ready and time.monotonic() > daemon.ready_by_s:
            daemon.error = daemon.error or f"it was not ready within {READY_S:.0f} s"
            daemon.kill()
            daemon.ready_by_s = time.monotonic() + READY_S
        if not daemon.is_dead():
            return
        self._hear_out(mount)
        if mount.registration not in self._mounts:
            return
        if mount.restart is not None and mount.restart.is_tried:
            self._settle(mount, {"failed": daemon.error or "it ended before it served the mount"})
        else:
            mount.deaths += not daemon.is_ready
        mount.error = daemon.error or mount.error
        self._drop(daemon)
        if mount.deaths == MOST_DEATHS:
            self._give_up(mount, mount.error or "its log says more")
            return
        self._start_next(mount)

    def _start_next(self, mount: Mount) -> None:
        try:
            self._start(mount)
        except (OSError, ValueError) as error:
            if mount.restart is None and mount.program is None:
                self._give_up(mount, str(error))
                return
            self._settle(mount, {"failed": str(error)})
            mount.program = None
            self._start_next(mount)

    def _hear_out(self, mount: Mount) -> None:
        """What the daemon said before it died: perhaps that it ends."""
        connection = mount.daemon.connection
        while connection.fileno() in self._connections and mount.registration in self._mounts:
            if not select.select([connection], [], [], 0)[0]:
                return
            self._hear_safely(connection)

    def _start(self, mount: Mount) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = mount.restart or mount.program
        if mount.restart is not None:
            mount.restart.is_tried = True
        with theirs:
            pid = _spawn(mount.kept, theirs.fileno(), [], program)
        mount.daemon = Daemon(pid, ours, is_child=True)
        self._poll.register(mount.daemon.process, select.POLLIN)
        self._listen_to(ours)

    def _give_up(self, mount: Mount, reason: str) -> None:
        """Without the device's last descriptor the kernel ends the connection: programs get
        errors."""
        for name in ("device", "table", "lock"):
            os.close(mount.kept.pop(name))
        with open(os.devnull, "wb") as nothing, suppress(OSError, ValueError):
            _spawn(mount.kept, nothing.fileno(), [wire.GIVEN_UP, reason])
        self._remove(mount)

    def _end(self, mount: Mount) -> None:
        self._drop(mount.daemon)
        self._remove(mount)

    def _drop(self, daemon: Daemon) -> None:
        self._forget_connection(daemon.connection)
        self._poll.unregister(daemon.process)
        daemon.close()

    def _remove(self, mount: Mount) -> None:
        self._settle(mount, {"failed": "the mount has ended"})
        del self._mounts[mount.registration]
        for descriptor in mount.kept.values():
            os.close(descriptor)
        self._busy_s = time.monotonic()


def _refuse(kept: list[int], reason: str) -> dict[str, Any]:
    for descriptor in kept:
        os.close(descriptor)
    return {"refused": reason}


def _answer(connection: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # it has hung up, which is noticed next
        wire.send(connection, message)


def _spawn(kept: dict[str, int], output: int, more: list[str], program: Restart | None = None) -> int:
    """Starts the program, or what the mount's `start` names, with these descriptors."""
    line, offset = b"", 0
    while not line.endswith(b"\n"):
        part = os.pread(kept["start"], 1 << 16, offset).partition(b"\n")
        line += part[0] + part[1]
        offset = len(line)
        if not part[0] and not part[1]:
            raise ValueError("the start of a daemon has no end")
    os.lseek(kept["start"], len(line), os.SEEK_SET)
    start = json.loads(line)
    moved = [(os.POSIX_SPAWN_DUP2, descriptor, wire.KEPT[name]) for name, descriptor in kept.items()]
    arguments, environment = start["arguments"], start["environment"]
    if program is not None:
        arguments, environment = program.arguments, environment | program.variables
    return os.posix_spawn(
        arguments[0],
        [*arguments, *more],
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, output, 1), *moved],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGTERM],
    )


def _threads(pid: int) -> list[tuple[str, int]]:
    """State and pending signals of each thread of a process whose first thread has ended, or is
    about to; [] otherwise, which is the usual case and takes one read."""
    state, pending = _thread(f"/proc/{pid}/status")
    if state not in "ZX" and not pending & SIGKILL_BIT:
        return []
    try:
        return [_thread(f"/proc/{pid}/task/{each}/status") for each in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _thread(path: str) -> tuple[str, int]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
    except OSError:
        return "X", 0
    return fields["State"].split()[0], int(fields["SigPnd"], 16)


def _text_of(error: object) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _prepare() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # `start` may have the key of an encrypted store: no process of this user may open it in /proc.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def main(directory: str) -> None:
    """Serves until it is idle. Ends at once if another supervisor has the directory's lock."""
    _prepare()
    lock = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    path = os.path.join(directory, SOCKET)
    with suppress(FileNotFoundError):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as listener:
        old = os.umask(0o177)
        listener.bind(path)
        os.umask(old)
        listener.listen(64)
        try:
            Supervisor(listener).run()
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
