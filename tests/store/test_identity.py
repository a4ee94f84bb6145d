"""Credentials of one store: when they are fetched, by whom, and what a refusal means."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from cowfs.base import clock, redaction
from cowfs.errors import AccessDeniedError, CowfsError, InvalidInputError, NotFoundError, UnavailableError
from cowfs.store import Credentials, Identity
from cowfs.store.backends.directory.directory_store import DirectoryStore
from cowfs.store.contract import Data
from cowfs.store.credentials.credential_process import CredentialProcess
from cowfs.store.credentials.identity import DENIED_PAUSE_S, RENEWALS, Refusal
from cowfs.store.reliability import patience, upload_turns
from cowfs.store.reliability.patience import Patience
from cowfs.store.reliability.retrying import LARGE_BYTES, RetryingStore
from tests.store.conftest import PatientClock

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("patient_clock")]

WATCHDOG_S = 60
SECRET = "a-secret-of-this-test"


class Scripted(DirectoryStore):
    """Some store that this test answers for."""

    def __init__(self) -> None:
        self._url = "file:///scripted"

    def size(self, key: str) -> int | None:
        return None


class Fetched:
    """A source that gives number after number, or fails; fetches are counted."""

    def __init__(self, *, life_s: float | None = None, can_renew: bool = True, renew_s: float | None = None) -> None:
        self.renew_s, self.can_renew, self._life_s = renew_s, can_renew, life_s
        self.count = 0
        self.failure: CowfsError | None = None

    def fetch(self) -> Credentials:
        self.count += 1
        if self.failure is not None:
            raise self.failure
        return self.number(self.count)

    def number(self, number: int) -> Credentials:
        expires_s = None if self._life_s is None else clock.now_ns() / 1e9 + self._life_s
        return Credentials(f"key-{number}", SECRET, None, expires_s)


def refusal_of(error: CowfsError) -> Refusal | None:
    found: Refusal | None = error.details.get("refusal")
    return found


def accepts(*numbers: int, refusal: Refusal = "expired") -> Callable[[Credentials], str]:
    """A store that knows these keys."""

    def request(used: Credentials) -> str:
        if used.access_key not in {f"key-{number}" for number in numbers}:
            raise AccessDeniedError("refused", details={"refusal": refusal})
        return used.access_key

    return request


def passed(seconds: float) -> None:
    clock.sleep_s(seconds)


def test_nothing_is_fetched_before_it_is_needed_nor_again_without_a_reason() -> None:
    source = Fetched()
    identity = Identity(source)
    assert source.count == 0
    for _ in range(3):
        assert identity.run(accepts(1), refusal_of) == "key-1"
        passed(1e6)
    assert source.count == 1


@pytest.mark.parametrize(("life_s", "before_s", "after_s"), [(3600, 3200, 150), (100, 70, 10)])
def test_they_are_renewed_before_they_expire(life_s: float, before_s: float, after_s: float) -> None:
    source = Fetched(life_s=life_s)
    identity = Identity(source)
    identity.ready()
    passed(before_s)
    assert identity.ready().access_key == "key-1"
    passed(after_s)
    assert identity.ready().access_key == "key-2"


def test_functions_are_asked_again_after_their_time() -> None:
    source = Fetched(renew_s=300)
    identity = Identity(source)
    assert [identity.ready().access_key for _ in range(2)] == ["key-1"] * 2
    passed(301)
    assert identity.ready().access_key == "key-2"


def test_a_refused_request_is_sent_again_with_others() -> None:
    source = Fetched()
    identity = Identity(source)
    identity.ready()
    passed(10)
    assert identity.run(accepts(2), refusal_of) == "key-2"
    assert (source.count, identity.problem) == (2, None)


def test_many_refused_threads_fetch_once() -> None:
    source = Fetched()
    identity = Identity(source)
    identity.ready()
    passed(10)
    together = threading.Barrier(8)

    def request(used: Credentials) -> str:
        if used.access_key == "key-1":
            together.wait(WATCHDOG_S)
        return accepts(2)(used)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: identity.run(request, refusal_of), range(8))) == {"key-2"}
    assert source.count == 2


def test_refused_at_first_is_an_error_and_later_an_outage() -> None:
    source = Fetched()
    identity = Identity(source)
    with pytest.raises(AccessDeniedError, match="refused") as caught:
        identity.run(accepts(), refusal_of)
    assert "Storage" in caught.value.hint
    passed(10)
    identity.run(accepts(2), refusal_of)
    source.failure = AccessDeniedError("the vault is shut")
    passed(10)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="waiting for new credentials"):
            identity.run(accepts(9), refusal_of)
    assert identity.problem is not None
    source.failure = None
    passed(10)
    assert identity.run(accepts(source.count + 1), refusal_of)
    assert identity.problem is None


def test_without_a_way_to_others_a_refusal_stays_one_until_some_are_brought() -> None:
    source = Fetched(can_renew=False)
    identity = Identity(source, source.number(1))
    assert identity.run(accepts(1), refusal_of) == "key-1"
    with pytest.raises(AccessDeniedError):
        identity.run(accepts(2), refusal_of)
    identity.supply(source.number(2))
    assert identity.run(accepts(2), refusal_of) == "key-2"
    assert (source.count, identity.problem) == (0, None)


@pytest.mark.parametrize("size", [1, LARGE_BYTES])
def test_new_ones_end_the_pause_of_who_waits(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(clock, "current", clock.SystemClock())
    for place in (patience, upload_turns):
        monkeypatch.setattr(place, "FIRST_PAUSE_S", 1000.0)
    source = Fetched(can_renew=False)
    identity, has_failed = Identity(source, source.number(1)), threading.Event()

    class Refusing(Scripted):
        def put(self, key: str, data: Data) -> None:
            if identity.newest.access_key == "key-1":
                has_failed.set()
                raise UnavailableError("waiting for new credentials")

    store = RetryingStore(Refusing(), Patience(1e6))
    identity.wakes(store)
    with ThreadPoolExecutor() as pool:
        putting = pool.submit(store.put, "key", bytes(size))
        assert has_failed.wait(WATCHDOG_S)
        while not putting.done():  # it may not have begun to wait when the first ones come
            identity.supply(source.number(2))
            threading.Event().wait(0.01)
        putting.result()


def test_what_is_forbidden_stays_so_and_asks_seldom() -> None:
    source = Fetched()
    identity = Identity(source)
    identity.ready()
    for _ in range(5):
        with pytest.raises(AccessDeniedError):
            identity.run(accepts(refusal="denied"), refusal_of)
    assert source.count == 1
    passed(DENIED_PAUSE_S + 1)
    with pytest.raises(AccessDeniedError):
        identity.run(accepts(refusal="denied"), refusal_of)
    assert source.count == 2
    assert identity.problem is None


def test_a_store_that_refuses_everybody_is_not_asked_for_ever(patient_clock: PatientClock) -> None:
    source, asked = Fetched(), 0
    identity = Identity(source)

    def request(used: Credentials) -> str:
        nonlocal asked
        asked += 1
        passed(10)
        return accepts()(used)

    with pytest.raises(AccessDeniedError):
        identity.run(request, refusal_of)
    assert asked == RENEWALS + 1


def test_other_errors_say_nothing_about_credentials() -> None:
    source = Fetched()
    identity = Identity(source)

    def request(used: Credentials) -> str:
        raise NotFoundError("not there")

    with pytest.raises(NotFoundError):
        identity.run(request, refusal_of)
    assert source.count == 1


def test_good_ones_are_used_while_others_cannot_be_had_and_expired_ones_wait() -> None:
    source = Fetched(life_s=1000)
    identity = Identity(source)
    identity.run(accepts(1), refusal_of)
    source.failure = AccessDeniedError("the vault is shut")
    passed(800)
    for _ in range(3):
        assert identity.ready().access_key == "key-1"
    assert (source.count, identity.problem) == (2, source.failure)
    passed(300)
    with pytest.raises(UnavailableError, match=r"expired.*the vault is shut"):
        identity.ready()
    source.failure = None
    passed(10)
    assert identity.ready().access_key == f"key-{source.count}"


def test_a_clock_that_is_wrong_does_not_fetch_for_each_request() -> None:
    source = Fetched(life_s=-3600)
    identity = Identity(source)
    for _ in range(10):
        identity.run(accepts(1), refusal_of)
    assert source.count == 1


def test_other_than_known_ones_are_fetched() -> None:
    source = Fetched()
    identity = Identity(source)
    first = identity.other_than(None)
    assert first is not None
    assert (first.access_key, source.count) == ("key-1", 1)
    second = identity.other_than(first)
    assert second is not None
    assert (second.access_key, source.count) == ("key-2", 2)
    assert identity.other_than(first) == second
    assert source.count == 2
    assert Identity(Fetched(can_renew=False), first).other_than(first) is None


def printed(text: str) -> CredentialProcess:
    return CredentialProcess(f"{sys.executable} -c {shlex.quote(f'print({text!r})')}")


def test_a_command_prints_credentials_as_aws_has_it() -> None:
    said = {"Version": 1, "AccessKeyId": "id", "SecretAccessKey": SECRET}
    assert printed(json.dumps(said)).fetch() == Credentials("id", SECRET)
    temporary = {**said, "SessionToken": "token", "Expiration": "2026-01-02T03:04:05Z"}
    assert printed(json.dumps(temporary)).fetch() == Credentials("id", SECRET, "token", 1767323045.0)


@pytest.mark.parametrize(
    "said",
    [
        "",
        SECRET,
        "[]",
        '{"Version": 1}',
        json.dumps({"Version": 2, "AccessKeyId": "id", "SecretAccessKey": SECRET}),
        json.dumps({"Version": 1, "AccessKeyId": "id", "SecretAccessKey": 7}),
        json.dumps({"Version": 1, "AccessKeyId": "id", "SecretAccessKey": SECRET, "Expiration": "tomorrow"}),
        json.dumps({"Version": 1, "AccessKeyId": "id", "SecretAccessKey": SECRET, "Expiration": "2026-01-02T03:04:05"}),
    ],
)
def test_what_is_none_is_refused_and_not_shown(said: str) -> None:
    with pytest.raises(AccessDeniedError) as caught:
        printed(said).fetch()
    assert SECRET not in f"{caught.value!r}{caught.value.hint}{caught.value.__cause__}"
    places = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
    kept = [
        value
        for place in places
        if place.filename.endswith("credential_process.py")
        for value in (place.locals or {}).values()
    ]
    assert kept
    assert not [value for value in kept if SECRET in value and "print(" not in value]


def test_a_child_that_is_forked_during_a_fetch_fetches_by_itself() -> None:
    fetching, going_on = threading.Event(), threading.Event()

    class Slow(Fetched):
        def fetch(self) -> Credentials:
            if threading.current_thread() is not threading.main_thread():
                fetching.set()
                going_on.wait(WATCHDOG_S)
            return super().fetch()

    identity = Identity(Slow())
    thread = threading.Thread(target=identity.ready)
    thread.start()
    assert fetching.wait(WATCHDOG_S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(WATCHDOG_S)
        os._exit(0 if identity.ready().access_key == "key-1" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    going_on.set()
    thread.join()


@pytest.mark.parametrize("command", ["/no/such/program", f"{sys.executable} -c 'raise SystemExit(3)'"])
def test_a_command_that_fails_is_an_error(command: str) -> None:
    with pytest.raises(AccessDeniedError) as caught:
        CredentialProcess(command).fetch()
    assert caught.value.hint


@pytest.mark.parametrize("command", ["", "  ", "'", None])
def test_what_is_no_command_is_refused(command: str) -> None:
    with pytest.raises(InvalidInputError):
        CredentialProcess(command)


def test_values_are_hidden_wherever_they_are_told_but_short_ones() -> None:
    Credentials("key-to-hide", "secret-to-hide", "t")
    assert redaction.redact("key-to-hide secret-to-hide t at the") == "… … t at the"
