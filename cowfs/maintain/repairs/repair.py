"""Restores damaged packs from blobs found elsewhere, without changing an address, an index or a
version.

    damage (`verify`) ─▶ plan: looks for each blob of each damaged pack (`blob_sources`)
                      ─▶ apply: new pack, read back ─▶ moved record of the old one ─▶ readers find it ─▶ new pack looked at

A moved record is complete, so a new pack gets all remaining blobs of the old one: those listed in
its directory or, if that is damaged, those that versions name. Rows of the previous record are kept
as well, because a writer may be about to name their blobs. Blobs that are found nowhere are left
out; a later repair with more sources writes the next record. Nothing is deleted: the damaged pack
stays, because other tools may read more of it, and is collected when nothing needs it.

Until the record exists, nothing names the new pack. A process that is suspended between the two for
longer than the minimum age of garbage may find the pack collected. So it is checked again after the
record, and written again if it is gone or on a list. A list that is made later belongs to a
collection that reads the record before it deletes.

The plan has read every blob from its source, and applying reads it again. If another process moves
the same pack at the same time (a collection, another repair), that one wins, and the pack is looked
at again. Memory: one pack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cache
from itertools import chain

from cowfs.base.errors import ConflictError, CorruptError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId
from cowfs.format import keys
from cowfs.format.pack import PackEntry, PackKind
from cowfs.format.records import MovedBlob
from cowfs.maintain.check.references import is_needed
from cowfs.maintain.check.verify import Damage
from cowfs.maintain.collect.moving import append_record, kind_of, put_blobs
from cowfs.maintain.repairs.blob_sources import BlobSource
from cowfs.maintain.repairs.repair_plan import PackRepair
from cowfs.store import ObjectStore, condemned
from cowfs.store.packs import earlier_moved_records, places_now
from cowfs.store.refs import refs
from cowfs.version.commit import Progress, ProgressListener

ATTEMPTS = 5


@dataclass
class _Found:
    """Blobs of one pack, each with its source."""

    kind: PackKind
    kept: list[tuple[PackEntry, BlobSource]] = field(default_factory=list)
    found: list[tuple[PackEntry, BlobSource]] = field(default_factory=list)
    lost: list[PackEntry] = field(default_factory=list)

    @property
    def all(self) -> list[tuple[PackEntry, BlobSource]]:
        return sorted([*self.kept, *self.found], key=lambda each: each[0].offset)


class Repair:
    """own: the damaged store's packs; sources: other places, in the order in which they are
    asked."""

    def __init__(self, store: ObjectStore, damage: Damage, own: BlobSource, sources: Sequence[BlobSource]) -> None:
        self._store = store
        self._damage = damage
        self._own = own
        self._sources = sources
        self._found: dict[PackId, _Found] = {}

    def plan(self, progress: ProgressListener) -> tuple[list[PackRepair], dict[str, int]]:
        counts: Counter[str] = Counter()
        packs = sorted(pack for pack in self._damage.packs if pack in self._damage.named)
        for done, pack in enumerate(packs):
            progress(Progress("look", done, len(packs)))
            self._found[pack] = found = self._look(pack)
            counts.update(source.title for _, source in found.found)
        return [self._describe(pack) for pack in packs], dict(counts)

    def apply(self, progress: ProgressListener) -> list[PackRepair]:
        done = []
        for number, pack in enumerate(self._found):
            progress(Progress("repair", number, len(self._found)))
            done.append(self._describe(pack, self._move(pack) if self._is_worth_it(pack) else None))
        return done

    def find_left(self) -> Damage:
        """The damage that remains when everything is applied."""
        lost = {
            pack: {entry.offset: entry for entry in found.lost} for pack, found in self._found.items() if found.lost
        }
        return Damage(self._damage.packs, self._damage.named, lost, purged=self._damage.purged)

    # -- looking

    def _look(self, pack: PackId) -> _Found:
        state, named = self._damage.packs[pack], self._damage.named[pack]
        purged = self._damage.purged
        listed = [entry for entry in state.directory or () if not purged.has(pack, entry.hash)]
        blobs = {entry.offset: entry for entry in listed} | named
        kind = state.kind or kind_of(next(iter(named.values())))
        found = _Found(kind)
        for offset in sorted(blobs):
            blob = blobs[offset]
            if self._own.read_stored(pack, blob) is not None:
                found.kept.append((blob, self._own))
                continue
            source = next((each for each in self._sources if each.read_stored(pack, blob) is not None), None)
            if source is not None:
                found.found.append((blob, source))
            elif offset in named and is_needed(blob):
                found.lost.append(blob)
        return found

    def _is_worth_it(self, pack: PackId) -> bool:
        """False if a new record would add nothing to the previous one."""
        found = self._found[pack]
        return bool(found.found or (found.kept and not self._is_told(pack)))

    def _is_told(self, pack: PackId) -> bool:
        """Whether a record gives places in packs that stay for all existing blobs. A repair that
        did not check its new pack again may have left one that a collection is about to delete."""
        if pack not in self._damage.moved:
            return False
        rows = self._read_record(pack)[1]
        offsets = {blob.offset for blob, _ in self._found[pack].kept}
        return offsets <= rows.keys() and all(map(self._stays, {rows[offset].new_pack for offset in offsets}))

    def _describe(self, pack: PackId, new_pack: PackId | None = None) -> PackRepair:
        found = self._found[pack]
        return PackRepair(
            pack=pack.hex(),
            key=keys.pack(pack),
            kind=found.kind.name.lower(),
            problem=self._damage.packs[pack].problem,
            blobs=len(found.all) + len(found.lost),
            kept_blobs=len(found.kept),
            found_blobs=len(found.found),
            lost_blobs=len(found.lost),
            is_moved=self._is_told(pack),
            new_pack=new_pack.hex() if new_pack is not None else None,
        )

    # -- moving

    def _move(self, pack: PackId) -> PackId:
        for _ in range(ATTEMPTS):
            number, kept = self._read_record(pack)
            blobs = put_blobs(self._store, self._found[pack].kind, self._read_blobs(pack))
            new = {blob.offset: blob for blob in blobs}
            try:
                append_record(self._store, pack, number, (kept | new).values())
            except ConflictError:  # that record may name the only remaining copy of a blob
                self._found[pack] = self._look(pack)
                continue
            if self._stays(blobs[0].new_pack):
                return blobs[0].new_pack
        raise ConflictError(
            f"pack {pack} of {self._store.url} is moved repeatedly by other processes", hint="Try again in a while."
        )

    def _read_record(self, pack: PackId) -> tuple[int, dict[int, MovedBlob]]:
        """The number of the newest moved record, 0 without one, and its rows whose packs exist."""
        newest = refs.newest(self._store, refs.moved(pack))
        if newest is None:
            return 0, {}
        number, record = newest
        is_there = cache(lambda home: self._store.size(keys.pack(home)) is not None)
        return number, places_now(chain([record], earlier_moved_records(self._store, pack, number)), is_there)

    def _stays(self, pack: PackId) -> bool:
        """Whether a new pack that a record names is safe. The lists are read first, then the pack
        is looked for, because the list of an ended collection no longer counts."""
        return pack not in condemned(self._store, 0)[1] and self._store.size(keys.pack(pack)) is not None

    def _read_blobs(self, pack: PackId) -> Iterator[tuple[PackEntry, bytes]]:
        for blob, source in self._found[pack].all:
            stored = source.read_stored(pack, blob)
            if stored is None:
                raise CorruptError(
                    f"the blob at {blob.offset} of pack {pack} was in {source.title}, and is no longer there",
                    hint="Nothing was changed for this pack. Plan again.",
                )
            yield blob, stored
