"""A copy-on-write layer of pages over a base that never changes.

    write ──▶ overlay ──(page never written)──▶ base blocks

Written pages stay in memory up to a limit, then go to an unnamed temporary file, so the size of a
commit is not limited by memory. Dropping the overlay is the rollback. A page below `count` that was
not written and that the base does not have reads as zeros (SQLite leaves out the page at 1 GiB,
where its lock bytes would lie). One thread at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from cowfs.base import private_directories

PAGE_BYTES = 16384
"""A page of SQLite, a block of the store. Measured: 1 M files, one rewrite dirties 64 KiB (with 256
KiB blocks 768 KiB)."""

ZERO_PAGE = bytes(PAGE_BYTES)
MEMORY_PAGES = 1024
"""16 MiB of changed pages stay in memory: a commit of some 100,000 small files. The pages of a
larger one lie in the kernel's page cache, which shrinks when memory is short."""


class Blocks(Protocol):
    """The pages of an immutable database file. Block n holds page n + 1. Any thread may call."""

    @property
    def title(self) -> str:
        """Names the file in errors."""
        ...

    @property
    def count(self) -> int: ...

    def read(self, number: int) -> bytes: ...

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Makes reads of these blocks cheap, with as few round trips as possible. Raises the errors
        of `read`."""
        ...

    def expect_scattered_reads(self) -> AbstractContextManager[None]:
        """Within the context most reads are far apart: fewer blocks behind a requested one are
        fetched."""
        ...


class MemoryBlocks:
    """Blocks that are all in memory: an index that was never published."""

    def __init__(self, title: str, pages: list[bytes]) -> None:
        self.title = title
        self._pages = pages

    @property
    def count(self) -> int:
        return len(self._pages)

    def read(self, number: int) -> bytes:
        return self._pages[number]

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Nothing to do."""

    def expect_scattered_reads(self) -> AbstractContextManager[None]:
        return nullcontext()


class Overlay:
    """Writable blocks over read-only ones."""

    def __init__(self, base: Blocks, spill_dir: Path, *, memory_pages: int = MEMORY_PAGES) -> None:
        self.base = base
        self.title = base.title
        self.count = base.count
        self._spill_dir = spill_dir
        self._memory_pages = memory_pages
        self._memory: dict[int, bytes] = {}
        self._spilled: dict[int, int] = {}  # block number → slot in the file
        self._slots = 0
        self._file: BinaryIO | None = None

    @classmethod
    def stack_on(cls, base: Blocks, spill_dir: Path) -> Self:
        """A new overlay over `base`. Over an overlay: one with a copy of its pages, over its
        base."""
        if not isinstance(base, Overlay):
            return cls(base, spill_dir)
        made = cls(base.base, spill_dir)
        for number, page in base.list_written():
            made.write(number, page)
        made.count = base.count
        return made

    def read(self, number: int) -> bytes:
        page = self._memory.get(number)
        if page is not None:
            return page
        slot = self._spilled.get(number)
        if slot is not None:
            assert self._file is not None
            self._file.seek(slot * PAGE_BYTES)
            return self._file.read(PAGE_BYTES)
        return self.base.read(number) if number < self.base.count else ZERO_PAGE

    def prefetch(self, numbers: Iterable[int]) -> None:
        self.base.prefetch(
            n for n in numbers if n < self.base.count and n not in self._memory and n not in self._spilled
        )

    def expect_scattered_reads(self) -> AbstractContextManager[None]:
        return self.base.expect_scattered_reads()

    def write(self, number: int, page: bytes) -> None:
        if number in self._spilled or (number not in self._memory and len(self._memory) >= self._memory_pages):
            self._spill(number, page)
        else:
            self._memory[number] = page
        self.count = max(self.count, number + 1)

    def truncate(self, count: int) -> None:
        for number in [n for n in self._memory if n >= count]:
            del self._memory[number]
        for number in [n for n in self._spilled if n >= count]:
            del self._spilled[number]  # its slot stays unused: SQLite does not shrink these files
        self.count = count

    def list_written(self) -> Iterator[tuple[int, bytes]]:
        """(block number, page) of every block that was written or lies beyond the base,
        ascending."""
        for number in sorted(self.list_written_numbers()):
            yield number, self.read(number)

    def list_written_numbers(self) -> set[int]:
        return set(self._memory) | set(self._spilled) | set(range(self.base.count, self.count))

    def close(self) -> None:
        self._memory.clear()
        self._spilled.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self, number: int, page: bytes) -> None:
        if self._file is None:
            self._file = self._open_file()
        slot = self._spilled.get(number, self._slots)
        self._file.seek(slot * PAGE_BYTES)
        self._file.write(page)
        self._spilled[number] = slot
        self._slots = max(self._slots, slot + 1)

    def _open_file(self) -> BinaryIO:
        try:
            private_directories.make_unchecked(self._spill_dir)
            return tempfile.TemporaryFile(dir=self._spill_dir)
        except OSError:  # the cache directory is not writable: memory is used instead
            return tempfile.TemporaryFile()
