"""Waits for another writer of a volume to end, as long as the caller said.

    held in the store        one request a look, for the holder's heartbeat: it says `released`, or has not changed for
                             EXPIRY_S of this machine's time. A holder on this machine that is gone needs no request
    held on this machine     one look at the lock of the working copy

The caller then tries to become the writer again, which alone decides. The pause between two looks
grows from FIRST_PAUSE_S to LONGEST_PAUSE_S. Waiting ends when the caller is interrupted, or
when its asyncio task is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable

from cowfs.base import clock, interruptible, log
from cowfs.base.errors import LeaseHeldError
from cowfs.machine import lock
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store import ObjectStore
from cowfs.store.refs import leases
from cowfs.store.refs.holder import is_dead
from cowfs.version.commit import Progress, ProgressListener

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
STAGE = "wait"
_log = log.get("volume")

IsHeld = Callable[[], bool]


class LeaseWaiting:
    """The wait of one call, which begins with the first refusal. wait_s: its limit; 0: it does not
    wait."""

    def __init__(self, wait_s: float, progress: ProgressListener) -> None:
        self._wait_s = wait_s
        self._progress = progress
        self._began_s: float | None = None
        self._who: object = None

    @property
    def _waited_s(self) -> float:
        return clock.monotonic_s() - self._began_s if self._began_s is not None else 0.0

    def wait(self, refused: LeaseHeldError, store: ObjectStore, volume: str, working_copy: WorkingCopy) -> None:
        """Returns when the next attempt may succeed, and at the end of the time, for a last one.
        LeaseHeldError: the time is over; it names the holder, and how long the call waited."""
        if self._wait_s <= 0:
            raise refused
        if self._began_s is None:
            self._began_s = clock.monotonic_s()
        elif self._waited_s >= self._wait_s:
            raise LeaseHeldError(
                f"{refused.message}; waited {self._waited_s:.0f} s for it",
                hint=refused.open_hint,
                details={**refused.details, "waited_s": round(self._waited_s, 3)},
            ) from refused
        self._tell(refused)
        is_held = _watch(refused, store, volume, working_copy)
        pause_s = FIRST_PAUSE_S
        while True:
            self._progress(Progress(STAGE, int(self._waited_s), int(self._wait_s)))
            self._pause(pause_s)
            if interruptible.is_cancelled():
                raise refused
            if self._waited_s >= self._wait_s or not is_held():
                return
            pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)

    def _tell(self, refused: LeaseHeldError) -> None:
        who = (refused.details.get("who"), refused.details.get("where"), refused.details.get("since"))
        if who != self._who:
            self._who = who
            left_s = self._wait_s - self._waited_s
            _log.warning("%s; waiting for it to end, %.0f s at most", refused.message, left_s)

    def _pause(self, pause_s: float) -> None:
        ends_s = clock.monotonic_s() + min(pause_s, self._wait_s - self._waited_s)
        while (left_s := ends_s - clock.monotonic_s()) > 0 and not interruptible.is_cancelled():
            interruptible.require_wanted()
            clock.sleep_s(min(left_s, interruptible.LOOK_S))
        interruptible.require_wanted()


def _watch(refused: LeaseHeldError, store: ObjectStore, volume: str, working_copy: WorkingCopy) -> IsHeld:
    """A function that tells whether the holder that the error names is still there, as far as it
    sees."""
    epoch = refused.details.get("epoch")
    if not isinstance(epoch, int):
        return lambda: lock.is_held(working_copy.lock_path)
    found = leases.read(store, volume, now_ns=clock.now_ns())
    if found is None or found.epoch != epoch or found.state in ("released", "dead"):
        return lambda: False
    holder, last = found.holder, leases.read_beat(store, volume, epoch)
    age_s = refused.details.get("heartbeat_age_s", 0.0)
    seen_s = clock.monotonic_s() - min(max(float(age_s), 0.0), leases.EXPIRY_S)

    def is_held() -> bool:
        nonlocal last, seen_s
        if holder is not None and is_dead(holder):
            return False
        beat = leases.read_beat(store, volume, epoch)
        if beat is not None and beat.released:
            return False
        if beat != last:
            last, seen_s = beat, clock.monotonic_s()
        return clock.monotonic_s() - seen_s <= leases.EXPIRY_S

    return is_held
