"""Retention rules: a number of last versions, the versions of a time before the last one, and the
last version of each of a number of hours, days, weeks, months and years.

Versions are taken in the order of the line, newest first; hours and days are in UTC, by the clocks
of the writers, so that pruning gives the same result on every machine. An age counts back from the
volume's last version, not from now: an idle volume loses nothing, and a wrong clock of the pruning
machine does no harm.

The clocks of the writers may be wrong, too, and the line helps to detect that. A version from the
future, relative to the time the last one was stored, stays, and ages do not count from it. If a
version has an earlier time than one before it in the line, one of the two is wrong: a version stays
if the rules keep it when either the earlier or the later times are ignored. A version with an
ignored time counts as young as the next one behind it, and does not take an hour or day from
another.

Pure. Not here: versions that are kept regardless of the rules (`maintain.pruning`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TypedDict

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.version.names.head_line import Step

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
    """The fields of `Rules`, as callers pass them."""

    last: int | None
    within: str | timedelta | None
    hourly: int | None
    daily: int | None
    weekly: int | None
    monthly: int | None
    yearly: int | None


@dataclass(frozen=True)
class Rules:
    """The rules; a version stays if any of them keeps it. None: the rule is not set."""

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
        if not self.to_dict():
            raise InvalidInputError(
                "no rule says what to keep",
                hint="Give at least one: last, within, hourly, daily, weekly, monthly, yearly "
                f"({Command('prune', 'NAME', '--keep-last', '10')}).",
            )

    def to_dict(self) -> dict[str, int]:
        """The rules that are set, by name; within in seconds."""
        found = {name: number for name in ("last", *_PERIODS) if (number := getattr(self, name))}
        return found if self.within is None else {**found, "within_s": int(self.within.total_seconds())}

    def find_reasons(self, steps: Sequence[Step], as_of_ns: int) -> list[list[str]]:
        """For each step of the whole line, newest first, the rules that keep it. Pruned steps are
        not counted, but their times reveal wrong clocks. as_of_ns: later times are in the
        future."""
        why: list[list[str]] = [[] for _ in steps]
        left = [place for place, step in enumerate(steps) if not step.is_pruned]
        for place in left[: self.last or 0]:
            why[place].append(f"one of the last {self.last}")
        if self.to_dict().keys() == {"last"}:
            return why
        times = {place: step.created_ns for place, step in enumerate(steps) if step.created_ns <= as_of_ns}
        for place in left:
            if place not in times:
                why[place].append("its time was still to come")
        counted = {place: times[place] for place in left if place in times}
        behind, ahead = _find_behind(times), _ahead(times)
        if self.within is not None:
            for place, is_sure in _young(times, behind, self.within).items():
                why[place].append(_qualify("young enough", is_sure))
        for name, period_of in _PERIODS.items():
            if most := getattr(self, name):
                found = _last_ones(counted, behind, period_of, most)
                for place, is_sure in _last_ones(counted, ahead, period_of, most).items():
                    found[place] = found.get(place, False) or is_sure
                for place, is_sure in found.items():
                    why[place].append(_qualify(name, is_sure))
        return [[] if step.is_pruned else each for step, each in zip(steps, why, strict=True)]


def _qualify(rule: str, is_sure: bool) -> str:
    return rule if is_sure else f"{rule}, if its clock was wrong"


# -- times by place in the line, newest version first


def _find_behind(times: Mapping[int, int]) -> set[int]:
    """Places with earlier times than one before them in the line."""
    latest = accumulate((times[place] for place in reversed(times)), max)
    return {place for place, most_ns in zip(reversed(times), latest, strict=True) if times[place] < most_ns - SKEW_NS}


def _ahead(times: Mapping[int, int]) -> set[int]:
    """Places with later times than one behind them."""
    earliest = accumulate(times.values(), min)
    return {place for place, least_ns in zip(times, earliest, strict=True) if times[place] > least_ns + SKEW_NS}


def _young(times: Mapping[int, int], behind: Container[int], within: timedelta) -> dict[int, bool]:
    """Versions made at most so long before the last one; False: not by their own time, which is
    wrong, but by that of the next version."""
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
    """The last version of each period, of at most `most` periods. False: its time is wrong. Such a
    version may be the last one of a free period, but does not use the period up."""
    seen: set[tuple[int, ...]] = set()
    apart: set[tuple[int, ...]] = set()  # since the last one with a right time
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
        raise InvalidInputError(f"{text!r} is not a time", hint="Give a number and s, min, h, d, w, mo or y: 30d.")
    try:
        return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    except OverflowError as error:
        raise InvalidInputError(f"{text!r} is too long a time", hint="Give a shorter one.") from error
