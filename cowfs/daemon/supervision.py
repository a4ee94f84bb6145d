"""The daemon's side of supervision: its mount goes on if it is killed (`cowfs.supervisor`).

    choose         whether the mount is supervised, and if not, why
    keep           hands the supervisor what the next daemon needs, once the mount is served
    end            nothing of the mount is to be started again
    look_after     finds the next supervisor when the one before is gone

The next daemon gets the same specification (`start`), without what only this process's caller knew.
Any thread may call.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace

from cowfs.base import clock, config, failpoints, log, programs
from cowfs.base.errors import InvalidInputError, MountFailedError
from cowfs.base.ids import VersionId
from cowfs.control import MountSpec
from cowfs.control.handover import Handover
from cowfs.format import keys
from cowfs.format.sealing import PLAIN
from cowfs.machine import processes
from cowfs.machine.processes import ProcessIdentity
from cowfs.native import SurvivalTable
from cowfs.session.session import Session
from cowfs.session.survival import Survival
from cowfs.store.sealed import sealing_of
from cowfs.supervisor import client, wire

RESEND_RELEASE = (6, 9)
"""Linux offers to send requests again (FUSE_NOTIFY_RESEND)."""
SAFE_RELEASE = (6, 12)
"""And does so for each request: before, one that was just being read could be missed."""
START_S = 20.0
"""For the start of a supervisor on a busy machine."""
PAUSE_S = 0.02

_logger = log.get("mount")


class Supervision:
    """Of one mount. reason: why it is not supervised; "" if it is."""

    def __init__(
        self, spec: MountSpec, handover: Handover, reason: str, connection: socket.socket | None = None
    ) -> None:
        self._spec = spec
        self._handover = handover
        self._directory = str(config.runtime_dir()) if connection is not None else ""
        self._connection = connection
        self._lock = threading.Lock()
        self._kept: dict[str, int] = {}
        self._noted: VersionId | None = None  # the version that `start` has
        self.reason = reason
        self.survival: Survival | None = None

    @property
    def is_supervised(self) -> bool:
        return not self.reason

    @property
    def is_continued(self) -> bool:
        """Whether this process goes on with the mount of one that was killed."""
        return self.survival is not None and self.survival.is_continued

    @property
    def supervisor(self) -> ProcessIdentity | None:
        """The supervisor's process, which outlives this one."""
        with self._lock:
            pid = client.peer(self._connection)[0] if self._connection is not None else 0
        started = processes.start_time(pid) if pid else None
        return None if started is None else replace(processes.this_process(), pid=pid, started=started)

    def take_device(self) -> int:
        """A copy of the device that the server before has had."""
        return os.dup(self._kept["device"])

    def note_device(self, device: int) -> None:
        """device: the mount's, which stays the caller's."""
        if self.is_supervised:
            self._kept["device"] = os.dup(device)

    def keep(self, session: Session) -> None:
        """The mount is served."""
        if not self.is_supervised or self.is_continued:
            return
        assert session.writer is not None
        self._kept |= {"lock": os.dup(session.writer.working_copy.share_lock()), "log": os.dup(2)}
        self._kept["start"] = self._make_start(session)
        with self._lock:
            refusal = self._hand_over()
        if refusal:
            self._require_not_demanded(refusal)
            self.end(refusal)

    def end(self, reason: str = "the mount ends") -> None:
        """The mount is not supervised any more."""
        with self._lock:
            if not self.is_supervised:
                return
            self.reason = reason
            if self._connection is not None:
                with suppress(OSError):  # the supervisor is gone
                    wire.send(self._connection, {"end": True})
                self._connection.close()
                self._connection = None
            while self._kept:
                os.close(self._kept.popitem()[1])

    def note_version(self, session: Session) -> None:
        """The next daemon opens this version without the store."""
        with self._lock:
            if not self.is_supervised or "lock" not in self._kept or session.base.version_id == self._noted:
                return
            os.close(self._kept.pop("start"))
            self._kept["start"] = self._make_start(session)
            if self._connection is not None:
                with suppress(OSError):  # its supervisor is gone; the next one gets it
                    wire.send(self._connection, {"start": True}, [self._kept["start"]])

    def look_after(self) -> None:
        """Call it regularly."""
        with self._lock:
            if not self.is_supervised or "lock" not in self._kept or not self._has_lost_supervisor():
                return
            if self._connection is not None:
                _logger.warning("the supervisor is gone: the mount would not outlive this process")
                self._connection.close()
                self._connection = None
            with suppress(OSError):
                self._connection = client.find(self._directory)
            if self._connection is not None and not self._hand_over():
                _logger.info("the mount is supervised again")

    @property
    def state(self) -> str:
        """Why the mount would not outlive this process; "" if it would."""
        with self._lock:
            return self.reason or ("its supervisor is gone" if self._has_lost_supervisor() else "")

    def _has_lost_supervisor(self) -> bool:
        if self._connection is None:
            return True
        waiter = select.poll()
        waiter.register(self._connection, 0)  # a hang-up is always reported
        return bool(waiter.poll(0))

    def _hand_over(self) -> str:
        """The reason why the supervisor does not keep it; "" if it does."""
        assert self._connection is not None
        try:
            wire.send(self._connection, {"keep": self._spec.registration}, [self._kept[name] for name in wire.KEPT])
            answer = wire.receive(self._connection)
        except OSError as error:
            return f"its supervisor does not answer: {error.strerror or error}"
        if answer is None:
            return "its supervisor is gone"
        return str(answer[0].get("refused", ""))

    def _make_start(self, session: Session) -> int:
        """What the next daemon is started with (`wire.KEPT`)."""
        base = session.base
        self._noted = base.version_id
        spec = replace(
            self._spec,
            head_number=0,
            head_version=None,
            lease_epoch=None,
            quota_bytes=session.engine.quota(),
            compress=None,
            options=replace(self._spec.options, take_over=False),
        )
        known = {keys.STORE: session.record.encode()}
        if base.manifest is not None and base.version_id is not None and sealing_of(session.store) is PLAIN:
            known[keys.version(base.version_id)] = base.manifest.encode()
        texts = {name: data.decode() for name, data in known.items()}
        words = [sys.executable, "-P", "-m", "cowfs.daemon", wire.GO_ON]
        environment = {name: value for name, value in os.environ.items() if name != failpoints.VARIABLE}
        start = {"arguments": words, "environment": environment}
        handover = replace(self._handover, known=texts)
        lines = [json.dumps(start).encode(), spec.to_json().encode(), handover.to_line()]
        descriptor = os.memfd_create("cowfs-start", os.MFD_CLOEXEC)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(b"\n".join(lines))
        return descriptor

    def _require_not_demanded(self, reason: str) -> None:
        if self._spec.options.supervised:
            raise _refusal(reason)


