"""Targets name rows and systems that there are, and count the better mode of JuiceFS."""

from __future__ import annotations

import pytest

from benchmarks.results import SuiteResults
from benchmarks.rows import all_rows
from benchmarks.runner import MOUNT_COUNTS
from benchmarks.targets import JUICEFS, TARGETS, Target

pytestmark = pytest.mark.quick

CREATE = Target("create", "cowfs", JUICEFS, 5)


@pytest.fixture
def results() -> SuiteResults:
    titles = {name: name for name in ("cowfs", "juicefs-sqlite", "juicefs-badger")}
    found = SuiteResults({}, {}, all_rows(MOUNT_COUNTS), titles)
    for system, value in (("cowfs", 100.0), ("juicefs-sqlite", 10.0), ("juicefs-badger", 20.0)):
        found.add("create", system, value)
    return found


def test_the_better_mode_of_juicefs_counts(results: SuiteResults) -> None:
    assert results.measured(CREATE) == 5.0


def test_what_was_not_measured_reaches_no_target(results: SuiteResults) -> None:
    assert [each["measured"] for each in results.to_json()["targets"] if each["measured"] is not None] == [5.0]


def test_every_target_is_of_a_row() -> None:
    keys = [row.key for row in all_rows(MOUNT_COUNTS)]
    assert len(set(keys)) == len(keys)
    assert {target.row for target in TARGETS} <= set(keys)
