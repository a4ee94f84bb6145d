"""Refs: the newest is found, a number is given once, and every doubt about an append is settled by
its write id."""

from __future__ import annotations

import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cowfs.base import clock
from cowfs.base.ids import VersionId, WriteId
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from cowfs.format import keys
from cowfs.format.records import HeadRecord, MetaRecord, PinRecord, PrunedRecord, TagRecord
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from tests.faulty_store import Fault, FaultyStore
from tests.store.conftest import PatientClock

HEAD = refs.head("data")


def head_record(epoch: int = 1) -> HeadRecord:
    return HeadRecord(
        kind="commit",
        version=VersionId(clock.random_bytes(32)),
        epoch=epoch,
        created_ns=clock.now_ns(),
        write_id=WriteId(clock.random_bytes(16)),
    )


@pytest.fixture
def faulty(directory: ObjectStore, patient_clock: PatientClock) -> FaultyStore:
    return FaultyStore(directory)


def test_newest_and_history(store: ObjectStore) -> None:
    assert refs.newest(store, HEAD) is None
    assert refs.history(store, HEAD) == []
    records = [head_record() for _ in range(20)]
    for number, record in enumerate(records, 1):
        refs.append(store, HEAD, number, record)
        assert refs.newest(store, HEAD) == (number, record)
    assert refs.history(store, HEAD) == list(zip(range(20, 0, -1), reversed(records), strict=True))
    assert refs.newest(store, refs.head("dat")) is None
    assert refs.newest(store, refs.tag("data", "v1")) is None


def test_a_number_is_given_once(store: ObjectStore) -> None:
    first, second = head_record(), head_record()
    refs.append(store, HEAD, 1, first)
    with pytest.raises(ConflictError) as caught:
        refs.append(store, HEAD, 1, second)
    assert caught.value.details == {"number": 1, "write_id": first.write_id.hex()}
    assert refs.newest(store, HEAD) == (1, first)


def test_repeating_an_append_is_safe(store: ObjectStore) -> None:
    record = head_record()
    refs.append(store, HEAD, 1, record)
    refs.append(store, HEAD, 1, record)
    assert refs.history(store, HEAD) == [(1, record)]


def test_racing_appends_have_one_winner(store: ObjectStore) -> None:
    records = [head_record(epoch) for epoch in range(1, 9)]

    def append(record: HeadRecord) -> bool:
        try:
            refs.append(store, HEAD, 1, record)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(append, records))
    assert won.count(True) == 1
    assert refs.newest(store, HEAD) == (1, records[won.index(True)])


@pytest.mark.quick
def test_newest_needs_no_complete_list(directory: ObjectStore) -> None:
    records = [head_record() for _ in range(5)]
    for number, record in enumerate(records, 1):
        refs.append(directory, HEAD, number, record)

    class LateList(FaultyStore):
        """Lists show nothing that was written after number 2."""

        def list(self, prefix: str, *, start_after: str = "", limit: int | None = None):  # type: ignore[no-untyped-def]
            return [info for info in super().list(prefix) if (keys.parse_number(info.key) or 0) <= 2][:limit]

    late = LateList(directory)
    assert refs.newest(late, HEAD) == (5, records[-1])
    assert late.count("list") == 1


@pytest.mark.quick
def test_requests_do_not_grow_with_the_history(faulty: FaultyStore) -> None:
    for number in range(1, 31):
        refs.append(faulty, HEAD, number, head_record())
    faulty.calls.clear()
    refs.newest(faulty, HEAD)
    assert [method for method, _ in faulty.calls] == ["list", "get", "get"]


