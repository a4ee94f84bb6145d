"""The purged chunks of a store: bytes that a person took from its versions (`cowfs purge`).

A chunk is purged at the addresses that the records name. Equal bytes that are stored again later
lie at another address, and are no longer purged there. docs/format/purged.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cowfs.base.errors import PurgedError
from cowfs.base.hints import Command
from cowfs.base.ids import ChunkHash, PackId, VersionId
from cowfs.format import keys
from cowfs.format.records import PurgedRecord
from cowfs.store.contract import ObjectStore
from cowfs.store.refs import refs


class Purged:
    """records: all of a store. versions: those that were purged as a whole."""

    def __init__(self, records: Iterable[PurgedRecord] = ()) -> None:
        self.records = tuple(records)
        self._hashes = [frozenset(record.hashes) for record in self.records]
        self._by_pack: dict[PackId, list[int]] = {}
        for number, record in enumerate(self.records):
            for pack in record.packs:
                self._by_pack.setdefault(pack, []).append(number)
        self.versions = frozenset(version for record in self.records for version in record.versions)

    def __bool__(self) -> bool:
        return bool(self.records)

    @property
    def hashes(self) -> frozenset[ChunkHash]:
        """All that are purged at some address."""
        return frozenset[ChunkHash]().union(*self._hashes)

    @property
    def packs(self) -> frozenset[PackId]:
        """The packs with purged chunks. None of them may be in the store any more."""
        return frozenset(self._by_pack)

    def has(self, pack: PackId, hash: ChunkHash) -> bool:
        """Whether the chunk is purged at its address in this pack."""
        return any(hash in self._hashes[number] for number in self._by_pack.get(pack, ()))

    def names(self, hash: ChunkHash) -> bool:
        """Whether such a chunk is purged anywhere."""
        return any(hash in hashes for hashes in self._hashes)

    def hashes_in(self, pack: PackId) -> frozenset[ChunkHash]:
        """The hashes that are purged in the pack."""
        return frozenset[ChunkHash]().union(*(self._hashes[number] for number in self._by_pack.get(pack, ())))


NOTHING = Purged()


def load_purged(store: ObjectStore) -> Purged:
    """One list request for a store without such records. CorruptError: a record is damaged or
    missing."""
    if not store.list(keys.PURGED, limit=1):
        return NOTHING
    return Purged(record for _, record in refs.history(store, refs.purges()))


def require_unpurged(purged: Purged, version: VersionId | None, url: str) -> None:
    """PurgedError: the version was purged as a whole. A commit on top of it would share its index,
    and be lost with it."""
    if version in purged.versions:
        raise PurgedError(
            f"version {version} was purged from {url} as a whole, so nothing can be written on top of it",
            hint=f"{Command('fork', 'NAME@VERSION', 'NEW')} continues from an earlier version. Uncommitted work stays "
            "where it is; what can still be read can be copied.",
            details={"version": version.hex()},
        )


def append_purged(store: ObjectStore, records: Sequence[PurgedRecord]) -> None:
    """Appends the records in order; they are durable when it returns. ConflictError: another
    process appends, too."""
    newest = refs.newest(store, refs.purges())
    number = newest[0] if newest is not None else 0
    for place, record in enumerate(records, number + 1):
        refs.append(store, refs.purges(), place, record)
