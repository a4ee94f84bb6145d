"""Applies a change set to an index: one transaction on a copy-on-write overlay, from which the
changed pages are read.

    fetch the paths to the first keys ─▶ one transaction, rows checked one by one ─▶ check the result ─▶ IndexDelta

Tables are written one after the other, each in the order of its keys, and only rows that differ are
written: a small change dirties few pages, and a large first commit leaves each table in consecutive
pages. Totals are updated row by row.

A change set may be larger than memory: it is read in windows of WINDOW_ROWS, and the paths to the
keys of each window are fetched together. Relations between rows are checked against the index as
changed so far.

Refused (InvalidInputError), because the version would be broken: rows that are invalid or out of
order (`validation`), an entry whose inode or directory does not exist, an extent in an unknown pack
or past the end of its file, extents that do not add up to their file's mapped_bytes, a removed
directory that still has entries, an inode number beyond next_ino, a root that is not a directory, a
link to other bytes than its file has. Not checked, because that would read the whole index: link
counts, inodes without a name.

The base is never touched: an error leaves nothing behind, and the same change set can be applied
again.
"""

from __future__ import annotations

import json
import stat
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from cowfs.base.errors import CorruptError, InvalidStateError
from cowfs.base.hints import Command
from cowfs.index import statements, validation
from cowfs.index.btree import Key, prefetch_paths
from cowfs.index.changes import ChangeSet, InodeRow, Totals
from cowfs.index.connection import Connection
from cowfs.index.damage import damage_error
from cowfs.index.links import Link, LinkWriter, read_link
from cowfs.index.overlay import PAGE_BYTES, Blocks, MemoryBlocks, Overlay
from cowfs.index.rows import check_inode
from cowfs.index.validation import WINDOW_ROWS, refuse
from cowfs.native.constants import COUNTED_BYTES, INODE_HAS_XATTRS, LAST_INO, ROOT_INO

VERIFIED_ROWS = 1000
DENSE = 4  # if at least one of so many new inodes is requested, all are read

T = TypeVar("T")


def apply_changes(base: Blocks, changes: ChangeSet, *, spill_dir: Path) -> tuple[Overlay, dict[str, int]]:
    """The base's pages with the changes over them, and the facts of its meta."""
    validation.check_packs(changes.packs)
    overlay = Overlay.stack_on(base, spill_dir)
    try:
        connection = Connection(overlay, writable=True)
        try:
            connection.check_schema()
            paths = _Paths(connection, overlay)
            paths.fetch_first(changes)
            connection.execute("BEGIN IMMEDIATE")
            facts = _Transaction(connection, changes, paths).run()
            connection.execute("COMMIT")
        finally:
            connection.close()
        _verify(overlay, changes, facts)
    except BaseException:
        overlay.close()
        raise
    return overlay, facts


def read_meta(connection: Connection) -> dict[str, int]:
    """The facts of table meta; CorruptError unless all are present and valid."""
    meta = dict(connection.execute(statements.READ_META))
    for key in ("format", "next_ino", "files", "directories", "bytes"):
        if type(meta.get(key)) is not int or meta[key] < 0:
            raise CorruptError(f"{connection.title} is damaged: meta has no {key}")
    if not ROOT_INO < meta["next_ino"] <= LAST_INO:
        raise damage_error(connection.title, f"next_ino is {meta['next_ino']}")
    if not all(type(value) is int and value >= 0 for value in meta.values()):
        raise CorruptError(f"{connection.title} is damaged: meta has a value that is not a number")
    return meta


class _Paths:
    """Fetches the pages that look-ups and writes of many keys will need, together."""

    def __init__(self, connection: Connection, overlay: Overlay) -> None:
        self._overlay = overlay
        self._roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema"))
        self._next_ino = read_meta(connection)["next_ino"]

    def fetch_first(self, changes: ChangeSet) -> None:
        """Fetches the first window of every table at once: for a small change, these are all
        pages."""

        def first(rows: Iterable[T], key: Callable[[T], int]) -> set[int]:
            return {key(row) for row in islice(rows, WINDOW_ROWS)}

        removed = first(changes.removed, lambda ino: ino)
        contents = first(changes.contents, lambda some: some[0])
        entries = list(islice(changes.entries, WINDOW_ROWS))
        inodes = first(changes.inodes, lambda row: row[0]) | removed | contents
        inodes |= {entry[0] for entry in entries} | {entry[2] for entry in entries if entry[2]}
        self.fetch(
            inodes=inodes,
            entries=[entry[:2] for entry in entries],
            extents=removed | contents,
            xattrs=removed | first(changes.xattrs, lambda some: some[0]),
        )

    def fetch(
        self,
        *,
        inodes: Iterable[int] = (),
        entries: Iterable[tuple[int, bytes]] = (),
        extents: Iterable[int] = (),
        xattrs: Iterable[int] = (),
    ) -> None:
        past = self._next_ino  # larger numbers are at the end of each table, and need no further pages
        keys: dict[str, set[Key]] = {
            "inodes": {(min(ino, past),) for ino in inodes},
            "dirents": {(parent, name) if parent < past else (past, b"") for parent, name in entries},
            "extents": {(min(ino, past),) for ino in extents},
            "xattrs": {(min(ino, past),) for ino in xattrs},
        }
        prefetch_paths(self._overlay, {self._roots[table]: sorted(wanted) for table, wanted in keys.items()})


