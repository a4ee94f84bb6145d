"""An open index: queries, and the way to a changed one.

    Index ── ConnectionPool ── SQLite ── BlockFile ── StoreBlocks ── BlockCache, PackReader        a published version
                                               ├── MemoryBlocks                                a volume without versions
                                               └── Overlay ── StoreBlocks, MemoryBlocks        work that is in no version (`IndexDelta`)

An index is immutable. Each query is one look-up or one range of one table (a directory joins the
inodes), on a connection of its own, so threads run beside each other; a query that needs a block
from the store waits without a lock that others need.

    query        blocks it reads when nothing is cached (1 M files: trees of 3 levels)
    inode        3
    directory    3 + its entries / 400, and as many of the inodes table when they were created together
    content      3 + extents / 150, and 3 of xattrs; of a block of inodes hardly more
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.errors import CorruptError, InvalidStateError
from cowfs.format.sealing import PLAIN, Sealing
from cowfs.ids import PackId
from cowfs.index import statements
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cache import BlockCache
from cowfs.index.changes import ChangeSet, ContentRows, ExtentRow, InodeRow, Totals
from cowfs.index.connection import Connection, ConnectionPool
from cowfs.index.links import Link, read_link, read_links
from cowfs.index.overlay import Blocks, MemoryBlocks, Overlay
from cowfs.index.rows import (
    by_inode,
    checked_entries,
    checked_extent,
    checked_extents,
    checked_inode,
    checked_places,
    checked_xattrs,
)
from cowfs.index.writer import apply_changes, read_meta
from cowfs.native.constants import ROOT_INO

if TYPE_CHECKING:
    from cowfs.format.manifest import IndexSection
    from cowfs.store import ObjectStore
    from cowfs.store.packs import PackReader


ENTRIES_AT_ONCE = 10_000
CONTENT_ROWS_AT_ONCE = 2048
SHORT_VALUE_BYTES = 1024


def open_index(store: ObjectStore, packs: PackReader, section: IndexSection, *, cache_dir: Path) -> Index:
    """The index a manifest names. Fetches the first blocks (two requests); the rest comes as
    queries need it.

    Blocks are kept in `<cache_dir>/blocks`; a cache that cannot be written is done without.
    CorruptError, UnsupportedFormatError, UnavailableError here and from every query.
    """
    cache = BlockCache(cache_dir, name=packs.sealing.name)
    return Index(StoreBlocks(packs, section, cache, url=store.url), cache)


def empty_index(
    cache_dir: Path, *, uid: int, gid: int, mode: int = 0o755, now_ns: int, sealing: Sealing = PLAIN
) -> Index:
    """The index of a volume without versions: a root directory of this owner and mode. Nothing is
    stored or requested.

    cache_dir is for the blocks of versions made from it (`IndexDelta.as_index`); sealing: of the
    store they will lie in.
    """
    nothing = MemoryBlocks("the index of an empty volume", [])
    overlay = Overlay(nothing, cache_dir)
    root = (ROOT_INO, stat.S_IFDIR | mode, 2, uid, gid, 0, 0, 0, now_ns, now_ns, now_ns, 0, b"")
    connection = Connection(overlay, writable=True)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.create()
        facts = [("next_ino", ROOT_INO + 1), ("files", 0), ("directories", 0), ("bytes", 0)]
        connection.execute_many(statements.INSERT_META, facts)
        connection.execute(statements.WRITE_INODE, root)
        connection.execute("COMMIT")
    finally:
        connection.close()
    pages = [page for _, page in overlay.written()]
    overlay.close()
    return Index(MemoryBlocks(nothing.title, pages), BlockCache(cache_dir, name=sealing.name))


class Index:
    """One version's index. Immutable; any number of threads may query it at once; `close` waits for
    queries under way."""

    def __init__(self, blocks: Blocks, cache: BlockCache) -> None:
        self._blocks = blocks
        self._cache = cache
        self._connections = ConnectionPool(blocks)
        with self._connections.connection() as connection:
            meta = read_meta(connection)
        self._next_ino = meta["next_ino"]
        self._totals = Totals(meta["files"], meta["directories"], meta["bytes"])
        self._format = meta["format"]

    @property
    def section(self) -> IndexSection | None:
        """What the manifest says about this index; None for an index that was never published."""
        return self._blocks.section if isinstance(self._blocks, StoreBlocks) else None

    @property
    def blocks(self) -> Blocks:
        """Its pages, for what looks at them without SQLite (`comparing`, `places`)."""
        return self._blocks

    @property
    def connections(self) -> ConnectionPool:
        """For queries of this layer."""
        return self._connections

    @property
    def next_ino(self) -> int:
        """The smallest inode number never used in this line of versions."""
        return self._next_ino

    def totals(self) -> Totals:
        return self._totals

    def inode(self, ino: int) -> InodeRow | None:
        with self._connections.connection() as connection:
            rows = connection.execute(statements.READ_INODE, (ino,))
            return checked_inode(connection.title, rows[0]) if rows else None

    def entry(self, parent: int, name: bytes) -> int | None:
        """The inode that the directory's entry of this name has."""
        with self._connections.connection() as connection:
            rows = connection.execute(statements.READ_ENTRY, (parent, name))
            if rows and type(rows[0][0]) is not int:
                raise CorruptError(f"{connection.title} is damaged: {name!r} has no inode number")
            return rows[0][0] if rows else None

    def directory(self, ino: int) -> list[tuple[bytes, InodeRow]]:
        """Every entry with its inode, ordered by name; empty when `ino` has none or is not a
        directory."""
        return [entry for page in self.directory_pages(ino) for entry in page]

    def directory_pages(self, ino: int) -> Iterator[list[tuple[bytes, InodeRow]]]:
        """The same, ENTRIES_AT_ONCE at a time: a directory may have millions. Go through all of
        them: a connection is held."""
        with self._connections.connection() as connection:
            entries = checked_entries(connection.title, connection.rows(statements.READ_DIRECTORY, (ino,)))
            while page := list(islice(entries, ENTRIES_AT_ONCE)):
                yield page

    def names_of(self, inodes: Set[int]) -> dict[int, tuple[int, bytes]]:
        """(parent, name): one for each of these inodes that has any. Reads every entry: there is no
        index by inode."""
        found: dict[int, tuple[int, bytes]] = {}
        last: tuple[int, bytes] = (0, b"")
        with self._connections.connection() as connection:
            while rows := connection.execute(statements.READ_ENTRIES, (*last, ENTRIES_AT_ONCE)):
                places = checked_places(connection.title, rows, last)
                found |= {ino: place for ino, place in places if ino in inodes}
                last = places[-1][1]
        return found

    def content(self, ino: int) -> tuple[list[ExtentRow], list[tuple[bytes, bytes]]]:
        """Extents by offset and extended attributes by name; both empty for an inode that has none
        or does not exist. InvalidStateError: a linked file, so that nobody takes it for one without
        bytes; `content_with_links` and `stored_content` are for those who know links."""
        extents, xattrs = self.stored_content(ino)
        if not extents and (link := self.link(ino)) is not None and link.is_current:
            raise InvalidStateError(
                f"a file of the version is linked to {link.url}, and this needs its bytes in the store",
                hint="Store what is linked first (`cowfs import --absorb NAME`, Volume.absorb()).",
            )
        return extents, xattrs

    def stored_content(self, ino: int) -> tuple[list[ExtentRow], list[tuple[bytes, bytes]]]:
        """As `content`; a linked file has no extents."""
        with self._connections.connection() as connection:
            extents = list(checked_extents(connection.title, connection.rows(statements.READ_EXTENTS, (ino,))))
            return extents, list(checked_xattrs(connection.title, connection.rows(statements.READ_XATTRS, (ino,))))

    def stored_contents(self, first: int, last: int) -> list[ContentRows]:
        """The same of inodes between these two, themselves included: of all whose rows can be had
        without looking at more than CONTENT_ROWS_AT_ONCE of a kind or at a value of more than
        SHORT_VALUE_BYTES, and that have any."""
        with self._connections.connection() as connection:
            title, limit = connection.title, CONTENT_ROWS_AT_ONCE
            extents = connection.execute(statements.READ_EXTENTS_BETWEEN, (first, last, limit))
            xattrs = connection.execute(statements.READ_SHORT_XATTRS_BETWEEN, (SHORT_VALUE_BYTES, first, last, limit))
        ends = [rows[-1][0] for rows in (extents, xattrs) if len(rows) == limit]
        long = {row[0] for row in xattrs if row[2] is None}
        extents_of, xattrs_of = by_inode(title, extents), by_inode(title, xattrs)
        return [
            (
                ino,
                list(checked_extents(title, iter(extents_of.get(ino, ())))),
                list(checked_xattrs(title, iter(xattrs_of.get(ino, ())))),
            )
            for ino in sorted(extents_of.keys() | xattrs_of.keys())
            if ino not in long and all(ino < end for end in ends)
        ]

    def stored_extents(self, inodes: Iterable[int]) -> list[ExtentRow]:
        """Those of all these files."""
        with self._connections.connection() as connection:
            rows = connection.rows(statements.READ_EXTENTS_OF, (json.dumps(list(inodes)),))
            return [checked_extent(connection.title, row) for row in rows]

    @property
    def may_have_links(self) -> bool:
        """Whether `link` may find any."""
        return self._format > 1

    def link(self, ino: int) -> Link | None:
        """The object that the file is; None for a file with bytes of its own. One that `is_current`
        is not is for uncommitted work alone."""
        if not self.may_have_links:
            return None
        with self._connections.connection() as connection:
            return read_link(connection, ino)

    def links(self) -> Iterator[tuple[int, Link]]:
        """(ino, link) of all linked files, ascending."""
        last = 0
        while self.may_have_links:
            with self._connections.connection() as connection:
                page = read_links(connection, last, ENTRIES_AT_ONCE)
            if not page:
                return
            last = page[-1][0]
            yield from (each for each in page if each[1].is_current)

    def pack_id(self, number: int) -> PackId | None:
        """The pack of that number. Two or three blocks."""
        with self._connections.connection() as connection:
            rows = connection.execute(statements.READ_PACK, (number,))
            if not rows:
                return None
            [(pack,)] = rows
            if type(pack) is not bytes or len(pack) != PackId.length:
                raise CorruptError(f"{connection.title} is damaged: pack {number} has an impossible id")
            return PackId(pack)

    def last_pack_number(self) -> int:
        """The largest number that any pack has; 0: there is none."""
        with self._connections.connection() as connection:
            [(number,)] = connection.execute(statements.READ_LAST_PACK)
            if number is not None and (type(number) is not int or number < 1):
                raise CorruptError(f"{connection.title} is damaged: {number!r} is no pack number")
            return number or 0

    def pack_ids(self) -> dict[int, PackId]:
        """Number → id of every pack extents may name, for who looks at a whole version: reads the
        table, 800 packs a block."""
        with self._connections.connection() as connection:
            found: dict[int, PackId] = {}
            last = 0
            for number, pack in connection.rows(statements.READ_PACKS):
                if type(number) is not int or type(pack) is not bytes or len(pack) != PackId.length or number <= last:
                    raise CorruptError(f"{connection.title} is damaged: pack {number!r} has an impossible number or id")
                found[number] = PackId(pack)
                last = number
            return found

    def apply(self, changes: ChangeSet) -> IndexDelta:
        """The index with `changes` made, in one transaction on a copy-on-write overlay; this index
        stays as it is.

        Nothing is published. InvalidInputError: the change set contradicts itself or the base. May
        be repeated.
        """
        overlay, facts = apply_changes(self._blocks, changes, spill_dir=self._cache.directory)
        return IndexDelta(overlay, facts, self._cache)

    def close(self) -> None:
        """Waits for queries under way; further ones raise InvalidStateError. Deltas made from this
        index stay usable."""
        self._connections.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class IndexDelta:
    """A changed index that is published nowhere: the pages by which it differs from its base.

    For one thread. `close` it when it was published or given up: until then its pages take memory
    or disk.
    """

    def __init__(self, overlay: Overlay, facts: Mapping[str, int], cache: BlockCache) -> None:
        self.totals = Totals(facts["files"], facts["directories"], facts["bytes"])
        self.format = facts["format"]
        self.linked_bytes = facts.get("linked_bytes", 0)
        self.cache = cache
        self.reader: PackReader | None = None  # set by `publish`
        self._overlay = overlay

    @property
    def page_count(self) -> int:
        """Pages of the changed index, changed or not."""
        return self._overlay.count

    @property
    def base(self) -> StoreBlocks | None:
        """Where the unchanged pages are; None when nothing was published before."""
        return self._overlay.base if isinstance(self._overlay.base, StoreBlocks) else None

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """(page number from 1, its 16 KiB) of each page that was written, ascending: without a
        base, of every page."""
        if self.base is None:
            for number in range(self._overlay.count):
                yield number + 1, self._overlay.read(number)
        else:
            for number, page in self._overlay.written():
                yield number + 1, page

    def as_index(self, section: IndexSection) -> Index:
        """The new version's index; `section` is what `publish` returned for this delta. Its changed
        blocks are in the cache."""
        if self.reader is None:
            raise InvalidStateError("this index was not published yet")
        url = self.base.url if self.base is not None else ""
        return Index(StoreBlocks(self.reader, section, self.cache, url=url), self.cache)

    def unpublished(self) -> Index:
        """The changed index as it is, for one thread, to be closed before the delta is."""
        return Index(self._overlay, self.cache)

    def close(self) -> None:
        self._overlay.close()

    def __enter__(self) -> IndexDelta:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