def choose(spec: MountSpec, handover: Handover) -> Supervision:
    """Starts a supervisor if the mount is to be supervised and none runs. MountFailedError,
    InvalidInputError: it is demanded, and cannot be had."""
    options = spec.options
    if not options.is_supervised:
        return Supervision(spec, handover, "it was not asked for")
    if reason := _obstacle(spec):
        if options.supervised:
            raise InvalidInputError(f"this mount cannot be supervised: {reason}", hint="Mount it without supervised.")
        return Supervision(spec, handover, reason)
    if _release() < SAFE_RELEASE:
        _logger.warning("before Linux 6.12, a request may get no answer when the daemon of a supervised mount dies")
    try:
        connection = _connect(str(config.runtime_dir()))
        pid, _ = client.peer(connection)
    except OSError as error:
        reason = f"its supervisor cannot be reached: {error.strerror or error}"
        if options.supervised:
            raise _refusal(reason) from error
        return Supervision(spec, handover, reason)
    supervision = Supervision(spec, handover, "", connection)
    descriptor = SurvivalTable.allocate()
    supervision._kept["table"] = descriptor
    number = int.from_bytes(clock.random_bytes(8), "little") | 1
    supervision.survival = Survival(SurvivalTable(descriptor, number))
    _logger.info("supervised by process %d", pid)
    return supervision


def go_on(spec: MountSpec, handover: Handover, answer_fd: int) -> Supervision:
    """For a process that was started by the supervisor, with the kept descriptors. answer_fd: what
    was its standard output; it stays the caller's."""
    connection = socket.socket(fileno=os.dup(answer_fd))
    supervision = Supervision(spec, handover, "", connection)
    for name, number in wire.KEPT.items():
        supervision._kept[name] = os.dup(number)
        if number > 2:
            os.close(number)
    table = SurvivalTable(supervision._kept["table"], 1)
    if not table.has_all_handles:
        raise MountFailedError(
            "the mount had too many files open to go on with it",
            hint="Mount the volume again; its work is kept.",
        )
    supervision.survival = Survival(table, os.dup(supervision._kept["lock"]))
    return supervision


def _obstacle(spec: MountSpec) -> str:
    """Why a mount like this cannot be supervised; ""."""
    options = spec.options
    obstacles = {
        "only volumes that are mounted writable are": spec.mode != "rw",
        "pyfuse3 makes a handshake that cannot be gone on with (fast_lane=False)": not options.fast_lane,
        "requests in the rings of io_uring are lost with the process (transport=uring)": options.transport == "uring",
        "its descriptor was handed in (fuse_fd=)": options.fuse_fd is not None,
        "it runs in the foreground": options.foreground,
        "it ends with a process": spec.binding is not None,
        "Linux 6.9 or newer is needed": _release() < RESEND_RELEASE,
    }
    return next((reason for reason, applies in obstacles.items() if applies), "")


def _release() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def _refusal(reason: str) -> MountFailedError:
    return MountFailedError(f"the mount cannot be supervised: {reason}", hint="Try again, or mount without supervised.")


def _connect(directory: str) -> socket.socket:
    end_s = clock.monotonic_s() + START_S
    started = False
    while (connection := client.find(directory)) is None:
        if clock.monotonic_s() > end_s:
            raise TimeoutError("the supervisor does not start")
        if not started:
            _start_supervisor(directory)
            started = True
        clock.sleep_s(PAUSE_S)
    return connection


def _start_supervisor(directory: str) -> None:
    """Of several, the first to take the lock of the directory stays. It gets no credentials."""
    names = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
    programs.start(
        [sys.executable, "-P", "-m", "cowfs.supervisor", directory],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env={name: os.environ[name] for name in names if name in os.environ},
    )
