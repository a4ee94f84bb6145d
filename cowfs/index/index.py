"""An open index: queries, and changes that produce a new one.

    Index ── ConnectionPool ── SQLite ── BlockFile ── StoreBlocks ── BlockCache, PackReader        a published version
                                               ├── MemoryBlocks                                a volume without versions
                                               └── Overlay ── StoreBlocks, MemoryBlocks        unpublished work (`IndexDelta`)

An index is immutable. Each query is one look-up or one range of one table (a directory joins the
inodes), on its own connection, so threads run in parallel; a query that waits for a block from the
store holds no lock that others need.

    query        blocks it reads when nothing is cached (1 M files: trees of 3 levels)
    inode        3
    find         3 a name, except for directories that were looked up recently
    directory    3 + its entries / 400, and as many of the inodes table when they were created together
    content      3 + extents / 150, and 3 of xattrs; for a block of inodes hardly more
"""

from __future__ import annotations

import json
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from cowfs.base.errors import CorruptError, InvalidStateError
from cowfs.base.hints import Command
from cowfs.base.ids import PackId
from cowfs.format.sealing import PLAIN, Sealing
from cowfs.index import statements
from cowfs.index.applying import apply_changes, read_meta
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cache import BlockCache
from cowfs.index.changes import ChangeSet, ContentRows, ExtentRow, InodeRow, Totals
from cowfs.index.connection import Connection, ConnectionPool
from cowfs.index.damage import damage_error
from cowfs.index.links import Link, read_link, read_links
from cowfs.index.overlay import Blocks, MemoryBlocks, Overlay
from cowfs.index.rows import (
    EntryChecker,
    check_extent,
    check_extents,
    check_inode,
    check_places,
    check_xattrs,
    group_by_inode,
)
from cowfs.native.constants import ROOT_INO

if TYPE_CHECKING:
    from cowfs.format.manifest import IndexSection
    from cowfs.store import ObjectStore
    from cowfs.store.packs import PackReader


ENTRIES_AT_ONCE = 10_000
KEPT_WAYS = 1024
"""One thread may list directories while others read the files in them: so many directories may lie
between the two."""
LONGEST_WAY_BYTES = 4096
"""The longest path to a directory that is remembered; longer ones are looked up each time."""
CONTENT_ROWS_AT_ONCE = 2048
SHORT_VALUE_BYTES = 1024


def open_index(store: ObjectStore, packs: PackReader, section: IndexSection, *, cache_dir: Path) -> Index:
    """The index that a manifest names. Fetches the first blocks (two requests); queries fetch the
    rest as they need it.

    Blocks are kept in `<cache_dir>/blocks`; without a writable cache, they are not.
    CorruptError, UnsupportedFormatError, UnavailableError here and from every query.
    """
    cache = BlockCache(cache_dir, name=packs.sealing.name)
    return Index(StoreBlocks(packs, section, cache, url=store.url), cache)


