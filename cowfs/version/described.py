"""The newest record of what a volume is (`MetaRecord`), and changes of it.

A change appends a record; of two who change it at once one does, and the other looks again. Behind
a damaged one it appends one that has nothing of it: who made the volume and when is taken from an
earlier record, and quota and rules are not, since they may have been others. Not here: what the
settings mean (`saved_rules`, `quotas`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cowfs import clock, log
from cowfs.errors import ConflictError, CorruptError, UnsupportedFormatError
from cowfs.format import keys
from cowfs.format.records import MetaRecord
from cowfs.ids import WriteId
from cowfs.store import ObjectStore, refs
from cowfs.version import near_names
from cowfs.version.volumes import Head

TRIES = 8

_log = log.get("volumes")


def read(store: ObjectStore, volume: str) -> MetaRecord | None:
    """None: the volume has none, as if it had no settings. Three requests."""
    try:
        found = refs.newest(store, refs.meta(volume))
    except CorruptError as error:
        error.set_hint(
            f"`cowfs quota {volume} SIZE` (none: no quota), Volume.set_quota({volume!r}, …), makes a new record. Rules of "
            f"pruning that it had are to be saved anew (`cowfs prune {volume} --save`, Volume.set_retention()). The volume's "
            "owner is lost unless an earlier record names it."
        )
        raise
    return None if found is None else found[1]


def check(store: ObjectStore, volume: str) -> None:
    """CorruptError: the newest record is damaged (details: key). One of a newer cowfs is not."""
    with suppress(UnsupportedFormatError):
        refs.newest(store, refs.meta(volume))


def change(store: ObjectStore, volume: str, changed: Callable[[MetaRecord], MetaRecord]) -> None:
    """NotFoundError: no such volume. ConflictError: others change it all the time."""
    head = near_names.read_head(store, volume)
    for _ in range(TRIES):
        is_damaged = False
        try:
            found = refs.newest(store, refs.meta(volume))
        except CorruptError as error:
            found, is_damaged = (_number(error), _made_anew(store, head)), True
        number, meta = found if found is not None else (0, MetaRecord("", head.created_ns, _write_id()))
        record = changed(meta)
        if record == meta and not is_damaged:
            return
        try:
            if found is None:  # the first one has no quota: a writer who sees no other does not read it
                refs.append(store, refs.meta(volume), refs.FIRST, meta)
            refs.append(store, refs.meta(volume), max(number, refs.FIRST) + 1, replace(record, write_id=_write_id()))
        except ConflictError:
            continue
        if is_damaged:
            _log.warning(
                "the record of volume %s was damaged: the new one has no quota and no rules of pruning but those given now%s",
                volume,
                "" if record.owner else ", and no owner",
            )
        return
    raise ConflictError(
        f"somebody else changes the record of volume {volume!r} at the same time",
        hint="Nothing was saved. Try again later.",
    )


def _number(error: CorruptError) -> int:
    """Of the damaged record."""
    return keys.parse_number(error.details["key"]) or 0


def _made_anew(store: ObjectStore, head: Head) -> MetaRecord:
    """Without what the damaged record may have changed."""
    whole = refs.history(store, refs.meta(head.volume), tell=lambda _: None)
    if not whole:
        return MetaRecord("", head.created_ns, _write_id())
    earlier = whole[0][1]
    return MetaRecord(earlier.owner, earlier.created_ns, _write_id(), origin=earlier.origin)


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
