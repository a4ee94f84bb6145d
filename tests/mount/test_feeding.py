"""Credentials that a program gave a mount's daemon: who is asked for others, and when that ends."""

from __future__ import annotations

import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from cowfs.api.mounts import feeding as api_feeding
from cowfs.control import Listener, Server
from cowfs.control.handover import Handover, Offer, Wanted
from cowfs.control.messages import FEED
from cowfs.control.typed import from_json, to_json
from cowfs.daemon import feeding
from cowfs.daemon.feeding import Feeding
from cowfs.errors import AccessDeniedError, InvalidInputError
from cowfs.machine import registry
from cowfs.store import Credentials, Identity

pytestmark = pytest.mark.quick

WATCHDOG_S = 60
SECRET = "a-secret-of-this-test"
FIRST, SECOND = Credentials("key-one", SECRET), Credentials("key-two", SECRET)
SAID = '{"Version": 1, "AccessKeyId": "printed", "SecretAccessKey": "printed-secret"}'
PRINTED = f"echo {shlex.quote(SAID)}"


def test_a_handover_comes_as_it_was_sent_and_shows_nothing() -> None:
    for sent in (Handover(), Handover(FIRST, path_style=True, credential_process=f"run {SECRET}", is_fed=True)):
        assert Handover.from_line(sent.to_line()) == sent
        assert SECRET not in repr(sent)
    assert SECRET not in repr(Offer(FIRST))


@pytest.mark.parametrize(
    "line",
    [b"", b"x", b"[]", b'{"a": 1}', b'{"credentials": "%s"}' % SECRET.encode(), b'{"is_fed": "%s"}' % SECRET.encode()],
)
def test_what_is_no_handover_is_refused_and_not_shown(line: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Handover.from_line(line)
    assert SECRET not in f"{caught.value!r}{caught.value.__cause__}"


def test_a_malformed_offer_is_refused_and_not_shown() -> None:
    for said in (SECRET, {"access_key": [SECRET]}, {"access_key": "a", "other": SECRET}):
        with pytest.raises(InvalidInputError) as caught:
            from_json(Offer, {"credentials": said})
        assert SECRET not in f"{caught.value!r}{caught.value.__cause__}"
    assert from_json(Offer, to_json(Offer(FIRST))) == Offer(FIRST)


def test_a_program_that_waits_is_asked_and_answers() -> None:
    fed = Feeding(Handover(FIRST, is_fed=True))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(fed.offer, Offer())
        fetching = pool.submit(fed.fetch)
        wanted = waiting.result(WATCHDOG_S)
        assert (wanted.is_wanted, wanted.is_over) == (True, False)
        pool.submit(fed.offer, Offer(SECOND))
        assert fetching.result(WATCHDOG_S) == SECOND
        fed.end()
    assert fed.access.identity is not None
    assert fed.access.identity.newest == SECOND


def test_a_program_that_was_killed_is_not_waited_for_and_a_slow_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "ANSWER_S", 1e6)
    killed = Feeding(Handover(FIRST, credential_process=PRINTED, is_fed=True))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(killed.offer, Offer())
        assert killed.fetch().access_key == "printed"
        assert waiting.result(WATCHDOG_S).is_wanted  # and nobody hears it
    monkeypatch.setattr(feeding, "HEARD_S", 1e6)
    slow = Feeding(Handover(FIRST, credential_process=PRINTED, is_fed=True))
    with ThreadPoolExecutor() as pool:
        fetching = pool.submit(slow.fetch)
        assert slow.offer(Offer()).is_wanted
        monkeypatch.setattr(feeding, "HEARD_S", 0.0)
        assert not slow.offer(Offer(is_coming=True)).is_wanted
        assert not fetching.done()
        pool.submit(slow.offer, Offer(SECOND))
        assert fetching.result(WATCHDOG_S) == SECOND
        slow.end()


def test_what_comes_unasked_or_too_late_is_used_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "LISTEN_S", 0.0)
    monkeypatch.setattr(feeding, "ATTACHED_S", 0.0)
    fed = Feeding(Handover(FIRST))
    identity = fed.access.identity
    assert identity is not None
    assert not fed.can_renew
    assert not fed.offer(Offer(SECOND)).is_wanted
    assert identity.newest == SECOND
    late = Feeding(Handover(FIRST, is_fed=True))
    with pytest.raises(AccessDeniedError, match="ended"):
        late.fetch()
    assert late.offer(Offer()).is_wanted
    assert not late.offer(Offer(SECOND)).is_wanted
    assert late.access.identity is not None
    assert late.access.identity.newest == SECOND


def test_the_command_is_asked_when_no_program_is_there_or_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Feeding(Handover(FIRST, credential_process=PRINTED))
    assert fed.can_renew
    assert fed.fetch().access_key == "printed"
    both = Feeding(Handover(FIRST, credential_process=PRINTED, is_fed=True))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(both.offer, Offer())
        fetching = pool.submit(both.fetch)
        assert waiting.result(WATCHDOG_S).is_wanted
        pool.submit(both.offer, Offer(problem="the vault is shut"))
        assert fetching.result(WATCHDOG_S).access_key == "printed"
        both.end()


def test_the_end_wakes_whoever_waits_and_nobody_asks_again() -> None:
    fed = Feeding(Handover(FIRST, is_fed=True))
    started = threading.Barrier(3)

    def wait() -> bool:
        started.wait(WATCHDOG_S)
        return fed.offer(Offer()).is_over

    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(wait) for _ in range(2)]
        started.wait(WATCHDOG_S)
        fed.end()
        assert all(each.result(WATCHDOG_S) for each in waiting)
    assert fed.offer(Offer()).is_over


def test_a_mount_with_the_environments_credentials_takes_no_others() -> None:
    fed = Feeding(Handover())
    assert fed.offer(Offer(SECOND)).is_over
    assert fed.access.identity is None


def test_a_program_finds_a_socket_that_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the runtime directory goes."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("COWFS_STATE_DIR", str(tmp_path / "state"))
    came = threading.Event()

    def answer(offer: Offer, listener: Listener) -> Wanted:
        came.set()
        return Wanted(is_wanted=False, is_over=True)

    registration = registry.new_id()
    with closing(Server(registry.socket_path(registration), dict([FEED.make_handler(answer)]))):
        registry.register(
            registration,
            mount_path=tmp_path,
            socket=registry.socket_path(registration),
            store_url="file:///store",
            store_id="00" * 16,
            volume="v",
            version_id=None,
            read_only=False,
            working_copy=tmp_path,
        )
        api_feeding.start(registration, str(tmp_path / "gone.sock"), Identity(Feeding(Handover()), FIRST))
        assert came.wait(WATCHDOG_S)
