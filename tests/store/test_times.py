"""Times of stores become the same nanoseconds, in whatever way a client gives them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.store.backends import fsspec_store
from cowfs.store.contract import nanoseconds
from cowfs.store.origin import fsspec as origin
from cowfs.store.origin.contract import mtime_of

pytestmark = pytest.mark.quick
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.integers(-60 * 10**15, 250 * 10**15), st.integers(-23, 23))
def test_a_time_is_exact_to_the_microsecond(microseconds: int, hours: int) -> None:
    moment = EPOCH.astimezone(timezone(timedelta(hours=hours))) + timedelta(microseconds=microseconds)
    assert nanoseconds(moment) == microseconds * 1000


@given(st.integers(-2 * 10**15, 4 * 10**15))
def test_a_float_and_a_datetime_of_one_moment_are_the_same(microseconds: int) -> None:
    moment = EPOCH + timedelta(microseconds=microseconds)
    for read in (fsspec_store._mtime_ns, origin._mtime_ns):
        assert read({"mtime": moment.timestamp()}) == read({"LastModified": moment}) == microseconds * 1000


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e300])
def test_what_is_no_time_is_not_known(odd: float) -> None:
    assert mtime_of(odd) == 0
