"""Idempotent calls survive an outage; a conditional put is sent once; waiting has an end, which may
be moved while one waits."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from cowfs.base import clock, interruptible
from cowfs.base.ids import VersionId, WriteId
from cowfs.base.thread_pool import Helpers
from cowfs.errors import AccessDeniedError, NotFoundError, UnavailableError
from cowfs.format.records import HeadRecord
from cowfs.store import ObjectStore, open_store
from cowfs.store.contract import Data
from cowfs.store.refs import refs
from cowfs.store.reliability.patience import (
    BRIEF_S,
    CLOSING_S,
    LONGEST_PAUSE_S,
    NOT_LISTENING,
    RETRY_AFTER,
    TELL_S,
    Patience,
    silence_s,
)
from cowfs.store.reliability.repeating import create
from cowfs.store.reliability.retrying import LARGE_BYTES, RetryingStore
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
LARGE = bytes(LARGE_BYTES)
HEAD = HeadRecord(kind="commit", version=VersionId(bytes(32)), epoch=1, created_ns=1, write_id=WriteId(bytes(16)))


@pytest.fixture
def faulty(directory: ObjectStore) -> FaultyStore:
    directory.put("key", b"value")
    return FaultyStore(directory)


class DownStore(FaultyStore):
    """Refuses everything until the clock has moved on by `outage_s`."""

    def __init__(self, store: ObjectStore, outage_s: float, *, methods: tuple[str, ...] = ()) -> None:
        super().__init__(store)
        self.end_s = clock.monotonic_s() + outage_s
        self.inject(Fault.FAIL, *methods, times=math.inf)

    def _due(self, method: str, key: str) -> Any:
        if clock.monotonic_s() >= self.end_s:
            self.heal()
        return super()._due(method, key)


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY])
def test_idempotent_calls_are_repeated(
    faulty: FaultyStore, patient_clock: PatientClock, method: str, fault: Fault
) -> None:
    faulty.inject(fault, method, times=3)
    assert CALLS[method](RetryingStore(faulty)) == ANSWERS[method]
    assert faulty.count(method) == 4


def test_waits_grow_and_are_spread(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    attempts_s: list[float] = []

    class Watched(FaultyStore):
        def get(self, key: str) -> bytes:
            attempts_s.append(sum(patient_clock.waited_s))
            return super().get(key)

    watched = Watched(faulty)
    watched.inject(Fault.FAIL, "get", times=math.inf)
    with pytest.raises(UnavailableError):
        RetryingStore(watched, Patience(900.0)).get("key")
    waits_s = [later - earlier for earlier, later in pairwise(attempts_s)]
    full_s = 0.2
    for wait_s in waits_s:
        assert full_s / 2 - 1e-6 <= wait_s <= full_s + 1e-6
        full_s = min(full_s * 2, LONGEST_PAUSE_S)
    assert 800 < attempts_s[-1] <= 900


@pytest.mark.parametrize("method", CALLS)
def test_two_minutes_of_outage_delay_a_served_mount(
    directory: ObjectStore, patient_clock: PatientClock, method: str
) -> None:
    directory.put("key", b"value")
    assert CALLS[method](RetryingStore(DownStore(directory, 120.0), Patience(900.0))) == ANSWERS[method]


def test_a_command_waits_a_minute(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    faulty.inject(Fault.FAIL, "get", times=math.inf)
    with pytest.raises(UnavailableError):
        RetryingStore(faulty).get("key")
    assert BRIEF_S / 2 < sum(patient_clock.waited_s) <= BRIEF_S


def test_a_brief_call_and_its_helpers_wait_for_seconds(directory: ObjectStore, patient_clock: PatientClock) -> None:
    store = RetryingStore(DownStore(directory, math.inf), Patience(900.0))
    with interruptible.brief():
        with pytest.raises(UnavailableError):
            store.list("")
        with Helpers(1, name="help") as helpers, pytest.raises(UnavailableError):
            helpers.submit(store.list, "").result()
    assert 0 < sum(patient_clock.waited_s) <= 2 * CLOSING_S
    with pytest.raises(UnavailableError):
        store.list("")
    assert sum(patient_clock.waited_s) > 800


class NotListeningStore(FaultyStore):
    """No server listens at its port until it is started."""

    is_started = False

    def _due(self, method: str, key: str) -> Any:
        if not self.is_started:
            raise UnavailableError("Connection refused", details={NOT_LISTENING: True})
        return super()._due(method, key)


def test_a_refused_connection_ends_the_first_call_and_is_an_outage_later(
    directory: ObjectStore, patient_clock: PatientClock, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = NotListeningStore(directory)
    store = RetryingStore(faulty)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="refused"):
            store.list("")
    assert patient_clock.waited_s == []
    store.patience.tell(UnavailableError("", details={NOT_LISTENING: True}), clock.monotonic_s() - 2 * TELL_S)
    assert "waiting for the store" not in caplog.text
    faulty.is_started = True
    store.list("")
    faulty.is_started = False
    with pytest.raises(UnavailableError, match="refused"):
        store.list("")
    assert sum(patient_clock.waited_s) > BRIEF_S / 2


def test_a_mount_waits_for_a_server_that_it_has_not_asked_yet(
    directory: ObjectStore, patient_clock: PatientClock
) -> None:
    store = RetryingStore(NotListeningStore(directory))
    store.patience.expect_answers()
    with pytest.raises(UnavailableError, match="refused"):
        store.list("")
    assert sum(patient_clock.waited_s) > BRIEF_S / 2


@pytest.mark.parametrize(("wanted", "limit_s"), [("8", 8.0), ("600", BRIEF_S), ("0", 0.0)])
def test_a_user_shortens_the_waits_of_commands(
    directory: ObjectStore, patient_clock: PatientClock, monkeypatch: pytest.MonkeyPatch, wanted: str, limit_s: float
) -> None:
    monkeypatch.setenv("COWFS_STORE_TIMEOUT", wanted)
    opened = open_store(directory.url)
    assert opened.patience.limit_s == limit_s
    opened.close()
    faulty = FaultyStore(directory)
    faulty.inject(Fault.FAIL, "get", times=math.inf)
    with pytest.raises(UnavailableError):
        RetryingStore(faulty).get("key")
    assert limit_s / 4 <= sum(patient_clock.waited_s) <= limit_s  # pauses grow, and are shortened by chance


@pytest.mark.parametrize(("wanted", "silent_s"), [("900", 60.0), ("20", 10.0), ("4", 5.0), ("0", 5.0)])
def test_two_silent_attempts_fit_into_the_limit(monkeypatch: pytest.MonkeyPatch, wanted: str, silent_s: float) -> None:
    monkeypatch.setenv("COWFS_STORE_TIMEOUT", wanted)
    assert silence_s(60.0) == silent_s


def test_slow_failures_end_at_the_limit(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    class Slow(FaultyStore):
        def get(self, key: str) -> bytes:
            patient_clock.waited_s.append(31.0)
            return super().get(key)

    slow = Slow(faulty)
    slow.inject(Fault.FAIL, "get", times=math.inf)
    with pytest.raises(UnavailableError):
        RetryingStore(slow).get("key")
    assert slow.count("get") == 2


STALLED: dict[str, Callable[[RetryingStore], Any]] = {
    **CALLS,
    "stream_range": lambda store: b"".join(bytes(each) for each in store.stream_range("key", 1, 2)),
    "put of a pack": lambda store: store.put("pack", LARGE),
    "append": lambda store: [refs.append(store, refs.head("v"), 1, HEAD)].clear(),
    "create": lambda store: create(store, "made", b"value"),
}


@pytest.mark.parametrize("method", STALLED)
def test_one_connection_that_stands_still_ends_nothing(
    directory: ObjectStore, patient_clock: PatientClock, method: str
) -> None:
    """It is noticed when the patience of a command is over."""
    directory.put("key", b"value")

    class Stalling(FaultyStore):
        def _due(self, name: str, key: str) -> Any:
            due = super()._due(name, key)
            if due:
                patient_clock.waited_s.append(BRIEF_S + 1)
            return due

    stalling = Stalling(directory)
    stalling.inject(Fault.FAIL, times=1)
    assert STALLED[method](RetryingStore(stalling)) == {**ANSWERS, "stream_range": b"al"}.get(method)
    stalling.inject(Fault.FAIL, times=math.inf)
    store = RetryingStore(stalling)
    with pytest.raises(UnavailableError):
        STALLED[method](store)
    for limit_s in (CLOSING_S, 0.0):
        store.patience.limit_s = limit_s
        asked = len(stalling.calls)
        with pytest.raises(UnavailableError):  # who is about to end repeats nothing
            STALLED[method](store)
        assert len(stalling.calls) <= asked + (2 if method == "append" else 1), "append looks for what it has put"


def test_retry_after_is_heeded(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    store = RetryingStore(faulty)
    asked = UnavailableError("busy", details={RETRY_AFTER: 40.0})
    faulty.inject(Fault.FAIL, "get", error=asked)
    assert store.get("key") == b"value"
    assert sum(patient_clock.waited_s) >= 40
    too_long = UnavailableError("busy", details={RETRY_AFTER: 4000.0})
    faulty.inject(Fault.FAIL, "get", error=too_long)
    assert store.get("key") == b"value"  # asked once more before the patience of the call ends
    assert faulty.count("get") == 4
    assert sum(patient_clock.waited_s) < 40 + BRIEF_S + LONGEST_PAUSE_S
    faulty.inject(Fault.FAIL, "get", error=too_long, times=math.inf)
    with pytest.raises(UnavailableError):
        store.get("key")
    assert faulty.count("get") == 6
    faulty.heal()
    store.patience.limit_s = CLOSING_S
    faulty.inject(Fault.FAIL, "get", error=too_long)
    with pytest.raises(UnavailableError):  # who is about to end does not wait for that
        store.get("key")
    assert faulty.count("get") == 7


def test_uploads_heed_retry_after_and_are_repeated(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    faulty.inject(Fault.FAIL, "put", error=UnavailableError("busy", details={RETRY_AFTER: 4000.0}))
    RetryingStore(faulty).put("large", LARGE)
    assert faulty.count("put") == 2
    assert BRIEF_S / 2 < sum(patient_clock.waited_s) < BRIEF_S


def test_uploads_heed_retry_after_while_others_succeed(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    """Patience counts from the last success, however long ago an upload began."""
    failures = 0

    class Busy(FaultyStore):
        def put(self, key: str, data: Data) -> None:
            nonlocal failures
            if key == "late" and failures < 2:
                failures += 1
                patient_clock.sleep_s(BRIEF_S * 2)
                store.put("other", LARGE)
                raise UnavailableError("busy", details={RETRY_AFTER: 40.0})
            super().put(key, data)

    store = RetryingStore(Busy(faulty))
    store.put("late", LARGE)
    assert sum(patient_clock.waited_s) >= 4 * BRIEF_S + 79


def test_put_if_absent_is_never_repeated(faulty: FaultyStore, patient_clock: PatientClock) -> None:
    faulty.inject(Fault.LOSE_REPLY, "put_if_absent")
    with pytest.raises(UnavailableError):
        RetryingStore(faulty).put_if_absent("new", b"value")
    assert faulty.count("put_if_absent") == 1
    assert patient_clock.waited_s == []


@pytest.mark.parametrize("methods", [(), ("put_if_absent",)])
def test_a_head_survives_an_outage(
    directory: ObjectStore, patient_clock: PatientClock, methods: tuple[str, ...]
) -> None:
    """Each conditional put is sent once; between two of them the record is looked for."""
    down = DownStore(directory, 120.0, methods=methods)
    refs.append(RetryingStore(down, Patience(900.0)), refs.head("v"), 1, HEAD)
    assert refs.newest(directory, refs.head("v")) == (1, HEAD)
    puts = [at for at, (method, _) in enumerate(down.calls) if method == "put_if_absent"]
    for one, other in pairwise(puts):
        assert "get" in {method for method, _ in down.calls[one:other]}


@pytest.mark.parametrize("error", [AccessDeniedError("no"), NotFoundError("no")])
@pytest.mark.parametrize("method", ["get", "put"])
def test_errors_that_will_not_go_away_are_raised_at_once(
    faulty: FaultyStore, patient_clock: PatientClock, error: AccessDeniedError | NotFoundError, method: str
) -> None:
    store = RetryingStore(faulty)
    faulty.inject(Fault.FAIL, method, error=error)
    with pytest.raises(type(error)):
        store.get("key") if method == "get" else store.put("key", LARGE)
    assert faulty.count(method) == 1
    assert patient_clock.waited_s == []
    store.put("key", LARGE)  # the turn was given back


def test_a_limit_lowered_ends_waits_under_way(faulty: FaultyStore) -> None:
    """As a mount that is ended does it: nobody may sit out a quarter of an hour."""
    faulty.inject(Fault.FAIL, times=math.inf)
    patience = Patience(900.0)
    store = RetryingStore(faulty, patience)
    ended = [threading.Event(), threading.Event()]

    def wait(call: Callable[[], object], done: threading.Event) -> None:
        with pytest.raises(UnavailableError):
            call()
        done.set()

    threads = [
        threading.Thread(target=wait, args=(lambda: store.get("key"), ended[0])),
        threading.Thread(target=wait, args=(lambda: store.put("packs/ab/abcd", LARGE), ended[1])),
    ]
    for thread in threads:
        thread.start()
    assert not ended[0].wait(1.0)
    patience.limit_s = 0.0
    for event, thread in zip(ended, threads, strict=True):
        assert event.wait(60.0)
        thread.join()


def test_what_is_waited_for_is_said_once(
    faulty: FaultyStore, patient_clock: PatientClock, caplog: pytest.LogCaptureFixture
) -> None:
    faulty.inject(Fault.FAIL, "get", times=8)
    store, heard = RetryingStore(faulty), list[str]()
    store.patience.listener = heard.append
    store.get("key")
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 2
    assert "injected" in told[0]
    assert "answers again" in told[1]
    assert heard == [told[0], ""]
