"""What a version needs of its store, and what must be kept: the marking half of the reference
collector."""

from __future__ import annotations

import stat
from pathlib import Path

from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.errors import NotFoundError
from cowfs.format import keys
from cowfs.format.records import HeadRecord, PinRecord
from cowfs.index import Index, open_index
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader
from cowfs.store.refs import refs
from cowfs.version.history import open_version

ROOT = 1

PinRecords = dict[str, PinRecord]


def line_of(store: ObjectStore, volume: str) -> list[tuple[int, HeadRecord]]:
    """Oldest first."""
    numbers = sorted(n for info in store.list(keys.head_prefix(volume)) if (n := keys.parse_number(info.key)))
    return [(number, refs.read(store, refs.head(volume), number)) for number in numbers]


def newest_version(store: ObjectStore, volume: str) -> VersionId | None:
    line = line_of(store, volume)
    return line[-1][1].version if line else None


def live_pins(store: ObjectStore, read: PinRecords) -> dict[WriteId, tuple[int, PinRecord, int]]:
    """(number, newest record, its modification time) of each pin that is not gone; dead ones too.

    read: records that were read before, by key; those that are read now are added.
    """
    found: dict[WriteId, tuple[int, PinRecord, int]] = {}
    for info in store.list(keys.PINS):
        if info.key == keys.PINS_SHOWN:
            continue
        parsed = keys.parse_pin(info.key)
        assert parsed is not None, info.key
        pin, number = parsed
        if pin not in found:  # the newest sorts first
            try:
                record = read.get(info.key) or PinRecord.decode(store.get(info.key), what=info.key)
            except NotFoundError:  # its owner has gone on or removed it since
                return live_pins(store, read)
            read[info.key] = record
            found[pin] = number, record, info.mtime_ns
    return found


def closure(store: ObjectStore, version: VersionId, cache_dir: Path) -> frozenset[str]:
    """Keys of everything a reader of the version may ask for; catalogues are savings and count
    too."""
    section = open_version(store, version).index
    packs = {use.pack for use in section.packs}
    packs |= {ref.pack for ref in section.segments} | {ref.pack for ref in section.catalogues}
    with open_index(store, PackReader(store), section, cache_dir=cache_dir / version.hex()) as index:
        packs |= _data_packs(index, ROOT, index.pack_ids())
    return frozenset({keys.version(version), *(keys.pack(pack) for pack in packs)})


def _data_packs(index: Index, directory: int, ids: dict[int, PackId]) -> set[PackId]:
    found: set[PackId] = set()
    for _, row in index.directory(directory):
        if stat.S_ISDIR(row[1]):
            found |= _data_packs(index, row[0], ids)
        else:
            found |= {ids[extent[3]] for extent in index.content(row[0])[0]}
    return found
