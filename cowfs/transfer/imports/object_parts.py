"""Lets workers read, cut and store the objects of an import: in another process, or on another
machine.

    importer: wanted objects ─▶ worker: store_objects puts packs ─▶ importer: take_up records packs and objects
                                                                          ─▶ the import reads the rest

A worker has neither lease nor pin, and looks nothing up: it puts packs, and reports the chunks of
each object. The importer treats these as packs that the volume's writer has uploaded, and as
objects that a killed import has read (`import_log`): the pin names the packs, each is looked for,
and an object is read again if a chunk of it cannot be relied on. Objects that no worker has stored
(it has no state, it was replaced since, or it is gone) are left to the import.

The packs of a worker that dies are not referenced; a collection deletes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash, PackId
from cowfs.base.single_flight import Flights
from cowfs.base.thread_pool import Helpers
from cowfs.format.pack import PackKind
from cowfs.store.origin import Origin, OriginObject
from cowfs.store.packs import PackLocation, PackReceipt, PackUploader
from cowfs.transfer.imports.import_log import ImportLog, Part
from cowfs.transfer.imports.object_tree import FILE_MODE, RANGE_THREADS, STATE, ObjectAttr, ObjectFile, ObjectTree
from cowfs.transfer.upload.upload_reading import Count, FileReader, Stopped
from cowfs.version.publish.contents import ContentStorer

if TYPE_CHECKING:
    from cowfs.format.codec import Blob
    from cowfs.index import ExtentRow
    from cowfs.store import ObjectStore
    from cowfs.transfer.source_files import SourceExtent
    from cowfs.transfer.upload.upload_reading import Rows
    from cowfs.version.publish.publisher import Publisher

THREADS = 8
"""Objects that a worker reads at once."""
PART_BYTES = 256 << 20
PART_OBJECTS = 1024

Found = tuple[OriginObject, tuple[Part, ...]]
StoreParts = Callable[[Sequence[tuple[OriginObject, ...]], Callable[[], bool], bool], Iterator["StoredPart"]]
"""Has each part stored, in any order, until the callback reports the end; compressed or not."""


@dataclass(frozen=True)
class StoredPart:
    """Packs that are durable, and the objects whose chunks are in them."""

    receipts: tuple[PackReceipt, ...]
    objects: tuple[Found, ...]


# -- in a worker


def store_objects(store: ObjectStore, origin: Origin, objects: Sequence[OriginObject], *, compress: bool) -> StoredPart:
    """compress: as set for the volume. If storing raises, nothing of the part counts."""
    found = _Found()
    stop = threading.Event()
    with (
        closing(_Chunks(store, compress)) as chunks,
        Helpers(RANGE_THREADS, name="cowfs-range") as ranges,
    ):
        reader = FileReader(chunks, lambda ino: (), _Objects(origin, objects, ranges), stop, Count(None), found)
        with Helpers(THREADS, name="cowfs-read") as threads:
            reads = [
                threads.submit(reader.read, b"%d" % at, ObjectAttr(FILE_MODE, each.size, each.mtime_ns), None)
                for at, each in enumerate(objects)
            ]
            try:
                for read in reads:
                    read.result()
            except BaseException:
                stop.set()
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        return StoredPart(tuple(chunks.flush()), tuple(found.objects))


class _Objects:
    """The objects as files, by their index."""

    def __init__(self, origin: Origin, objects: Sequence[OriginObject], threads: Helpers) -> None:
        self._origin = origin
        self._objects = objects
        self._threads = threads

    def open_file(self, path: bytes) -> ObjectFile:
        return ObjectFile(self._origin, self._objects[int(path)], self._threads)


class _Found:
    """Collects the results in place of an `ImportLog`."""

    def __init__(self) -> None:
        self.objects: list[Found] = []
        self._lock = threading.Lock()

    def find(self, found: OriginObject) -> None:
        return None

    def append(self, found: OriginObject, rows: Sequence[ExtentRow]) -> None:
        with self._lock:
            self.objects.append((found, tuple((row[0], row[1], ChunkHash(row[2])) for row in rows)))


class _Chunks:
    """As `StoredChunks`, for a worker without a volume."""

    name_key = None

    def __init__(self, store: ObjectStore, compress: bool) -> None:
        self.compresses = compress
        self._uploader = PackUploader(store, PackKind.DATA, compress=compress)
        self._storer = ContentStorer(_Placed(), _NoNumbers(), self._uploader.sealing)

    def rows(
        self, extents: Sequence[SourceExtent], read: Callable[[SourceExtent, int, int], bytes], earlier: Rows
    ) -> list[ExtentRow]:
        return self._storer.rows(extents, read, self._uploader)

    def blob_rows(self, blob: Blob, length: int, earlier: Rows) -> list[ExtentRow]:
        return self._storer.blob_rows(blob, length, self._uploader)

    def file_rows(
        self, ranges: Iterable[tuple[int, int]], read_into: Callable[[int, memoryview], None], earlier: Rows
    ) -> list[ExtentRow]:
        return self._storer.file_rows(ranges, read_into, self._uploader)

    def find_rows(self, parts: Iterable[Part]) -> None:
        return None

    def flush(self) -> list[PackReceipt]:
        return self._uploader.flush()

    def close(self) -> None:
        self._storer.close()
        self._uploader.close()


class _Placed:
    """The chunks of this part: each is stored once."""

    def __init__(self) -> None:
        self._places: dict[ChunkHash, PackLocation] = {}
        self._placing: Flights[ChunkHash, PackLocation] = Flights(self._places.get)

    def place(self, hash: ChunkHash, upload: Callable[[], PackLocation]) -> PackLocation:
        def place_chunk() -> PackLocation:
            self._places[hash] = upload()
            return self._places[hash]

        return self._placing.load(hash, place_chunk)

    def find(self, hash: ChunkHash) -> PackLocation | None:
        return self._places.get(hash)

    def may_know(self, hash: ChunkHash) -> bool:
        return hash in self._places

    def note(self, chunks: Iterable[tuple[ChunkHash, PackLocation]]) -> None:
        """Does nothing: only chunks stored here are known."""


class _NoNumbers:
    """Returns no pack numbers: the importer assigns them."""

    def id(self, number: int) -> PackId:
        raise AssertionError("no chunk is known by a number")

    def number(self, pack: PackId) -> int:
        return 0


# -- in the importer


class ObjectParts:
    """The objects that workers store before the import reads anything itself. excluded: as in
    `UploadPlan`."""

    def __init__(
        self, tree: ObjectTree, done: ImportLog, excluded: Callable[[bytes], bool], store_parts: StoreParts
    ) -> None:
        self._tree = tree
        self._done = done
        self._excluded = excluded
        self._store_parts = store_parts

    def prepare(self, publisher: Publisher, stop: threading.Event) -> None:
        """Has the workers store the objects, and records the results in the log. As
        `UploadPlan.prepare`."""
        publisher.chunks.wait_for_uploads()
        wanted = [
            found
            for path, found in self._tree.objects()
            if found.size and found.state and not self._is_left_out(path) and not self._is_there(publisher, path, found)
        ]
        for part in self._store_parts(cut(wanted), stop.is_set, publisher.chunks.compresses):
            publisher.chunks.take_up(part.receipts)
            for found, parts in part.objects:
                self._done.take_up(found, parts)
        if stop.is_set():
            raise Stopped

    def _is_left_out(self, path: bytes) -> bool:
        names = path.split(b"/")
        above = (b"/".join(names[:count]) + b"/" for count in range(1, len(names)))
        return self._excluded(path) or any(self._excluded(directory) for directory in above)

    def _is_there(self, publisher: Publisher, path: bytes, found: OriginObject) -> bool:
        """Whether the object is in the volume, or was stored by a killed import."""
        if (parts := self._done.find(found)) is not None and publisher.chunks.find_rows(parts) is not None:
            return True
        ino = publisher.index.find(path)
        return ino is not None and (STATE, found.state.encode()) in publisher.index.read_stored_content(ino)[1]


def cut(objects: Sequence[OriginObject]) -> list[tuple[OriginObject, ...]]:
    """Cuts the objects into parts of about PART_BYTES, and at most PART_OBJECTS."""
    parts: list[list[OriginObject]] = []
    size = PART_BYTES
    for found in objects:
        if size >= PART_BYTES or len(parts[-1]) == PART_OBJECTS:
            parts.append([])
            size = 0
        parts[-1].append(found)
        size += found.size
    return [tuple(part) for part in parts]
