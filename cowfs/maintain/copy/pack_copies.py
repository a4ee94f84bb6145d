"""Copies the packs of some versions to another store that names blobs alike, so addresses stay
valid.

    pack of the source              at the target
    ------------------------------------------------------------------------------------------------------------------
    there                           put under the same id, byte for byte; left alone if it exists with the same size
    gone or damaged, moved          the packs that now hold its blobs are copied, and so is its moved record; if one of them is
                                    damaged too, its readable blobs go to a new pack
    there, condemned at the target  a collection may delete it at any moment, and its id is never used again: its blobs go to a
    (or of another size there)      new pack, with a moved record
    collected or moved there        the target's record counts if it has every blob; else the same as above

    purged at the target            never put again: its other blobs go to a new pack, with a moved record
    purged at the source            what is left of it is copied

Each pack is checked before it is put, so that damage does not spread, and read back after. Only
packs that files or indexes of the versions name are copied. Threads: THREADS packs at a time, each
in memory.

At the end, every blob that the versions name in moved packs must exist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

from cowfs.base import clock
from cowfs.base.errors import ConflictError, CorruptError, NotFoundError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command, insert_store
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.base.thread_pool import Helpers
from cowfs.format import keys
from cowfs.format.manifest import Manifest
from cowfs.format.pack import PackEntry
from cowfs.format.records import MovedBlob
from cowfs.index import open_index
from cowfs.maintain.check.pack_check import Expected, PackState, read_pack
from cowfs.maintain.check.references import (
    find_references,
    index_packs,
    is_needed,
    one_of_data_packs,
    one_of_index_packs,
)
from cowfs.maintain.collect.moving import append_record, kind_of, put_blobs, require_kept
from cowfs.maintain.repairs.blob_sources import OwnPack
from cowfs.store import ObjectStore
from cowfs.store.packs import NOTHING, PackReader, append_purged, load_purged, places_now, read_moved_records
from cowfs.store.refs import refs
from cowfs.store.sealed import sealing_of

THREADS = 4
ATTEMPTS = 5
LOST_HINT = f"{Command('verify')} lists the broken paths, {Command('repair')} searches for the lost data."


@dataclass
class Copied:
    """packs, bytes: those that were put."""

    packs: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class CopiedPart:
    """packs: of the part, existing ones included. relied: as in `PackCopies.list_relied`."""

    packs: int
    copied: Copied
    relied: frozenset[PackId]


InParts = Callable[[Sequence[Expected], Set[PackId], Set[PackId]], Iterator[CopiedPart]]


class PackCopies:
    """heard: called after each pack with (packs done, packs in all, bytes put), by several threads
    in turn. in_parts: copies packs elsewhere, in any order, heeding the condemned and collected
    ones."""

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        cache_dir: Path,
        heard: Callable[[int, int, int], None],
        *,
        in_parts: InParts | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._cache_dir = cache_dir
        self._reader = PackReader(source)
        self._heard = heard
        self._in_parts = in_parts
        self._lock = threading.RLock()  # guards what follows
        self.copied = Copied()
        self._condemned: frozenset[PackId] = frozenset()
        self._collected: Set[PackId] = frozenset()  # packs whose moved records are or were collected
        self._sizes: dict[PackId, int] = {}  # of the target
        self._manifests: Sequence[Manifest] = ()
        self._purged = self._purged_there = NOTHING  # of source and target
        self._named: dict[PackId, PackEntry] = {}  # one blob of each pack that versions name
        self._moved: set[PackId] = set()  # packs of the target that have moved records
        self._relied: set[PackId] = set()

    def list_relied(self) -> frozenset[PackId]:
        """Packs that must exist at the target when a head names the versions."""
        with self._lock:
            return frozenset(self._relied)

    def find_needed(self, manifests: Sequence[Manifest]) -> set[PackId]:
        """The packs that the versions name. `copy` then checks that all named blobs exist."""
        self._manifests = manifests
        found: set[PackId] = set()
        for manifest in manifests:
            found |= index_packs(manifest.index)
            of_index = one_of_index_packs(self._reader, manifest.index, self._cache_dir, self._named.keys())
            self.expect(of_index.items())
            with open_index(self._source, self._reader, manifest.index, cache_dir=self._cache_dir) as index:
                of_data = one_of_data_packs(index)
            found |= of_data.keys()
            self.expect(of_data.items())
        return found

    def expect(self, packs: Iterable[Expected]) -> None:
        """Records one named blob of each pack to identify it: another pack under its key is not
        copied."""
        self._named |= {pack: named for pack, named in packs if named is not None}

    def copy_purged(self, packs: Set[PackId], versions: Set[VersionId]) -> None:
        """Records at the target what was purged at the source of these packs and versions. What the
        target has stays there as it is."""
        purged, there = load_purged(self._source), load_purged(self._target)
        self._look_at_target()
        if not versions.isdisjoint(purged.versions):  # their indexes do not say any more what they named
            packs = packs | purged.packs
        records = []
        for record in purged.records:
            lacking = [
                pack
                for pack in sorted(packs & frozenset(record.packs))
                if not (pack in self._sizes or pack in self._moved or there.hashes_in(pack).issuperset(record.hashes))
            ]
            gone = [
                version
                for version in sorted((versions & frozenset(record.versions)) - there.versions)
                if self._target.size(keys.version(version)) is None
            ]
            if lacking or gone:
                hashes = record.hashes if lacking else ()
                id = WriteId(clock.random_bytes(WriteId.length))
                records.append(replace(record, write_id=id, hashes=hashes, packs=tuple(lacking), versions=tuple(gone)))
        append_purged(self._target, records)

    def copy(self, packs: Iterable[PackId], condemned: frozenset[PackId], collected: Set[PackId]) -> None:
        """Returns when all packs can be read at the target. CorruptError: one is damaged, or gone,
        at the source. May be repeated with more condemned ones. collected: as for
        `load_collected_records`."""
        self._condemned, self._collected = condemned, collected
        self._look_at_target()
        wanted = sorted(packs)
        if self._in_parts is not None:
            self._copy_in_parts(self._in_parts, wanted)
        else:
            self._copy_here(wanted)
        self._require_named(frozenset(wanted) - self.list_relied())

    def _copy_here(self, wanted: Sequence[PackId]) -> None:
        done = 0

        def copy(pack: PackId) -> None:
            nonlocal done
            self._copy(pack)
            with self._lock:
                done += 1
                self._heard(done, len(wanted), self.copied.bytes)

        with Helpers(THREADS, name="cowfs-push") as threads:
            for outcome in [threads.submit(copy, pack) for pack in wanted]:
                outcome.result()

    def _copy_in_parts(self, in_parts: InParts, wanted: Sequence[PackId]) -> None:
        done = 0
        for part in in_parts([(pack, self._named.get(pack)) for pack in wanted], self._condemned, self._collected):
            done += part.packs
            self.copied.packs += part.copied.packs
            self.copied.bytes += part.copied.bytes
            self._rely(*part.relied)
            self._heard(done, len(wanted), self.copied.bytes)

    def _require_named(self, moved: Collection[PackId]) -> None:
        """Checks that the target has every blob that the versions name in packs that moved. A moved
        record of the source lists only the remaining blobs of a pack, and damage may have lost
        some."""
        if not moved or not self._manifests:
            return
        named = find_references(self._source, self._reader, self._manifests, moved, self._cache_dir, strict=True)
        for pack, entries in named.items():
            known = places_now(
                read_moved_records(self._target, pack), lambda home: home in self._relied or self._stays(home)
            )
            needed = [entry for entry in entries.values() if is_needed(entry) and not self._is_purged(pack, entry)]
            lost = [entry for entry in needed if entry.offset not in known]
            if lost:
                raise CorruptError(
                    f"pack {pack} of {self._source.url} is damaged: {len(lost)} of {len(entries)} blobs that are "
                    "needed there are lost",
                    hint=insert_store(LOST_HINT, self._source.url),
                    details={"pack": pack.hex()},
                )
            self._rely(*{place.new_pack for offset, place in known.items() if offset in entries})

    def _look_at_target(self) -> None:
        self._purged, self._purged_there = load_purged(self._source), load_purged(self._target)
        self._sizes, self._moved, self._relied = {}, set(), set()
        for info in self._target.list(keys.PACKS):
            if (pack := keys.parse_pack(info.key)) is not None:
                self._sizes[pack] = info.size
            elif (moved := keys.parse_moved(info.key)) is not None:
                self._moved.add(moved)

    # -- one pack

    def _copy(self, pack: PackId) -> None:
        size = self._source.size(keys.pack(pack))
        if pack in self._purged_there.packs:
            self._copy_rest(pack)
            return
        if self._is_there(pack, size):
            self._rely(pack)
            return
        if pack in self._moved and self._is_moved_whole(pack):
            return
        state, data = self._read(pack)
        if state is None:
            self._copy_moved(pack)
        elif pack not in self._sizes and pack not in self._moved and pack not in self._condemned:
            self._put(pack, data)
        else:
            self._relocate(pack, state, data)

    def _is_there(self, pack: PackId, size: int | None) -> bool:
        there = self._sizes.get(pack)
        return there is not None and pack not in self._condemned and size in (there, None)

    def _is_moved_whole(self, pack: PackId) -> bool:
        """Whether the target has every blob of the pack in packs that stay."""
        try:
            directory = self._reader.directory(pack)
        except (CorruptError, NotFoundError):
            return False
        known = places_now(read_moved_records(self._target, pack), self._stays)
        needed = [entry for entry in directory if not self._is_purged(pack, entry)]
        if not all(entry.offset in known for entry in needed):
            return False
        self._rely(*{known[entry.offset].new_pack for entry in needed})
        return True

    def _is_purged(self, pack: PackId, blob: PackEntry) -> bool:
        return self._purged.has(pack, blob.hash) or self._purged_there.has(pack, blob.hash)

    def _copy_rest(self, pack: PackId) -> None:
        """A pack of which the target has purged something: its id is never used again there."""
        if pack in self._moved and self._is_moved_whole(pack):
            return
        try:
            offsets = {entry.offset for entry in self._reader.directory(pack)}
        except NotFoundError:  # nothing of it is left here either
            return
        if blobs := self._copy_blobs(pack, offsets):
            self._add_record(pack, blobs)

    def _stays(self, pack: PackId) -> bool:
        return pack in self._sizes and pack not in self._condemned

    def _read(self, pack: PackId) -> tuple[PackState | None, bytes]:
        """Reads and checks the pack. None: it is damaged or gone."""
        state, data = read_pack(self._source, pack, self._named.get(pack))
        return (None, b"") if state.problem else (state, data)

    def _put(self, pack: PackId, data: bytes) -> None:
        self._target.put(keys.pack(pack), data)
        hit("push-after-pack")
        require_kept(self._target, pack)
        self._count(len(data))
        self._rely(pack)

    def _copy_moved(self, pack: PackId) -> None:
        records = read_moved_records(self._source, pack)
        if (newest := next(records, None)) is None:
            if pack in self._purged.packs:  # nothing of it is left
                return
            raise CorruptError(
                f"pack {pack} of {self._source.url} is damaged or gone",
                hint=insert_store(LOST_HINT, self._source.url),
                details={"pack": pack.hex()},
            )
        blobs = places_now(chain([newest], records), cache(self._copy_home))
        left = {blob.offset for blob in newest.blobs} - blobs.keys()
        every = [*blobs.values(), *self._copy_blobs(pack, left)]
        if every:
            self._add_record(pack, every)

    def _copy_home(self, home: PackId) -> bool:
        """False: the pack is damaged or gone, or cannot be put under its id."""
        size = self._source.size(keys.pack(home))
        if self._is_there(home, size):
            self._rely(home)
            return True
        if size is None or home in self._sizes or home in self._condemned:
            return False
        state, data = self._read(home)
        if state is None or any(self._purged_there.names(entry.hash) for entry in state.directory or ()):
            return False
        self._put(home, data)
        return True

    def _copy_blobs(self, pack: PackId, offsets: Set[int]) -> Sequence[MovedBlob]:
        """Copies the blobs that can still be read anywhere at the source to a new pack: of two
        damaged packs each may have what the other lacks."""
        own = OwnPack(self._source, self._source.url)
        try:
            directory = self._reader.directory(pack) if offsets else ()
        except (CorruptError, NotFoundError):
            return ()
        wanted = [each for each in directory if each.offset in offsets and not self._is_purged(pack, each)]
        read = [(entry, own.read_stored(pack, entry)) for entry in wanted]
        found = [(entry, stored) for entry, stored in read if stored is not None]
        if not found:
            return ()
        self._count(sum(len(stored) for _, stored in found))
        return put_blobs(self._target, kind_of(found[0][0]), found)

    def _relocate(self, pack: PackId, state: PackState, data: bytes) -> None:
        assert state.directory is not None
        assert state.kind is not None
        sealing = sealing_of(self._source).pack(pack)

        def unseal(entry: PackEntry) -> bytes:
            sealed = data[entry.offset : entry.offset + entry.stored_length]
            return sealing.open(sealed, entry.offset, entry.codec, entry.raw_length, what=f"pack {pack}")

        moved = put_blobs(self._target, state.kind, ((entry, unseal(entry)) for entry in state.directory))
        self._count(len(data))
        self._add_record(pack, moved)

    def _add_record(self, pack: PackId, blobs: Iterable[MovedBlob]) -> None:
        """Appends a moved record. Rows for blobs that only the target's record has are kept: no
        pushed version needs them."""
        own = {blob.offset: blob for blob in blobs}
        for _ in range(ATTEMPTS):
            known = refs.newest(self._target, refs.moved(pack))
            before = {blob.offset: blob for blob in known[1].blobs} if known is not None else {}
            every = before | own
            if known is None and pack in self._collected:
                raise ConflictError(
                    f"pack {pack.hex()[:12]} was relocated at {self._target.url}, and its new pack is being collected, "
                    "or was collected less than an hour ago",
                    hint="Push again in an hour: until then a late request of that collection could delete the "
                    "record of its new place.",
                )
            if known is None or before != every:
                try:
                    append_record(self._target, pack, known[0] if known is not None else 0, every.values())
                except ConflictError:
                    continue
            self._rely(*{blob.new_pack for blob in own.values()})
            return
        raise ConflictError(
            f"pack {pack} of {self._target.url} is moved repeatedly by other processes", hint="Try again later."
        )

    def _count(self, size: int) -> None:
        with self._lock:
            self.copied.packs += 1
            self.copied.bytes += size

    def _rely(self, *packs: PackId) -> None:
        with self._lock:
            self._relied.update(packs)
