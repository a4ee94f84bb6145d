"""Which chunks the store has already, as far as this writer may rely on it: deduplication.

    where a chunk is looked up                                              what proves the hit
    chunks this writer uploaded and no catalogue names yet (`fresh`)        the uploader's own record
    chunks of the file's own history, noted while it is cut (`note`)        the base index
    catalogues: own base's first, then those of other volumes' heads        the full hash in the pack's directory

Deduplication is a saving, never a guarantee: a chunk that is not found is uploaded again. A candidate from a catalogue
counts only after the directory of its pack, read from the store, shows the full hash at that offset; so a hit also proves
that the pack was there. Packs named by `exclude` (condemned by a collection, or failed to read) never count.

Catalogues are loaded by a background thread within BUDGET_BYTES; `wait_loaded` is called before a commit looks anything
up, so that equal content is found from a machine that never saw it. Thread-safe: two threads that want to store the same
chunk at once store it once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from concurrent.futures import Future

from cowfs import log
from cowfs.errors import CorruptError, CowfsError, NotFoundError, UnsupportedFormatError
from cowfs.format.catalogue import (
    MAX_ENTRIES,
    Candidate,
    Catalogue,
    CatalogueEntry,
    CataloguePack,
    encode_catalogue,
)
from cowfs.format.manifest import CatalogueRef, IndexSection
from cowfs.format.pack import BlobKind
from cowfs.ids import ChunkHash, PackId
from cowfs.store import ObjectStore
from cowfs.store.packs import PackLocation, PackReader
from cowfs.version.history import open_version
from cowfs.version.volumes import find_head, volume_names

BUDGET_BYTES = 256 << 20  # of catalogues: about 16 M chunks, 8 TB of data
MAX_VOLUMES = 256
MERGED_AT = 16  # so many catalogues of a size become one in memory
MERGED_BOUNDS = (1 << 12, 1 << 16)
LOAD_WAIT_S = 10.0  # a commit does not wait longer for savings; the own catalogues come first. Guessed
MAX_DIRECTORIES = 512  # pack directories kept in memory

_log = log.get("known-chunks")


class KnownChunks:
    def __init__(self, store: ObjectStore, packs: PackReader, *, volume: str, section: IndexSection | None) -> None:
        self._store = store
        self._packs = packs
        self._volume = volume
        self._lock = threading.Lock()
        self._places: dict[ChunkHash, PackLocation] = {}
        self._placing: dict[ChunkHash, Future[PackLocation]] = {}  # while a thread finds or uploads the chunk
        self._fresh: dict[ChunkHash, PackLocation] = {}
        self._catalogues: list[Catalogue] = []  # replaced, never changed: looked through without a lock
        self._adding = threading.Lock()
        self._loaded: set[ChunkHash] = set()
        self._loaded_bytes = 0
        self._directories: OrderedDict[PackId, dict[ChunkHash, PackLocation]] = OrderedDict()
        self._excluded: set[PackId] = set()
        self._closing = threading.Event()
        self._loader = threading.Thread(target=self._load_all, args=(section,), name="cowfs-catalogues", daemon=True)
        self._loader.start()

    def wait_loaded(self) -> None:
        """Returns when the catalogues within the budget are in memory or have failed to come, or after LOAD_WAIT_S."""
        self._loader.join(LOAD_WAIT_S)

    def close(self) -> None:
        self._closing.set()
        self._loader.join()

    # -- storing a chunk

    def place(self, hash: ChunkHash, upload: Callable[[], PackLocation]) -> PackLocation:
        """Where the chunk lies, or will lie once the uploader is flushed; `upload` is called only if nobody knows it."""
        with self._lock:
            known = self._places.get(hash)
            if known is not None:
                return known
            mine: Future[PackLocation] = Future()
            place = self._placing.setdefault(hash, mine)
        if place is not mine:
            return place.result()
        try:
            location = self._find(hash)
            is_fresh = location is None
            if location is None:
                location = upload()
        except BaseException as error:
            with self._lock:
                del self._placing[hash]
            mine.set_exception(error)
            raise
        with self._lock:
            self._places[hash] = location
            if is_fresh:
                self._fresh[hash] = location
            del self._placing[hash]
        mine.set_result(location)
        return location

    def note(self, hash: ChunkHash, location: PackLocation) -> None:
        """A chunk the base index names."""
        with self._lock:
            if location.pack not in self._excluded:
                self._places.setdefault(hash, location)

    # -- what a commit adds

    def fresh_among(self, hashes: Iterable[ChunkHash]) -> dict[ChunkHash, PackLocation]:
        """Those of `hashes` that this writer uploaded and no catalogue names yet."""
        with self._lock:
            return {hash: self._fresh[hash] for hash in hashes if hash in self._fresh}

    def published(self, hashes: Iterable[ChunkHash], section: IndexSection) -> None:
        """A version whose catalogues name `hashes` is in the store: they are looked up there from now on."""
        refs = [ref for ref in section.catalogues if ref.hash not in self._loaded]
        self._load(refs)
        with self._lock:
            for hash in hashes:
                self._fresh.pop(hash, None)
            self._places = dict(self._fresh)

    def exclude(self, packs: Iterable[PackId]) -> None:
        """These packs never count again; chunks placed in them are forgotten."""
        with self._lock:
            self._excluded.update(packs)
            for hash, location in list(self._places.items()):
                if location.pack in self._excluded:
                    del self._places[hash]
                    self._fresh.pop(hash, None)

    def forget_unproven(self, durable: Container[PackId]) -> None:
        """After a failed upload: chunks placed in packs that are not in `durable` were never stored."""
        with self._lock:
            for hash, location in list(self._fresh.items()):
                if location.pack not in durable:
                    del self._fresh[hash]
                    self._places.pop(hash, None)

    # -- catalogues

    def _find(self, hash: ChunkHash) -> PackLocation | None:
        for catalogue in self._catalogues:
            for candidate in catalogue.lookup(hash):
                location = self._confirm(hash, candidate)
                if location is not None:
                    return location
        return None

    def _confirm(self, hash: ChunkHash, candidate: Candidate) -> PackLocation | None:
        pack = candidate.pack.pack
        with self._lock:
            if pack in self._excluded:
                return None
            directory = self._directories.get(pack)
            if directory is not None:
                self._directories.move_to_end(pack)
        if directory is None:
            directory = self._read_directory(candidate)
        return directory.get(hash)

    def _read_directory(self, candidate: Candidate) -> dict[ChunkHash, PackLocation]:
        pack = candidate.pack
        try:
            entries = self._packs.directory(
                pack.pack, directory_offset=pack.directory_offset, directory_length=pack.directory_length
            )
        except CowfsError as error:
            _log.warning("pack %s is left out of deduplication: %s", pack.pack, error)
            self.exclude([pack.pack])
            return {}
        directory = {
            entry.hash: PackLocation(pack.pack, entry.offset, entry.stored_length, entry.raw_length, entry.codec)
            for entry in entries
            if entry.blob_kind == BlobKind.CHUNK
        }
        with self._lock:
            self._directories[pack.pack] = directory
            while len(self._directories) > MAX_DIRECTORIES:
                self._directories.popitem(last=False)
        return directory

    def _load_all(self, own: IndexSection | None) -> None:
        if own is not None:
            self._load(own.catalogues)
        try:
            for name in volume_names(self._store, limit=MAX_VOLUMES):
                if self._closing.is_set() or self._loaded_bytes >= BUDGET_BYTES:
                    return
                self._load_head(name)
        except CowfsError as error:
            _log.info("other volumes are left out of deduplication: %s", error)

    def _load_head(self, name: str) -> None:
        if name == self._volume:
            return
        try:
            head = find_head(self._store, name)
            if head is not None and head.version is not None:
                self._load(open_version(self._store, head.version).index.catalogues)
        except (NotFoundError, CorruptError, UnsupportedFormatError) as error:  # its own trouble, not the next one's
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
            except CowfsError as error:
                _log.warning("a catalogue is left out of deduplication: %s", error)
                continue
            self._loaded.add(ref.hash)
            self._loaded_bytes += ref.raw_length
            self._add(catalogue)

    def _add(self, catalogue: Catalogue) -> None:
        """Keeps them few, since a new chunk is looked up in each: a store may have hundreds of volumes."""
        with self._adding:
            catalogues = [*self._catalogues, catalogue]
            for bound in MERGED_BOUNDS:
                small = [some for some in catalogues if len(some) <= bound]
                if len(small) >= MERGED_AT and sum(map(len, small)) <= MAX_ENTRIES:
                    catalogues = [*(some for some in catalogues if len(some) > bound), _merged(small)]
            self._catalogues = catalogues


def _merged(catalogues: Iterable[Catalogue]) -> Catalogue:
    packs: dict[CataloguePack, int] = {}
    entries = [
        CatalogueEntry(entry.prefix, packs.setdefault(catalogue.packs[entry.pack], len(packs)), entry.offset)
        for catalogue in catalogues
        for entry in catalogue.entries()
    ]
    return Catalogue.decode(encode_catalogue(list(packs), entries), what="a merged catalogue")
