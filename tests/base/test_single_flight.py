"""One thread loads, the others wait; an error goes to all of them and to nobody who comes later;
nothing stays taken."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from cowfs.base import interruptible
from cowfs.base.errors import UnavailableError
from cowfs.base.single_flight import Flights

pytestmark = pytest.mark.quick

WAIT_S = 60
THREADS = 8


class Store:
    """Counts loads; one that is under way ends when the test says so."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self.loads = 0
        self.error: Exception | None = None

    def load(self) -> int:
        self.loads += 1
        self.has_begun.set()
        assert self.may_end.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        return self.loads


@pytest.mark.parametrize("error", [None, OSError("gone")], ids=str)
def test_those_who_come_during_a_load_share_its_outcome(error: Exception | None) -> None:
    flights: Flights[str, int] = Flights()
    store = Store()
    store.error = error
    with ThreadPoolExecutor(THREADS) as threads:
        first = threads.submit(flights.load, "key", store.load)
        assert store.has_begun.wait(WAIT_S)
        flight = flights.of("key")
        assert flight is not None
        assert [load for load, _ in flights.list_flights()] == [flight]
        others = [threads.submit(flight.result, WAIT_S) for _ in range(THREADS - 2)]
        joined = threads.submit(flights.load, "key", lambda: pytest.fail("a second load"))
        _, mine = flights.claim(["key"])
        assert mine == {}
        assert flights.board(["key", "other"], Future()) == {"other"}
        store.may_end.set()
        for each in (first, *others):
            assert each.exception(WAIT_S) is error
            assert error is not None or each.result() == 1
        if joined.exception(WAIT_S) is not None:  # it may have come too late, and then it loads by itself
            assert joined.exception() is error or isinstance(joined.exception(), pytest.fail.Exception)
    assert flights.of("key") is None


def test_after_an_error_the_next_one_loads_again() -> None:
    flights: Flights[str, int] = Flights()

    def fail() -> int:
        raise OSError("gone")

    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            flights.load("key", fail)
    assert flights.load("key", lambda: 3) == 3
    assert flights.list_flights() == []


def test_what_has_landed_is_not_loaded() -> None:
    landed: dict[str, int] = {}
    flights: Flights[str, int] = Flights(landed.get)

    def load() -> int:
        landed["key"] = 5
        return 5

    assert flights.load("key", load) == 5
    assert flights.load("key", lambda: pytest.fail("it is there")) == 5
    found, mine = flights.claim(["key", "new", "new"])
    assert found[0].result(0) == 5
    assert found[1] is found[2] is mine["new"]
    flights.end(mine["new"], None, 6)
    assert found[1].result(0) == 6
    assert flights.list_flights() == []


def test_a_flight_that_brings_many_is_over_before_it_is_done() -> None:
    flights: Flights[str, None] = Flights()
    flight: Future[None] = Future()
    assert flights.board(["a", "b"], flight) == {"a", "b"}
    assert flights.board(["b", "c"], flight) == {"c"}
    seen: list[object] = []
    flight.add_done_callback(lambda _: seen.extend(flights.of(key) for key in "abc"))
    flights.end(flight, None)
    assert seen == [None] * 3
    flights.end(flight, OSError("too late"))
    assert flight.exception(0) is None


def test_the_thread_that_loads_is_known() -> None:
    flights: Flights[str, None] = Flights()
    pilots: list[threading.Thread | None] = []
    flights.load("key", lambda: pilots.extend(pilot for _, pilot in flights.list_flights()))
    assert pilots == [threading.current_thread()]


def test_whoever_waits_for_one_that_was_interrupted_loads_by_himself() -> None:
    flights: Flights[str, int] = Flights()
    has_begun, may_end = threading.Event(), threading.Event()

    def interrupted() -> int:
        has_begun.set()
        assert may_end.wait(WAIT_S)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(flights.load, "key", interrupted)
        assert has_begun.wait(WAIT_S)
        second = threads.submit(flights.load, "key", lambda: 2)
        threading.Timer(0.2, may_end.set).start()
        assert second.result(WAIT_S) == 2
        assert isinstance(first.exception(WAIT_S), KeyboardInterrupt)


@pytest.mark.parametrize("is_brief", [True, False])
def test_a_patient_thread_loads_itself_after_the_failure_of_one_in_a_hurry(is_brief: bool) -> None:
    flights: Flights[str, int] = Flights()
    store = Store()
    store.error = UnavailableError("no answer")

    def look() -> int:
        with interruptible.brief() if is_brief else nullcontext():
            return flights.load("key", store.load)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(look)
        assert store.has_begun.wait(WAIT_S)
        flight = flights.of("key")
        assert flight is not None
        has_joined = threading.Event()

        def result(timeout: float | None = None) -> int:
            has_joined.set()
            return Future.result(flight, timeout)

        flight.result = result  # type: ignore[method-assign]
        second = threads.submit(flights.load, "key", lambda: 2)
        assert has_joined.wait(WAIT_S)
        store.may_end.set()
        assert first.exception(WAIT_S) is store.error
        if is_brief:
            assert second.result(WAIT_S) == 2
        else:
            assert second.exception(WAIT_S) is store.error
