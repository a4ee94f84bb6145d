"""Operations on a live mount from any process: finds its daemon through the registry and asks it.

Nothing here touches the mount point. If the daemon died between lookup and call, the call raises
UnavailableError. Long operations wait without a bound; if the daemon does not even answer a PING
meanwhile, because it is stopped or frozen, that is logged once.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cowfs.base import clock, interruptible, log
from cowfs.base.errors import ConflictError, CowfsError, UnavailableError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import WriteId
from cowfs.control.binding import Binding
from cowfs.control.client import Client
from cowfs.control.messages import (
    ACKNOWLEDGE,
    ADOPT,
    BIND,
    COMMIT,
    COMPARE,
    DETACH,
    DISCARD,
    MEASURE,
    PING,
    RESTORE,
    STATUS,
    UNMOUNT,
    A,
    Adoption,
    Committed,
    Compared,
    Comparison,
    Ending,
    Left,
    MountStatus,
    Nothing,
    Operation,
    R,
    Restoration,
    Restored,
    Work,
)
from cowfs.machine import processes, registry
from cowfs.machine.registry import MountEntry
from cowfs.supervisor import client
from cowfs.version.commit import CommitRequest, ProgressListener

STATUS_TIMEOUT_S = 10.0
END_TIMEOUT_S = 60.0
PING_TIMEOUT_S = 5.0
DEATH_S = 2.0
"""The time between the end of a daemon's socket and the end of its process."""
PAUSE_S = 90.0
"""How long a call waits for the next daemon: three starts that fail take as long."""
PAUSE_LOOK_S = 0.05
_log = log.get("mount")


@dataclass(frozen=True)
class Released:
    """The result of `release`. users: the programs with open files, usually "". trouble: why the
    volume may still be mounted, usually ""."""

    users: str = ""
    trouble: str = ""


def status(entry: MountEntry) -> MountStatus:
    """The daemon's report of its state."""
    return _ask(entry, STATUS, Nothing(), timeout_s=STATUS_TIMEOUT_S)


def commit(entry: MountEntry, request: CommitRequest, progress: ProgressListener | None = None) -> Committed:
    """Publishes everything written before the call."""
    write_id = clock.random_bytes(WriteId.length).hex()  # of a commit that is asked for again
    return _ask(entry, COMMIT, replace(request, write_id=write_id), progress)


def compare(entry: MountEntry, wanted: Comparison) -> Compared:
    """Compares a version with the mounted volume, committed or not."""
    return _ask(entry, COMPARE, wanted)


def restore(entry: MountEntry, wanted: Restoration) -> Restored:
    """Restores a path of a version into the mounted volume's working copy."""
    return _ask(entry, RESTORE, wanted)


def adopt(entry: MountEntry, volume: str) -> None:
    """Sends the commits of a scratch to this volume, whose version is the scratch's."""
    _ask(entry, ADOPT, Adoption(volume))


def bind(entry: MountEntry, binding: Binding) -> None:
    """Makes the mount end when the process is gone, unless others share it; or takes that back."""
    _ask(entry, BIND, binding, timeout_s=STATUS_TIMEOUT_S)


def acknowledge(entry: MountEntry, *, timeout_s: float) -> None:
    """Has a writer read what collections condemn, and acknowledge it in the store, at once. Its pin
    shows whether it did: a writer that is putting a head does it later."""
    _ask(entry, ACKNOWLEDGE, Nothing(), timeout_s=timeout_s)


def measure_work(entry: MountEntry) -> Work | None:
    """How much work is in no version; None: none is. A commit under way may take too long for an
    answer, which is an UnavailableError."""
    return _ask(entry, MEASURE, Nothing(), timeout_s=STATUS_TIMEOUT_S).work


def has_uncommitted(entry: MountEntry) -> bool:
    """Whether there is work that is in no version. A read-only mount has none."""
    writer = status(entry).writer
    return writer is not None and writer.is_dirty


def unmount(entry: MountEntry, *, force: bool = False) -> Left:
    """Unmounts, keeping uncommitted work, and waits until the daemon has ended. ConflictError while
    the mount is in use."""
    left = _ask(entry, UNMOUNT, Ending(force))
    _wait_ended(entry)
    return left


def release(entry: MountEntry, *, force: bool = False) -> Released:
    """Removes a mount whose work has been published. It does not raise: problems are in the result.

    While files are open, the mount is detached from its path, and its daemon serves them until the
    last one is closed. force: unmounts all the same; programs that use it get errors.
    """
    try:
        try:
            unmount(entry, force=force)
        except ConflictError as error:
            _ask(entry, DETACH, Nothing())
            return Released(users=error.message)
    except CowfsError as error:
        if not has_died(entry):
            return Released(trouble=f"{error.message}. {error.hint}")
    return Released()


def has_died(entry: MountEntry) -> bool:
    """Whether the daemon is gone, or ends within DEATH_S."""
    return not entry.process.is_alive or (not entry.process.is_foreign and processes.wait_gone(entry.pid, DEATH_S))


def is_dying(entry: MountEntry) -> bool:
    """Whether the daemon, which the registry takes for alive, was just killed: when this returns
    True, its process is gone. UnavailableError: it is alive, but does not answer."""
    try:
        _ask(entry, PING, Nothing(), timeout_s=STATUS_TIMEOUT_S)
    except UnavailableError as error:
        if has_died(entry):
            return True
        if _is_silence(error.__cause__):
            raise
    return False