def _verify(overlay: Overlay, changes: ChangeSet, facts: Mapping[str, int]) -> None:
    """Reads the new pages with a fresh connection, as readers will: they must hold the intended
    rows.

    A complete check would fetch the whole index, so it runs only if all pages are local; otherwise
    some rows are checked.
    """
    pages = int.from_bytes(overlay.read(0)[28:32])
    if pages != overlay.count:
        raise CorruptError(
            f"{overlay.title}: SQLite counts {pages} pages of {PAGE_BYTES} bytes, the overlay {overlay.count}"
        )
    connection = Connection(overlay)
    try:
        connection.check_schema()
        if isinstance(overlay.base, MemoryBlocks):
            found = connection.execute("PRAGMA quick_check(1)")
            if found != [("ok",)]:
                raise CorruptError(f"{overlay.title}: SQLite finds the changed index damaged: {found[0][0]}")
        held = read_meta(connection) == facts
        for row in islice(changes.inodes, VERIFIED_ROWS):
            held &= connection.execute(statements.READ_INODE, (row[0],)) == [row]
        for parent, name, ino in islice(changes.entries, VERIFIED_ROWS):
            found = connection.execute(statements.READ_ENTRY, (parent, name))
            held &= found == ([(ino,)] if ino else [])
        for ino, rows in islice(changes.contents, VERIFIED_ROWS):
            held &= connection.execute(statements.READ_EXTENTS, (ino,)) == list(rows)
        for ino, link in islice(changes.links, VERIFIED_ROWS):
            held &= read_link(connection, ino) == link
        if not held:
            raise CorruptError(f"{overlay.title}: the changed index does not read back as it was written")
    finally:
        connection.close()


