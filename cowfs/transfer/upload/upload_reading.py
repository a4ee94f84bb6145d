"""Reads the files of an upload: each is read, cut and stored as it was at one moment.

A file counts as read if it is unchanged afterwards (`source_files`); one that is written to
meanwhile is read again, READS_MAX times in all. Large files are cut in reused buffers, small ones
as one piece or a few. Any number of threads may read; `Count` reports their progress.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from threading import Event, Lock
from typing import TYPE_CHECKING, Protocol

from cowfs.base import clock
from cowfs.base.errors import ConflictError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.transfer.copying import KEPT_BITS, Attributes
from cowfs.transfer.imports.import_log import Part
from cowfs.transfer.imports.object_tree import ObjectFile
from cowfs.transfer.local_files import LocalFiles
from cowfs.transfer.source_files import SourceChanged, SourceExtent, Stamp
from cowfs.version.commit import Progress, ProgressListener

if TYPE_CHECKING:
    from cowfs.format.codec import Blob
    from cowfs.index import ExtentRow
    from cowfs.store.origin import OriginObject

    Rows = Sequence[ExtentRow]

LARGE_BYTES = 4 << 20
SMALL_BYTES = (64 << 10) - 1  # less than is searched for holes (`recut.ZERO_RUN_BYTES`)
READS_MAX = 5
REPORT_S = 0.1


class ReadFile(Protocol):
    """The interface of `SourceFile`."""

    @property
    def ino(self) -> int: ...
    def close(self) -> None: ...
    def stamp(self) -> Stamp: ...
    def settle(self) -> Stamp | None: ...
    def extents(self, size: int) -> list[SourceExtent]: ...
    def read(self, extent: SourceExtent, first: int, length: int) -> bytes: ...
    def read_into(self, offset: int, target: memoryview) -> None: ...


class Files(Protocol):
    def open_file(self, path: bytes) -> ReadFile: ...


class SourceTree(Files, Protocol):
    """Paths are relative, "/"-separated; "" is the tree itself. Links are not followed."""

    def stat(self, path: bytes) -> Attributes: ...
    def list(self, path: bytes) -> Sequence[tuple[bytes, Attributes]]: ...
    def readlink(self, path: bytes) -> bytes: ...


class Chunks(Protocol):
    """The interface of `StoredChunks`."""

    @property
    def name_key(self) -> bytes | None: ...
    @property
    def compresses(self) -> bool: ...
    def rows(
        self, extents: Sequence[SourceExtent], read: Callable[[SourceExtent, int, int], bytes], earlier: Rows
    ) -> list[ExtentRow]: ...
    def blob_rows(self, blob: Blob, length: int, earlier: Rows) -> list[ExtentRow]: ...
    def file_rows(
        self, ranges: Iterable[tuple[int, int]], read_into: Callable[[int, memoryview], None], earlier: Rows
    ) -> list[ExtentRow]: ...
    def find_rows(self, parts: Iterable[Part]) -> list[ExtentRow] | None: ...


class Log(Protocol):
    """The interface of `ImportLog`."""

    def find(self, found: OriginObject) -> list[Part] | None: ...
    def append(self, found: OriginObject, rows: Rows) -> None: ...


@dataclass
class Read:
    """The result of reading a file. rows None: the volume has it, and nothing was read. is_other:
    another file had taken its name, so the result does not apply to its other names. state: of the
    object, for an import (`object_tree`). stamp: the file's attributes when it was read."""

    mode: int
    mtime_ns: int
    size: int
    rows: list[ExtentRow] | None
    is_other: bool = False
    state: str = ""
    stamp: Stamp | None = None


class Stopped(Exception):
    """Another file failed, or the upload was interrupted."""


