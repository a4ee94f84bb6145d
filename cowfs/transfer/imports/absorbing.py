"""Makes a volume self-contained: reads linked objects, stores them as chunks, and publishes the
result.

A `Source` of `version.publish.publisher`, like an upload whose source is the volume itself. Names,
attributes and inode numbers stay; each linked file gets extents instead of its link. An object that
changed or is gone ends it, and nothing is published. The next attempt finds the data stored before,
as after a failed upload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Event
from typing import TYPE_CHECKING

from cowfs.base import interruptible
from cowfs.base.thread_pool import Helpers
from cowfs.index import ChangeSet, Link, Stream
from cowfs.native.chunks import FileRows
from cowfs.transfer.linked import REQUEST_BYTES, LinkedBytes
from cowfs.transfer.source_files import SourceExtent
from cowfs.transfer.upload.upload_plan import NothingToUpload
from cowfs.transfer.upload.upload_reading import LARGE_BYTES, Stopped
from cowfs.version.commit import Progress, ProgressListener
from cowfs.version.publish.contents import files_of
from cowfs.version.publish.publisher import Draft, Source

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, Index, InodeRow
    from cowfs.version.publish.publisher import Publisher

THREADS = 16
WAITING_MAX = 256


class Absorbing(Source):
    """hurry: as for `TreeUpload`. Drafting raises NothingToUpload where there are no links."""

    def __init__(
        self,
        publisher: Publisher,
        linked: LinkedBytes,
        *,
        hurry: Callable[[], None] = lambda: None,
        progress: ProgressListener | None = None,
    ) -> None:
        self._publisher = publisher
        self._linked = linked
        self._hurry = hurry
        self._progress = progress or (lambda _: None)
        self._stop = Event()
        self.files = self.bytes = 0

    def draft(self) -> Draft:
        return interruptible.run(self._draft, self._end)

    def _end(self) -> None:
        self._stop.set()
        self._hurry()

    def _draft(self) -> Draft:
        index, contents = self._publisher.index, FileRows()
        self.files = self.bytes = 0
        total = sum(link.size for _, link in index.links())
        if not total:
            raise NothingToUpload
        self._publisher.chunks.wait_for_uploads()
        with Helpers(THREADS, name="cowfs-read") as helpers:
            waiting: list[tuple[int, Link, Future[list[ExtentRow]]]] = []

            def settle(left: int) -> None:
                while len(waiting) > left:
                    ino, link, future = waiting.pop(0)
                    contents.put(ino, 0, future.result())
                    self.files += 1
                    self.bytes += link.size
                    self._progress(Progress("files", self.files, 0, self.bytes, total))

            try:
                for ino, link in index.links():
                    if self._stop.is_set():
                        raise Stopped
                    waiting.append((ino, link, helpers.submit(self._store, ino, link)))
                    settle(WAITING_MAX)
                settle(0)
            except BaseException:
                self._end()
                helpers.shutdown(wait=False, cancel_futures=True)
                raise
        inodes = Stream(lambda: _inodes(index, contents))
        return Draft(ChangeSet(next_ino=index.next_ino, inodes=inodes, forgets_links=True), contents)

    def _store(self, ino: int, link: Link) -> list[ExtentRow]:
        """All rows of a file with the object's bytes."""
        index = self._publisher.index

        def read(extent: SourceExtent, first: int, length: int) -> bytes:
            if self._stop.is_set():
                raise Stopped
            return self._linked.read(index, ino, extent.offset + first, length)

        def read_into(offset: int, target: memoryview) -> None:
            for start in range(0, len(target), REQUEST_BYTES):
                end = min(start + REQUEST_BYTES, len(target))
                target[start:end] = read(SourceExtent(0, link.size), offset + start, end - start)

        if link.size < LARGE_BYTES:
            return self._publisher.chunks.rows([SourceExtent(0, link.size)], read)
        return self._publisher.chunks.file_rows([(0, link.size)], read_into)


def _inodes(index: Index, contents: FileRows) -> Iterator[InodeRow]:
    """Yields inodes with the bytes mapped after cutting, which may have turned zeros into holes."""
    for ino, _, rows in files_of(contents):
        row = index.inode(ino)
        assert row is not None, "a linked file has an inode"
        yield (*row[:7], sum(extent[1] for extent in rows), *row[8:])