class _Transaction:
    """The changes, table by table, inside a transaction of `connection`."""

    def __init__(self, connection: Connection, changes: ChangeSet, paths: _Paths) -> None:
        self._session = connection
        self._changes = changes
        self._paths = paths
        self._meta = read_meta(connection)
        self._totals = Totals(self._meta["files"], self._meta["directories"], self._meta["bytes"])
        self._attribute_bytes = self._meta.get("attribute_bytes", 0)
        self._links = LinkWriter(connection, self._meta)

    def run(self) -> dict[str, int]:
        if self._changes.next_ino > LAST_INO:
            raise InvalidStateError(
                "the volume has used up its inode numbers",
                hint=f"Copy its files into a new volume: {Command('download')} and {Command('upload')}, or Store().import_().",
            )
        if self._changes.next_ino < self._meta["next_ino"]:
            refuse(f"next_ino goes back from {self._meta['next_ino']} to {self._changes.next_ino}")
        self._write_packs()
        removed_directories = self._remove_inodes()
        self._write_inodes()
        self._write_entries()
        for ino in removed_directories:
            if self._session.execute(statements.READ_ANY_ENTRY, (ino,)):
                refuse(f"directory {ino} is removed but still has entries")
        self._write_contents()
        self._links.write(self._new_links())
        if self._changes.forgets_links:
            self._links.forget()
        self._write_xattrs()
        return self._write_meta()

    def _write_packs(self) -> None:
        for number, pack in sorted(self._changes.packs.items()):
            old = self._session.execute(statements.READ_PACK, (number,))
            if old and old[0][0] != pack:
                refuse(f"pack number {number} is taken")
            if not old:
                self._session.execute(statements.INSERT_PACK, (number, bytes(pack)))

    def _old_inodes(self, inodes: Iterable[int]) -> dict[int, InodeRow]:
        """Rows of these inodes in the base, as long as the change set has not reached them."""
        old = [ino for ino in inodes if ino < self._meta["next_ino"]]
        rows = self._session.execute(statements.READ_INODES, (json.dumps(old),)) if old else []
        return {row[0]: check_inode(self._session.title, row) for row in rows}

    def _remove_inodes(self) -> array[int]:
        """Removes the rows of removed inodes in all tables; returns the inodes that were
        directories."""
        directories = array("q")
        for number, window in enumerate(validation.check_removed(self._changes)):
            if number:
                self._paths.fetch(inodes=window, extents=window, xattrs=window)
            self._links.outdate(window)
            old_rows = self._old_inodes(window)
            for ino in window:
                if (old := old_rows.get(ino)) is None:
                    continue
                self._count(old, -1)
                if old[11] & INODE_HAS_XATTRS:
                    self._attribute_bytes -= self._session.execute(statements.READ_XATTR_BYTES, (ino,))[0][0]
                if stat.S_ISDIR(old[1]):
                    directories.append(ino)
                for statement in statements.DELETE_OF_INODE:
                    self._session.execute(statement, (ino,))
        return directories

    def _write_inodes(self) -> None:
        for number, window in enumerate(validation.check_inodes(self._changes)):
            if number:
                self._paths.fetch(inodes=(row[0] for row in window))
            rows = []
            old_rows = self._old_inodes([row[0] for row in window])
            for row in window:
                old = old_rows.get(row[0])
                if old == row:
                    continue
                if old is not None:
                    self._count(old, -1)
                self._count(row, +1)
                rows.append(row)
            self._session.execute_many(statements.WRITE_INODE, rows)

    def _count(self, row: InodeRow, sign: int) -> None:
        files, directories, size = self._totals
        if stat.S_ISDIR(row[1]):
            directories += sign * (row[0] != ROOT_INO)
        else:
            files += sign
            size += sign * min(row[6], COUNTED_BYTES) if stat.S_ISREG(row[1]) else 0
        self._totals = Totals(files, directories, size)
        self._attribute_bytes += sign * len(row[12])

    def _write_entries(self) -> None:
        for number, window in enumerate(validation.check_entries(self._changes)):
            named = {entry[2] for entry in window if entry[2]} | {entry[0] for entry in window}
            if number:
                self._paths.fetch(inodes=named, entries=(entry[:2] for entry in window))
            sizes = self._sizes_of(named)
            for parent in {entry[0] for entry in window if entry[2]}:
                if parent not in sizes or not stat.S_ISDIR(sizes[parent][0]):
                    refuse(f"an entry lies in {parent}, which is not a directory")
            for _, name, ino in window:
                if ino and ino not in sizes:
                    refuse(f"the entry {name!r} names inode {ino}, which does not exist")
            self._session.execute_many(statements.DELETE_ENTRY, [entry[:2] for entry in window if not entry[2]])
            self._session.execute_many(statements.WRITE_ENTRY, [entry for entry in window if entry[2]])

    def _mode(self, ino: int) -> int | None:
        """The mode of an inode after the change; None: it does not exist. Call it after the inodes
        were written."""
        sizes = self._sizes(ino)
        return sizes[0] if sizes is not None else None

    def _sizes(self, ino: int) -> tuple[int, int, int] | None:
        """Mode, size and mapped bytes of an inode after the change."""
        return self._sizes_of((ino,)).get(ino)

    def _sizes_of(self, inodes: Collection[int]) -> dict[int, tuple[int, int, int]]:
        """As `_sizes`, for all of these inodes that exist."""
        new = [ino for ino in inodes if ino >= self._meta["next_ino"]]
        is_dense = len(new) > 1 and max(new) - min(new) < DENSE * len(new)
        single = [ino for ino in inodes if ino < self._meta["next_ino"]] if is_dense else list(inodes)
        rows = self._session.execute(statements.READ_SIZES, (json.dumps(single),))
        if is_dense:
            rows += self._session.execute(statements.READ_SIZES_BETWEEN, (min(new), max(new)))
        for row in rows:
            if tuple(map(type, row)) != (int, int, int, int):
                raise CorruptError(f"{self._session.title} is damaged: inode {row[0]} has values of the wrong type")
        return {ino: (mode, size, mapped_bytes) for ino, mode, size, mapped_bytes in rows}

    def _write_contents(self) -> None:
        known_packs = set(self._changes.packs)
        for number, window in enumerate(validation.check_contents(self._changes)):
            inodes = [some[0] for some in window]
            if number:
                self._paths.fetch(inodes=inodes, extents=inodes)
            self._links.outdate(inodes)
            sizes = self._sizes_of(inodes)
            gone: list[tuple[int, int]] = []
            written: list[tuple[Any, ...]] = []
            for ino, rows in window:
                _check_file(ino, rows, sizes.get(ino))
                old = self._old_rows(statements.READ_EXTENTS, ino)
                gone += _keys_gone(ino, old, rows)
                written += [(ino, *row) for row in rows if old.get(row[0]) != row]
            self._check_packs({row[3] for _, rows in window for row in rows} - known_packs)
            known_packs.update(row[3] for _, rows in window for row in rows)
            self._session.execute_many(statements.DELETE_EXTENT, gone)
            self._session.execute_many(statements.WRITE_EXTENT, written)

    def _new_links(self) -> Iterator[tuple[int, Link]]:
        for number, window in enumerate(validation.check_links(self._changes)):
            if number:
                inodes = [ino for ino, _ in window]
                self._paths.fetch(inodes=inodes, extents=inodes)
            for ino, link in window:
                sizes = self._sizes(ino)
                if sizes is None or not stat.S_ISREG(sizes[0]) or sizes[1:] != (link.size, link.size):
                    refuse(f"inode {ino} is linked to {link.size} bytes, which it does not have")
                if self._session.execute(statements.READ_EXTENTS, (ino,)):
                    refuse(f"inode {ino} is linked and has contents")
                self._links.outdate((ino,))
                yield ino, link

    def _check_packs(self, packs: Iterable[int]) -> None:
        for pack in packs:
            if not self._session.execute(statements.READ_PACK, (pack,)):
                refuse(f"extents lie in pack {pack}, which has no id")

    def _write_xattrs(self) -> None:
        for number, window in enumerate(validation.check_xattrs(self._changes)):
            if number:
                self._paths.fetch(xattrs=(ino for ino, _ in window))
            gone: list[tuple[int, bytes]] = []
            written: list[tuple[Any, ...]] = []
            for ino, rows in window:
                if self._mode(ino) is None:
                    refuse(f"inode {ino} has extended attributes but does not exist")
                old = self._old_rows(statements.READ_XATTRS, ino)
                gone += _keys_gone(ino, old, rows)
                written += [(ino, *row) for row in sorted(rows) if old.get(row[0]) != row]
                self._attribute_bytes += _bytes_of(rows) - _bytes_of(old.values())
            self._session.execute_many(statements.DELETE_XATTR, gone)
            self._session.execute_many(statements.WRITE_XATTR, written)

    def _old_rows(self, sql: str, ino: int) -> dict[Any, tuple[Any, ...]]:
        if ino >= self._meta["next_ino"]:
            return {}
        return {row[0]: row for row in self._session.execute(sql, (ino,))}

    def _write_meta(self) -> dict[str, int]:
        root = self._mode(ROOT_INO)
        if root is None or not stat.S_ISDIR(root):
            refuse("the root is not a directory")
        if min(self._totals) < 0:
            raise CorruptError(
                f"{self._session.title} is damaged: its totals are smaller than those of the removed rows"
            )
        facts = {"next_ino": self._changes.next_ino, **self._totals._asdict(), **self._links.finish()}
        if self._attribute_bytes > 0:  # 0 or less if the base did not count them
            facts["attribute_bytes"] = self._attribute_bytes
        changed = [(value, key) for key, value in facts.items() if self._meta.get(key) not in (None, value)]
        self._session.execute_many(statements.UPDATE_META, changed)
        new = [(key, value) for key, value in facts.items() if key not in self._meta]
        self._session.execute_many(statements.INSERT_META, new)
        self._session.execute_many(statements.DELETE_META, [(key,) for key in self._meta.keys() - facts.keys()])
        return facts


def _check_file(ino: int, rows: Sequence[tuple[Any, ...]], sizes: tuple[int, int, int] | None) -> None:
    if sizes is None or not stat.S_ISREG(sizes[0]):
        refuse(f"inode {ino} has contents but is not a regular file")
    _, size, claimed_bytes = sizes
    if rows and rows[-1][0] + rows[-1][1] > size:
        refuse(f"file {ino} has {size} bytes but an extent that ends at {rows[-1][0] + rows[-1][1]}")
    mapped_bytes = sum(extent[1] for extent in rows)
    if claimed_bytes != mapped_bytes:
        refuse(f"file {ino} claims {claimed_bytes} mapped bytes, its extents have {mapped_bytes}")


def _bytes_of(xattrs: Iterable[Sequence[bytes]]) -> int:
    return sum(len(name) + len(value) for name, value in xattrs)


def _keys_gone(ino: int, old: Mapping[Any, Any], rows: Sequence[tuple[Any, ...]]) -> list[tuple[int, Any]]:
    kept = {row[0] for row in rows}
    return [(ino, key) for key in old if key not in kept]
