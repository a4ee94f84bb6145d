"""Reads and changes the newest record of a volume (`MetaRecord`).

A change appends a record. Of two concurrent changes one succeeds, and the other reads again. After
a damaged record, it appends a record without the damaged values: the owner and the time of creation
are taken from an earlier record; quota and rules are not, since they may have changed since.
Contents are not compressed, so that sizes reveal nothing. Not here: the meaning of the settings
(`saved_rules`, `quotas`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cowfs.base import clock, log
from cowfs.base.errors import ConflictError, CorruptError, UnsupportedFormatError
from cowfs.base.hints import Command
from cowfs.base.ids import WriteId
from cowfs.format import keys
from cowfs.format.records import MetaRecord
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.version.names import near_names
from cowfs.version.names.volumes import Head

COMPRESS = "compress"
TRIES = 8

_log = log.get("volumes")


def read(store: ObjectStore, volume: str) -> MetaRecord | None:
    """None: the volume has no record, which means no settings. Three requests."""
    try:
        found = refs.newest(store, refs.meta(volume))
    except CorruptError as error:
        error.set_hint(
            f"{Command('quota', volume, 'SIZE')} (none: no quota), Store().set_quota({volume!r}, …), makes a new record. Rules of "
            f"pruning must be saved again ({Command('prune', volume, '--save')}, Store().set_retention()). The volume's "
            "owner is lost unless an earlier record names it."
        )
        raise
    return None if found is None else found[1]


def check(store: ObjectStore, volume: str) -> None:
    """CorruptError: the newest record is damaged (details: key). A record of a newer cowfs is
    not."""
    with suppress(UnsupportedFormatError):
        refs.newest(store, refs.meta(volume))


def change(store: ObjectStore, volume: str, changed: Callable[[MetaRecord], MetaRecord]) -> None:
    """NotFoundError: no such volume. ConflictError: other changes keep getting in first."""
    head = near_names.read_head(store, volume)
    for _ in range(TRIES):
        is_damaged = False
        try:
            found = refs.newest(store, refs.meta(volume))
        except CorruptError as error:
            found, is_damaged = (_number(error), _rebuild(store, head)), True
        number, meta = found if found is not None else (0, MetaRecord("", head.created_ns, _write_id()))
        record = changed(meta)
        if record == meta and not is_damaged:
            return
        try:
            if found is None:  # the first record has no quota: a writer that sees no other does not read it
                refs.append(store, refs.meta(volume), refs.FIRST, meta)
            refs.append(store, refs.meta(volume), max(number, refs.FIRST) + 1, replace(record, write_id=_write_id()))
        except ConflictError:
            continue
        if is_damaged:
            _log.warning(
                "the record of volume %s was damaged: the new one has no quota and no rules of pruning but those given now, "
                "and contents are not compressed until `compress = true` is declared%s",
                volume,
                "" if record.owner else ", and no owner",
            )
        return
    raise ConflictError(
        f"another process changes the record of volume {volume!r} at the same time",
        hint="Nothing was saved. Try again later.",
    )


def _number(error: CorruptError) -> int:
    """The number of the damaged record."""
    return keys.parse_number(error.details["key"]) or 0


def _rebuild(store: ObjectStore, head: Head) -> MetaRecord:
    """A record without the values that the damaged record may have changed."""
    whole = refs.history(store, refs.meta(head.volume), tell=lambda _: None)
    earlier = whole[0][1] if whole else MetaRecord("", head.created_ns, _write_id())
    return MetaRecord(earlier.owner, earlier.created_ns, _write_id(), {COMPRESS: False}, origin=earlier.origin)


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
