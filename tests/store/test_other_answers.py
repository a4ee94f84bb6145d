"""The answer to another question is no record of this one: it is asked for again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cowfs.base import clock
from cowfs.base.ids import PackId, WriteId
from cowfs.format import keys
from cowfs.format.records import CondemnedRecord, HeartbeatRecord
from cowfs.maintain.collect.generations import Generations
from cowfs.store import ObjectStore
from cowfs.store.refs import leases, pins
from tests.faulty_store import FaultyStore

PACKS = [PackId(bytes([number]) * 16) for number in range(4)]


class Confused(FaultyStore):
    """Answers the first question about `key` with what is at `other`."""

    def __init__(self, store: ObjectStore, key: str, other: str) -> None:
        super().__init__(store)
        self._key, self._other = key, other

    def get(self, key: str) -> bytes:
        if key != self._key:
            return bytes(super().get(key))
        self._key = ""
        return bytes(super().get(self._other))


def condemned(store: ObjectStore, generation: int, pack: PackId, *, shard: int | None = None) -> None:
    shards = 1 if shard is None else None
    write_id = WriteId(clock.random_bytes(WriteId.length))
    record = CondemnedRecord(generation, (pack,), clock.now_ns(), write_id, shards=shards)
    key = keys.condemnation(generation) if shard is None else keys.condemnation_shard(generation, shard)
    store.put(key, record.encode())


@pytest.mark.parametrize("of", [keys.condemnation, lambda number: keys.condemnation_shard(number, 0)])
def test_the_list_of_another_collection_is_not_believed(directory: ObjectStore, of: Callable[[int], str]) -> None:
    for generation in (1, 2):
        condemned(directory, generation, PACKS[generation])
        condemned(directory, generation, PACKS[generation + 1], shard=0)
    wanted = {PACKS[2], PACKS[3]}
    assert pins.condemned(Confused(directory, of(2), of(1)), 1)[1] == wanted
    assert Generations(Confused(directory, of(2), of(1))).load_condemned(2).packs == wanted


def test_the_heartbeat_of_another_epoch_is_not_believed(directory: ObjectStore) -> None:
    for epoch, released in ((1, True), (2, False)):
        record = HeartbeatRecord(epoch=epoch, beat=1, at_ns=clock.now_ns(), released=released)
        directory.put(keys.heartbeat("v", epoch), record.encode())
    confused = Confused(directory, keys.heartbeat("v", 2), keys.heartbeat("v", 1))
    assert not leases._is_released(confused, "v", 2)
    assert leases._is_released(directory, "v", 1)