def empty_index(
    cache_dir: Path, *, uid: int, gid: int, mode: int = 0o755, now_ns: int, sealing: Sealing = PLAIN
) -> Index:
    """The index of a volume without versions: a root directory of this owner and mode. Stores and
    requests nothing.

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
    pages = [page for _, page in overlay.list_written()]
    overlay.close()
    return Index(MemoryBlocks(nothing.title, pages), BlockCache(cache_dir, name=sealing.name))


class Index:
    """One version's index. Immutable; any number of threads may query it at once; `close` waits for
    queries under way."""

    def __init__(self, blocks: Blocks, cache: BlockCache) -> None:
        self._blocks = blocks
        self.cache = cache
        """Of its blocks, on this machine."""
        self._connections = ConnectionPool(blocks)
        self._ways_lock = Lock()
        self._ways = OrderedDict[bytes, tuple[int, ...]]()  # to the directories looked up last
        with self._connections.connection() as connection:
            meta = read_meta(connection)
        self._next_ino = meta["next_ino"]
        self._totals = Totals(meta["files"], meta["directories"], meta["bytes"])
        self._attribute_bytes = meta.get("attribute_bytes", 0)
        self._format = meta["format"]

    @property
    def section(self) -> IndexSection | None:
        """The section in the manifest; None for an index that was never published."""
        return self._blocks.section if isinstance(self._blocks, StoreBlocks) else None

    @property
    def blocks(self) -> Blocks:
        """Its pages, for readers without SQLite (`comparing`, `places`)."""
        return self._blocks

    def damage_error(self, problem: str) -> CorruptError:
        """The error for rows that cannot be in a version's index."""
        return damage_error(self._blocks.title, problem)

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

    @property
    def counted_bytes(self) -> int:
        """The bytes that a quota counts: of files, link targets and extended attributes."""
        return self._totals.bytes + self._attribute_bytes

    def inode(self, ino: int) -> InodeRow | None:
        with self._connections.connection() as connection:
            rows = connection.execute(statements.READ_INODE, (ino,))
            return check_inode(connection.title, rows[0]) if rows else None

    def entry(self, parent: int, name: bytes) -> int | None:
        """The inode of the directory's entry of this name."""
        with self._connections.connection() as connection:
            rows = connection.execute(statements.READ_ENTRY, (parent, name))
            if rows and type(rows[0][0]) is not int:
                raise self.damage_error(f"{name!r} has no inode number")
            return rows[0][0] if rows else None

    def find(self, path: bytes) -> int | None:
        """The inode at a path, without following links. One look-up if its directory was used
        recently. CorruptError: a directory of the path lies in itself."""
        path = path.strip(b"/")
        above, _, name = path.rpartition(b"/")
        way = self._way(above)
        if name:
            way = self._longer(way, name, path)
        return way[-1] if way else None

    def _way(self, path: bytes) -> tuple[int, ...]:
        """The inodes from the root to the path; empty if it does not exist."""
        known, names = path, list[bytes]()
        with self._ways_lock:
            while known and known not in self._ways:
                known, _, name = known.rpartition(b"/")
                names.append(name)
            way = self._ways.setdefault(known, (ROOT_INO,))
            self._ways.move_to_end(known)
        for name in filter(None, reversed(names)):
            way = self._longer(way, name, path)
        with self._ways_lock:
            if len(path) <= LONGEST_WAY_BYTES:
                self._ways[path] = way
            while len(self._ways) > KEPT_WAYS:
                self._ways.popitem(last=False)
        return way

    def _longer(self, way: tuple[int, ...], name: bytes, path: bytes) -> tuple[int, ...]:
        found = self.entry(way[-1], name) if way else None
        if found in way:
            raise self.damage_error(f"{os.fsdecode(path)!r} lies in itself")
        return (*way, found) if found is not None else ()

    def directory(self, ino: int) -> list[tuple[bytes, InodeRow]]:
        """Every entry with its inode, ordered by name; empty when `ino` has none or is not a
        directory."""
        return [entry for page in self.directory_pages(ino) for entry in page]

    def directory_pages(self, ino: int) -> Iterator[list[tuple[bytes, InodeRow]]]:
        """The same, ENTRIES_AT_ONCE at a time: a directory may have millions. Holds no connection
        between two pages."""
        checker = EntryChecker()
        page = self._directory_page(checker, statements.READ_DIRECTORY_START, ino)
        while page:
            yield page
            if len(page) < ENTRIES_AT_ONCE:
                return
            page = self._directory_page(checker, statements.READ_DIRECTORY_AFTER, ino, checker.last)

    def _directory_page(self, checker: EntryChecker, sql: str, *values: int | bytes) -> list[tuple[bytes, InodeRow]]:
        with self._connections.connection() as connection:
            rows = connection.rows(sql, (*values, ENTRIES_AT_ONCE))
            return list(checker.entries(connection.title, rows))

    def names_of(self, inodes: Set[int]) -> dict[int, tuple[int, bytes]]:
        """(parent, name): one for each of these inodes that has a name. Reads every entry: there is
        no index by inode."""
        found: dict[int, tuple[int, bytes]] = {}
        last: tuple[int, bytes] = (0, b"")
        with self._connections.connection() as connection:
            while rows := connection.execute(statements.READ_ENTRIES, (*last, ENTRIES_AT_ONCE)):
                places = check_places(connection.title, rows, last)
                found |= {ino: place for ino, place in places if ino in inodes}
                last = places[-1][1]
        return found

    def content(self, ino: int) -> tuple[list[ExtentRow], list[tuple[bytes, bytes]]]:
        """Extents by offset and extended attributes by name; both empty for an inode without any,
        or a missing one. InvalidStateError: a linked file, which must not look like a file without
        bytes; callers that support links use `content_with_links` and `read_stored_content`."""
        extents, xattrs = self.read_stored_content(ino)
        if not extents and (link := self.link(ino)) is not None and link.is_current:
            raise InvalidStateError(
                f"a file of the version is linked to {link.url}, and this operation needs its bytes in the store",
                hint=f"Store linked files first ({Command('import', '--absorb', 'NAME')}, Store().absorb()).",
            )
        return extents, xattrs

    def read_stored_content(self, ino: int) -> tuple[list[ExtentRow], list[tuple[bytes, bytes]]]:
        """As `content`; a linked file has no extents."""
        with self._connections.connection() as connection:
            extents = list(check_extents(connection.title, connection.rows(statements.READ_EXTENTS, (ino,))))
            return extents, list(check_xattrs(connection.title, connection.rows(statements.READ_XATTRS, (ino,))))

    def read_stored_contents(self, first: int, last: int) -> list[ContentRows]:
        """As `read_stored_content`, for the inodes from `first` to `last`, both included. Returns
        inodes that have rows, unless reading them takes more than CONTENT_ROWS_AT_ONCE rows of a
        kind or a value of more than SHORT_VALUE_BYTES."""
        with self._connections.connection() as connection:
            title, limit = connection.title, CONTENT_ROWS_AT_ONCE
            extents = connection.execute(statements.READ_EXTENTS_BETWEEN, (first, last, limit))
            xattrs = connection.execute(statements.READ_SHORT_XATTRS_BETWEEN, (SHORT_VALUE_BYTES, first, last, limit))
        ends = [rows[-1][0] for rows in (extents, xattrs) if len(rows) == limit]
        long = {row[0] for row in xattrs if row[2] is None}
        extents_of, xattrs_of = group_by_inode(title, extents), group_by_inode(title, xattrs)
        return [
            (
                ino,
                list(check_extents(title, iter(extents_of.get(ino, ())))),
                list(check_xattrs(title, iter(xattrs_of.get(ino, ())))),
            )
            for ino in sorted(extents_of.keys() | xattrs_of.keys())
            if ino not in long and all(ino < end for end in ends)
        ]

    def read_stored_extents(self, inodes: Iterable[int]) -> list[ExtentRow]:
        """The extents of all these files."""
        with self._connections.connection() as connection:
            rows = connection.rows(statements.READ_EXTENTS_OF, (json.dumps(list(inodes)),))
            return [check_extent(connection.title, row) for row in rows]

    @property
    def may_have_links(self) -> bool:
        """Whether `link` may find a link."""
        return self._format > 1

    def link(self, ino: int) -> Link | None:
        """The object that the file is linked to; None for a file with its own bytes. A link that is
        not `is_current` serves only uncommitted work."""
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
        """The pack with that number. Reads two or three blocks."""
        with self._connections.connection() as connection:
            rows = connection.execute(statements.READ_PACK, (number,))
            if not rows:
                return None
            [(pack,)] = rows
            if type(pack) is not bytes or len(pack) != PackId.length:
                raise self.damage_error(f"pack {number} has an impossible id")
            return PackId(pack)

    def last_pack_number(self) -> int:
        """The largest number of a pack; 0: there are no packs."""
        with self._connections.connection() as connection:
            [(number,)] = connection.execute(statements.READ_LAST_PACK)
            if number is not None and (type(number) is not int or number < 1):
                raise self.damage_error(f"{number!r} is not a pack number")
            return number or 0

    def pack_ids(self) -> dict[int, PackId]:
        """Number → id of every pack that extents may name, for a walk over a whole version: reads
        the table, 800 packs a block."""
        with self._connections.connection() as connection:
            found: dict[int, PackId] = {}
            last = 0
            for number, pack in connection.rows(statements.READ_PACKS):
                if type(number) is not int or type(pack) is not bytes or len(pack) != PackId.length or number <= last:
                    raise self.damage_error(f"pack {number!r} has an impossible number or id")
                found[number] = PackId(pack)
                last = number
            return found

    def apply(self, changes: ChangeSet) -> IndexDelta:
        """Applies `changes` in one transaction on a copy-on-write overlay; this index stays
        unchanged.

        Publishes nothing. InvalidInputError: the change set contradicts itself or the base. May be
        repeated.
        """
        overlay, facts = apply_changes(self._blocks, changes, spill_dir=self.cache.directory)
        return IndexDelta(overlay, facts, self.cache)

    def close(self) -> None:
        """Waits for running queries; further ones raise InvalidStateError. Deltas made from this
        index stay usable."""
        self._connections.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class IndexDelta:
    """An unpublished changed index: the pages by which it differs from its base.

    For one thread. `close` it after it was published or given up: until then its pages take memory
    or disk.
    """

    def __init__(self, overlay: Overlay, facts: Mapping[str, int], cache: BlockCache) -> None:
        self.totals = Totals(facts["files"], facts["directories"], facts["bytes"])
        self.counted_bytes = facts["bytes"] + facts.get("attribute_bytes", 0)
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
        """The unchanged pages; None if there is no published version."""
        return self._overlay.base if isinstance(self._overlay.base, StoreBlocks) else None

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """(page number from 1, its 16 KiB) of each written page, ascending; without a base, of
        every page."""
        if self.base is None:
            for number in range(self._overlay.count):
                yield number + 1, self._overlay.read(number)
        else:
            for number, page in self._overlay.list_written():
                yield number + 1, page

    def as_index(self, section: IndexSection) -> Index:
        """The new version's index; `section` is the result of `publish` for this delta. Its changed
        blocks are in the cache."""
        if self.reader is None:
            raise InvalidStateError("this index was not published yet")
        url = self.base.url if self.base is not None else ""
        return Index(StoreBlocks(self.reader, section, self.cache, url=url), self.cache)

    def open_unpublished(self) -> Index:
        """The changed index, for one thread; close it before the delta."""
        return Index(self._overlay, self.cache)

    def close(self) -> None:
        self._overlay.close()

    def __enter__(self) -> IndexDelta:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
