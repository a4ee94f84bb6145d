"""Large objects take turns: more at once while that is faster, fewer in trouble, none into a store
that has just refused one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from cowfs.base import clock
from cowfs.errors import UnavailableError
from cowfs.store import ObjectStore
from cowfs.store.contract import Data
from cowfs.store.reliability.patience import Patience
from cowfs.store.reliability.retrying import LARGE_BYTES, RetryingStore
from cowfs.store.reliability.upload_turns import START, UploadPace
from tests.faulty_store import Fault, FaultyStore
from tests.store.conftest import WarpClock

pytestmark = pytest.mark.quick

LARGE = bytes(LARGE_BYTES)


class Link:
    """A link on which time passes only when bytes are sent: `speed(n)` is what n uploads at once
    get together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seen_at: UploadPace | None = None) -> None:
        self.now_s = 0.0
        self.limits: list[int] = []
        link = self

        class LinkClock(clock.SystemClock):
            def monotonic_s(self) -> float:
                return link.now_s

            def sleep_s(self, seconds: float) -> None:
                link.now_s += seconds

        monkeypatch.setattr(clock, "current", LinkClock())

    def send(self, pace: UploadPace, bytes_each: int, count: int, speed: dict[int, float] | float) -> None:
        """Uploads in lock step, as many at once as the pace allows, with others waiting."""
        left = count
        while left:
            running = min(pace.limit, left)
            turns = [pace.begin(self.now_s, is_first=True) for _ in range(running)]
            pace._has_waited = left > running or pace._has_waited
            together = speed if isinstance(speed, float) else speed[max(n for n in speed if n <= running)]
            self.now_s += running * bytes_each / together
            for turn in turns:
                assert turn is not None
                pace.note_success(bytes_each)
            self.limits.append(pace.limit)
            left -= running


def test_more_at_once_while_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch)
    pace = UploadPace(Patience(900.0))
    link.send(pace, 16 << 20, 400, {n: n * 1e7 for n in range(1, 65)})
    assert pace.limit > 30


def test_a_link_that_is_full_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch)
    pace = UploadPace(Patience(900.0))
    link.send(pace, 16 << 20, 200, 5e5)
    assert max(link.limits) <= START * 2
    assert pace.limit <= START


def test_trouble_halves_once_for_all_that_were_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch)
    pace = UploadPace(Patience(900.0))
    turns = [pace.begin(0.0, is_first=True) for _ in range(START)]
    for turn in turns:
        assert turn is not None
        pace.note_failure(turn, 0.0, is_trouble=True)
    assert pace.limit == START // 2
    before_s = link.now_s
    assert pace.begin(link.now_s, is_first=True) is not None
    assert 0.4 < link.now_s - before_s < 2  # one pause for all four
    for _ in range(10):
        turn = pace.begin(link.now_s, is_first=True)
        assert turn is not None
        pace.note_failure(turn, 0.0, is_trouble=True)
        if pace.limit == 1:
            break
    assert pace.limit == 1


def test_an_outage_costs_no_bodies(directory: ObjectStore, warp: WarpClock) -> None:
    """Two minutes in which everything is refused: what was under way at the start is sent again,
    and nothing else."""
    sent: list[str] = []
    end_s = clock.monotonic_s() + 120

    class Down(FaultyStore):
        def put(self, key: str, data: Data) -> None:
            sent.append(key)
            super().put(key, data)

        def _call(self, method, key, action):  # type: ignore[no-untyped-def]
            if clock.monotonic_s() < end_s:
                raise UnavailableError("503")
            return super()._call(method, key, action)

    store = RetryingStore(Down(directory), Patience(900.0))
    names = [f"packs/{n:02x}/{n:032x}" for n in range(20)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.put(key, LARGE), names))
    assert sorted(info.key for info in directory.list("packs/")) == names
    assert len(sent) <= len(names) + START
    assert max(sent.count(name) for name in names) == 2


def test_a_pack_that_fails_is_repeated_alone(directory: ObjectStore, warp: WarpClock) -> None:
    faulty = FaultyStore(directory)
    faulty.inject(Fault.FAIL, "put", key_part="bad", times=3)
    store = RetryingStore(faulty, Patience(900.0))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, LARGE), ["packs/bad", *(f"packs/{n}" for n in range(20))]))
    assert sum(method == "put" and key == "packs/bad" for method, key in faulty.calls) == 4
    assert faulty.count("put") == 24


def test_the_first_attempt_is_made_whatever_others_wait_for(
    directory: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit in an outage made everybody pause, for longer than the next one's patience. The
    store is there again: the next one finds out, instead of giving up unasked."""
    Link(monkeypatch)
    faulty = FaultyStore(directory)
    store = RetryingStore(faulty, Patience(300.0))
    faulty.inject(Fault.FAIL, "put", "size", times=100)
    with pytest.raises(UnavailableError):
        store.put("packs/one", LARGE)
    faulty.heal()
    store.patience.limit_s = 5.0
    store.put("packs/two", LARGE)
    assert directory.size("packs/two") == len(LARGE)
    faulty.inject(Fault.FAIL, "put", "size", times=100)
    with pytest.raises(UnavailableError):
        store.put("packs/three", LARGE)
    faulty.heal()
    store.patience.limit_s = 0.0  # it is closed
    with pytest.raises(UnavailableError):
        store.put("packs/four", LARGE)
    assert directory.size("packs/four") is None


def test_patience_counts_from_the_last_success(directory: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long commit goes on while some of its packs arrive; it ends when none has for the whole
    limit."""

    class Bad(FaultyStore):
        def put(self, key: str, data: Data) -> None:
            if key == "packs/bad":
                raise UnavailableError("this one never arrives")
            super().put(key, data)

    class Arriving(clock.SystemClock):
        """While one pack waits, others arrive: for five minutes."""

        now_s = last_s = 0.0
        is_arriving = False

        def monotonic_s(self) -> float:
            return self.now_s

        def sleep_s(self, seconds: float) -> None:
            self.now_s += seconds
            if self.now_s < 300 and not self.is_arriving:
                self.is_arriving = True
                store.put(f"packs/{clock.random_bytes(8).hex()}", LARGE)
                self.last_s, self.is_arriving = self.now_s, False

    arriving = Arriving()
    monkeypatch.setattr(clock, "current", arriving)
    store = RetryingStore(Bad(directory), Patience(100.0))
    with pytest.raises(UnavailableError):
        store.put("packs/bad", LARGE)
    assert arriving.last_s > 250
    assert arriving.last_s + 50 < arriving.now_s <= arriving.last_s + 100
