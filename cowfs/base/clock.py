"""The only source of time and randomness, so that a simulation can drive both.

`clock.now_ns()` is wall-clock time, `clock.monotonic_s()` measures durations, `clock.sleep_s`
waits, `clock.random_bytes` makes ids, `clock.jitter` spreads retries. Replace `current` to drive
them all.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class SystemClock:
    """Real time and the operating system's randomness."""

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep_s(self, seconds: float) -> None:
        time.sleep(seconds)

    def random_bytes(self, length: int) -> bytes:
        return os.urandom(length)

    def jitter(self) -> float:
        """A number in [0, 1)."""
        return random.random()


current = SystemClock()


def now_ns() -> int:
    return current.now_ns()


def as_datetime(time_ns: int) -> datetime:
    """In UTC, to the microsecond."""
    import datetime as dates

    return dates.datetime(1970, 1, 1, tzinfo=dates.UTC) + dates.timedelta(microseconds=time_ns // 1000)


def monotonic_s() -> float:
    return current.monotonic_s()


def sleep_s(seconds: float) -> None:
    current.sleep_s(seconds)


def random_bytes(length: int) -> bytes:
    return current.random_bytes(length)


def jitter() -> float:
    return current.jitter()
