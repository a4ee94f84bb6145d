"""How long a call waits for a store that does not answer, and how the waits are spread.

A failed call is repeated after a pause, until `limit_s` has passed without any success. It is
repeated at least once, unless its process is about to end (CLOSING_S). One `Patience` belongs to
all calls of an opened store, and its limit may be changed while they wait: a mount daemon is
patient while it serves, and in a hurry when it opens and when it ends. A limit of 0 ends every
wait.

    pauses   0.2 s, doubling to LONGEST_PAUSE_S, each shortened by a random part: many clients must not come back together;
             never shorter than the server asked for (`Retry-After`), as far as the limit allows one more attempt
    limit    `brief_s` for a command and for opening a mount: BRIEF_S, or less; `config.store_timeout_s` for a mount that is
             served

A refused connection ends the call at once while the store has answered nothing yet: the endpoint is
mistyped, or the server was not started. Later it is an outage, and so it is for a mount.

The first call of an outage that waits longer than TELL_S reports it in the log and to `listener`.
All waits use `cowfs.base.clock`. Not here: which calls may be repeated (`retrying`), how many
uploads run at once (`upload_turns`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from cowfs.base import clock, config, interruptible, log
from cowfs.base.errors import AccessDeniedError, CowfsError

BRIEF_S = 60.0
CLOSING_S = 5.0
SHORTEST_SILENCE_S = 5.0
"""A store that answers may need so long for one request."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
TELL_S = 3.0
SLICE_S = 0.5
"""A change of the limit is noticed after so long."""

RETRY_AFTER = "retry_after_s"
"""Of an error's details: the server asked to be left alone for so long."""
NOT_LISTENING = "is_not_listening"
"""Of an error's details: the machine is there, and no server listens at that port."""

_log = log.get("store")


def brief_s() -> float:
    """How long a command waits: a user who shortens the timeout of mounts means commands as well.
    InvalidInputError as of `config.store_timeout_s`."""
    return min(BRIEF_S, config.store_timeout_s())


def silence_s(longest_s: float) -> float:
    """How long a request without a body waits for a byte, longest_s at most: two of them must fit
    into the user's timeout for stores. InvalidInputError as of `config.store_timeout_s`."""
    return min(longest_s, max(config.store_timeout_s() / 2, SHORTEST_SILENCE_S))


class Patience:
    """Any thread may call, and set `limit_s` and `listener` at any time. limit_s None: `brief_s`.
    listener: gets the reason of the wait, and "" once the store answers again, from the thread
    that notices."""

    def __init__(self, limit_s: float | None = None) -> None:
        self.limit_s = brief_s() if limit_s is None else limit_s
        self.listener: Callable[[str], None] = lambda _: None
        self._lock = threading.Lock()  # guards _wakes
        self._telling = threading.Lock()  # held during the report, so that the last one is true
        self._is_told = False
        self._wakes = 0
        self._refusal: AccessDeniedError | None = None
        self._has_answered = False

    def expect_answers(self) -> None:
        """From now on a refused connection is an outage, although nothing was answered yet."""
        self._has_answered = True

    @property
    def refusal(self) -> AccessDeniedError | None:
        """Why the store refused the last request that it answered. None: it did not."""
        return self._refusal

    def note_refusal(self, error: AccessDeniedError) -> None:
        """Notes that a request was refused."""
        self._refusal, self._has_answered = error, True

    def wait(self, pause_s: float, since_s: float) -> bool:
        """Sleeps for pause_s, or until `wake`; False, as early as possible, when that would end
        later than limit_s after since_s."""
        left_s, wakes = pause_s, self._wakes
        while self.reaches(left_s, since_s):
            if left_s <= 0 or wakes != self._wakes:
                return True
            clock.sleep_s(min(left_s, SLICE_S))
            left_s -= SLICE_S
        return False

    def wait_to_repeat(self, error: CowfsError, pauses: Pauses, since_s: float) -> bool:
        """`wait` after a call that failed."""
        if self._is_absent(error):
            return False
        counted_from_s = self.start_s(since_s, is_first=pauses.is_first)
        return self.wait(max(pauses.next_s(), self.requested_wait_s(error, counted_from_s)), counted_from_s)

    def _is_absent(self, error: CowfsError) -> bool:
        """Whether no server listens there, as far as is known."""
        return bool(error.details.get(NOT_LISTENING)) and not self._has_answered

    def requested_wait_s(self, error: CowfsError, since_s: float) -> float:
        """How long to leave alone a server that asked for it. If it asked for more than the limit
        allows: until CLOSING_S before patience ends, so that it is asked once more. A process
        that is about to end or in a hurry does not ask again."""
        wish_s = float(error.details.get(RETRY_AFTER, 0.0))
        if self.reaches(wish_s, since_s):
            return wish_s
        left_s = since_s + self.limit_s - CLOSING_S - clock.monotonic_s()
        return left_s if left_s > 0 and interruptible.is_patient() else wish_s

    def start_s(self, began_s: float, *, is_first: bool) -> float:
        """The start of patience after a failure, for a call that began at began_s. A call is
        repeated once however long its first attempt took, since that may have waited for one
        silent connection: then patience starts now. Not in a process that is about to end or in
        a hurry, and not if no caller waits for the call."""
        may_last = self.limit_s > CLOSING_S and interruptible.is_patient()
        return clock.monotonic_s() if is_first and may_last else began_s

    def reaches(self, pause_s: float, since_s: float) -> bool:
        """Whether a pause that begins now would end within limit_s after since_s; within CLOSING_S
        if no caller waits for the work any longer, or the caller is in a hurry or brief."""
        limit_s = self.limit_s if interruptible.is_patient() else min(self.limit_s, CLOSING_S)
        return clock.monotonic_s() + pause_s <= since_s + limit_s

    def wake(self) -> None:
        """Ends all pauses, for example when the store's missing credentials have arrived."""
        with self._lock:
            self._wakes += 1

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._telling = threading.Lock()

    def tell(self, problem: CowfsError, since_s: float) -> None:
        """Reports the reason of the wait, once an outage."""
        if self._is_absent(problem) or clock.monotonic_s() - since_s < TELL_S:
            return
        with self._telling:
            if not self._is_told:
                self._is_told = True
                waits = f"waiting for the store, for up to {self.limit_s:.0f} s: {problem}"
                _log.warning("%s", waits)
                self.listener(waits)

    def note_success(self) -> None:
        self._refusal, self._has_answered = None, True
        if self._is_told:
            with self._telling:
                if self._is_told:
                    self._is_told = False
                    _log.warning("the store answers again")
                    self.listener("")


class Pauses:
    """The growing pauses between the attempts of one call."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S
        self.is_first = True

    def next_s(self) -> float:
        """The next one."""
        self.is_first = False
        pause_s = self._next_s * (1 - clock.jitter() / 2)
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)
        return pause_s


@runtime_checkable
class HasPatience(Protocol):
    @property
    def patience(self) -> Patience: ...


def patience_of(store: object) -> Patience | None:
    """The patience of a store that has one: for calls that are repeated outside of it, with care
    (`refs.append`)."""
    return store.patience if isinstance(store, HasPatience) else None
