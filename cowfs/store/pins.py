"""Pins: what writers hold against garbage collection, and what a collection has condemned.

    pins/<write id>               who protects which head number of which volume, and how long; replaced by its owner alone
    gc/<generation>/condemned     packs that collection is going to delete

The order that makes a collection safe: a writer creates its pin before its first look-up, reads newly condemned lists at each
heartbeat and before its head, and puts condemned chunks again. A pin that expired and was collected cannot be renewed:
its owner creates a new one and checks every pack it uses.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from cowfs import clock
from cowfs.errors import NotFoundError
from cowfs.format import keys
from cowfs.format.records import CondemnedRecord, PinRecord
from cowfs.ids import PackId, WriteId
from cowfs.store.contract import ObjectStore

EXPIRY_S = 7 * 24 * 3600.0
# An unchanged pin is written again only when this part of its time has passed.
_RENEW_PART = 0.05


class Pin:
    """Keeps head `number` of a volume, and everything put since gc generation `generation`, from being collected."""

    def __init__(self, store: ObjectStore, key: str, record: PinRecord) -> None:
        self._store = store
        self._record = record
        self._lock = threading.Lock()  # guards _record, held while it is written: the newest state wins
        self.key = key

    @property
    def volume(self) -> str:
        return self._record.volume

    @property
    def number(self) -> int:
        return self._record.number

    @property
    def generation(self) -> int:
        return self._record.gc_generation

    @property
    def owner(self) -> str:
        return self._record.owner

    @classmethod
    def create(cls, store: ObjectStore, *, volume: str, number: int, owner: str) -> Pin:
        """Durable when it returns; the gc generation is read before, and stands in `.generation`."""
        generation, _ = condemned(store, 0)
        now_ns = clock.now_ns()
        record = PinRecord(
            volume=volume,
            number=number,
            gc_generation=generation,
            created_ns=now_ns,
            expires_ns=now_ns + int(EXPIRY_S * 1e9),
            write_id=WriteId(clock.random_bytes(WriteId.length)),
            owner=owner,
        )
        key = keys.pin(record.write_id)
        store.put(key, record.encode())
        return cls(store, key, record)

    @classmethod
    def resume(cls, store: ObjectStore, key: str) -> Pin | None:
        """The pin a working copy wrote down, None when it is gone (expired and collected): create a new one and check packs."""
        try:
            return cls(store, key, PinRecord.decode(store.get(key), what=f"pin {key}"))
        except NotFoundError:
            return None

    def renew(self, *, number: int | None = None, generation: int | None = None) -> None:
        """Moves the expiry, and the number or generation forward. Call it at each heartbeat: it writes when there is reason to.

        NotFoundError: the pin expired and was collected.
        """
        with self._lock:
            now_ns = clock.now_ns()
            record = replace(
                self._record,
                number=self._record.number if number is None else number,
                gc_generation=self._record.gc_generation if generation is None else generation,
            )
            left_s = EXPIRY_S if record.expires_ns is None else (record.expires_ns - now_ns) / 1e9
            if record == self._record and left_s > EXPIRY_S * (1 - _RENEW_PART):
                return
            if self._store.size(self.key) is None:
                raise NotFoundError(
                    f"the pin of volume {self.volume} expired and was collected",
                    hint="Create a new pin and check every pack in use.",
                )
            if record.expires_ns is not None:
                record = replace(record, expires_ns=now_ns + int(EXPIRY_S * 1e9))
            self._store.put(self.key, record.encode())
            self._record = record

    def remove(self) -> None:
        """What it protected may be collected. Removing twice does nothing."""
        with self._lock:
            self._store.delete([self.key])


def condemned(store: ObjectStore, after_generation: int) -> tuple[int, set[PackId]]:
    """(newest gc generation, packs condemned by generations > after_generation). One list request when nothing is new.

    With no collection yet the generation is 0.
    """
    newest = after_generation
    packs: set[PackId] = set()
    for info in store.list(keys.GC):
        generation = keys.parse_generation(info.key)
        if generation is None or generation <= after_generation or info.key != keys.condemned(generation):
            continue
        record = CondemnedRecord.decode(store.get(info.key), what=f"the condemned list of collection {generation}")
        packs.update(record.packs)
        newest = max(newest, generation)
    return newest, packs
