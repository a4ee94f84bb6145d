"""Ratios say how many times better, whichever way a row counts."""

from __future__ import annotations

import pytest

from benchmarks import plots
from benchmarks.systems.contract import Group
from cowfs.bench.results import Results
from cowfs.bench.rows import JUICEFS, Row, Target

pytestmark = pytest.mark.quick

SPEED = Row("create", Group.FILES, "create", "files/s", (Target("cowfs", JUICEFS, 5), Target("cowfs", "local", 1)))
TIME = Row("git-clone", Group.PROGRAMS, "git clone", "s", (Target("cowfs", JUICEFS, 2),))


@pytest.fixture
def results() -> Results:
    names = ("cowfs", "juicefs-sqlite", "juicefs-badger")
    found = Results({}, {"mount_counts": ()}, [SPEED, TIME], titles={name: name for name in names})
    for row, system, values in (
        ("create", "cowfs", [90.0, 110.0, 100.0]),
        ("create", "juicefs-sqlite", [10.0]),
        ("create", "juicefs-badger", [20.0]),
        ("git-clone", "cowfs", [2.0]),
        ("git-clone", "juicefs-sqlite", [4.0]),
        ("git-clone", "juicefs-badger", [10.0]),
    ):
        for value in values:
            found.add(row, system, value)
    return found


def test_cells_are_medians_with_their_range(results: Results) -> None:
    cell = results.cell("create", "cowfs")
    assert cell is not None
    assert (cell.median, cell.low, cell.high, cell.count) == (100.0, 90.0, 110.0, 3)


def test_the_better_mode_of_juicefs_counts(results: Results) -> None:
    assert results.ratio(SPEED, SPEED.targets[0]) == 5.0
    assert results.ratio(TIME, TIME.targets[0]) == 2.0


def test_no_ratio_without_both(results: Results) -> None:
    assert results.ratio(SPEED, SPEED.targets[1]) is None
    assert [target["measured"] for target in results.to_json()["targets"]] == [5.0, None, 2.0]


def test_bars_show_who_missed_the_target() -> None:
    image = plots.bar_chart("t", [("<reached>", 6.0, 5.0), ("missed", 0.5, 1.0)])
    assert image.count(plots.COLORS[0]) == image.count(plots.COLORS[1]) == 1
    assert "&lt;reached&gt;" in image
