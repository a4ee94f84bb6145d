"""The creation probe tells stores apart, and cowfs.json is made once."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pytest

from cowfs.base.thread_pool import Helpers
from cowfs.errors import AccessDeniedError, InvalidInputError, NotFoundError, UnavailableError, UnsupportedFormatError
from cowfs.format import fields, keys
from cowfs.store import ObjectStore, initialize, load_record, open_store, require_writable
from cowfs.store import probe as module
from cowfs.store.contract import Data
from cowfs.store.probe import PAIRS, PAIRS_IN_A_DIRECTORY, WRITERS, probe
from cowfs.store.refs import refs
from tests.faulty_store import Fault, FaultyStore


def test_every_backend_passes(store: ObjectStore) -> None:
    record = initialize(store)
    assert record.probe.is_safe
    assert (record.probe.race_writers, record.probe.race_max_winners) == (WRITERS, 1)
    assert record.probe.race_rounds == (PAIRS_IN_A_DIRECTORY if store.url.startswith("file:") else PAIRS) + 1
    require_writable(record)
    assert initialize(store) == load_record(store) == record
    assert [info.key for info in store.list("")] == [keys.STORE]


def test_two_initialisers_agree(store: ObjectStore) -> None:
    other = open_store(store.url)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(initialize, [store, other])
    other.close()
    assert first == second == load_record(store)


class IgnoresCondition(FaultyStore):
    """As servers that do not know If-None-Match do (pitfalls 2)."""

    def put_if_absent(self, key: str, data: Data) -> None:
        self.put(key, data)


class ChecksThenPuts(FaultyStore):
    """Polite in sequence, several winners in a race (pitfalls 2)."""

    def put_if_absent(self, key: str, data: Data) -> None:
        if self.size(key) is not None:
            super().put_if_absent(key, data)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.05)
        self.put(key, data)


class FailsBeyondTwo(FaultyStore):
    """Keeps two writers apart, and no third one."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()

    def put_if_absent(self, key: str, data: Data) -> None:
        with self._lock:
            self._asked[key] += 1
            if self._asked[key] == 3:
                return
        super().put_if_absent(key, data)


class RefusesCondition(FaultyStore):
    def put_if_absent(self, key: str, data: Data) -> None:
        raise InvalidInputError("not implemented")


class StaleReads(FaultyStore):
    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._first: dict[str, bytes] = {}

    def get(self, key: str) -> bytes:
        return self._first.setdefault(key, super().get(key))


class LateLists(FaultyStore):
    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None):  # type: ignore[no-untyped-def]
        return []


@pytest.mark.quick
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (IgnoresCondition, "twice"),
        (RefusesCondition, "twice"),
        (ChecksThenPuts, "racing writers"),
        (FailsBeyondTwo, "racing writers"),
        (StaleReads, "read did not return"),
        (LateLists, "list did not show"),
    ],
)
def test_broken_stores_need_an_opt_in_that_says_what_is_lost(
    directory: ObjectStore, broken: type[FaultyStore], said: str
) -> None:
    store = broken(directory)
    record = initialize(store, writers=[store] * WRITERS)
    assert not record.probe.is_safe
    with pytest.raises(InvalidInputError, match=said) as caught:
        require_writable(record)
    assert "lost" in caught.value.hint
    require_writable(record, accept_unsafe=True)
    assert directory.list("probe/") == []


@pytest.mark.quick
def test_writers_of_a_race_have_clients_of_their_own(directory: ObjectStore) -> None:
    """Each of two clients writes to every key, the third to one."""
    clients = [Counting(directory) for _ in range(WRITERS)]
    result = probe(directory, clients)
    assert (result.race_writers, result.race_rounds, result.race_max_winners) == (WRITERS, PAIRS_IN_A_DIRECTORY + 1, 1)
    assert [len(set(client.created)) for client in clients] == [PAIRS_IN_A_DIRECTORY + 1, PAIRS_IN_A_DIRECTORY + 1, 1]
    assert set(clients[0].created) == set(clients[1].created) > set(clients[2].created)


class Counting(FaultyStore):
    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.created: list[str] = []

    def put_if_absent(self, key: str, data: Data) -> None:
        self.created.append(key)
        super().put_if_absent(key, data)


@pytest.mark.quick
def test_a_lying_winner_is_seen(directory: ObjectStore) -> None:
    class LastWins(FaultyStore):
        """Tells the right one that it won, and keeps another's bytes."""

        def put_if_absent(self, key: str, data: Data) -> None:
            super().put_if_absent(key, data)
            if bytes(data).startswith(b"writer"):
                self.put(key, b"somebody else's")

    assert probe(LastWins(directory)).race_max_winners == 2


@pytest.mark.quick
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY])
def test_a_busy_server_is_no_verdict(directory: ObjectStore, fault: Fault) -> None:
    """The probe is a burst of requests: that is when S3 says SlowDown."""
    busy = FaultyStore(directory, seed=5)
    busy.inject(fault, "put_if_absent", times=math.inf, probability=0.5)
    assert probe(busy).is_safe
    busy.heal()
    busy.inject(fault, "put_if_absent", times=2)  # both of a pair
    busy.inject(fault, "put_if_absent", times=1)
    assert probe(busy).is_safe
    assert directory.list("probe/") == []