def end_silent(entry: MountEntry) -> bool:
    """Kills a daemon that is alive but does not answer, so that it cannot continue later.
    Everything written is in the working copy, and the mount becomes one whose daemon has died.
    False: it answers, or is gone. UnavailableError: it neither answers nor ends."""
    try:
        _ask(entry, PING, Nothing(), timeout_s=STATUS_TIMEOUT_S)
    except UnavailableError as error:
        if not _is_silence(error.__cause__):
            return False
        _log.warning("%s, and is being killed", error.message)
        _end_supervision(entry)
        if not entry.process.kill() or not processes.wait_gone(entry.pid, STATUS_TIMEOUT_S):
            raise UnavailableError(
                f"{error.message}, and cannot be killed",
                hint=f"End it as root, or thaw its control group: `kill -KILL {entry.pid}`. Then "
                f"{Command('unmount', entry.mount_path)}, or mount() of the volume, removes the mount; uncommitted "
                "work of a volume is kept.",
            ) from error
        return True
    return False


def _end_supervision(entry: MountEntry) -> None:
    with suppress(OSError):  # it is gone
        client.forget(os.path.dirname(entry.socket), entry.id)
    registry.drop_supervisor(entry)


def discard(entry: MountEntry, *, force: bool = False) -> None:
    """Unmounts and drops uncommitted work for good. force: UnavailableError if the daemon does not
    answer."""
    if force:
        _ask(entry, PING, Nothing(), timeout_s=STATUS_TIMEOUT_S)
    _ask(entry, DISCARD, Ending(force))
    _wait_ended(entry)


def _ask(
    entry: MountEntry,
    operation: Operation[A, R],
    arguments: A,
    progress: ProgressListener | None = None,
    *,
    timeout_s: float | None = None,
) -> R:
    """Asked again if the daemon dies, and another one goes on with the mount."""
    while True:
        try:
            return _ask_once(entry, operation, arguments, progress, timeout_s)
        except UnavailableError as error:
            if _is_silence(error.__cause__) or (next_one := _await_next(entry, error.__cause__)) is None:
                raise
            entry = next_one


def _await_next(entry: MountEntry, cause: BaseException | None) -> MountEntry | None:
    """The entry of the mount's next daemon, once that answers; None: there will be none."""
    if entry.process.is_foreign or not registry.has_supervisor(entry):
        return None
    is_starting = isinstance(cause, ConnectionRefusedError | FileNotFoundError)
    if not is_starting and not has_died(entry):
        return None
    end_s = clock.monotonic_s() + PAUSE_S
    while (found := registry.find_by_id(entry.id)) is not None and clock.monotonic_s() < end_s:
        interruptible.require_wanted()
        if not found.is_paused and _answers(found):
            return found
        clock.sleep_s(PAUSE_LOOK_S)
    return None


def _answers(entry: MountEntry) -> bool:
    try:
        Client(entry.socket, timeout_s=STATUS_TIMEOUT_S).ask(PING, Nothing())
    except UnavailableError:
        return False
    return True


def _ask_once(
    entry: MountEntry,
    operation: Operation[A, R],
    arguments: A,
    progress: ProgressListener | None,
    timeout_s: float | None,
) -> R:
    try:
        on_quiet = _notice(entry) if timeout_s is None else None
        return Client(entry.socket, timeout_s=timeout_s, on_quiet=on_quiet).ask(operation, arguments, progress)
    except UnavailableError as error:
        if _is_silence(error.__cause__):
            raise UnavailableError(_silent(entry), hint=_ways_out(entry)) from error.__cause__
        if entry.process.is_alive and not os.path.lexists(entry.socket):
            path = shlex.quote(entry.mount_path)
            error.set_hint(
                f"Its process {entry.pid} is alive, and recreates a removed socket within seconds: try again. If it does "
                f"not, its log says why; `umount {path}`, or `fusermount3 -u {path}`, ends the mount as "
                f"{Command('unmount', entry.mount_path)} does."
            )
        raise


def _notice(entry: MountEntry) -> Callable[[], None]:
    """Returns a function that logs once if the daemon does not answer when it is called."""
    told: list[str] = []

    def notice() -> None:
        if told:
            return
        try:
            Client(entry.socket, timeout_s=PING_TIMEOUT_S).ask(PING, Nothing())
        except UnavailableError as error:
            if _is_silence(error.__cause__):
                told.append(_silent(entry))
                _log.warning("%s; still waiting. %s", told[0], _ways_out(entry))

    return notice


def _is_silence(cause: BaseException | None) -> bool:
    """Whether an existing daemon failed to take or answer the call in time."""
    return isinstance(cause, TimeoutError)


def _silent(entry: MountEntry) -> str:
    stopped = " (it is stopped)" if entry.process.is_stopped else ""
    return f"process {entry.pid} of the mount at {entry.mount_path} does not answer{stopped}"


def _ways_out(entry: MountEntry) -> str:
    return (
        f"`kill -CONT {entry.pid}` resumes it if it was stopped; {Command('unmount', '--force', entry.mount_path)}, or "
        "unmount(force=True), ends it and the mount: uncommitted work of a volume is kept."
    )


def _wait_ended(entry: MountEntry) -> None:
    if entry.process.is_there and not processes.wait_gone(entry.pid, END_TIMEOUT_S):
        raise UnavailableError(
            f"the mount daemon {entry.pid} of {entry.mount_path} has unmounted but does not end",
            hint=f"{Command('status')} shows it; its log says what it is waiting for.",
        )
