"""What rules keep of a line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.errors import InvalidInputError
from cowfs.ids import VersionId
from cowfs.version.head_line import Step
from cowfs.version.retention import Rules, parse_age

pytestmark = pytest.mark.quick

NOW = datetime(2026, 11, 22, 20, 30, tzinfo=UTC)
NOW_NS = int(NOW.timestamp() * 1e9)
numbers = st.none() | st.integers(1, 6)


def line(*ages: timedelta) -> list[Step]:
    return [
        Step(number, number, VersionId(bytes([number]) * 32), int((NOW - age).timestamp() * 1e9), False)
        for number, age in zip(range(len(ages), 0, -1), ages, strict=True)
    ]


def kept(rules: Rules, steps: list[Step]) -> list[int]:
    return [place for place, why in enumerate(rules.kept(steps, NOW_NS)) if why]


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
    why = Rules(last=1, daily=1, within=timedelta(hours=6)).kept(EACH_SIX_HOURS, NOW_NS)
    assert why[:3] == [["one of the last 1", "young enough", "daily"], ["young enough"], []]


def test_a_volume_that_rests_keeps_what_it_has() -> None:
    """An age counts from the last version; and a clock that went backwards makes nothing older."""
    year = timedelta(days=365)
    old = line(year, year + timedelta(days=1), year - timedelta(days=5), year + timedelta(days=40))
    assert kept(Rules(within=timedelta(days=30)), old) == [0, 1, 2]


@given(
    st.lists(st.integers(0, 400 * 86_400), max_size=30),
    st.builds(Rules, st.integers(1, 6), st.none(), numbers, numbers, numbers, numbers, numbers),
    st.sampled_from(["last", "hourly", "daily", "weekly", "monthly", "yearly"]),
)
def test_a_rule_more_keeps_no_version_less(ages: list[int], rules: Rules, name: str) -> None:
    steps = line(*(timedelta(seconds=age) for age in sorted(ages)))
    more = Rules(**{**vars(rules), name: (getattr(rules, name) or 0) + 1})
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
