"""A copy-on-write layer of pages over a base that never changes.

    write ──▶ overlay ──(page never written)──▶ base blocks

Written pages stay in memory up to a limit, then go to an unnamed temporary file: a commit of any
size fits. Dropping the overlay is the rollback. A page below `count` that nobody wrote and the base
does not have reads as zeros (SQLite leaves out the page at 1 GiB, where its lock bytes would lie).
One thread at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, Protocol, Self

PAGE_BYTES = 16384
"""A page of SQLite, a block of the store. Measured: 1 M files, one rewrite dirties 64 KiB (with 256
KiB blocks 768 KiB)."""

ZERO_PAGE = bytes(PAGE_BYTES)
MEMORY_PAGES = 1024
"""16 MiB of changed pages stay in memory: a commit of some 100,000 small files. Those of a larger
one lie in the kernel's page cache, which it gives up when memory is short."""


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
        """Makes reads of these blocks cheap, with as few round trips as it can. Raises what `read`
        would."""
        ...

    def scattered(self) -> AbstractContextManager[None]:
        """While it is entered, most reads are far apart: less is fetched of what follows a
        block."""
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

    def scattered(self) -> AbstractContextManager[None]:
        return nullcontext()


class Overlay:
    """Blocks that can be written, over ones that cannot."""

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
    def on(cls, base: Blocks, spill_dir: Path) -> Self:
        """Over an overlay: one with its pages, over what that lies on."""
        if not isinstance(base, Overlay):
            return cls(base, spill_dir)
        made = cls(base.base, spill_dir)
        for number, page in base.written():
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

    def scattered(self) -> AbstractContextManager[None]:
        return self.base.scattered()

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

    def written(self) -> Iterator[tuple[int, bytes]]:
        """(block number, page) of every block that was written or lies beyond the base,
        ascending."""
        for number in sorted(self.written_numbers()):
            yield number, self.read(number)

    def written_numbers(self) -> set[int]:
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
            self._spill_dir.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryFile(dir=self._spill_dir)
        except OSError:  # an unwritable cache directory is done without
            return tempfile.TemporaryFile()
