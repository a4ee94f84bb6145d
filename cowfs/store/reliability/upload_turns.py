"""How many large objects are on their way to a store at once: as many as make it faster, and few
when it is in trouble.

    start      START uploads
    growth     while uploads wait for their turn: half as many again when that made the last round GAIN times faster than the best
               one before, back by the last step when it did not; once there was trouble, one more instead of half
    trouble    an upload that timed out or was refused as too many (UnavailableError) halves the number, once for all uploads that
               were under way at the time, and makes every upload pause: no body is sent to a store that has just refused one

A round is as many uploads as may run at once. On a slow link few uploads share it, so that each of
them ends; a pack that fails is repeated alone (`retrying`), while the other uploads continue.

Threads: those of the callers. The lock is never held while bytes are sent. Waiting for a turn ends
with the patience of the store.
"""

from __future__ import annotations

import threading

from cowfs.base import clock
from cowfs.store.reliability.patience import LONGEST_PAUSE_S, Patience

START = 4
MOST = 64
GAIN = 1.1
WAIT_S = 0.5
FIRST_PAUSE_S = 1.0


class UploadPace:
    """`begin` waits for a turn, `note_success` or `note_failure` ends it. `last_success_s`: the end
    of the last successful upload, by the clock."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._changed = threading.Condition()  # guards everything below
        self._limit = float(START)
        self._before = float(START)  # the limit before the last step up
        self._running = 0
        self._troubles = 0  # how often the number was halved
        self._failures = 0  # one after the other
        self._not_before_s = 0.0
        self._round_bytes = 0
        self._round_done = 0
        self._round_began_s = 0.0
        self._has_waited = False
        self._best = 0.0
        self.last_success_s = float("-inf")

    @property
    def limit(self) -> int:
        return int(self._limit)

    @property
    def is_in_trouble(self) -> bool:
        """Whether no upload has ended well since one failed."""
        return self._failures > 0

    def begin(self, since_s: float, *, is_first: bool) -> int | None:
        """Waits for a turn; None when the store's patience, counted from since_s or the last
        success, has ended first. is_first: the caller has not asked the store yet, and does so
        before it gives up: a pause that others' failures began and that its patience does not reach
        is not waited for."""
        while True:
            with self._changed:
                pause_s = self._not_before_s - clock.monotonic_s()
                if self._running >= self.limit:
                    self._has_waited = True
                    self._changed.wait(WAIT_S)
                    pause_s = 0.0
                elif pause_s <= 0 or (is_first and self._is_beyond_patience(pause_s, since_s)):
                    if self._running == 0:
                        self._begin_round()
                    self._running += 1
                    return self._troubles
            if not self._patience.wait(max(pause_s, 0.0), self._start_s(since_s)):
                return None

    def wake(self) -> None:
        """Ends the pause of everybody."""
        with self._changed:
            self._not_before_s = 0.0

    def note_success(self, size_bytes: int) -> None:
        with self._changed:
            now_s = clock.monotonic_s()
            self._running -= 1
            self._failures = 0
            self._not_before_s = 0.0
            self.last_success_s = now_s
            self._round_bytes += size_bytes
            self._round_done += 1
            if self._round_done >= self.limit:
                self._end_round(now_s)
            self._changed.notify_all()

    def note_failure(self, turn: int, pause_s: float, *, is_trouble: bool) -> None:
        """turn: what `begin` gave. is_trouble: the store did not take it in time, or refused it for
        now."""
        with self._changed:
            self._running -= 1
            if is_trouble:
                if turn == self._troubles:
                    self._troubles += 1
                    self._failures += 1
                    self._limit = max(1.0, self._limit / 2)
                own_s = min(FIRST_PAUSE_S * 2 ** (self._failures - 1), LONGEST_PAUSE_S) * (1 - clock.jitter() / 2)
                self._not_before_s = clock.monotonic_s() + max(pause_s, own_s)
                self._best = 0.0
                self._begin_round()
            self._changed.notify_all()

    def _is_beyond_patience(self, pause_s: float, since_s: float) -> bool:
        """Of a store that is still in use; once it is closed nothing is waited for, nor tried."""
        return self._patience.limit_s > 0 and not self._patience.reaches(pause_s, self._start_s(since_s))

    def _start_s(self, since_s: float) -> float:
        return max(since_s, self.last_success_s)

    def _begin_round(self) -> None:
        self._round_bytes = self._round_done = 0
        self._round_began_s = clock.monotonic_s()
        self._has_waited = False

    def _end_round(self, now_s: float) -> None:
        speed = self._round_bytes / max(now_s - self._round_began_s, 1e-6)
        if self._has_waited:
            if speed > self._best * GAIN:
                self._best, self._before = speed, self._limit
                step = self._limit / 2 if self._troubles == 0 else 1.0
                self._limit = min(self._limit + max(step, 1.0), float(MOST))
            else:
                self._limit, self._best = self._before, max(speed, self._best * 0.98)  # a link may get slower
        self._begin_round()