@pytest.mark.quick
def test_a_wrong_answer_to_a_look_is_no_verdict(directory: ObjectStore) -> None:
    wrong = FaultyStore(directory)
    skip = 1  # the look of the test before the races
    wrong.inject(Fault.FAIL, "get", error=NotFoundError("late"), key_part="probe/", times=3, skip=skip + 6)
    wrong.inject(Fault.FLIP_BIT, "get", key_part="probe/", times=1, skip=skip + 12)
    result = probe(wrong)
    assert (result.put_if_absent, result.race_max_winners) == (True, 1)


@pytest.mark.quick
def test_an_error_leaves_nothing_behind(directory: ObjectStore) -> None:
    denied = FaultyStore(directory)
    denied.inject(Fault.FAIL, "put_if_absent", skip=5, error=AccessDeniedError("no"))
    with pytest.raises(AccessDeniedError):
        probe(denied)
    assert directory.list("probe/") == []


@pytest.mark.quick
def test_who_may_not_delete_makes_a_store(directory: ObjectStore) -> None:
    """A mount and a commit delete nothing, so a store is made without that permission, too."""
    may_put = FaultyStore(directory)
    may_put.inject(Fault.FAIL, "delete", times=math.inf, error=AccessDeniedError("s3:DeleteObject"))
    assert initialize(may_put, writers=[may_put] * WRITERS).probe.is_safe
    assert load_record(directory).probe.is_safe
    assert {info.key.partition("/")[0] for info in directory.list("")} == {keys.STORE, "probe"}
    broken = IgnoresCondition(directory)
    broken.inject(Fault.FAIL, "delete", times=math.inf, error=AccessDeniedError("s3:DeleteObject"))
    assert not probe(broken).is_safe


@pytest.mark.quick
@pytest.mark.parametrize("broken", [IgnoresCondition, ChecksThenPuts, FailsBeyondTwo])
def test_a_broken_store_does_not_pass_by_being_busy(directory: ObjectStore, broken: type[FaultyStore]) -> None:
    store = broken(FaultyStore(directory))
    store.inject(Fault.FAIL, "put_if_absent", "put", times=3)
    assert not probe(store).is_safe


@pytest.mark.quick
def test_a_store_that_cannot_be_tested_is_not_made(directory: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refs, "APPEND_S", 0.2)
    busy = FaultyStore(directory)
    busy.inject(Fault.FAIL, "put_if_absent", times=math.inf, skip=2)
    with pytest.raises(UnavailableError, match="the winners of") as caught:
        initialize(busy, writers=[busy] * WRITERS)
    assert "nothing was made" in caught.value.hint
    assert directory.list("") == []


@pytest.mark.quick
def test_a_put_that_is_delivered_twice_is_no_verdict(directory: ObjectStore) -> None:
    class Twice(FaultyStore):
        is_first = True

        def put_if_absent(self, key: str, data: Data) -> None:
            super().put_if_absent(key, data)
            if self.is_first:
                self.is_first = False
                super().put_if_absent(key, data)

    assert probe(Twice(directory)).is_safe


@pytest.mark.quick
def test_errors_of_access_are_not_a_verdict(directory: ObjectStore) -> None:
    faulty = FaultyStore(directory)
    faulty.inject(Fault.FAIL, "put_if_absent", error=AccessDeniedError("no"))
    with pytest.raises(AccessDeniedError):
        initialize(faulty, writers=[faulty] * WRITERS)
    assert directory.list(keys.STORE) == []


@pytest.mark.quick
def test_not_a_store(directory: ObjectStore) -> None:
    with pytest.raises(NotFoundError, match="no cowfs store") as caught:
        load_record(directory)
    assert "cowfs create" in caught.value.hint


@pytest.mark.quick
def test_a_newer_format_is_refused_by_its_number(directory: ObjectStore) -> None:
    initialize(directory, writers=[directory] * WRITERS)
    body = {name: value for name, value in json.loads(directory.get(keys.STORE)).items() if name not in fields.ENVELOPE}
    newer = fields.seal("store", 77, body)
    directory.put(keys.STORE, newer)
    for call in (load_record, initialize):
        with pytest.raises(UnsupportedFormatError, match="77"):
            call(directory)
    assert directory.get(keys.STORE) == newer


def test_a_race_that_is_interrupted_ends_though_its_others_never_begin(
    directory: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    tried = module._try_to_win

    def try_to_win(*arguments: Any) -> bool | None:
        begun.set()
        return tried(*arguments)

    def interrupted(_: object) -> NoReturn:
        assert begun.wait(60)
        threading.Timer(0.3, may_end.set).start()  # what waits for a thread has been dropped by then
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "Helpers", lambda _, *, name: Helpers(3, name=name))
    monkeypatch.setattr(module, "_refuses_second", lambda _: True)
    monkeypatch.setattr(module, "_with_scratch", lambda *_: may_end.wait(60))  # two of the three threads
    monkeypatch.setattr(module, "_try_to_win", try_to_win)
    monkeypatch.setattr(module, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        probe(directory)
