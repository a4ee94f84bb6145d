"""One live mount as other processes see it: asks its daemon, through the registry, from whatever
process.

Nothing here touches the mount point. A daemon that died between look-up and call is an
UnavailableError. What may take long is waited for without a bound; a daemon that does not even
answer a PING meanwhile, because it is stopped or frozen, is told of once.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable

from cowfs import log
from cowfs.control.client import Client
from cowfs.control.messages import (
    ADOPT,
    COMMIT,
    COMPARE,
    DETACH,
    DISCARD,
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
)
from cowfs.errors import ConflictError, CowfsError, UnavailableError
from cowfs.machine import processes
from cowfs.machine.registry import MountEntry
from cowfs.values import dataclass
from cowfs.version.commit import CommitRequest, ProgressListener

STATUS_TIMEOUT_S = 10.0
END_TIMEOUT_S = 60.0
PING_TIMEOUT_S = 5.0
DEATH_S = 2.0
"""Between the end of a daemon's socket and that of its process."""
_log = log.get("mount")


@dataclass(frozen=True)
class Released:
    """How a mount was taken away. users: who has files open still, "" mostly. trouble: why it may
    be mounted still, "" mostly."""

    users: str = ""
    trouble: str = ""


def status(entry: MountEntry) -> MountStatus:
    """What the daemon says about itself."""
    return _ask(entry, STATUS, Nothing(), timeout_s=STATUS_TIMEOUT_S)


def commit(entry: MountEntry, request: CommitRequest, progress: ProgressListener | None = None) -> Committed:
    """Publishes what was written before the call."""
    return _ask(entry, COMMIT, request, progress)


def compare(entry: MountEntry, wanted: Comparison) -> Compared:
    """What became of a version in the mounted volume, committed or not."""
    return _ask(entry, COMPARE, wanted)


def restore(entry: MountEntry, wanted: Restoration) -> Restored:
    """Puts what a version has into the mounted volume's working copy."""
    return _ask(entry, RESTORE, wanted)


def adopt(entry: MountEntry, volume: str) -> None:
    """Lets the commits of a scratch go to this volume, which stands on the scratch's version."""
    _ask(entry, ADOPT, Adoption(volume))


def has_uncommitted(entry: MountEntry) -> bool:
    """Whether there is work that is in no version. A read-only mount has none."""
    writer = status(entry).writer
    return writer is not None and writer.is_dirty


def unmount(entry: MountEntry, *, force: bool = False) -> Left:
    """Unmounts, keeping uncommitted work, and waits until the daemon has ended. ConflictError while
    it is in use."""
    left = _ask(entry, UNMOUNT, Ending(force))
    _wait_ended(entry)
    return left


def release(entry: MountEntry, *, force: bool = False) -> Released:
    """Takes away a mount whose work has been published, so that nothing here may fail: what did not
    work is told.

    While files are open the mount goes off its path, and its daemon serves them until the last one
    is closed. force: unmounts all the same; programs that use it get errors.
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
    """Whether the daemon is gone, or goes within DEATH_S."""
    return not entry.process.is_alive or (not entry.process.is_foreign and processes.wait_gone(entry.pid, DEATH_S))


def is_dying(entry: MountEntry) -> bool:
    """Whether the daemon, which the registry believes alive, was killed just now: its process is
    gone when this returns True. UnavailableError: it lives, and does not answer."""
    try:
        _ask(entry, PING, Nothing(), timeout_s=STATUS_TIMEOUT_S)
    except UnavailableError as error:
        if has_died(entry):
            return True
        if _is_silence(error.__cause__):
            raise
    return False


def end_silent(entry: MountEntry) -> bool:
    """Kills the daemon if it lives and does not answer, so that it cannot go on later. What was
    written is in the working copy then, and the mount is one whose daemon has died. False: it
    answers, or is gone. UnavailableError: it does neither answer nor end."""
    try:
        _ask(entry, PING, Nothing(), timeout_s=STATUS_TIMEOUT_S)
    except UnavailableError as error:
        if not _is_silence(error.__cause__):
            return False
        _log.warning("%s, and is killed", error.message)
        if not entry.process.kill() or not processes.wait_gone(entry.pid, STATUS_TIMEOUT_S):
            path = shlex.quote(entry.mount_path)
            raise UnavailableError(
                f"{error.message}, and cannot be killed",
                hint=f"End it as root, or thaw its control group: `kill -KILL {entry.pid}`. `cowfs unmount {path}`, or mount() of "
                "the volume, takes the mount off then; uncommitted work of a volume is kept.",
            ) from error
        return True
    return False


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
    try:
        on_quiet = _notice(entry) if timeout_s is None else None
        return Client(entry.socket, timeout_s=timeout_s, on_quiet=on_quiet).ask(operation, arguments, progress)
    except UnavailableError as error:
        if _is_silence(error.__cause__):
            raise UnavailableError(_silent(entry), hint=_ways_out(entry)) from error.__cause__
        if entry.process.is_alive and not os.path.lexists(entry.socket):
            path = shlex.quote(entry.mount_path)
            error.set_hint(
                f"Its process {entry.pid} lives, and makes a socket that was removed again within seconds: try again. If it does "
                f"not, its log says why; `umount {path}`, or `fusermount3 -u {path}`, ends the mount as `cowfs unmount` does."
            )
        raise


def _notice(entry: MountEntry) -> Callable[[], None]:
    """Says once that the daemon does not answer, if that is so when it is called."""
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
    """Whether a daemon that is there did not take the call, or answer it, in time."""
    return isinstance(cause, TimeoutError)


def _silent(entry: MountEntry) -> str:
    stopped = " (it is stopped)" if entry.process.is_stopped else ""
    return f"process {entry.pid} of the mount at {entry.mount_path} does not answer{stopped}"


def _ways_out(entry: MountEntry) -> str:
    return (
        f"`kill -CONT {entry.pid}` lets it go on if it was stopped; `cowfs unmount --force {shlex.quote(entry.mount_path)}`, or "
        "unmount(force=True), ends it and the mount: uncommitted work of a volume is kept."
    )


def _wait_ended(entry: MountEntry) -> None:
    if entry.process.is_there and not processes.wait_gone(entry.pid, END_TIMEOUT_S):
        raise UnavailableError(
            f"the mount daemon {entry.pid} of {entry.mount_path} has unmounted but does not end",
            hint="`cowfs status` shows it; its log says what it waits for.",
        )
