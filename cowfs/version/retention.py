"""Which versions of a volume rules keep: so many of the last ones, those of a time before the last
one, and the last one of each of so many hours, days, weeks, months and years.

Versions are taken in the order of the line, newest first; hours and days are those of UTC, by the
clocks of those who committed, so that a volume is pruned alike from every machine. An age counts
back from the volume's last version, not from now: a volume that rests loses nothing, and a wrong
clock of the machine that prunes does no harm.

The clocks of those who committed may be wrong, too, and the line knows better. A version that was
of the future when the last one was stored stays, and is not counted from. Where one has an earlier
time than one before it in the line, one of the two is wrong: a version stays if the rules keep it
with the earlier or with the later times taken for wrong. Whose time is taken for wrong is as young
as the next one behind it, and takes no hour or day from another.

Pure. Not here: what is kept whatever the rules say (`maintain.pruning`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TypedDict

from cowfs.errors import InvalidInputError
from cowfs.values import dataclass
from cowfs.version.head_line import Step

SKEW_NS = 300 * 10**9
"""Clocks that differ by less count as right, as for a collection."""
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

    def kept(self, steps: Sequence[Step], as_of_ns: int) -> list[list[str]]:
        """Of each step of the whole line, newest first, which rules keep it. Pruned ones are not
        counted, but their times tell which clocks were wrong. as_of_ns: what is later is of the
        future."""
        why: list[list[str]] = [[] for _ in steps]
        left = [place for place, step in enumerate(steps) if not step.is_pruned]
        for place in left[: self.last or 0]:
            why[place].append(f"one of the last {self.last}")
        if self.told().keys() == {"last"}:
            return why
        times = {place: step.created_ns for place, step in enumerate(steps) if step.created_ns <= as_of_ns}
        for place in left:
            if place not in times:
                why[place].append("its time was still to come")
        counted = {place: times[place] for place in left if place in times}
        behind, ahead = _behind(times), _ahead(times)
        if self.within is not None:
            for place, is_sure in _young(times, behind, self.within).items():
                why[place].append(_said("young enough", is_sure))
        for name, period_of in _PERIODS.items():
            if most := getattr(self, name):
                found = _last_ones(counted, behind, period_of, most)
                for place, is_sure in _last_ones(counted, ahead, period_of, most).items():
                    found[place] = found.get(place, False) or is_sure
                for place, is_sure in found.items():
                    why[place].append(_said(name, is_sure))
        return [[] if step.is_pruned else each for step, each in zip(steps, why, strict=True)]


def _said(rule: str, is_sure: bool) -> str:
    return rule if is_sure else f"{rule}, if its clock was wrong"


# -- times by place in the line, newest version first


def _behind(times: Mapping[int, int]) -> set[int]:
    """Those that are earlier than one before them in the line."""
    latest = accumulate((times[place] for place in reversed(times)), max)
    return {place for place, most_ns in zip(reversed(times), latest, strict=True) if times[place] < most_ns - SKEW_NS}


def _ahead(times: Mapping[int, int]) -> set[int]:
    """Those that are later than one behind them."""
    earliest = accumulate(times.values(), min)
    return {place for place, least_ns in zip(times, earliest, strict=True) if times[place] > least_ns + SKEW_NS}


def _young(times: Mapping[int, int], behind: Container[int], within: timedelta) -> dict[int, bool]:
    """Those made at most so long before the last one; False: not by their own time, which is wrong,
    but by that of the next one."""
    last_ns = latest_ns = next(iter(times.values()), 0)
    oldest_ns = last_ns - within.total_seconds() * 1e9
    found = {}
    for place, time_ns in times.items():
        if place not in behind:
            latest_ns = time_ns
        if max(time_ns, latest_ns) >= oldest_ns:
            found[place] = time_ns >= oldest_ns
    return found


def _last_ones(
    times: Mapping[int, int], wrong: Container[int], period_of: Callable[[datetime], tuple[int, ...]], most: int
) -> dict[int, bool]:
    """The last one of each period, of at most so many. False: its time is wrong. It may be the last
    one of a period that is still free, and takes none."""
    seen: set[tuple[int, ...]] = set()
    apart: set[tuple[int, ...]] = set()  # since the last one that is right
    found = {}
    for place, time_ns in times.items():
        period = period_of(datetime.fromtimestamp(time_ns / 1e9, UTC))
        if place in wrong:
            if period not in apart and len(seen | apart) < most:
                apart.add(period)
                found[place] = False
        elif period not in seen and len(seen) < most:
            seen.add(period)
            apart.clear()
            found[place] = True
    return found


def parse_age(text: str) -> timedelta:
    """30d, 12h, 2w, 6mo (of 30 days), 1y (of 365), 45min, 90s."""
    if (found := _AGE.fullmatch(text.strip())) is None:
        raise InvalidInputError(f"{text!r} is no time", hint="Give a number and s, min, h, d, w, mo or y: 30d.")
    try:
        return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    except OverflowError as error:
        raise InvalidInputError(f"{text!r} is too long a time", hint="Give a shorter one.") from error
