"""Pins are durable before they count, move forward, and are never resurrected; condemned lists are
read once."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cowfs.base import clock
from cowfs.base.ids import PackId, WriteId
from cowfs.errors import CorruptError, NotFoundError, UnavailableError
from cowfs.format import keys
from cowfs.format.records import CondemnedRecord, PinRecord
from cowfs.store import ObjectStore, condemned
from cowfs.store.refs import refs
from cowfs.store.refs.pins import LIFETIME_S, Pin
from cowfs.store.reliability import patience
from tests.faulty_store import Fault, FaultyStore
from tests.format.samples import GOLDEN
from tests.store.conftest import PatientClock


def condemn(store: ObjectStore, generation: int, packs: list[PackId], shards: int | None = None) -> None:
    """As a collection writes it: the shards first, each with an equal part."""
    parts = [packs[at :: shards + 1] for at in range(shards + 1)] if shards else [packs]
    for at, part in enumerate(parts[1:]):
        store.put_if_absent(keys.condemnation_shard(generation, at), _list(generation, part).encode())
    store.put_if_absent(keys.condemnation(generation), replace(_list(generation, parts[0]), shards=shards).encode())


def _list(generation: int, packs: list[PackId]) -> CondemnedRecord:
    return CondemnedRecord(generation, tuple(packs), clock.now_ns(), WriteId(clock.random_bytes(16)))


def stored(store: ObjectStore, pin: Pin) -> PinRecord:
    """The pin's newest record: beside it there is the first one at most."""
    newest, *older = store.list(pin.key)
    assert [info.key for info in older] in ([], [keys.pin(pin._id, refs.FIRST)])
    return PinRecord.decode(store.get(newest.key), what="pin")


def declare_dead(store: ObjectStore, pin: Pin) -> None:
    """As a collection does with a pin past its lifetime."""
    ((at, record),) = [refs.newest(store, refs.pin(pin._id)) or (0, None)]
    assert record is not None
    refs.append(store, refs.pin(pin._id), at + 1, replace(record, kind="dead", write_id=WriteId(bytes(16))))


def test_life_of_a_pin(store: ObjectStore) -> None:
    pin = Pin.create(store, volume="data", number=3, owner="ada@here")
    assert (pin.volume, pin.number, pin.generation) == ("data", 3, 0)
    record = stored(store, pin)
    assert (record.volume, record.number, record.gc_generation, record.owner) == ("data", 3, 0, "ada@here")
    assert (record.kind, record.lifetime_s) == ("writer", LIFETIME_S)

    pack = PackId(clock.random_bytes(16))
    pin.renew(number=4, generation=2, packs=[pack])
    record = stored(store, pin)
    assert (record.number, record.gc_generation, record.packs) == (4, 2, (pack,))

    resumed = Pin.resume(store, pin.key)
    assert resumed is not None
    assert (resumed.volume, resumed.number, resumed.generation, resumed.packs) == ("data", 4, 2, (pack,))
    resumed.renew(kind="hold")
    assert (stored(store, pin).kind, stored(store, pin).lifetime_s) == ("hold", None)
    resumed.remove()
    resumed.remove()
    assert Pin.resume(store, pin.key) is None
    assert store.list(keys.PINS) == []


def test_condemned_packs(store: ObjectStore) -> None:
    packs = [PackId(clock.random_bytes(16)) for _ in range(9)]
    assert condemned(store, 0) == (0, set(), set())
    condemn(store, 1, packs[:1])
    condemn(store, 2, packs[1:], shards=3)
    assert condemned(store, 0) == (2, set(packs), set())
    assert condemned(store, 1) == (2, set(packs[1:]), set())
    assert condemned(store, 2) == (2, set(), set())
    assert Pin.create(store, volume="data", number=1, owner="").generation == 2


@pytest.mark.quick
def test_lists_that_were_read_are_not_listed_again(directory: ObjectStore) -> None:
    for generation in range(1, 60):
        condemn(directory, generation, [PackId(clock.random_bytes(16))])
        directory.put(keys.collection(generation, "begin"), b"")
    faulty = FaultyStore(directory)
    assert condemned(faulty, 59) == (59, set(), set())
    assert Pin.create(faulty, volume="data", number=1, owner="").generation == 59
    assert (faulty.count("list"), faulty.count("get")) == (2, 0)
    newest, packs, _ = condemned(faulty, 50)
    assert (newest, len(packs)) == (59, 9)


