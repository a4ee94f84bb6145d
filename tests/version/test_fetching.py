"""The order in which requests to a store begin: what somebody waits for first."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cowfs.session.residency.fetching import AHEAD_THREADS, MEMORY_BYTES, THREADS, Fetchers

pytestmark = pytest.mark.quick
WAIT_S = 30


class Store:
    """Tasks that wait until they are let go, one by one or all."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.changed = threading.Condition()
        self.open = threading.Event()

    def task(self, name: str) -> None:
        with self.changed:
            self.begun.append(name)
            self.changed.notify_all()
        assert self.open.wait(WAIT_S)

    def wait_begun(self, count: int) -> list[str]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= count, WAIT_S)
            return list(self.begun)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def fetchers(store: Store) -> Iterator[Fetchers]:
    fetchers = Fetchers()
    yield fetchers
    store.open.set()
    fetchers.close()


def test_what_is_fetched_ahead_leaves_threads_for_a_miss(fetchers: Fetchers, store: Store) -> None:
    for number in range(100):
        fetchers.submit(number, lambda number=number: store.task(f"ahead {number}"), urgent=False)  # type: ignore[misc]
    assert store.wait_begun(AHEAD_THREADS) == [f"ahead {number}" for number in range(AHEAD_THREADS)]
    fetchers.submit("miss", lambda: store.task("miss"), urgent=True)
    assert store.wait_begun(AHEAD_THREADS + 1)[AHEAD_THREADS:] == ["miss"]


def test_a_miss_goes_before_what_was_queued_ahead(fetchers: Fetchers, store: Store) -> None:
    for number in range(THREADS):
        fetchers.submit(number, lambda number=number: store.task(f"miss {number}"), urgent=True)  # type: ignore[misc]
    store.wait_begun(THREADS)
    for name in ("a", "b", "c"):
        fetchers.submit(name, lambda name=name: store.task(name), urgent=False)  # type: ignore[misc]
    fetchers.submit("late miss", lambda: store.task("late miss"), urgent=True)
    fetchers.promote("c")
    fetchers.promote("never queued")
    with store.changed:
        assert len(store.begun) == THREADS
    store.open.set()
    assert set(store.wait_begun(THREADS + 4)[THREADS : THREADS + 2]) == {"late miss", "c"}


def test_what_runs_at_once_fits_into_memory(fetchers: Fetchers, store: Store) -> None:
    quarter = MEMORY_BYTES // 4
    for number in range(4):
        fetchers.submit(number, lambda number=number: store.task(f"ahead {number}"), urgent=False, size_bytes=quarter)  # type: ignore[misc]
    assert store.wait_begun(3) == ["ahead 0", "ahead 1", "ahead 2"]
    fetchers.submit("miss", lambda: store.task("miss"), urgent=True, size_bytes=quarter)
    assert store.wait_begun(4)[3:] == ["miss"]
    for name, size_bytes in (("huge", 2 * MEMORY_BYTES), ("small", 1)):
        fetchers.submit(name, lambda name=name: store.task(name), urgent=True, size_bytes=size_bytes)  # type: ignore[misc]
    with store.changed:
        assert len(store.begun) == 4
    store.open.set()
    begun = store.wait_begun(7)[4:]
    assert begun[0] == "huge"  # alone, when nothing else ran
    assert set(begun) == {"huge", "small", "ahead 3"}


def test_nothing_begins_once_closed(store: Store) -> None:
    fetchers = Fetchers()
    fetchers.close()
    assert not fetchers.submit("x", lambda: store.task("x"), urgent=True)
    assert store.begun == []


def test_rest_comes_once_behind_whichever_task_ends_last(store: Store) -> None:
    """Also if one ends while another one is about to."""
    rested: list[list[str]] = []
    ended: list[str] = []
    at_rest = threading.Event()

    def rest() -> None:
        rested.append(list(ended))
        at_rest.set()

    def task(name: str) -> None:
        store.task(name)
        ended.append(name)

    fetchers = Fetchers(at_rest=rest)
    for name in ("a", "b", "c"):
        fetchers.submit(name, lambda name=name: task(name), urgent=True)  # type: ignore[misc]
    store.wait_begun(2)
    store.open.set()
    assert at_rest.wait(WAIT_S)
    fetchers.close()
    assert [set(each) for each in rested] == [{"a", "b", "c"}]
