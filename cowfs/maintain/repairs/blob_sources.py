"""Sources that may still have a lost blob, and how to get its stored bytes from them.

    the pack itself, or its new place         the intact blobs of it
    this machine's caches                     chunks and index blocks by name
    another store                             the same address (a mirror has it); else any pack that lists a blob of that name
    the same store                            another pack that lists a blob of that name
    a directory of files                      the places at which versions show the chunk: a copy, a download, an upload's source

Bytes from a source are compared with the blob's name before they are used, so any directory may be
tried. A chunk that every file shows only in part is found in no directory. Stores with different
keys have different names, and are not sources for each other.

Nothing is written here. Not thread-safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from cowfs.base import private_directories
from cowfs.base.errors import CorruptError, InvalidInputError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import ChunkHash, PackId
from cowfs.format import codec, keys
from cowfs.format.pack import PackEntry
from cowfs.format.sealing import Sealing
from cowfs.maintain.repairs.refit import make_stored_form
from cowfs.native.chunks import CachedChunks
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, read_moved_records
from cowfs.store.reliability.damaged import read_range_as
from cowfs.store.sealed import sealing_of

FilePlaces = Callable[[ChunkHash], Sequence[tuple[bytes, int]]]
"""Paths, and offsets in these files, at which a whole chunk is shown."""


class BlobSource(Protocol):
    @property
    def title(self) -> str: ...

    def read_stored(self, pack: PackId, blob: PackEntry) -> bytes | None:
        """The blob's stored bytes, verified, before they are sealed; None: not here."""
        ...


@dataclass(frozen=True)
class OwnPack:
    """Blobs readable through the address itself. store: the damaged one, or a mirror of it."""

    store: ObjectStore
    title: str

    def read_stored(self, pack: PackId, blob: PackEntry) -> bytes | None:
        with suppress(CorruptError, NotFoundError):
            return _read_at(self.store, pack, blob.offset, blob)
        with suppress(CorruptError, NotFoundError):
            for record in read_moved_records(self.store, pack):
                place = record.locate(blob.offset)
                if place is not None and place.stored_length == blob.stored_length:
                    with suppress(CorruptError, NotFoundError):
                        return _read_at(self.store, place.new_pack, place.new_offset, blob)
        return None


class CacheSource:
    """Chunks, and index blocks, whose files contain just their bytes (`index.cache` owns that
    format)."""

    title = "this machine's cache"

    def __init__(self, cache_dir: Path, sealing: Sealing) -> None:
        self._chunks = CachedChunks(private_directories.require_cache(cache_dir))
        self._blocks = cache_dir / "blocks"
        self._sealing = sealing

    def read_stored(self, pack: PackId, blob: PackEntry) -> bytes | None:
        raw = self._chunks.get(blob.hash, blob.raw_length)
        if raw is not None and (found := _refit(raw, blob, self._sealing)) is not None:
            return found
        name = blob.hash.hex()
        with suppress(OSError), (self._blocks / name[:2] / name).open("rb") as file:
            return _refit(file.read(blob.raw_length), blob, self._sealing)
        return None


class NamedBlobs:
    """Packs of a store that list a blob of the same name. The first request reads the directories
    of all packs: one or two requests a pack. wanted: names that may be asked for."""

    def __init__(self, store: ObjectStore, title: str, wanted: frozenset[ChunkHash], own: Sealing) -> None:
        self.title = title
        self._store = store
        self._wanted = wanted
        self._own = own
        self._places: Mapping[ChunkHash, Sequence[tuple[PackId, PackEntry]]] | None = None

    def read_stored(self, pack: PackId, blob: PackEntry) -> bytes | None:
        if self._places is None:
            self._places = self._find_all()
        for other, entry in self._places.get(blob.hash, ()):
            if (other, entry.offset) == (pack, blob.offset) or entry.raw_length != blob.raw_length:
                continue
            with suppress(CorruptError, NotFoundError):
                stored = _read_at(self._store, other, entry.offset, entry)
                if (entry.codec, entry.stored_length) == (blob.codec, blob.stored_length):
                    return stored
                raw = codec.decompress(stored, entry.codec, entry.raw_length, entry.hash, "a blob", name=self._own.name)
                if (found := _refit(raw, blob, self._own)) is not None:
                    return found
        return None

    def _find_all(self) -> dict[ChunkHash, list[tuple[PackId, PackEntry]]]:
        reader = PackReader(self._store)
        found: dict[ChunkHash, list[tuple[PackId, PackEntry]]] = {}
        for info in self._store.list(keys.PACKS):
            pack = keys.parse_pack(info.key)
            if pack is None:
                continue
            with suppress(CorruptError, NotFoundError):
                for entry in reader.directory(pack):
                    if entry.hash in self._wanted:
                        found.setdefault(entry.hash, []).append((pack, entry))
        return found


class FileSource:
    def __init__(self, directory: Path, places: FilePlaces, sealing: Sealing) -> None:
        self.title = str(directory)
        self._directory = os.fsencode(directory)
        self._places = places
        self._sealing = sealing

    def read_stored(self, pack: PackId, blob: PackEntry) -> bytes | None:
        for path, offset in self._places(blob.hash):
            with suppress(OSError), open(os.path.join(self._directory, path), "rb") as file:
                raw = os.pread(file.fileno(), blob.raw_length, offset)
                if (found := _refit(raw, blob, self._sealing)) is not None:
                    return found
        return None


def require_same_names(store: ObjectStore, other: ObjectStore) -> None:
    if sealing_of(store).name_key != sealing_of(other).name_key:
        raise InvalidInputError(
            f"{other.url} names its chunks differently than {store.url}, because it has a different key",
            hint=f"Download the version there ({Command('download', '--store', other.url)}), and give that directory.",
        )


def _read_at(store: ObjectStore, pack: PackId, offset: int, blob: PackEntry) -> bytes:
    sealing, what = sealing_of(store), f"the blob at {offset} of pack {pack}"

    def open_blob(sealed: bytes) -> bytes:
        stored = sealing.pack(pack).open(sealed, offset, blob.codec, blob.raw_length, what=what)
        codec.decompress(stored, blob.codec, blob.raw_length, blob.hash, what, name=sealing.name)
        return stored

    return read_range_as(store, keys.pack(pack), offset, blob.stored_length, open_blob)


def _refit(raw: bytes, blob: PackEntry, sealing: Sealing) -> bytes | None:
    if len(raw) != blob.raw_length or sealing.name(raw) != blob.hash:
        return None
    return make_stored_form(raw, blob.codec, blob.stored_length - sealing.blob_overhead_bytes)
