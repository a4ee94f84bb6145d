"""What goes on beside the replay of a journal: the lease is renewed, and whoever waits for the
mount hears of progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from cowfs.errors import NotFoundError
from cowfs.format import keys
from cowfs.format.records import HeartbeatRecord
from cowfs.native import Caller
from cowfs.session import opening
from cowfs.session.session import Session
from cowfs.store.refs import leases
from cowfs.version.commit import Progress, ProgressListener
from cowfs.writer import acquiring
from cowfs.writer.during_opening import _repeat
from tests.mount.daemons import Place

FILES = 40
CALLER = Caller(0, 0, 1, 0o22, [0])


@contextmanager
def opened(place: Place, report: ProgressListener = lambda _: None) -> Iterator[Session]:
    with ExitStack() as stack:
        yield opening.open_session(place.spec("v"), stack, threading.Event(), report)


@pytest.fixture
def dirty(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A working copy with a journal to replay, as no orderly end leaves it."""
    with monkeypatch.context() as patch:
        patch.setattr(opening, "_close_engine", lambda engine, discard: engine.close())
        with opened(place) as session:
            session.residency.load_namespace()
            for number in range(FILES):
                session.engine.mkdir(1, b"d%d" % number, 0o755, CALLER)
    return place


def test_progress_is_reported_to_the_end(dirty: Place) -> None:
    events: list[Progress] = []
    with opened(dirty, events.append):
        pass
    assert events[-1] == Progress("replay", 2 * FILES, 2 * FILES)
    assert [event.done for event in events] == sorted(event.done for event in events)


def test_the_lease_is_renewed_while_a_journal_is_replayed(dirty: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay is held up by whoever listens to its progress, until the lease has been renewed
    twice."""
    monkeypatch.setattr(leases, "HEARTBEAT_S", 0.02)
    seen: set[int] = set()
    renewed = threading.Event()

    def hold_up(event: Progress) -> None:
        for _ in range(3000):
            if len(seen) > 2:
                renewed.set()
                return
            beat = _newest_beat(dirty)
            seen.add(beat)
            threading.Event().wait(0.01)

    with opened(dirty, hold_up):
        assert renewed.is_set()
        before = {thread.name for thread in threading.enumerate()}
        assert "opening-heartbeat" not in before, "the keeper goes on from here"


def test_a_step_that_fails_is_tried_again() -> None:
    steps = iter([RuntimeError("once"), SystemExit("as a panic of the engine is no Exception")])
    has_gone_on = threading.Event()

    def step() -> None:
        if (error := next(steps, None)) is not None:
            raise error
        has_gone_on.set()

    with _repeat("repeated", step, 0.001):
        assert has_gone_on.wait(60)


def test_a_query_that_waits_for_the_store_keeps_no_mount_from_ending(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquiring, "CLOSE_S", 0.05)
    answer, asks, ended = threading.Event(), threading.Event(), threading.Event()

    def query(session: Session) -> None:
        with session.residency._index._connections.connection():
            asks.set()
            answer.wait()

    def mount() -> None:
        with opened(place) as session:
            threading.Thread(target=query, args=(session,), daemon=True).start()
            assert asks.wait(60)
        ended.set()

    threading.Thread(target=mount, daemon=True).start()
    try:
        assert ended.wait(60), "it waits for the query"
    finally:
        answer.set()


def _newest_beat(place: Place) -> int:
    epoch = 2  # the first mount had 1
    try:
        return HeartbeatRecord.decode(place.store.get(keys.heartbeat("v", epoch)), what="a heartbeat").beat
    except NotFoundError:
        return 0
