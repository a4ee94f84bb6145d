"""The small records of a store: cowfs.json, keys, heads, tags, pruned heads, volume records,
leases, heartbeats, pins, moved, purged and condemned lists, and the volumes that a collection has
seen.

Each is one object of canonical JSON in the envelope of `fields` (check, format, record). `keys` has
their keys; docs/format/refs.md, moved.md and store.md describe every field.

Guarantees: `decode(encode(x)) == x`; an altered or cut record is CorruptError; a record of a newer
format is UnsupportedFormatError. Unknown fields come back in `extra` and are written again by
`encode`, so that `dataclasses.replace` on a volume record or a pin keeps what a newer cowfs put
there. An invalid record cannot be constructed. The write id is random for each attempt to create a
record: a writer that reads its own id back knows that its put succeeded. Not here: making ids and
times (callers), putting and reading back (`store.refs.refs`).
"""

from __future__ import annotations

from cowfs.format.claims import (
    CondemnedRecord,
    DoneRecord,
    HeartbeatRecord,
    LeaseRecord,
    PinKind,
    PinRecord,
    SeenRecord,
    SeenVolume,
    SparedRecord,
)
from cowfs.format.heads import HeadKind, HeadRecord, MetaRecord, Origin, PrunedRecord, Setting, TagRecord
from cowfs.format.key_slots import KeysRecord
from cowfs.format.moved import MovedBlob, MovedRecord
from cowfs.format.purged import PurgedRecord
from cowfs.format.record import FORMAT, Holder, Record
from cowfs.format.store_record import Cipher, ProbeResult, StoreRecord

__all__ = [
    "FORMAT",
    "Cipher",
    "CondemnedRecord",
    "DoneRecord",
    "HeadKind",
    "HeadRecord",
    "HeartbeatRecord",
    "Holder",
    "KeysRecord",
    "LeaseRecord",
    "MetaRecord",
    "MovedBlob",
    "MovedRecord",
    "Origin",
    "PinKind",
    "PinRecord",
    "ProbeResult",
    "PrunedRecord",
    "PurgedRecord",
    "Record",
    "SeenRecord",
    "SeenVolume",
    "Setting",
    "SparedRecord",
    "StoreRecord",
    "TagRecord",
]
