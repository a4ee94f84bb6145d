"""What rules keep of a line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.base.ids import VersionId
from cowfs.errors import InvalidInputError
from cowfs.version.names.head_line import Step
from cowfs.version.retention.retention import Rules, parse_age

pytestmark = pytest.mark.quick

NOW = datetime(2026, 11, 22, 20, 30, tzinfo=UTC)
NOW_NS = int(NOW.timestamp() * 1e9)
numbers = st.none() | st.integers(1, 6)


def line(*ages: timedelta) -> list[Step]:
    return [
        Step(number, number, VersionId(bytes([number]) * 32), int((NOW - age).timestamp() * 1e9), False)
        for number, age in zip(range(len(ages), 0, -1), ages, strict=True)
    ]


def kept(rules: Rules, steps: list[Step], as_of: timedelta = timedelta()) -> list[int]:
    as_of_ns = int((NOW - as_of).timestamp() * 1e9)
    return [place for place, why in enumerate(rules.find_reasons(steps, as_of_ns)) if why]


EACH_SIX_HOURS = line(*(timedelta(hours=6 * count) for count in range(40)))  # ten days


@pytest.mark.parametrize(
    ("rules", "places"),
    [
        (Rules(last=3), [0, 1, 2]),
        (Rules(last=100), list(range(40))),
        (Rules(within=timedelta(hours=12)), [0, 1, 2]),
        (Rules(within=timedelta()), [0]),
        (Rules(hourly=2), [0, 1]),
        (Rules(daily=3), [0, 4, 8]),
        (Rules(weekly=2), [0, 28]),  # 22 November 2026 is a Sunday
        (Rules(monthly=5), [0]),
        (Rules(yearly=1), [0]),
        (Rules(last=1, daily=2, within=timedelta(hours=6)), [0, 1, 4]),
    ],
)
def test_rules(rules: Rules, places: list[int]) -> None:
    assert kept(rules, EACH_SIX_HOURS) == places


def test_a_version_of_the_future_stays_and_is_not_counted_from() -> None:
    """A machine's clock was ahead when it committed."""
    steps = line(timedelta(days=-400), *(timedelta(days=count) for count in range(6)))
    assert kept(Rules(within=timedelta(days=2)), steps) == [0, 1, 2, 3]
    assert kept(Rules(daily=2), steps) == [0, 1, 2]
    assert kept(Rules(last=1), steps) == [0]
    late = [steps[1], steps[0], *steps[2:]]
    assert kept(Rules(yearly=1), late) == [0, 1]


def test_what_keeps_it_is_said() -> None:
    why = Rules(last=1, daily=1, within=timedelta(hours=6)).find_reasons(EACH_SIX_HOURS, NOW_NS)
    assert why[:3] == [["one of the last 1", "young enough", "daily"], ["young enough"], []]
    steps = line(timedelta(), timedelta(days=7000), timedelta(days=40), timedelta(days=40, hours=1))
    assert Rules(daily=3, within=timedelta(days=30)).find_reasons(steps, NOW_NS) == [
        ["young enough", "daily"],
        ["young enough, if its clock was wrong", "daily"],  # if those before it are the wrong ones
        ["daily"],
        [],
    ]
    assert Rules(yearly=1).find_reasons(line(timedelta(days=-400), timedelta()), NOW_NS)[0] == [
        "its time was still to come"
    ]


def test_a_volume_that_rests_keeps_what_it_has() -> None:
    """An age counts from the last version; and a clock that went backwards makes nothing older."""
    year = timedelta(days=365)
    old = line(year, year + timedelta(days=1), year - timedelta(days=5), year + timedelta(days=40))
    assert kept(Rules(within=timedelta(days=30)), old) == [0, 1, 2]


DEAD = timedelta(days=7000)  # the age that a clock without a battery gives
WEEK = timedelta(days=7)


def test_a_clock_that_was_behind_makes_nothing_old() -> None:
    """Not of the time that it says: it came behind the others."""
    today = line(timedelta(), DEAD, timedelta(minutes=20))
    assert kept(Rules(within=WEEK), today) == [0, 1, 2]
    long_before = line(timedelta(), DEAD, timedelta(days=40), timedelta(days=41))
    assert kept(Rules(within=WEEK), long_before) == [0, 1]
    grown_old = line(timedelta(), timedelta(days=8), DEAD, timedelta(days=40))
    assert kept(Rules(within=WEEK), grown_old) == [0]
    gone = [replace(step, is_pruned=place == 2) for place, step in enumerate(today)]
    assert kept(Rules(within=WEEK), gone) == [0, 1], "what a pruned version tells is still so"