@pytest.mark.quick
def test_what_sorts_behind_the_shards_is_listed_once(directory: ObjectStore) -> None:
    packs = [PackId(clock.random_bytes(16)) for _ in range(8)]
    for generation in range(1, 6):
        for name in ("begin", "done"):
            directory.put(keys.collection(generation, name), b"")
        condemn(directory, generation, [])
    condemn(directory, 6, packs, shards=3)
    directory.put(keys.collection(6, "spared"), b"")
    faulty = FaultyStore(directory)
    faulty.inject(Fault.FAIL, "list", times=math.inf, skip=3)
    assert condemned(faulty, 0) == (6, set(packs), set())


@pytest.mark.quick
def test_a_collection_without_a_list_yet_is_not_acknowledged(directory: ObjectStore) -> None:
    condemn(directory, 1, [])
    directory.put(keys.collection(2, "begin"), b"")
    directory.put(keys.condemnation_shard(2, 0), b"")
    assert Pin.create(directory, volume="data", number=1, owner="").generation == 1


@pytest.mark.quick
def test_an_unchanged_pin_is_written_seldom(directory: ObjectStore, patient_clock: PatientClock) -> None:
    faulty = FaultyStore(directory)
    pin = Pin.create(faulty, volume="data", number=1, owner="")
    first = stored(directory, pin).write_id
    for _ in range(10):
        pin.renew()
    assert faulty.count("put_if_absent") == 1
    clock.sleep_s(LIFETIME_S / 2)
    pin.renew()
    assert faulty.count("put_if_absent") == 2
    assert stored(directory, pin).write_id != first


@pytest.mark.quick
def test_a_dead_pin_is_not_resurrected(directory: ObjectStore) -> None:
    pin = Pin.create(directory, volume="data", number=1, owner="")
    declare_dead(directory, pin)
    with pytest.raises(NotFoundError, match="expired"):
        pin.renew(number=2)
    assert Pin.resume(directory, pin.key) is None
    late = Pin(directory, pin._id, pin._at, pin._record, None)
    with pytest.raises(NotFoundError, match="expired"):
        late.renew()


@pytest.mark.quick
def test_a_resumed_pin_is_proven_alive_by_writing(directory: ObjectStore) -> None:
    pin = Pin.create(directory, volume="data", number=1, owner="")
    resumed = Pin.resume(directory, pin.key)
    assert resumed is not None
    declare_dead(directory, pin)
    with pytest.raises(NotFoundError, match="expired"):
        resumed.renew()


@pytest.mark.quick
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY], ids=lambda fault: fault.name)
def test_a_pin_goes_on_after_any_number_of_lost_replies(
    directory: ObjectStore, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refs, "APPEND_S", 0.2)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.01)
    faulty = FaultyStore(directory)
    pin = Pin.create(faulty, volume="data", number=1, owner="")
    for number in range(2, 5):
        faulty.inject(fault, times=200)
        try:
            pin.renew(number=number)
        except UnavailableError:
            faulty.heal()
            pin.renew(number=number + 10)
            assert pin.number == number + 10
        faulty.heal()
    found = refs.newest(directory, refs.pin(pin._id))
    assert found is not None
    assert found[1].number == pin.number


@pytest.mark.quick
def test_the_pin_of_an_earlier_cowfs_goes_on(directory: ObjectStore) -> None:
    key = f"pins/{'ab' * 16}"
    directory.put(key, (GOLDEN / "pin.json").read_bytes())
    pin = Pin.resume(directory, key)
    assert pin is not None
    assert (pin.volume, pin.number, pin.generation) == ("my-dataset", 12, 2)
    assert directory.size(key) is None
    assert stored(directory, pin).lifetime_s == LIFETIME_S
    assert Pin.resume(directory, key) is None
    assert Pin.resume(directory, pin.key) is not None


@pytest.mark.quick
def test_a_damaged_condemned_list_is_an_error(directory: ObjectStore) -> None:
    directory.put(keys.condemnation(1), b"{}")
    with pytest.raises(CorruptError, match="collection 1"):
        condemned(directory, 0)
