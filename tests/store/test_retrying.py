"""Idempotent calls survive an outage of seconds; a conditional put is sent once; waiting has an end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from cowfs.errors import AccessDeniedError, NotFoundError, UnavailableError
from cowfs.store import ObjectStore
from cowfs.store.retrying import RetryingStore
from tests.faulty_store import Fault, FaultyStore
from tests.store.conftest import PatientClock

pytestmark = pytest.mark.quick

CALLS: dict[str, Callable[[ObjectStore], Any]] = {
    "get": lambda store: store.get("key"),
    "get_range": lambda store: store.get_range("key", 1, 2),
    "size": lambda store: store.size("key"),
    "list": lambda store: [info.key for info in store.list("")],
    "put": lambda store: store.put("key", b"value"),
    "delete": lambda store: store.delete(key for key in ["gone"]),
}
ANSWERS = {"get": b"value", "get_range": b"al", "size": 5, "list": ["key"], "put": None, "delete": None}


@pytest.fixture
def faulty(directory: ObjectStore) -> FaultyStore:
    directory.put("key", b"value")
    return FaultyStore(directory)


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY])
def test_idempotent_calls_are_repeated(
    faulty: FaultyStore, patient_clock: PatientClock, method: str, fault: Fault
) -> None:
    faulty.inject(fault, method, times=3)
    assert CALLS[method](RetryingStore(faulty)) == ANSWERS[method]
    assert faulty.count(method) == 4
    assert len(patient_clock.waited_s) == 3


def test_waits_grow_and_are_spread(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    faulty.inject(Fault.FAIL, "get", times=math.inf)
    with pytest.raises(UnavailableError):
        RetryingStore(faulty).get("key")
    for wait_s, full_s in zip(patient_clock.waited_s, [0.2, 0.4, 0.8, 1.6, 3.2], strict=True):
        assert full_s / 2 < wait_s <= full_s
    assert faulty.count("get") == 6


def test_slow_failures_end_at_the_deadline(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    class Slow(FaultyStore):
        def get(self, key: str) -> bytes:
            patient_clock.waited_s.append(16.0)
            return super().get(key)

    slow = Slow(faulty)
    slow.inject(Fault.FAIL, "get", times=math.inf)
    with pytest.raises(UnavailableError):
        RetryingStore(slow).get("key")
    assert slow.count("get") == 2


def test_put_if_absent_is_never_repeated(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    faulty.inject(Fault.LOSE_REPLY, "put_if_absent")
    with pytest.raises(UnavailableError):
        RetryingStore(faulty).put_if_absent("new", b"value")
    assert faulty.count("put_if_absent") == 1
    assert patient_clock.waited_s == []


@pytest.mark.parametrize("error", [AccessDeniedError("no"), NotFoundError("no")])
def test_errors_that_will_not_go_away_are_raised_at_once(
    faulty: FaultyStore, patient_clock: PatientClock, error: AccessDeniedError | NotFoundError
) -> None:
    faulty.inject(Fault.FAIL, "get", error=error)
    with pytest.raises(type(error)):
        RetryingStore(faulty).get("key")
    assert faulty.count("get") == 1
    assert patient_clock.waited_s == []
