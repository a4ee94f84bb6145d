"""Pins are durable before they count, move forward, and are never resurrected; condemned lists are read once."""

from __future__ import annotations

import pytest

from cowfs import clock
from cowfs.errors import CorruptError, NotFoundError
from cowfs.format import keys
from cowfs.format.records import CondemnedRecord, PinRecord
from cowfs.ids import PackId, WriteId
from cowfs.store import ObjectStore, condemned
from cowfs.store.pins import EXPIRY_S, Pin
from tests.faulty_store import FaultyStore
from tests.store.conftest import PatientClock


def condemn(store: ObjectStore, generation: int, packs: list[PackId]) -> None:
    record = CondemnedRecord(
        generation=generation,
        packs=tuple(packs),
        created_ns=clock.now_ns(),
        write_id=WriteId(clock.random_bytes(16)),
    )
    store.put_if_absent(keys.condemned(generation), record.encode())


def stored(store: ObjectStore, pin: Pin) -> PinRecord:
    return PinRecord.decode(store.get(pin.key), what="pin")


def test_life_of_a_pin(store: ObjectStore) -> None:
    pin = Pin.create(store, volume="data", number=3, owner="ada@here")
    assert (pin.volume, pin.number, pin.generation) == ("data", 3, 0)
    record = stored(store, pin)
    assert (record.volume, record.number, record.gc_generation, record.owner) == ("data", 3, 0, "ada@here")
    assert record.expires_ns is not None

    pin.renew(number=4, generation=2)
    assert (stored(store, pin).number, stored(store, pin).gc_generation) == (4, 2)

    resumed = Pin.resume(store, pin.key)
    assert resumed is not None
    assert (resumed.volume, resumed.number, resumed.generation) == ("data", 4, 2)
    resumed.remove()
    resumed.remove()
    assert Pin.resume(store, pin.key) is None
    assert store.list(keys.PINS) == []


def test_condemned_packs(store: ObjectStore) -> None:
    packs = [PackId(clock.random_bytes(16)) for _ in range(3)]
    assert condemned(store, 0) == (0, set())
    condemn(store, 1, packs[:1])
    condemn(store, 2, packs[1:])
    assert condemned(store, 0) == (2, set(packs))
    assert condemned(store, 1) == (2, set(packs[1:]))
    assert condemned(store, 2) == (2, set())
    assert Pin.create(store, volume="data", number=1, owner="").generation == 2


@pytest.mark.quick
def test_an_unchanged_pin_is_written_seldom(directory: ObjectStore, patient_clock: PatientClock) -> None:
    faulty = FaultyStore(directory)
    pin = Pin.create(faulty, volume="data", number=1, owner="")
    before = stored(directory, pin).expires_ns
    for _ in range(10):
        pin.renew()
    assert faulty.count("put") == 1
    clock.sleep_s(EXPIRY_S / 2)
    pin.renew()
    after = stored(directory, pin).expires_ns
    assert before is not None
    assert after is not None
    assert after - before == pytest.approx(EXPIRY_S / 2 * 1e9, rel=0.01)


@pytest.mark.quick
def test_a_collected_pin_is_not_resurrected(directory: ObjectStore) -> None:
    pin = Pin.create(directory, volume="data", number=1, owner="")
    directory.delete([pin.key])
    with pytest.raises(NotFoundError, match="expired"):
        pin.renew(number=2)
    assert directory.list(keys.PINS) == []


@pytest.mark.quick
def test_a_damaged_condemned_list_is_an_error(directory: ObjectStore) -> None:
    directory.put(keys.condemned(1), b"{}")
    with pytest.raises(CorruptError, match="collection 1"):
        condemned(directory, 0)
