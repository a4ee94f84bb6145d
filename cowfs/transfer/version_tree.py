"""A version's files for a copy to this machine: read straight from its packs, without an engine or
a cache.

    large files     in ranges of RANGE_BYTES, AHEAD of them at once, yielded in order; one such file at a time
    small files     those announced by `expect` are fetched in batches of neighbours, ahead of their readers

Every chunk is checked against its hash before any of it is returned. Holes are not read. Any thread
may read; one thread lists and announces. Every announced file must be read, or it stays in memory
until `close`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from threading import Lock
from typing import TYPE_CHECKING

from blake3 import blake3

from cowfs.base import interruptible
from cowfs.base.errors import PurgedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import ChunkHash, PackId
from cowfs.base.thread_pool import Threads
from cowfs.format import codec
from cowfs.index import content_with_links
from cowfs.index.damage import damage_error
from cowfs.store.packs.read import ChunkRequest
from cowfs.transfer import same_content
from cowfs.transfer.linked import LinkedBytes, is_linked

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, Index, InodeRow
    from cowfs.store.packs import PackReader

THREADS = 8
AHEAD = 8
RANGE_BYTES = 8 << 20  # what `PackReader` fetches with one request
SMALL_BYTES = 256 << 10
BATCH_FILES = 64
BATCH_BYTES = 2 << 20

Pieces = list[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class VersionAttr:
    """The attributes that a copy keeps."""

    ino: int
    mode: int
    nlink: int
    size: int
    mtime_ns: int


class _Batch:
    """Small files that are fetched together."""

    def __init__(self) -> None:
        self.files: dict[bytes, int] = {}  # path → inode
        self.size_bytes = 0
        self.fetched: Future[dict[int, Pieces]] | None = None  # None: not requested yet


class VersionNames:
    """Names and attributes alone; folder: the directory of the version to which paths are
    relative."""

    def __init__(self, index: Index, folder: bytes = b"") -> None:
        self._index = index
        self._folder = folder

    def stat(self, path: bytes) -> VersionAttr:
        return _attr(self._row(path))

    def readlink(self, path: bytes) -> bytes:
        return self._row(path)[12]

    def _row(self, path: bytes) -> InodeRow:
        ino = self._index.find(self._folder + b"/" + path)
        if ino is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path or self._folder))
        row = self._index.inode(ino)
        if row is None:
            raise self._index.damage_error(f"{os.fsdecode(path)!r} has no inode {ino}")
        return row


class VersionTree(VersionNames):
    """folder: the directory of the version to which paths are relative; FileNotFoundError when it
    does not exist. Does not close index and packs."""

    def __init__(self, index: Index, packs: PackReader, folder: bytes = b"", linked: LinkedBytes | None = None) -> None:
        super().__init__(index, folder)
        self._linked = linked or LinkedBytes()
        self._packs = packs
        self._row(b"")
        self._threads = Threads(THREADS, name="cowfs-download")
        self._large = Lock()
        self._lock = Lock()  # guards what follows
        self._parents: dict[int, int] = {}  # of directories that were listed
        self._pack_ids: dict[int, PackId] = {}
        self._batch = _Batch()
        self._batches: dict[bytes, _Batch] = {}

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._linked.close()

    # -- looking

    def list(self, path: bytes) -> list[tuple[bytes, VersionAttr]]:
        """Sorted by name. CorruptError: one of the directories is in another directory as well, so
        a walk would visit it more than once, or never end."""
        row = self._row(path)
        if not stat.S_ISDIR(row[1]):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fsdecode(path))
        entries = self._index.directory(row[0])
        for name, each in entries:
            if stat.S_ISDIR(each[1]) and self._parents.setdefault(each[0], row[0]) != row[0]:
                raise damage_error(
                    self._index.blocks.title, f"directory {each[0]}, {os.fsdecode(name)!r}, has two names"
                )
        return [(name, _attr(each)) for name, each in entries]

    def content_id(self, path: bytes) -> str:
        """An id that is equal for files with the same bytes cut alike, in versions of any
        volume."""
        row = self._row(path)
        hasher = blake3(b"%d" % row[6])
        for each in self._extents(row[0]):
            hasher.update(b"%d %d %d " % (each[0], each[1], each[7]) + bytes(each[2]))
        return hasher.hexdigest()

    # -- reading

    def expect(self, path: bytes, attr: VersionAttr) -> None:
        """Announces that this file will be read."""
        if not 0 < attr.size <= SMALL_BYTES:
            return
        with self._lock:
            self._batches[path] = self._batch
            self._batch.files[path] = attr.ino
            self._batch.size_bytes += attr.size
            if len(self._batch.files) >= BATCH_FILES or self._batch.size_bytes >= BATCH_BYTES:
                self._send(self._batch)

    def pieces(self, path: bytes) -> Generator[tuple[int, bytes]]:
        """Yields (offset, bytes) of a file from its beginning; at the end its size, with no
        bytes."""
        row = self._row(path)
        if (batch := self._take_batch(path)) is not None and (fetched := _result_of(batch)) is not None:
            yield from fetched[row[0]]  # kept: another name of the file may need it, too
        else:
            extents = self._extents(row[0])
            if row[6] <= SMALL_BYTES:
                for group in self._groups(extents):
                    yield from self._fetch(*group)
            else:
                with self._large:
                    yield from self._ahead(extents)
        yield row[6], b""

    def missing(
        self, path: bytes, there: Callable[[int, int], bytes], kept: Callable[[int], None]
    ) -> Generator[tuple[int, bytes]]:
        """As `pieces` of a large file, without the chunks that the target has already: `there`
        reads (offset, length) of it, and each chunk is recognised by its name. kept is called with
        the length of each of them. Bytes of linked files, and chunks of which the file shows a
        part, cannot be recognised."""
        row = self._row(path)
        left = []
        for extent in self._extents(row[0]):
            if self._is_there(extent, there):
                kept(extent[1])
            else:
                left.append(extent)
        with self._large:
            yield from self._ahead(left)
        yield row[6], b""

    def is_content(self, path: bytes, fd: int) -> bool:
        """Whether the local file, which has the size of this one, also has its bytes. Fetches only
        chunks that cannot be recognised by name."""
        row = self._row(path)
        at = 0
        left = []
        for extent in self._extents(row[0]):
            interruptible.require_wanted()
            if not same_content.is_hole(fd, at, extent[0]):
                return False
            at = extent[0] + extent[1]
            if not _is_known(extent):
                left.append(extent)
            elif not self._is_there(extent, lambda offset, length: os.pread(fd, length, offset)):
                return False
        if not same_content.is_hole(fd, at, row[6]):
            return False
        if not left:
            return True  # without waiting for another thread that fetches a large file
        with self._large, closing(self._ahead(left)) as pieces:
            return all(same_content.has_bytes(fd, *piece) for piece in pieces)

    def _is_there(self, extent: ExtentRow, there: Callable[[int, int], bytes]) -> bool:
        if not _is_known(extent):
            return False
        found = there(extent[0], extent[1])
        return len(found) == extent[1] and self._packs.sealing.name(found) == bytes(extent[2])

    def _take_batch(self, path: bytes) -> _Batch | None:
        """Removes the file's announcement and returns its batch, which is being fetched."""
        with self._lock:
            batch = self._batches.pop(path, None)
            if batch is not None and batch.fetched is None:
                self._send(batch)
            return batch

    def _send(self, batch: _Batch) -> None:
        """Starts fetching a batch. Call with the lock held."""
        batch.fetched = self._threads.submit(self._fetch_batch, list(batch.files.values()))
        self._batch = _Batch()

    def _fetch_batch(self, inodes: Sequence[int]) -> dict[int, Pieces]:
        extents = {ino: self._extents(ino) for ino in set(inodes)}
        wanted: dict[int, dict[bytes, ChunkRequest]] = {}
        for rows in extents.values():
            for row in rows:
                wanted.setdefault(row[3], {})[bytes(row[2])] = _request(row)
        chunks: dict[bytes, bytes] = {}
        for number, requests in wanted.items():
            ordered = list(requests.values())
            chunks |= {bytes(ordered[at].hash): raw for at, raw in self._read_each(number, ordered)}
        return {ino: [(row[0], _clip(row, chunks[bytes(row[2])])) for row in rows] for ino, rows in extents.items()}

    def _ahead(self, extents: Sequence[ExtentRow]) -> Generator[tuple[int, bytes]]:
        waiting: deque[Future[Pieces]] = deque()
        try:
            for group in self._groups(extents):
                waiting.append(self._threads.submit(self._fetch, *group))
                if len(waiting) >= AHEAD:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _groups(self, extents: Iterable[ExtentRow]) -> Iterator[tuple[int, Sequence[ExtentRow]]]:
        """Groups extents that follow each other in one pack, up to RANGE_BYTES."""
        group: list[ExtentRow] = []
        size_bytes = 0
        for row in extents:
            if group and (row[3] != group[0][3] or size_bytes + row[5] > RANGE_BYTES):
                yield group[0][3], group
                group, size_bytes = [], 0
            group.append(row)
            size_bytes += row[5]
        if group:
            yield group[0][3], group

    def _fetch(self, number: int, rows: Sequence[ExtentRow]) -> Pieces:
        raws = dict(self._read_each(number, [_request(row) for row in rows]))
        return [(row[0], _clip(row, raws[at])) for at, row in enumerate(rows)]

    def _extents(self, ino: int) -> Sequence[ExtentRow]:
        return content_with_links(self._index, ino)[0]

    def _read_each(self, number: int, requests: Sequence[ChunkRequest]) -> Iterator[tuple[int, bytes]]:
        if is_linked(number):
            return self._linked.read_each(number, requests, self._index.link)
        return self._packs.read_each(self._pack(number), requests)

    def _pack(self, number: int) -> PackId:
        pack = self._pack_ids.get(number)
        if pack is None:
            pack = self._index.pack_id(number)
            if pack is None:
                raise self._index.damage_error(f"it names pack number {number} but has no pack of that number")
            self._pack_ids[number] = pack
        return pack


def _result_of(batch: _Batch) -> dict[int, Pieces] | None:
    """None: one of its files was purged, so each has to be read alone."""
    assert batch.fetched is not None
    try:
        return batch.fetched.result()
    except PurgedError:
        return None


def _attr(row: InodeRow) -> VersionAttr:
    return VersionAttr(row[0], row[1], row[2], row[6], row[9])


def _is_known(row: ExtentRow) -> bool:
    """Whether the chunk's name identifies the bytes that the file shows there."""
    return not is_linked(row[3]) and row[1] == row[6] and row[1] <= codec.MAX_RAW_BYTES


def _request(row: ExtentRow) -> ChunkRequest:
    return ChunkRequest(row[4], row[5], row[6], row[8], ChunkHash(row[2]))


def _clip(row: ExtentRow, raw: bytes) -> bytes:
    """The part of the chunk that the file shows."""
    return raw if row[1] == len(raw) else raw[row[7] : row[7] + row[1]]
