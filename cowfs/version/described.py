"""The newest record of what a volume is (`MetaRecord`), and changes of it.

A change appends a record; of two who change it at once one does, and the other looks again. Not
here: what the settings mean (`saved_rules`, `quotas`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cowfs import clock
from cowfs.errors import ConflictError
from cowfs.format.records import MetaRecord
from cowfs.ids import WriteId
from cowfs.store import ObjectStore, refs
from cowfs.version import near_names

TRIES = 8


def read(store: ObjectStore, volume: str) -> MetaRecord | None:
    """None: the volume has none, as if it had no settings. Three requests."""
    found = refs.newest(store, refs.meta(volume))
    return None if found is None else found[1]


def change(store: ObjectStore, volume: str, changed: Callable[[MetaRecord], MetaRecord]) -> None:
    """NotFoundError: no such volume. ConflictError: others change it all the time."""
    head = near_names.read_head(store, volume)
    for _ in range(TRIES):
        found = refs.newest(store, refs.meta(volume))
        number, meta = found if found is not None else (0, MetaRecord("", head.created_ns, _write_id()))
        record = changed(meta)
        if record == meta:
            return
        try:
            if found is None:  # the first one has no quota: a writer who sees no other does not read it
                refs.append(store, refs.meta(volume), refs.FIRST, meta)
            refs.append(store, refs.meta(volume), max(number, refs.FIRST) + 1, replace(record, write_id=_write_id()))
        except ConflictError:
            continue
        return
    raise ConflictError(
        f"somebody else changes the record of volume {volume!r} at the same time",
        hint="Nothing was saved. Try again later.",
    )


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
