"""Which versions of a volume rules keep: so many of the last ones, those of a time before the last
one, and the last one of each of so many hours, days, weeks, months and years.

Versions are taken in the order of the line, newest first; hours and days are those of UTC, by the
clocks of those who committed, so that a volume is pruned alike from every machine. An age counts
back from the volume's last version, not from now: a volume that rests loses nothing, and a wrong
clock of the machine that prunes does no harm. Nor does one of a machine that committed: a version
that is of the future when it is looked at stays, and is not counted from.

Pure. Not here: what is kept whatever the rules say (`maintain.pruning`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from cowfs.errors import InvalidInputError
from cowfs.values import dataclass
from cowfs.version.head_line import Step

_AGE = re.compile(r"([0-9]+)(s|min|h|d|w|mo|y)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "mo": 30 * 86_400, "y": 365 * 86_400}
_PERIODS: dict[str, Callable[[datetime], tuple[int, ...]]] = {
    "hourly": lambda time: (time.year, time.month, time.day, time.hour),
    "daily": lambda time: (time.year, time.month, time.day),
    "weekly": lambda time: time.isocalendar()[:2],
    "monthly": lambda time: (time.year, time.month),
    "yearly": lambda time: (time.year,),
}


class KeepRules(TypedDict, total=False):
    """What `Rules` is made of, as callers give it."""

    last: int | None
    within: str | timedelta | None
    hourly: int | None
    daily: int | None
    weekly: int | None
    monthly: int | None
    yearly: int | None


@dataclass(frozen=True)
class Rules:
    """What is kept; a version stays if any of them keeps it. None: there is no such rule."""

    last: int | None = None
    within: timedelta | None = None
    hourly: int | None = None
    daily: int | None = None
    weekly: int | None = None
    monthly: int | None = None
    yearly: int | None = None

    def __post_init__(self) -> None:
        for name in ("last", *_PERIODS):
            number = getattr(self, name)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise InvalidInputError(
                    f"{name} is {number!r}", hint="Give how many to keep, 1 or more, or leave it out."
                )
        if self.within is not None and self.within < timedelta():
            raise InvalidInputError(f"within is {self.within}", hint="Give a time, like 30d.")
        if not self.told():
            raise InvalidInputError(
                "no rule says what to keep",
                hint="Give at least one: last, within, hourly, daily, weekly, monthly, yearly "
                "(`cowfs prune NAME --keep-last 10`).",
            )

    def told(self) -> dict[str, int]:
        """Those that are given, by name; within in seconds."""
        found = {name: number for name in ("last", *_PERIODS) if (number := getattr(self, name))}
        return found if self.within is None else {**found, "within_s": int(self.within.total_seconds())}

    def kept(self, steps: Sequence[Step], now_ns: int) -> list[list[str]]:
        """Of each step, newest first, which rules keep it."""
        why: list[list[str]] = [[] for _ in steps]
        asks_for_times = self.told().keys() != {"last"}
        last_ns = next((step.created_ns for step in steps if step.created_ns <= now_ns), 0)
        for place, step in enumerate(steps):
            if self.last is not None and place < self.last:
                why[place].append(f"one of the last {self.last}")
            if step.created_ns > now_ns:
                if asks_for_times:
                    why[place].append("its time is still to come")
            elif self.within is not None and last_ns - step.created_ns <= self.within.total_seconds() * 1e9:
                why[place].append("young enough")
        for name, period_of in _PERIODS.items():
            most = getattr(self, name) or 0
            seen: set[tuple[int, ...]] = set()
            for place, step in enumerate(steps):
                if step.created_ns > now_ns:
                    continue
                period = period_of(datetime.fromtimestamp(step.created_ns / 1e9, UTC))
                if period not in seen and len(seen) < most:
                    seen.add(period)
                    why[place].append(name)
        return why


def parse_age(text: str) -> timedelta:
    """30d, 12h, 2w, 6mo (of 30 days), 1y (of 365), 45min, 90s."""
    if (found := _AGE.fullmatch(text.strip())) is None:
        raise InvalidInputError(f"{text!r} is no time", hint="Give a number and s, min, h, d, w, mo or y: 30d.")
    try:
        return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    except OverflowError as error:
        raise InvalidInputError(f"{text!r} is too long a time", hint="Give a shorter one.") from error
