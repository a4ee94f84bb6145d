"""Lists the chunks that a version needs, from the pages of its table of extents alone, so that a
page shared by several versions is read once.

    section ─▶ root of `extents` ─▶ interior pages, level by level ─▶ (page, its hash) of all with rows ─▶ rows

The pages above the leaves are read to find the leaves; a leaf is read only when the caller asks for
it, by a hash that it has not seen. Interior pages hold rows themselves. A row names its pack by a
number, which is valid in this line of versions only: equal pages of two lines may mean different
packs.

Pages are untrusted: invalid ones raise CorruptError and are never skipped, since a chunk that is
not found here may be deleted. SQLite is asked for the schema, the root and the packs;
`docs/format/index.md` says why a row of `extents` always has one byte for its length and eleven for
its header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cowfs.base.errors import CorruptError
from cowfs.base.ids import PackId
from cowfs.format.blocklist import BlockRef
from cowfs.index import statements
from cowfs.index.blocks import StoreBlocks
from cowfs.index.btree import INTERIOR_INDEX, MAX_DEPTH
from cowfs.index.cells import LEAF_INDEX, child_pages
from cowfs.index.damage import damage_error
from cowfs.index.index import Index
from cowfs.index.overlay import PAGE_BYTES
from cowfs.index.rows import LAST_PACK

if TYPE_CHECKING:
    from cowfs.format.manifest import IndexSection
    from cowfs.index.cache import BlockCache
    from cowfs.store.packs import PackReader

HEADER_BYTES = 11
HASH_TYPE = 76
"""The serial type of a value of 32 bytes."""
_HASH, _PACK, _PACK_OFFSET, _STORED_LENGTH = 3, 4, 5, 6
_SIZES = (0, 1, 2, 3, 4, 6, 8, -1, 0, 0)

Use = tuple[int, int, int, bytes]
"""Number of the pack, offset in it, stored length, hash."""


class ChunkUses:
    """The chunks of one version. cache: of blocks, which versions share."""

    def __init__(self, packs: PackReader, section: IndexSection, cache: BlockCache, *, url: str) -> None:
        self._blocks = StoreBlocks(packs, section, cache, url=url)
        with Index(self._blocks, cache) as index:
            self.pack_ids: dict[int, PackId] = index.pack_ids()
            with index.connections.connection() as connection:
                [(root,)] = connection.execute(statements.READ_EXTENTS_ROOT)
        self._root = root - 1
        self._leaves: set[int] = set()

    def segment(self, position: int) -> Iterator[BlockRef]:
        """The blocks that a segment of the block list names."""
        return (ref for ref in self._blocks.segment(position) if ref is not None)

    def pages(self) -> dict[int, BlockRef]:
        """Every page with rows of extents, by its number; reads no leaf except the first."""
        found: list[int] = []
        level = [self._root]
        for _ in range(MAX_DEPTH):
            found += level
            if len(set(found)) != len(found) or not all(0 <= number < self._blocks.count for number in level):
                raise self._damage_error("its tree of extents leads to no page, or to one twice")
            if self._kind(level[0]) == LEAF_INDEX:
                self._leaves.update(level)
                return {number: self._ref(number) for number in found}
            self._blocks.prefetch(level)
            level = [child for number in level for child in self._children(number)]
        raise self._damage_error("its tree of extents is too deep")

    def uses(self, numbers: Iterable[int]) -> Iterator[tuple[int, list[Use]]]:
        """(page, its rows) of these pages, which are fetched together."""
        wanted = sorted(numbers)
        self._blocks.prefetch(wanted)
        for number in wanted:
            if (self._kind(number) == LEAF_INDEX) != (number in self._leaves):
                raise self._damage_error("its tree of extents is not balanced")
            try:
                yield number, list(_uses(self._blocks.read(number)))
            except (IndexError, ValueError) as error:
                raise self._damage_error(f"page {number + 1} does not hold extents: {error}") from error

    def _children(self, number: int) -> list[int]:
        if self._kind(number) != INTERIOR_INDEX:
            raise self._damage_error("its tree of extents is not balanced")
        try:
            return child_pages(self._blocks.read(number))
        except (IndexError, ValueError) as error:
            raise self._damage_error(f"page {number + 1} has no children: {error}") from error

    def _kind(self, number: int) -> int:
        return self._blocks.read(number)[0]

    def _ref(self, number: int) -> BlockRef:
        ref = self._blocks.ref(number)
        if ref is None:
            raise self._damage_error(f"page {number + 1} of its extents was never written")
        return ref

    def _damage_error(self, problem: str) -> CorruptError:
        return damage_error(self._blocks.title, problem)


def _uses(page: bytes) -> Iterator[Use]:
    if page[0] not in (INTERIOR_INDEX, LEAF_INDEX):
        raise ValueError("of another kind")
    skip, header = (4, 12) if page[0] == INTERIOR_INDEX else (0, 8)
    count = int.from_bytes(page[3:5])
    if header + 2 * count > PAGE_BYTES:
        raise ValueError("more rows than it has room for")
    for place in range(header, header + 2 * count, 2):
        yield _use(page, int.from_bytes(page[place : place + 2]) + skip)


def _use(page: bytes, start: int) -> Use:
    end = start + 1 + page[start]
    types = page[start + 2 : start + 1 + HEADER_BYTES]
    if page[start + 1] != HEADER_BYTES or types[_HASH] != HASH_TYPE or end > PAGE_BYTES:
        raise ValueError("a row of another table")
    at = start + 1 + HEADER_BYTES
    values = []
    digest = b""
    for place, kind in enumerate(types):
        size = 32 if place == _HASH else _SIZES[kind]
        if place == _HASH:
            digest = page[at : at + size]
        if size < 0:
            raise ValueError("a value that is not an integer")
        if place in (_PACK, _PACK_OFFSET, _STORED_LENGTH):
            values.append(int.from_bytes(page[at : at + size], signed=True) if kind < 8 else kind - 8)
        at += size
    pack, offset, length = values
    if at != end or not 1 <= pack <= LAST_PACK or not 0 <= offset < 1 << 32 or not 0 < length < 1 << 32:
        raise ValueError("a row that names no chunk")
    return pack, offset, length, digest