class MeetingStore(FaultyStore):
    """A store on which two reads at a time meet: alone none is answered."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._both = threading.Barrier(2, timeout=20.0)

    def get(self, key: str) -> bytes:
        self._both.wait()
        return super().get(key)


@pytest.mark.quick
def test_the_newest_is_read_beside_the_look_for_the_next(directory: ObjectStore) -> None:
    records = [head_record() for _ in range(3)]
    for number, record in enumerate(records, 1):
        refs.append(directory, HEAD, number, record)
    assert refs.newest(MeetingStore(directory), HEAD) == (3, records[-1])
    assert refs.newest_from(MeetingStore(directory), HEAD, 3) == (3, records[-1])


@pytest.mark.quick
@pytest.mark.parametrize(
    ("known", "methods"),
    [(30, ["get", "get"]), (29, ["get", "get", "list", "get", "get"]), (31, ["get", "get", "list", "get", "get"])],
)
def test_a_number_seen_before_saves_the_list_while_it_is_the_newest(
    faulty: FaultyStore, known: int, methods: list[str]
) -> None:
    records = [head_record() for _ in range(30)]
    for number, record in enumerate(records, 1):
        refs.append(faulty, HEAD, number, record)
    faulty.calls.clear()
    assert refs.newest_from(faulty, HEAD, known) == (30, records[-1])
    assert [method for method, _ in faulty.calls] == methods


@pytest.mark.quick
def test_foreign_objects_do_not_hide_the_newest(directory: ObjectStore) -> None:
    record = head_record()
    refs.append(directory, HEAD, 1, record)
    directory.put(f"{keys.head_prefix('data')}#backup#", b"an editor was here")
    assert refs.newest(directory, HEAD) == (1, record)
    assert refs.history(directory, HEAD) == [(1, record)]


@pytest.mark.quick
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY])
def test_lost_requests_and_replies_are_settled(faulty: FaultyStore, fault: Fault, times: int) -> None:
    """The put landed, the reply was lost, the repeat is refused by our own write: that is success
    (pitfalls 3)."""
    record = head_record()
    faulty.inject(fault, "put_if_absent", times=times)
    refs.append(faulty, HEAD, 1, record)
    assert refs.newest(faulty, HEAD) == (1, record)


@pytest.mark.quick
def test_a_lost_reply_to_another_is_a_conflict(faulty: FaultyStore) -> None:
    first = head_record()
    refs.append(faulty, HEAD, 1, first)
    faulty.inject(Fault.FAIL, "put_if_absent")
    with pytest.raises(ConflictError) as caught:
        refs.append(faulty, HEAD, 1, head_record())
    assert caught.value.details["write_id"] == first.write_id.hex()


@pytest.mark.quick
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY])
def test_an_outage_leaves_the_outcome_unknown_and_repeatable(faulty: FaultyStore, fault: Fault) -> None:
    record = head_record()
    faulty.inject(fault, "put_if_absent", times=math.inf)
    faulty.inject(Fault.FAIL, "get", times=math.inf)
    with pytest.raises(UnavailableError) as caught:
        refs.append(faulty, HEAD, 1, record)
    assert "Run the same again" in caught.value.hint
    assert caught.value.details == {"number": 1, "write_id": record.write_id.hex()}
    faulty.heal()
    refs.append(faulty, HEAD, 1, record)
    assert refs.history(faulty, HEAD) == [(1, record)]


UNREADABLE = {
    "skewed": (Fault.FAIL, AccessDeniedError("the difference to its time is too large", hint="Set the clock.")),
    "damaged": (Fault.TRUNCATE, None),
    "refused": (Fault.FAIL, InvalidInputError("bad request")),
}


@pytest.mark.quick
@pytest.mark.parametrize("times", [1, math.inf])
@pytest.mark.parametrize("how", UNREADABLE)
def test_a_record_that_cannot_be_read_back_is_of_unknown_outcome(faulty: FaultyStore, how: str, times: float) -> None:
    """Its put has got through, and whatever the look at it has met says nothing about that."""
    record = head_record()
    fault, error = UNREADABLE[how]
    faulty.inject(Fault.LOSE_REPLY, "put_if_absent", times=times)
    faulty.inject(fault, "get", times=math.inf, error=error)
    with pytest.raises(UnavailableError, match="number 1 is unknown: ") as caught:
        refs.append(faulty, HEAD, 1, record)
    assert "It may be there already" in caught.value.hint
    assert "the same again" in caught.value.hint
    assert caught.value.details == {"number": 1, "write_id": record.write_id.hex()}
    if times == 1:  # the second put was refused by our own, so that the look has the last word
        assert error is None or error.message in caught.value.message
        assert ("Set the clock." in caught.value.hint) == (how == "skewed")
    faulty.heal()
    refs.append(faulty, HEAD, 1, record)
    assert refs.history(faulty, HEAD) == [(1, record)]


@pytest.mark.quick
@pytest.mark.parametrize(
    "error", [AccessDeniedError("no"), InvalidInputError("bad request"), NotFoundError("no bucket")]
)
def test_a_refusal_after_a_put_that_may_get_through_is_of_unknown_outcome(
    faulty: FaultyStore, error: CowfsError
) -> None:
    """The first one is still on its way when the second one is refused, and lands later."""
    faulty.inject(Fault.FAIL, "put_if_absent")
    faulty.inject(Fault.FAIL, "put_if_absent", skip=1, error=error)
    with pytest.raises(UnavailableError, match=f"is unknown: {error.message}"):
        refs.append(faulty, HEAD, 1, head_record())


@pytest.mark.quick
def test_a_refused_record_that_cannot_be_read_back_is_refused(faulty: FaultyStore) -> None:
    faulty.inject(Fault.FAIL, "put_if_absent", error=AccessDeniedError("no"))
    faulty.inject(Fault.TRUNCATE, "get", times=math.inf)
    with pytest.raises(AccessDeniedError):
        refs.append(faulty, HEAD, 1, head_record())


@pytest.mark.quick
def test_a_visible_record_nobody_vouches_for_is_not_acknowledged(faulty: FaultyStore) -> None:
    record = head_record()
    faulty.inject(Fault.LOSE_REPLY, "put_if_absent")
    faulty.inject(Fault.FAIL, "put_if_absent", times=math.inf, probability=1.0)
    refs_seen = faulty.count("put_if_absent")
    with pytest.raises(UnavailableError):
        refs.append(faulty, HEAD, 1, record)
    assert refs_seen == 0
    faulty.heal()
    refs.append(faulty, HEAD, 1, record)


@pytest.mark.quick
def test_other_errors_are_read_back_too(faulty: FaultyStore) -> None:
    record = head_record()
    faulty.inject(Fault.FAIL, "put_if_absent", error=AccessDeniedError("no"))
    with pytest.raises(AccessDeniedError):
        refs.append(faulty, HEAD, 1, record)
    faulty.inject(Fault.LOSE_REPLY, "put_if_absent", error=AccessDeniedError("no"))
    refs.append(faulty, HEAD, 1, record)
    assert refs.newest(faulty, HEAD) == (1, record)


@pytest.mark.quick
def test_a_paused_writer_cannot_publish_over_a_newer_head(faulty: FaultyStore) -> None:
    """A writer that sleeps between reading head n and creating n+1 finds n+1 taken when it wakes
    (pitfalls 4)."""
    refs.append(faulty, HEAD, 1, head_record())
    paused = head_record(epoch=1)
    fence = replace(head_record(epoch=2), kind="fence")
    refs.append(faulty, HEAD, 2, fence)
    with pytest.raises(ConflictError):
        refs.append(faulty, HEAD, 2, paused)
    assert refs.newest(faulty, HEAD) == (2, fence)


@pytest.mark.quick
def test_damaged_records_are_named(faulty: FaultyStore) -> None:
    refs.append(faulty, HEAD, 1, head_record())
    for fault in (Fault.FLIP_BIT, Fault.TRUNCATE):
        faulty.inject(fault, "get", times=math.inf)
        with pytest.raises(CorruptError, match="head of volume data"):
            refs.newest(faulty, HEAD)
        faulty.heal()
        faulty.inject(fault, "get")
        assert refs.read(faulty, HEAD, 1).epoch == 1, "one altered answer is no damage"


@pytest.mark.quick
def test_a_gap_is_damage(directory: ObjectStore) -> None:
    for number in range(1, 6):
        refs.append(directory, HEAD, number, head_record())
    directory.delete([HEAD.key(2), HEAD.key(3)])
    told: list[CorruptError] = []
    assert [number for number, _ in refs.history(directory, HEAD, tell=told.append)] == [5, 4, 1]
    assert {error.details["key"] for error in told} == {HEAD.key(2), HEAD.key(3)}
    with pytest.raises(CorruptError, match="is missing"):
        refs.history(directory, HEAD)
    with pytest.raises(CorruptError, match=r"number 3 .* is missing"):
        list(refs.backwards(directory, HEAD, 5))
    directory.put(keys.head_prefix("data") + 16 * "0", b"strange")
    told.clear()
    refs.history(directory, HEAD, tell=told.append)
    assert HEAD.key(3) in {error.details["key"] for error in told}
    assert len(told) < 1000, "not one for each number that it could be"


@pytest.mark.quick
def test_numbers_start_at_one(directory: ObjectStore) -> None:
    with pytest.raises(InvalidInputError):
        refs.append(directory, HEAD, 0, head_record())


class MixedUp(FaultyStore):
    """Something on the way answers gets of some objects with the body of others, as a cache that
    takes one for the other, or keeps an old one."""

    def __init__(self, store: ObjectStore, answers: dict[str, str]) -> None:
        super().__init__(store)
        self._answers = answers

    def get(self, key: str) -> bytes:
        return super().get(self._answers.get(key, key))


@pytest.mark.quick
def test_a_record_is_believed_only_where_it_belongs(directory: ObjectStore) -> None:
    other = refs.head("other")
    for ref in (HEAD, other):
        for number in (1, 2):
            refs.append(directory, ref, number, head_record())
    tag, other_tag = refs.tag("data", "v1"), refs.tag("other", "v1")
    for each in (tag, other_tag):
        refs.append(directory, each, 1, TagRecord(VersionId(bytes(32)), 1, WriteId(bytes(16))))
    mixed = MixedUp(
        directory,
        {HEAD.key(2): HEAD.key(1), other.key(1): HEAD.key(1), tag.key(1): other_tag.key(1)},
    )
    for look in (
        lambda: refs.newest(mixed, HEAD),
        lambda: refs.history(mixed, HEAD),
        lambda: refs.read(mixed, other, 1),
        lambda: refs.newest(mixed, tag),
    ):
        with pytest.raises(CorruptError, match="is not the record of that place") as caught:
            look()
        assert "another object" in caught.value.hint
    assert refs.newest(mixed, other) is not None


@pytest.mark.quick
def test_records_that_do_not_say_where_they_belong_are_read(directory: ObjectStore) -> None:
    """Of cowfs before decision 76."""
    record = head_record()
    directory.put(HEAD.key(1), record.encode())
    assert refs.newest(directory, HEAD) == (1, record)
    refs.append(directory, HEAD, 2, record)
    assert refs.read(directory, HEAD, 2) == record


@pytest.mark.quick
def test_records_that_are_continued_say_their_sequence_alone(directory: ObjectStore) -> None:
    """An older writer writes the fields again that he does not know: of the record before."""
    pruned, meta, pin = refs.pruned("data"), refs.meta("data"), refs.pin(WriteId(bytes(16)))
    id = WriteId(bytes(16))
    refs.append(directory, pruned, 1, PrunedRecord(((1, 1),), 1, id))
    refs.append(directory, meta, 1, MetaRecord("me", 1, id))
    refs.append(directory, pin, 1, PinRecord("data", 1, 0, 1, 5, id, "me"))
    for ref in (pruned, meta, pin):
        carried = json.loads(directory.get(ref.key(1)))
        assert carried["key"] == ref.prefix
        directory.put(ref.key(2), directory.get(ref.key(1)))
        ref.decode(directory.get(ref.key(2)), 2)
    others = {ref.key(1): other.key(1) for ref, other in ((pruned, refs.pruned("b")), (meta, refs.meta("b")))}
    for key, other_key in others.items():
        directory.put(other_key, directory.get(key))
    for look in (lambda: refs.newest(directory, refs.pruned("b")), lambda: refs.newest(directory, refs.meta("b"))):
        with pytest.raises(CorruptError, match="is not the record of that place"):
            look()