class FileReader:
    """rows_of: the rows of an inode of the volume. stop: set after another failure or an
    interruption; reading then ends. done: the log of an import."""

    def __init__(
        self,
        chunks: Chunks,
        rows_of: Callable[[int], Rows],
        tree: Files,
        stop: Event,
        count: Count,
        done: Log | None = None,
    ) -> None:
        self._done = done
        self._chunks = chunks
        self._rows_of = rows_of
        self._tree = tree
        self._stop = stop
        self._count = count

    def read(self, path: bytes, attr: Attributes, base: int | None) -> Read | None:
        """Reads and stores a file. None: it no longer exists. attr: as it was listed. base: inode
        of the volume's file with this path; its chunks are compared first."""
        if self._stop.is_set():
            raise Stopped
        earlier = self._earlier(base)
        try:
            with translate_replacement(path):
                file = self._tree.open_file(path)
            with closing(file) as opened:
                for _ in range(READS_MAX):
                    read = self._read_before(opened) or self._read_once(opened, earlier)
                    if read is not None:
                        hit("upload-file-stored")
                        read.is_other = attr.nlink > 1 and opened.ino != attr.ino
                        return read
        except FileNotFoundError:
            return None
        is_object = isinstance(opened, ObjectFile)
        again = (
            "Import again when the object is not being written to"
            if is_object
            else "Upload again when the file is not being written to, or upload a snapshot"
        )
        raise ConflictError(
            f"{os.fsdecode(path)} was written to while it was read, {READS_MAX} times",
            hint=f"{again}. Nothing was published.",
        )

    def _read_before(self, opened: ReadFile) -> Read | None:
        """The result for an object that an unfinished import has stored already."""
        if self._done is None or not isinstance(opened, ObjectFile):
            return None
        found = opened.object
        parts = self._done.find(found)
        rows = self._chunks.find_rows(parts) if parts is not None else None
        if rows is None:
            return None
        self._count.add_bytes(found.size)
        return Read(opened.stamp().mode & KEPT_BITS, found.mtime_ns, found.size, rows, state=found.state)

    def is_small(self, attr: Attributes) -> bool:
        """Whether `read_small` takes the file."""
        return attr.size <= SMALL_BYTES and isinstance(self._tree, LocalFiles)

    def read_small(self, files: Sequence[tuple[bytes, Attributes, int | None]]) -> list[Read | None]:
        """As `read`, for several small local files: (path, attr, base) of each. Files of one
        directory must be adjacent."""
        assert isinstance(self._tree, LocalFiles)
        read: list[Read | None] = []
        for directory, group in groupby(files, lambda file: file[0].rpartition(b"/")[0]):
            if self._stop.is_set():
                raise Stopped
            there = list(group)
            names = [path.rpartition(b"/")[2] for path, _, _ in there]
            found: Sequence[tuple[Stamp, Blob] | None]
            try:
                found = self._tree.read_small(
                    directory, names, SMALL_BYTES, self._chunks.name_key, self._chunks.compresses
                )
            except OSError:
                found = [None] * len(names)  # reading each file shows whether it has vanished
            read += [
                self._store_small(small, attr, base) if small is not None else self.read(path, attr, base)
                for (path, attr, base), small in zip(there, found, strict=True)
            ]
        return read

    def _store_small(self, small: tuple[Stamp, Blob], attr: Attributes, base: int | None) -> Read:
        stamp, blob = small
        if self._stop.is_set():
            raise Stopped
        self._count.add_bytes(stamp.size)
        rows = self._chunks.blob_rows(blob, stamp.size, self._earlier(base))
        hit("upload-file-stored")
        is_other = attr.nlink > 1 and stamp.ino != attr.ino
        return Read(stamp.mode & KEPT_BITS, stamp.mtime_ns, stamp.size, rows, is_other, stamp=stamp)

    def _earlier(self, base: int | None) -> Rows:
        return self._rows_of(base) if base is not None else ()

    def _read_once(self, opened: ReadFile, earlier: Rows) -> Read | None:
        """Reads the file once. None: it was written to meanwhile."""
        before = opened.settle()
        if before is None or not stat.S_ISREG(before.mode):
            return None  # or another kind of file has taken its name
        try:
            extents, chunks = opened.extents(before.size), self._chunks
            if sum(extent.length for extent in extents) < LARGE_BYTES:
                rows = chunks.rows(extents, self._reader(opened), earlier)
            else:
                rows = chunks.file_rows(
                    ((extent.offset, extent.length) for extent in extents), self._filler(opened), earlier
                )
        except SourceChanged:
            return None
        if opened.stamp() != before:
            return None
        state = opened.object.state if isinstance(opened, ObjectFile) else ""
        if self._done is not None and isinstance(opened, ObjectFile):
            self._done.append(opened.object, rows)
        return Read(before.mode & KEPT_BITS, before.mtime_ns, before.size, rows, state=state, stamp=before)

    def _reader(self, opened: ReadFile) -> Callable[[SourceExtent, int, int], bytes]:
        def read(extent: SourceExtent, first: int, length: int) -> bytes:
            if self._stop.is_set():
                raise Stopped
            self._count.add_bytes(length)
            return opened.read(extent, first, length)

        return read

    def _filler(self, opened: ReadFile) -> Callable[[int, memoryview], None]:
        def read_into(offset: int, target: memoryview) -> None:
            if self._stop.is_set():
                raise Stopped
            self._count.add_bytes(len(target))
            opened.read_into(offset, target)

        return read_into


class Count:
    """Reports how many files and bytes are done, at most every REPORT_S and at the end. Helpers add
    the bytes; the thread that runs the upload reports them."""

    def __init__(self, progress: ProgressListener | None) -> None:
        self._progress = progress
        self._lock = Lock()
        self._files = 0
        self._bytes = 0
        self._total = (0, 0)
        self._told_s = 0.0

    def expect(
        self, tree: SourceTree, at: bytes, first: Attributes, excluded: Callable[[bytes, Attributes], bool]
    ) -> None:
        """Counts the files to upload, if progress is reported."""
        if self._progress is None:
            return
        files, size, waiting = 0, 0, [(at, first)]
        while waiting:
            path, attr = waiting.pop()
            if stat.S_ISDIR(attr.mode):
                found = ((below(path, name), each) for name, each in list_entries(tree, path, at))
                waiting += (each for each in found if not excluded(*each))
            elif stat.S_ISREG(attr.mode):
                files, size = files + 1, size + attr.size
        self._total = (files, size)

    def add_bytes(self, more: int) -> None:
        if self._progress is not None:
            with self._lock:
                self._bytes += more

    def file_done(self) -> None:
        self._files += 1
        self.tell()

    def tell(self, *, is_last: bool = False) -> None:
        if self._progress is None:
            return
        now_s = clock.monotonic_s()
        if is_last or now_s - self._told_s >= REPORT_S:
            self._told_s = now_s
            done_bytes = self._total[1] if is_last else min(self._bytes, self._total[1])
            self._progress(Progress("files", self._files, self._total[0], done_bytes, self._total[1]))


def list_entries(tree: SourceTree, path: bytes, top: bytes) -> Sequence[tuple[bytes, Attributes]]:
    """The directory's entries: none, if it has vanished since it was found below `top`."""
    if path == top:
        return tree.list(path)
    with translate_replacement(path):
        try:
            return tree.list(path)
        except FileNotFoundError:
            return ()


@contextmanager
def translate_replacement(path: bytes) -> Iterator[None]:
    """Raises ConflictError if another kind of file has taken the name since it was listed."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ELOOP, errno.ENOTDIR):
            raise
        raise ConflictError(
            f"{os.fsdecode(path)} was replaced while it was read",
            hint="Try again when the directory is not being written to, or take a snapshot. Nothing was published.",
        ) from error


def below(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