def test_a_wrong_clock_takes_no_day_from_others() -> None:
    days = [timedelta(days=count) for count in range(6)]
    assert {0, 2, 3} <= set(kept(Rules(daily=3), line(days[0], DEAD, *days[1:])))
    assert 1 in kept(Rules(daily=2), line(days[0], DEAD, days[2])), "it may be the last one of its day"
    ahead = line(days[0], days[3], days[1], days[3] + timedelta(hours=1), *days[4:])
    assert {0, 2, 3, 4} <= set(kept(Rules(daily=4), ahead))


def test_the_time_of_a_clock_that_was_ahead_comes_and_goes() -> None:
    """Those behind it stay no longer than it does."""
    steps = line(*(timedelta(days=count) for count in (0, 1, 5, 10, 3, 40, 50)))
    later = line(*(timedelta(days=count) for count in (0, 8, 15, 20, 13, 50, 60)))
    assert kept(Rules(within=WEEK), steps) == [0, 1, 2, 3, 4]
    assert kept(Rules(within=WEEK), later) == [0]
    assert kept(Rules(daily=2), later) == [0, 1]


@given(
    st.lists(st.tuples(st.integers(0, 90 * 86_400), st.none() | st.just(0) | st.integers(0, 90)), max_size=20),
    st.integers(1, 60),
)
def test_what_is_young_stays_whatever_the_clocks_said(made: list[tuple[int, int | None]], days: int) -> None:
    """Of clocks that were dead, right, or so many days ahead; the first version's was right."""
    made.sort(key=lambda each: each[0])
    ages = [timedelta(seconds=age) for age, _ in made]
    said = [DEAD if ahead is None else timedelta(seconds=age, days=-ahead) for age, ahead in made]
    first = timedelta(days=91)
    last = min([*ages, first])
    found = kept(Rules(within=timedelta(days=days)), line(*said, first), as_of=last)
    oldest = last + timedelta(days=days)
    assert {place for place, age in enumerate(ages) if age <= oldest} <= set(found)


@given(st.lists(st.integers(0, 20 * 24), min_size=1, max_size=20), st.integers(0, 19), st.integers(1, 8))
def test_the_last_one_of_a_day_stays_whatever_one_clock_said(hours: list[int], dead: int, most: int) -> None:
    ages = [timedelta(hours=age) for age in sorted(hours)]
    said = [DEAD if place == dead else age for place, age in enumerate(ages)]
    assert set(kept(Rules(daily=most), line(*ages))) <= set(kept(Rules(daily=most), line(*said)))


@given(st.lists(st.integers(0, 12 * 24), max_size=20), st.integers(1, 6))
def test_what_the_times_keep_as_they_are_stays(hours: list[int], most: int) -> None:
    steps = line(*(timedelta(hours=age) for age in hours))
    days: dict[object, int] = {}
    for place, step in enumerate(steps):
        if len(days) < most:
            days.setdefault(datetime.fromtimestamp(step.created_ns / 1e9, UTC).date(), place)
    assert set(days.values()) <= set(kept(Rules(daily=most), steps))
    young = {place for place, age in enumerate(hours) if age <= hours[0] + most}
    assert young <= set(kept(Rules(within=timedelta(hours=most)), steps))


@given(
    st.lists(st.integers(0, 400 * 86_400), max_size=30),
    st.builds(Rules, st.integers(1, 6), st.none(), numbers, numbers, numbers, numbers, numbers),
    st.sampled_from(["last", "hourly", "daily", "weekly", "monthly", "yearly"]),
)
def test_a_rule_more_keeps_no_version_less(ages: list[int], rules: Rules, name: str) -> None:
    more = Rules(**{**vars(rules), name: (getattr(rules, name) or 0) + 1})
    mixed = line(*(timedelta(seconds=age) for age in ages))
    assert set(kept(rules, mixed)) <= set(kept(more, mixed))
    steps = line(*(timedelta(seconds=age) for age in sorted(ages)))
    assert set(kept(rules, steps)) <= set(kept(more, steps))
    assert set(range(min(rules.last or 0, len(steps)))) <= set(kept(rules, steps))
    most = sum(getattr(rules, each) or 0 for each in ("last", "hourly", "daily", "weekly", "monthly", "yearly"))
    assert len(kept(rules, steps)) <= most


@pytest.mark.parametrize(
    "wrong",
    [{}, {"last": -1}, {"last": 0, "daily": 1}, {"daily": True}, {"last": "3"}, {"within": timedelta(seconds=-1)}],
)
def test_what_is_no_rule_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        Rules(**wrong)  # type: ignore[arg-type]


def test_ages() -> None:
    assert [parse_age(text).total_seconds() for text in ("90s", "45min", "12h", "2w", "1mo", "1y")] == [
        90,
        2700,
        43_200,
        1_209_600,
        2_592_000,
        31_536_000,
    ]
    for wrong in ("", "d", "3", "1 d", "-1d", "3m", "99999999999999y"):
        with pytest.raises(InvalidInputError):
            parse_age(wrong)
