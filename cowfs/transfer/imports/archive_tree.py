"""An archive as the source of an import: one pass stores its contents, then it is a tree of stored
files.

    archive ─▶ members in its order ─▶ names (`archive_names`)
                         │
                         └─▶ contents: small files by a few threads, large ones as they come ─▶ packs

`prepare` makes the pass, before the upload walks the tree (`UploadPlan.prepare`). It succeeds only
if the archive was valid to its last byte, so nothing is published from a damaged one. Data stored
until then is in no version, and a later import reuses it. Nothing is unpacked to the local disk,
and at most WAITING_BYTES of small files and the buffers of one large file are in memory.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import field
from threading import Event
from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.base.errors import CorruptError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.thread_pool import Helpers
from cowfs.store.origin.archive import Archive, Damaged, Member
from cowfs.transfer.imports.archive_names import ArchiveAttr, ArchiveNames
from cowfs.transfer.source_files import SourceExtent
from cowfs.transfer.upload.upload_reading import LARGE_BYTES, REPORT_S, Chunks, ReadFile, Stopped
from cowfs.version.commit import Progress, ProgressListener

if TYPE_CHECKING:
    from cowfs.version.publish.publisher import Publisher

THREADS = 4
BATCH_FILES = 32
BATCH_BYTES = 1 << 20
WAITING_BYTES = 32 << 20


class ArchiveTree:
    """root, excluded: as for `ArchiveNames`. progress: receives how much of the archive was
    read."""

    def __init__(
        self,
        archive: Archive,
        root: bytes,
        excluded: Callable[[bytes], bool],
        progress: ProgressListener | None = None,
    ) -> None:
        self._archive = archive
        self._root = root
        self._excluded = excluded
        self._progress = progress
        self._names = self._no_names()

    def close(self) -> None:
        self._archive.close()

    def foresee(self) -> None:
        """Raises the errors that are known before the archive is read."""
        names, seen = self._no_names(), _Seen()
        with self._blame_archive(seen):
            for seen.last in self._archive.foresee():
                names.add(seen.last)
        if seen.last is None:
            raise self._nothing()

    def prepare(self, publisher: Publisher, stop: Event) -> None:
        """As `UploadPlan.prepare`."""
        publisher.chunks.wait_for_uploads()
        names, seen = self._no_names(), _Seen()
        with Helpers(THREADS, name="cowfs-read") as helpers, self._blame_archive(seen):
            storing = _Storing(publisher.chunks, helpers, stop)
            try:
                for seen.last in self._archive.members():
                    attr = names.add(seen.last)
                    if attr is not None:
                        storing.put(seen.last, attr)
                    else:
                        storing.pass_over(seen.last)
                    seen.count += 1
                    self._tell(seen)
                storing.finish()
            except BaseException:
                helpers.shutdown(wait=False, cancel_futures=True)
                raise
        if names.is_empty:
            raise self._nothing()
        self._names = names

    # -- the tree

    def stat(self, path: bytes) -> ArchiveAttr:
        return self._names.stat(path)

    def list(self, path: bytes) -> list[tuple[bytes, ArchiveAttr]]:
        return self._names.list(path)

    def readlink(self, path: bytes) -> bytes:
        return self._names.stat(path).target

    def open_file(self, path: bytes) -> ReadFile:
        raise AssertionError(f"{os.fsdecode(path)} is stored already")

    # -- the pass

    def _no_names(self) -> ArchiveNames:
        return ArchiveNames(self._archive.url, self._root, self._excluded)

    def _tell(self, seen: _Seen) -> None:
        if self._progress is not None and (now_s := clock.monotonic_s()) - seen.told_s >= REPORT_S:
            seen.told_s = now_s
            self._progress(Progress("archive", seen.count, 0, self._archive.tell(), self._archive.size))

    @contextmanager
    def _blame_archive(self, seen: _Seen) -> Iterator[None]:
        try:
            yield
        except Damaged as damage:
            name = os.fsdecode(seen.last.path) if seen.last is not None else ""
            where = f", at {name!r} or after it" if name else ""
            raise CorruptError(
                f"{self._archive.url} is damaged{where}: {damage}",
                hint="Get it again from its source. No version was made of it.",
                details={"url": self._archive.url, "member": name},
            ) from damage

    def _nothing(self) -> NotFoundError:
        part = f" below {os.fsdecode(self._root)!r}" if self._root else ""
        return NotFoundError(f"{self._archive.url} has no members{part}", hint="Correct the URL.")


@dataclass
class _Seen:
    """The progress of a pass."""

    last: Member | None = None
    count: int = 0
    told_s: float = 0.0


@dataclass
class _Batch:
    files: list[tuple[ArchiveAttr, tuple[SourceExtent, ...], bytearray]] = field(default_factory=list)
    bytes: int = 0


class _Storing:
    """Puts the contents of members into packs. For the thread that makes the pass."""

    def __init__(self, chunks: Chunks, helpers: Helpers, stop: Event) -> None:
        self._chunks = chunks
        self._helpers = helpers
        self._stop = stop
        self._batch = _Batch()
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._waiting_bytes = 0

    def put(self, member: Member, attr: ArchiveAttr) -> None:
        """Reads and stores the member's bytes."""
        if self._stop.is_set():
            raise Stopped
        length = sum(length for _, length in member.ranges)
        if length >= LARGE_BYTES:
            attr.rows = self._chunks.file_rows(member.ranges, self._filler(member), ())
            return
        data = bytearray(length)
        member.fill(memoryview(data))
        extents = tuple(SourceExtent(offset, length) for offset, length in member.ranges)
        self._batch.files.append((attr, extents, data))
        self._batch.bytes += length
        if len(self._batch.files) == BATCH_FILES or self._batch.bytes >= BATCH_BYTES:
            self._send()
        self._settle(WAITING_BYTES)

    def pass_over(self, member: Member) -> None:
        """Skips the member's bytes."""
        left = sum(length for _, length in member.ranges)
        scratch = memoryview(bytearray(min(left, BATCH_BYTES)))
        while left:
            if self._stop.is_set():
                raise Stopped
            member.fill(scratch[:left])
            left -= min(left, len(scratch))

    def finish(self) -> None:
        self._send()
        self._settle(0)

    def _send(self) -> None:
        batch, self._batch = self._batch, _Batch()
        self._waiting.append((batch.bytes, self._helpers.submit(self._store, batch)))
        self._waiting_bytes += batch.bytes

    def _settle(self, left: int) -> None:
        while self._waiting and (self._waiting_bytes > left or self._waiting[0][1].done() or not left):
            size, storing = self._waiting.popleft()
            self._waiting_bytes -= size
            storing.result()

    def _store(self, batch: _Batch) -> None:
        for attr, extents, data in batch.files:
            if self._stop.is_set():
                raise Stopped
            attr.rows = self._chunks.rows(extents, _reader(extents, data), ())

    def _filler(self, member: Member) -> Callable[[int, memoryview], None]:
        def fill(offset: int, target: memoryview) -> None:
            """Called for one range after the other, from the beginning."""
            if self._stop.is_set():
                raise Stopped
            member.fill(target)

        return fill


def _reader(extents: tuple[SourceExtent, ...], data: bytearray) -> Callable[[SourceExtent, int, int], bytes]:
    """Returns a reader of the extents of a file, which are concatenated in `data`."""
    starts, start = {}, 0
    for extent in extents:
        starts[extent.offset] = start
        start += extent.length

    def read(extent: SourceExtent, first: int, length: int) -> bytes:
        begin = starts[extent.offset] + first
        return bytes(memoryview(data)[begin : begin + length])

    return read
