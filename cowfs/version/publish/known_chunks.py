"""Deduplication: finds chunks that the store has already, as far as this writer may rely on them.

    look-up                                                                 proof of a hit
    chunks this writer uploaded and no catalogue names yet (`fresh`)        the uploader's own record; after a restart the directory
    chunks of the file's own history, noted while it is cut (`note`)        the base index, and that the pack was read in this mount
    catalogues: own base's first, then those of other volumes' heads        the full hash in the pack's directory

Deduplication is a saving, never a guarantee: a chunk that is not found is uploaded again. A
candidate counts only after the directory of its pack, read from the store, shows the full hash at
that offset, or after a read from that pack, so that a hit also proves that the pack exists. The
directory of a pack that has moved is read at the new place of its blobs. A chunk never counts if a
collection has condemned it (`Protection`) in either place, if it could not be read (`PackReader`),
or if the directory of its pack could not be read: each look-up checks this, and `is_usable` checks
rows that were made earlier.

A background thread loads chunks uploaded before a restart, and catalogues, within BUDGET_BYTES. It
starts with `begin`, which a caller with something to store calls, since each other volume costs a
few requests. A commit calls `wait_loaded` before it looks anything up, so that equal content is
found on a machine that never saw it. Thread-safe: two threads that want to store the same chunk at
once store it once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from cowfs.base import clock, log
from cowfs.base.errors import (
    CorruptError,
    CowfsError,
    NotFoundError,
    PurgedError,
    UnavailableError,
    UnsupportedFormatError,
)
from cowfs.base.ids import ChunkHash, PackId
from cowfs.base.single_flight import Flights
from cowfs.format.catalogue import MAX_ENTRIES, Candidate, Catalogue, merge_catalogues, to_merge
from cowfs.format.manifest import CatalogueRef, IndexSection
from cowfs.format.pack import BlobKind, PackDirectory, PackEntry
from cowfs.native.chunks import ChunkPlaces, FileRows, SmallFiles
from cowfs.store import ObjectStore
from cowfs.store.packs import DirectoryCache, PackLocation, PackReader, PackReceipt
from cowfs.version.history import open_version
from cowfs.version.names.volumes import find_head, volume_names
from cowfs.version.publish.protection import Protection

BUDGET_BYTES = 128 << 20  # of catalogues: about 8 M chunks, 4 TB of data; with evict's budget it stays below 512 MB
MAX_VOLUMES = 256
LEFT_CHUNKS = 1 << 14  # remembered chunks that were uploaded early, then overwritten before a commit
LOAD_WAIT_S = 10.0  # a commit does not wait longer for savings. Guessed
FOREIGN_WAIT_S = 0.5  # for catalogues of other volumes, plus the time that uploading would take
FOREIGN_WAIT_BYTES_PER_S = 20 << 20
DIRECTORY_BYTES = 4 << 20  # pack directories kept in memory: 90,000 chunks
MAX_NOTED = 4096  # chunks of files' earlier content, and all chunks of the current file

_log = log.get("known-chunks")


class KnownChunks:
    """uploaded: packs of an earlier mount that no version names yet; those that still exist count
    as this writer's own."""

    def __init__(
        self,
        store: ObjectStore,
        packs: PackReader,
        protection: Protection,
        *,
        volume: str,
        section: IndexSection | None,
        uploaded: Sequence[PackReceipt] = (),
    ) -> None:
        self._store = store
        self._packs = packs
        self._protection = protection
        self._uploaded = uploaded
        self._volume = volume
        self._lock = threading.Lock()
        self._places = ChunkPlaces()
        self._placing: Flights[ChunkHash, PackLocation] = Flights(self._find_placed)
        self._noted: dict[ChunkHash, PackLocation] = {}
        self._catalogues: list[Catalogue] = []  # replaced, never changed: searched without a lock
        self._adding = threading.Lock()
        self._loaded: set[ChunkHash] = set()
        self._loaded_bytes = 0
        self._directories = DirectoryCache(packs, DIRECTORY_BYTES)
        self._missing: set[PackId] = set()  # packs whose directory could not be read
        self._unanswered: set[PackId] = set()  # of these, packs for which the store did not answer in time
        self._own_are_loaded = threading.Event()
        self._closing = threading.Event()
        self._own = section.catalogues if section is not None else ()
        self._has_begun, self._begun_s = False, 0.0
        self._has_ended = threading.Event()

    @property
    def is_loaded(self) -> bool:
        return self._has_ended.is_set()

    @property
    def is_ready(self) -> bool:
        """Whether the store's chunks are known, or were searched for as long as a commit would
        wait. Starts the search."""
        self.begin()
        return self.is_loaded or clock.monotonic_s() - self._begun_s > LOAD_WAIT_S

    def begin(self) -> None:
        """Starts loading the store's chunks, unless it has started. Returns at once."""
        with self._lock:
            if self._has_begun or self._closing.is_set():
                return
            self._has_begun, self._begun_s = True, clock.monotonic_s()
        threading.Thread(target=self._run, name="cowfs-catalogues", daemon=True).start()

    def wait_loaded(self, new_bytes: int = 0) -> None:
        """Waits for the catalogues within the budget, for its own at most LOAD_WAIT_S.

        It waits for those of other volumes no longer than storing new_bytes may take, which is the
        most that they can save.
        """
        self.begin()
        since_s = clock.monotonic_s()
        self._own_are_loaded.wait(LOAD_WAIT_S)
        left_s = LOAD_WAIT_S - (clock.monotonic_s() - since_s)
        self._has_ended.wait(max(min(left_s, FOREIGN_WAIT_S + new_bytes / FOREIGN_WAIT_BYTES_PER_S), 0.0))

    def wait_own_loaded(self) -> None:
        """Waits without limit: the saving may be most of an upload."""
        self.begin()
        self._own_are_loaded.wait()

    def close(self) -> None:
        with self._lock:
            self._closing.set()
            has_begun = self._has_begun
        if has_begun:
            self._has_ended.wait()

    # -- storing a chunk

    def place(self, hash: ChunkHash, upload: Callable[[], PackLocation]) -> PackLocation:
        """The place of the chunk, now or after the uploader was flushed; `upload` is called only if
        the chunk is not known."""
        return self._placing.load(hash, lambda: self._find_or_upload(hash, upload))

    def _find_or_upload(self, hash: ChunkHash, upload: Callable[[], PackLocation]) -> PackLocation:
        location = self._find(hash)
        is_fresh = location is None
        if location is None:
            location = upload()
        with self._lock:
            self._places.put(hash, _row(location), is_fresh)
        return location

    def _find_placed(self, hash: ChunkHash) -> PackLocation | None:
        """The place it had before, if that can still be relied on."""
        with self._lock:
            found = self._places.get(hash)
        if found is None or not self.is_usable(PackId(found[0]), hash):
            return None
        return PackLocation(PackId(found[0]), *found[1:])

    def find_small(self, files: SmallFiles) -> None:
        """Gives the files the places of known chunks; the others have to be stored. May send
        requests to the store."""
        with self._lock:
            files.look_up(self._places)
        suspects = self.suspects
        if suspects and (doubted := [pack for pack in files.packs() if pack in suspects]):
            files.doubt(doubted)
        with self._lock:
            noted = list(self._noted)
        for number, name in files.missing_in([each.searched for each in self._catalogues], noted):
            if (location := self.find(ChunkHash(name))) is not None:
                files.found(number, _row(location))

    def finish_small(self, files: SmallFiles, numbers: dict[bytes, int], rows: FileRows) -> None:
        """Remembers the places of all their chunks, and adds the files' rows."""
        with self._lock:
            files.finish(self._places, numbers, rows)

    def find(self, hash: ChunkHash) -> PackLocation | None:
        """The place of the chunk, if that can be relied on; None: it has to be stored. May send
        requests to the store."""
        return self._find_placed(hash) or self._find(hash)

    def may_know(self, hash: ChunkHash) -> bool:
        """Whether `place` has any candidate; no request."""
        with self._lock:
            if self._places.get(hash) is not None or hash in self._noted:
                return True
        return any(True for catalogue in self._catalogues for _ in catalogue.lookup(hash))

    def note(self, chunks: Iterable[tuple[ChunkHash, PackLocation]]) -> None:
        """Chunks of one file that the base index names. They count once their pack has been seen,
        and until many more are noted."""
        with self._lock:
            if len(self._noted) > MAX_NOTED:
                self._noted = {}
            self._noted.update(chunks)

    def is_usable(self, pack: PackId, hash: ChunkHash) -> bool:
        """Whether a new version may rely on an existing chunk."""
        condemned = self._protection.condemned
        return not (
            pack in condemned
            or pack in self._missing
            or self._packs.has_failed(pack, hash)
            or not condemned.isdisjoint(self._packs.homes(pack))
        )

    @property
    def suspects(self) -> frozenset[PackId]:
        """Packs with unusable chunks."""
        condemned = self._protection.condemned
        with self._lock:
            return condemned | self._packs.list_moved_into(condemned) | self._packs.failed_packs | self._missing

    # -- additions of a commit

    def name(self, contents: FileRows) -> Iterator[tuple[bytes, list[PackId], int]]:
        """The chunks of a version's new rows that this writer uploaded and no catalogue names yet,
        as catalogues list them: the entries of each, the packs that they number, the chunks' raw
        bytes."""
        with self._lock:
            self._places.name(contents)
        first = 0
        while (named := self._places.named(first, MAX_ENTRIES)) is not None:
            entries, packs, raw_bytes, first = named
            yield entries, list(map(PackId, packs)), raw_bytes

    def record_published(self, catalogues: Sequence[bytes], section: IndexSection) -> None:
        """Call it when a version with the chunks of the last `name` is in the store: from now on
        they are looked up in its catalogues.

        catalogues: those it added; older ones are loaded already, or were too many. No request.
        """
        if not self.is_loaded:
            before = {ref.hash for ref in self._own}
            self._loaded.update(ref.hash for ref in section.catalogues if ref.hash not in before)
        for data in catalogues:
            if self._loaded_bytes + len(data) <= BUDGET_BYTES:
                self._loaded_bytes += len(data)
                self._add(Catalogue.decode(data, what="the catalogue just published"))
        with self._lock:
            self._places.published(LEFT_CHUNKS)
            self._noted = {}

    def list_uploaded_packs(self) -> set[PackId]:
        """Packs with chunks that no version names yet; includes all packs of an earlier mount until
        the loader has read them."""
        are_resumed = self._own_are_loaded.is_set()  # read first: the loader may end right now
        with self._lock:
            found = set(map(PackId, self._places.fresh_packs()))
        return found if are_resumed else found | {receipt.pack for receipt in self._uploaded}

    def prove_again(self, missing: Iterable[PackId]) -> None:
        """Call it after the pin was dead for a while: packs seen before may be gone. missing: packs
        of this writer that are."""
        self._packs.forget_read()
        with self._lock:
            self._missing.update(missing)
            self._places.keep_fresh_in([pack for pack in self._places.fresh_packs() if pack not in self._missing])
            self._directories.clear()

    def forget_unproven(self, durable: Iterable[PackId]) -> None:
        """After a failed upload: chunks placed in packs outside of `durable` were never stored."""
        with self._lock:
            self._places.keep_fresh_in(list(durable))

    # -- catalogues

    def _find(self, hash: ChunkHash) -> PackLocation | None:
        noted = self._noted.get(hash)
        if noted is not None and not self.is_usable(noted.pack, hash):
            noted = None
        if noted is not None and self._packs.has_read(noted.pack):
            return noted
        for catalogue in self._catalogues:
            for candidate in catalogue.lookup(hash):
                location = self._confirm(hash, candidate)
                if location is not None:
                    return location
        return _locate(self._directory(noted.pack), noted.pack, noted.offset, hash) if noted is not None else None

    def _confirm(self, hash: ChunkHash, candidate: Candidate) -> PackLocation | None:
        pack = candidate.pack
        if not self.is_usable(pack.pack, hash):
            return None
        directory = self._directory(pack.pack, pack.directory_offset, pack.directory_length)
        return _locate(directory, pack.pack, candidate.offset, hash)

    def _directory(self, pack: PackId, offset: int | None = None, length: int | None = None) -> PackDirectory:
        """The directory of the pack, read from the store or remembered; empty if it cannot be
        read."""
        try:
            return self._directories.get(pack, offset=offset, length=length)
        except CowfsError as error:
            _log.warning("pack %s is left out of deduplication: %s", pack, error)
            with self._lock:
                self._missing.add(pack)
                if isinstance(error, UnavailableError):
                    self._unanswered.add(pack)
            return PackDirectory(b"")

    def _run(self) -> None:
        try:
            self._load_all()
        finally:
            self._has_ended.set()

    def _load_all(self) -> None:
        try:
            self.take_up(self._uploaded)
            self._load(self._own)
        finally:
            self._own_are_loaded.set()
        try:
            for name in volume_names(self._store, limit=MAX_VOLUMES):
                if self._closing.is_set() or self._loaded_bytes >= BUDGET_BYTES:
                    return
                self._load_head(name)
        except CowfsError as error:
            _log.info("other volumes are left out of deduplication: %s", error)

    def take_up(self, receipts: Sequence[PackReceipt]) -> None:
        """Packs that others have stored for this writer. An unreadable one is left out."""
        try:
            if receipts:
                self._protection.read_lists()  # before any look-up
        except CowfsError as error:
            _log.warning("packs that were uploaded are left out of deduplication: %s", error)
            return
        for receipt in receipts:
            if self._closing.is_set():
                return
            found = self._directory(receipt.pack, receipt.directory_offset, receipt.directory_length)
            if receipt.pack in self._unanswered:
                _log.warning("other packs that were uploaded are left out, too")
                return  # otherwise each of them would be waited for as long
            with self._lock:
                for entry in found:
                    if entry.blob_kind == BlobKind.CHUNK and self._places.get(entry.hash) is None:
                        self._places.put(entry.hash, _row(_to_location(receipt.pack, entry)), True)

    def _load_head(self, name: str) -> None:
        if name == self._volume:
            return
        try:
            head = find_head(self._store, name)
            if head is not None and head.version is not None:
                self._load(open_version(self._store, head.version).index.catalogues)
        except (NotFoundError, CorruptError, UnsupportedFormatError) as error:  # concerns this volume only
            _log.info("volume %s is left out of deduplication: %s", name, error)

    def _load(self, refs: Iterable[CatalogueRef]) -> None:
        for ref in refs:
            if ref.hash in self._loaded or self._closing.is_set():
                continue
            if self._loaded_bytes + ref.raw_length > BUDGET_BYTES:
                return
            try:
                data = self._packs.read(ref.pack, ref.offset, ref.stored_length, ref.raw_length, ref.codec, ref.hash)
                catalogue = Catalogue.decode(data, what=f"catalogue in pack {ref.pack}")
            except PurgedError as error:
                _log.debug("a catalogue is left out of deduplication: %s", error)
                continue
            except CowfsError as error:
                _log.warning("a catalogue is left out of deduplication: %s", error)
                continue
            self._loaded.add(ref.hash)
            self._loaded_bytes += ref.raw_length
            self._add(catalogue)

    def _add(self, catalogue: Catalogue) -> None:
        """Keeps the number of catalogues small, since a new chunk is looked up in each: a store may
        have hundreds of volumes."""
        with self._adding:
            catalogues = [*self._catalogues, catalogue]
            while parts := to_merge([len(each) for each in catalogues]):
                merged = merge_catalogues([catalogues[position] for position in parts])
                left = [each for position, each in enumerate(catalogues) if position not in parts]
                catalogues = [*left, Catalogue.decode(merged, what="a merged catalogue")]
            self._catalogues = catalogues


def _locate(directory: PackDirectory, pack: PackId, offset: int, hash: ChunkHash) -> PackLocation | None:
    """The place of the chunk, if the directory has this hash at the offset."""
    entry = directory.find_at(offset)
    if entry is None or entry.hash != hash or entry.blob_kind != BlobKind.CHUNK:
        return None
    return _to_location(pack, entry)


def _to_location(pack: PackId, entry: PackEntry) -> PackLocation:
    return PackLocation(pack, entry.offset, entry.stored_length, entry.raw_length, entry.codec)


def _row(location: PackLocation) -> tuple[bytes, int, int, int, int]:
    return location.pack, location.offset, location.stored_length, location.raw_length, location.codec
