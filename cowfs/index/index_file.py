"""A version's index as one file of this machine, for readers without the store
(docs/format/index-file.md).

    magic, length of the head ── head ── manifest ── table: offset, length, codec, hash of each page ── pages

A file may come from anywhere: it is opened as a regular file, each length is bounded before it is
used, each page is checked by its hash, and rows are checked as those of a store's index are.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from cowfs.base.beneath import Root, UnexpectedEntry
from cowfs.base.errors import CorruptError, CowfsError, InvalidInputError
from cowfs.base.hints import Command
from cowfs.format import canonical, codec, fields
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest
from cowfs.index.cache import BlockCache
from cowfs.index.index import Index
from cowfs.index.overlay import PAGE_BYTES, ZERO_PAGE, Blocks

MAGIC = b"cowfsidx"
RECORD = "index_file"
FORMAT = 1
HEAD_LIMIT = 64 << 10
_LENGTH = struct.Struct(">I")
_ROW = struct.Struct(">QIB32s")
MAX_PAGES = 1 << 24
"""256 GiB of pages: some 2 billion files."""
PAGES_AT_ONCE = 256
KEPT_PAGES = 256


def write_index_file(index: Blocks, locator: Locator, manifest: Manifest, file: BinaryIO) -> None:
    """Writes the pages of the version's index. The file must be seekable and empty."""
    record = manifest.encode()
    head = canonical.encode(
        {
            "record": RECORD,
            "format": FORMAT,
            "locator": str(locator),
            "manifest_bytes": len(record),
            "page_bytes": PAGE_BYTES,
            "pages": index.count,
        }
    )
    file.write(MAGIC + _LENGTH.pack(len(head)) + head + record)
    table_at = file.tell()
    offset = table_at + index.count * _ROW.size
    file.seek(offset)
    rows = bytearray()
    for page in _pages(index):
        if page == ZERO_PAGE:
            rows += _ROW.pack(0, 0, 0, bytes(32))
            continue
        chosen, stored = codec.compress(page)
        file.write(stored)
        rows += _ROW.pack(offset, len(stored), chosen, blake3(page).digest())
        offset += len(stored)
    file.seek(table_at)
    file.write(rows)


def _pages(index: Blocks) -> Iterator[bytes]:
    for first in range(0, index.count, PAGES_AT_ONCE):
        numbers = range(first, min(first + PAGES_AT_ONCE, index.count))
        index.prefetch(numbers)
        yield from map(index.read, numbers)


class IndexFile:
    """An opened index file. Any thread; close it. CorruptError: the file is damaged.
    InvalidInputError: it is no index file."""

    def __init__(self, path: Path, *, cache_dir: Path) -> None:
        self._pages = _FilePages(path)
        try:
            self.locator = self._pages.locator
            self.manifest = self._pages.manifest
            self.index = Index(self._pages, BlockCache(cache_dir))
        except BaseException:
            self._pages.close()
            raise

    def close(self) -> None:
        self.index.close()
        self._pages.close()


class _FilePages:
    """`Blocks` of an index file."""

    def __init__(self, path: Path) -> None:
        self.title = f"index file {path}"
        try:
            with Root.open(path.absolute().parent) as root:
                self._fd = root.open_file(os.fsencode(path.name))
        except UnexpectedEntry as error:
            raise InvalidInputError(
                f"{path}: {error.strerror}", hint=f"Give a file of {Command('index', 'export')}."
            ) from error
        try:
            self._size = os.fstat(self._fd).st_size
            self._read_head(path)
        except BaseException:
            os.close(self._fd)
            raise
        self._read_kept = lru_cache(KEPT_PAGES)(self._read)

    def _read_head(self, path: Path) -> None:
        start = os.pread(self._fd, len(MAGIC) + _LENGTH.size, 0)
        if not start.startswith(MAGIC) or len(start) != len(MAGIC) + _LENGTH.size:
            raise InvalidInputError(
                f"{path} is not an index file", hint=f"{Command('index', 'export', 'SOURCE', 'FILE')} makes one."
            )
        [length] = _LENGTH.unpack_from(start, len(MAGIC))
        if length > HEAD_LIMIT:
            raise self._damage("its head is too long")
        head = fields.open_fields(
            canonical.decode(self._take(len(start), length), what=self.title), RECORD, FORMAT, what=self.title
        )
        self._count = head.integer("pages", 1, MAX_PAGES)
        manifest_bytes = head.integer("manifest_bytes", 1, canonical.MAX_BYTES)
        if head.integer("page_bytes") != PAGE_BYTES:
            raise self._damage("its pages have another size")
        try:
            self.locator = Locator.parse(head.text("locator"))
        except CowfsError as error:
            raise self._damage("it names no version") from error
        self._table_at = len(start) + length + manifest_bytes
        self.manifest = Manifest.decode(self._take(len(start) + length, manifest_bytes), None, what=self.title)

    def _damage(self, why: str) -> CorruptError:
        return CorruptError(f"{self.title} is damaged: {why}", hint="Export the index again.")

    def _take(self, offset: int, length: int) -> bytes:
        if offset + length > self._size:
            raise self._damage("it is too short")
        data = os.pread(self._fd, length, offset)
        if len(data) != length:
            raise self._damage("it is too short")
        return data

    @property
    def count(self) -> int:
        return self._count

    def read(self, number: int) -> bytes:
        return self._read_kept(number)

    def _read(self, number: int) -> bytes:
        if not 0 <= number < self._count:
            raise self._damage(f"it has no page {number}")
        offset, length, how, name = _ROW.unpack(self._take(self._table_at + number * _ROW.size, _ROW.size))
        if not length:
            return ZERO_PAGE
        if length > PAGE_BYTES:
            raise self._damage(f"page {number} is too long")
        return codec.decompress(self._take(offset, length), how, PAGE_BYTES, name, f"page {number} of {self.title}")

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Nothing to do: the file is here."""

    def expect_scattered_reads(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        os.close(self._fd)
