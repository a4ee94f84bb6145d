"""What a working copy finds when it comes back: its intent in the line, absent, or overtaken; and
who is shut out afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cowfs.base import clock
from cowfs.base.ids import VersionId, WriteId
from cowfs.errors import ConflictError, LeaseLostError, UnavailableError
from cowfs.format.heads import Intent
from cowfs.format.records import HeadRecord
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.refs import refs
from cowfs.store.reliability import patience
from cowfs.version.names.volumes import create_volume
from cowfs.version.publish.heads import is_only_fenced, settle_head
from tests.faulty_store import Fault, FaultyStore

pytestmark = pytest.mark.quick

FIRST, SECOND = VersionId(b"1" * 32), VersionId(b"2" * 32)


@pytest.fixture
def store(store: ObjectStore) -> ObjectStore:
    """With a volume that has a version."""
    create_volume(store, "v")
    commit(store, 2, FIRST, epoch=1)
    return store


def commit(store: ObjectStore, number: int, version: VersionId, *, epoch: int, write_id: WriteId | None = None) -> None:
    """What a writer of `epoch` puts."""
    write_id = write_id or WriteId(clock.random_bytes(WriteId.length))
    refs.append(store, refs.head("v"), number, HeadRecord("commit", version, epoch, 1, write_id))


def intent(number: int) -> Intent:
    return Intent(number, WriteId(clock.random_bytes(WriteId.length)), SECOND, layer=1)


def line(store: ObjectStore) -> list[tuple[str, VersionId | None, int]]:
    return [(record.kind, record.version, record.epoch) for _, record in refs.history(store, refs.head("v"))[::-1]]


BEFORE: list[tuple[str, VersionId | None, int]] = [("create", None, 0), ("commit", FIRST, 1)]


def test_a_lease_that_was_given_back_leaves_nothing_open(store: ObjectStore) -> None:
    settled = settle_head(store, "v", epoch=2, intent=None, needs_fence=False)
    assert (settled.head.number, settled.head.version, settled.is_published) == (2, FIRST, False)
    assert line(store) == BEFORE


def test_a_taken_over_writer_is_shut_out(store: ObjectStore) -> None:
    settled = settle_head(store, "v", epoch=2, intent=None, needs_fence=True)
    assert (settled.head.number, settled.head.version, settled.head.epoch) == (3, FIRST, 2)
    with pytest.raises(ConflictError):
        commit(store, 3, SECOND, epoch=1)
    assert line(store) == [*BEFORE, ("fence", FIRST, 2)]


@pytest.mark.parametrize("needs_fence", [False, True])
def test_an_intent_that_became_the_head_is_ours(store: ObjectStore, needs_fence: bool) -> None:
    ours = intent(3)
    commit(store, 3, SECOND, epoch=1, write_id=ours.write_id)
    settled = settle_head(store, "v", epoch=2, intent=ours, needs_fence=needs_fence)
    assert (settled.is_published, settled.head.version) == (True, SECOND)
    assert settled.head.number == len(line(store))


@pytest.mark.parametrize("needs_fence", [False, True])
def test_an_intent_that_never_arrived_cannot_arrive_later(store: ObjectStore, needs_fence: bool) -> None:
    ours = intent(3)
    settled = settle_head(store, "v", epoch=2, intent=ours, needs_fence=needs_fence)
    assert (settled.is_published, settled.head.number, settled.head.version) == (False, 3, FIRST)
    with pytest.raises(ConflictError):
        commit(store, 3, SECOND, epoch=1, write_id=ours.write_id)
    assert line(store) == [*BEFORE, ("fence", FIRST, 2)]


def test_an_intent_that_another_overtook_is_not_ours(store: ObjectStore) -> None:
    commit(store, 3, SECOND, epoch=2)
    settled = settle_head(store, "v", epoch=3, intent=intent(3), needs_fence=False)
    assert (settled.is_published, settled.head.version) == (False, SECOND)


def test_an_intent_deep_in_the_line_is_found_with_few_requests(store: ObjectStore) -> None:
    ours = intent(3)
    commit(store, 3, SECOND, epoch=1, write_id=ours.write_id)
    for number in range(4, 40):
        commit(store, number, FIRST, epoch=2)
    counting = FaultyStore(store)
    settled = settle_head(counting, "v", epoch=3, intent=ours, needs_fence=False)
    assert (settled.is_published, settled.head.version) == (True, FIRST)
    assert len(counting.calls) < 8


class LatePut:
    """A store on which something arrives right before the next put."""

    def __init__(self, store: ObjectStore, late: Callable[[], None]) -> None:
        self._store = store
        self._late: Callable[[], None] | None = late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, key: str, data: bytes) -> None:
        if self._late is not None:
            late, self._late = self._late, None
            late()
        self._store.put_if_absent(key, data)


@pytest.mark.parametrize("needs_fence", [False, True])
def test_a_late_put_that_comes_before_the_fence_counts(store: ObjectStore, needs_fence: bool) -> None:
    ours = intent(3)
    late: Any = LatePut(store, lambda: commit(store, 3, SECOND, epoch=1, write_id=ours.write_id))
    settled = settle_head(late, "v", epoch=2, intent=ours, needs_fence=needs_fence)
    assert (settled.is_published, settled.head.version) == (True, SECOND)
    assert line(store) == [*BEFORE, ("commit", SECOND, 1), ("fence", SECOND, 2)]


@pytest.mark.parametrize("needs_fence", [False, True])
def test_a_writer_that_was_replaced_while_it_started_is_refused(store: ObjectStore, needs_fence: bool) -> None:
    """Somebody took over between our lease and our look at the head."""
    settle_head(store, "v", epoch=5, intent=None, needs_fence=True)
    for ours in (None, intent(3)):
        with pytest.raises(LeaseLostError):
            settle_head(store, "v", epoch=4, intent=ours, needs_fence=needs_fence)
    assert line(store) == [*BEFORE, ("fence", FIRST, 5)]


@pytest.mark.parametrize("first", [4, 5])
def test_of_two_that_take_over_at_once_the_later_epoch_stays(store: ObjectStore, first: int) -> None:
    settled: dict[int, Any] = {}
    for epoch in (first, 9 - first):
        try:
            settled[epoch] = settle_head(store, "v", epoch=epoch, intent=None, needs_fence=True)
        except LeaseLostError:
            assert (epoch, first) == (4, 5)
    assert line(store)[-1] == ("fence", FIRST, 5)
    if 4 in settled:
        with pytest.raises(ConflictError):
            commit(store, settled[4].head.number + 1, SECOND, epoch=4)


def test_only_fences_let_kept_work_go_on(store: ObjectStore) -> None:
    head = settle_head(store, "v", epoch=2, intent=None, needs_fence=True).head
    assert is_only_fenced(store, "v", 3, head)
    assert is_only_fenced(store, "v", 2, head)
    assert not is_only_fenced(store, "v", 1, head)
    assert not is_only_fenced(store, "v", 4, head), "a store that lost heads is not the one the work was made on"


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY], ids=lambda fault: fault.name)
def test_settling_can_be_repeated_after_any_failure(
    tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refs, "APPEND_S", 0.2)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.01)
    for failing in range(12):
        store = open_store((tmp_path / str(failing)).as_uri(), create=True)
        initialize(store)
        create_volume(store, "v")
        commit(store, 2, FIRST, epoch=1)
        ours = intent(3)
        commit(store, 3, SECOND, epoch=1, write_id=ours.write_id)
        faulty = FaultyStore(store)
        faulty.inject(fault, skip=failing, times=6)
        epoch, settled = 2, None
        while settled is None:
            try:
                settled = settle_head(faulty, "v", epoch=epoch, intent=ours, needs_fence=True)
            except UnavailableError:
                epoch += 1  # the next mount takes a new lease
        assert (settled.is_published, settled.head.version, settled.head.epoch) == (True, SECOND, epoch)
        assert [kind for kind, _, _ in line(store)][:3] == ["create", "commit", "commit"]
        store.close()
