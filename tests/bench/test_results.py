"""Ratios say how many times better, whichever way a row counts."""

from __future__ import annotations

import pytest

from cowfs.bench.report import cell
from cowfs.bench.results import Results
from cowfs.bench.table import Row

pytestmark = pytest.mark.quick

SPEED = Row("create", "create", "files/s")
TIME = Row("git-clone", "git clone", "s")


@pytest.fixture
def results() -> Results:
    found = Results({}, {}, [SPEED, TIME], titles={})
    for row, system, values in (
        ("create", "a", [90.0, 110.0, 100.0]),
        ("create", "b", [10.0]),
        ("create", "c", [20.0]),
        ("git-clone", "a", [2.0]),
        ("git-clone", "b", [4.0]),
        ("git-clone", "c", [10.0]),
    ):
        for value in values:
            found.add(row, system, value)
    return found


def test_cells_are_medians_with_their_range(results: Results) -> None:
    assert cell(results.values("create", "a")) == "100 (90 to 110)"
    assert cell(results.values("create", "b")) == "10"
    assert cell(results.values("create", "nobody")) == ""


def test_the_best_baseline_counts(results: Results) -> None:
    assert results.ratio(SPEED, "a", "b", "c", "nobody") == 5.0
    assert results.ratio(TIME, "a", "b", "c") == 2.0


def test_no_ratio_without_both(results: Results) -> None:
    assert results.ratio(SPEED, "a", "nobody") is None
    assert results.ratio(SPEED, "nobody", "a") is None
