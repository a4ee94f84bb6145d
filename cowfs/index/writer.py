"""Applies a change set to an index: one transaction on a copy-on-write overlay, from which the changed pages are read.

    check the rows by themselves ─▶ fetch the paths to their keys ─▶ one transaction ─▶ check what it left ─▶ IndexDelta

Tables are written one after the other, each in the order of its keys, and only rows that differ are written: a small change
dirties few pages, and a large first one leaves each table in pages that follow one another. Totals are kept from row to row.

Refused (InvalidInputError), because the version would be broken: an entry whose inode or directory does not exist, an extent in
an unknown pack or past the end of its file, extents that do not add up to their file's mapped_bytes, a removed directory that
still has entries, an inode number from beyond next_ino, a root that is no directory. Not checked, because it would read the
whole index: link counts, inodes without a name.

The base is never touched: an error leaves nothing behind, and the same change set can be applied again.
"""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cowfs.errors import CorruptError
from cowfs.index import statements
from cowfs.index.btree import Key, prefetch_paths
from cowfs.index.changes import ChangeSet, InodeRow, Totals
from cowfs.index.overlay import PAGE_BYTES, Blocks, MemoryBlocks, Overlay
from cowfs.index.rows import ROOT_INO, checked_inode
from cowfs.index.session import Session
from cowfs.index.validation import check_rows, refuse

VERIFIED_ROWS = 1000

# A sparse file may claim 8 EiB; two of them would not fit in the 64 bits of a total.
COUNTED_BYTES = 1 << 43


def apply_changes(base: Blocks, changes: ChangeSet, *, spill_dir: Path) -> tuple[Overlay, Totals]:
    """The base's pages with the changes over them."""
    check_rows(changes)
    overlay = Overlay(base, spill_dir)
    try:
        session = Session(overlay, writable=True)
        try:
            session.check_schema()
            _prefetch(session, overlay, changes)
            session.execute("BEGIN IMMEDIATE")
            totals = _Transaction(session, changes).run()
            session.execute("COMMIT")
        finally:
            session.close()
        _verify(overlay, changes, totals)
    except BaseException:
        overlay.close()
        raise
    return overlay, totals


def read_meta(session: Session) -> dict[str, int]:
    """The facts of table meta; CorruptError unless all are there and make sense."""
    meta = dict(session.execute(statements.READ_META))
    for key in ("format", "next_ino", "files", "directories", "bytes"):
        if type(meta.get(key)) is not int or meta[key] < 0:
            raise CorruptError(f"{session.title} is damaged: meta has no {key}")
    return meta


def _prefetch(session: Session, overlay: Overlay, changes: ChangeSet) -> None:
    roots = dict(session.execute("SELECT name, rootpage FROM sqlite_schema"))
    inodes = {row[0] for row in changes.inodes} | set(changes.removed) | {entry[2] for entry in changes.entries}
    inodes |= {entry[0] for entry in changes.entries} | changes.contents.keys()
    files = set(changes.removed) | changes.contents.keys()
    tables: dict[str, Iterable[Key]] = {
        "inodes": ((ino,) for ino in inodes if ino),
        "dirents": ((parent, name) for parent, name, _ in changes.entries),
        "extents": ((ino,) for ino in files),
        "xattrs": ((ino,) for ino in set(changes.removed) | changes.xattrs.keys()),
    }
    prefetch_paths(overlay, {roots[table]: sorted(keys) for table, keys in tables.items()})


def _verify(overlay: Overlay, changes: ChangeSet, totals: Totals) -> None:
    """Reads the new pages with a fresh connection, as every reader will: what is published is what was meant.

    A whole check would fetch the whole index, so it runs only where all pages are here; else rows stand for the rest.
    """
    pages = int.from_bytes(overlay.read(0)[28:32])
    if pages != overlay.count:
        raise CorruptError(
            f"{overlay.title}: SQLite counts {pages} pages of {PAGE_BYTES} bytes, the overlay {overlay.count}"
        )
    session = Session(overlay)
    try:
        session.check_schema()
        if isinstance(overlay.base, MemoryBlocks):
            found = session.execute("PRAGMA quick_check(1)")
            if found != [("ok",)]:
                raise CorruptError(f"{overlay.title}: SQLite finds the changed index damaged: {found[0][0]}")
        facts = read_meta(session)
        held = all(facts[key] == value for key, value in totals._asdict().items())
        for row in changes.inodes[:VERIFIED_ROWS]:
            held &= session.execute(statements.READ_INODE, (row[0],)) == [row]
        for parent, name, ino in changes.entries[:VERIFIED_ROWS]:
            found = session.execute(statements.READ_ENTRY, (parent, name))
            held &= found == ([(ino,)] if ino else [])
        for ino, rows in itertools.islice(changes.contents.items(), VERIFIED_ROWS):
            held &= session.execute(statements.READ_EXTENTS, (ino,)) == list(rows)
        if not held:
            raise CorruptError(f"{overlay.title}: the changed index does not read back as it was written")
    finally:
        session.close()


class _Transaction:
    """The changes, table by table, inside a transaction of `session`."""

    def __init__(self, session: Session, changes: ChangeSet) -> None:
        self._session = session
        self._changes = changes
        self._meta = read_meta(session)
        self._new = {row[0]: row for row in changes.inodes}
        self._removed = set(changes.removed)
        self._modes: dict[int, int | None] = {}  # of inodes that exist and are not in the change set
        self._totals = Totals(self._meta["files"], self._meta["directories"], self._meta["bytes"])

    def run(self) -> Totals:
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
        self._write_xattrs()
        self._write_meta()
        return self._totals

    def _write_packs(self) -> None:
        for number, pack in sorted(self._changes.packs.items()):
            old = self._session.execute(statements.READ_PACK, (number,))
            if old and old[0][0] != pack:
                refuse(f"pack number {number} is taken")
            if not old:
                self._session.execute(statements.INSERT_PACK, (number, bytes(pack)))

    def _old_inode(self, ino: int) -> InodeRow | None:
        if ino >= self._meta["next_ino"]:
            return None
        rows = self._session.execute(statements.READ_INODE, (ino,))
        return checked_inode(self._session.title, rows[0]) if rows else None

    def _remove_inodes(self) -> list[int]:
        """Rows of inodes that are gone, with all that hangs on them; returns those that were directories."""
        directories = []
        for ino in sorted(self._removed):
            old = self._old_inode(ino)
            if old is None:
                continue
            self._count(old, -1)
            if stat.S_ISDIR(old[1]):
                directories.append(ino)
            for statement in statements.DELETE_OF_INODE:
                self._session.execute(statement, (ino,))
        return directories

    def _write_inodes(self) -> None:
        rows = []
        for row in sorted(self._changes.inodes):
            old = self._old_inode(row[0])
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

    def _write_entries(self) -> None:
        entries = sorted(self._changes.entries)
        for parent in {entry[0] for entry in entries if entry[2]}:
            mode = self._mode(parent)
            if mode is None or not stat.S_ISDIR(mode):
                refuse(f"an entry lies in {parent}, which is no directory")
        for _, name, ino in entries:
            if ino and self._mode(ino) is None:
                refuse(f"the entry {name!r} names inode {ino}, which does not exist")
        self._session.execute_many(statements.DELETE_ENTRY, [e[:2] for e in entries if not e[2]])
        self._session.execute_many(
            statements.WRITE_ENTRY,
            [entry for entry in entries if entry[2]],
        )

    def _mode(self, ino: int) -> int | None:
        """The mode an inode has after the change; None: it does not exist."""
        if ino in self._removed:
            return None
        if ino in self._new:
            return self._new[ino][1]
        if ino not in self._modes:
            old = self._old_inode(ino)
            self._modes[ino] = old[1] if old is not None else None
        return self._modes[ino]

    def _write_contents(self) -> None:
        packs: set[int] = set()
        gone: list[tuple[int, int]] = []
        written: list[tuple[Any, ...]] = []
        for ino, rows in sorted(self._changes.contents.items()):
            self._check_file(ino, rows)
            old = self._old_rows(statements.READ_EXTENTS, ino)
            packs.update(row[3] for row in rows)
            gone += _keys_gone(ino, old, rows)
            written += [(ino, *row) for row in rows if old.get(row[0]) != row]
        for pack in sorted(packs - self._changes.packs.keys()):
            if not self._session.execute(statements.READ_PACK, (pack,)):
                refuse(f"extents lie in pack {pack}, which has no id")
        self._session.execute_many(statements.DELETE_EXTENT, gone)
        self._session.execute_many(statements.WRITE_EXTENT, written)

    def _check_file(self, ino: int, rows: Sequence[tuple[Any, ...]]) -> None:
        mode = self._mode(ino)
        if mode is None or not stat.S_ISREG(mode):
            refuse(f"inode {ino} has contents but is no regular file")
        row = self._new.get(ino) or self._old_inode(ino)
        if rows and row is not None and rows[-1][0] + rows[-1][1] > row[6]:
            refuse(f"file {ino} has {row[6]} bytes but an extent that ends at {rows[-1][0] + rows[-1][1]}")
        mapped_bytes = sum(extent[1] for extent in rows)
        if row is not None and row[7] != mapped_bytes:
            refuse(f"file {ino} claims {row[7]} mapped bytes, its extents have {mapped_bytes}")

    def _write_xattrs(self) -> None:
        gone: list[tuple[int, bytes]] = []
        written: list[tuple[Any, ...]] = []
        for ino, rows in sorted(self._changes.xattrs.items()):
            if self._mode(ino) is None:
                refuse(f"inode {ino} has extended attributes but does not exist")
            old = self._old_rows(statements.READ_XATTRS, ino)
            gone += _keys_gone(ino, old, rows)
            written += [(ino, *row) for row in sorted(rows) if old.get(row[0]) != row]
        self._session.execute_many(statements.DELETE_XATTR, gone)
        self._session.execute_many(statements.WRITE_XATTR, written)

    def _old_rows(self, sql: str, ino: int) -> dict[Any, tuple[Any, ...]]:
        if ino >= self._meta["next_ino"]:
            return {}
        return {row[0]: row for row in self._session.execute(sql, (ino,))}

    def _write_meta(self) -> None:
        root = self._mode(ROOT_INO)
        if root is None or not stat.S_ISDIR(root):
            refuse("the root is no directory")
        if min(self._totals) < 0:
            raise CorruptError(f"{self._session.title} is damaged: its totals are smaller than what was removed")
        facts = {"next_ino": self._changes.next_ino, **self._totals._asdict()}
        changed = [(value, key) for key, value in facts.items() if self._meta[key] != value]
        self._session.execute_many(statements.UPDATE_META, changed)


def _keys_gone(ino: int, old: Mapping[Any, Any], rows: Sequence[tuple[Any, ...]]) -> list[tuple[int, Any]]:
    kept = {row[0] for row in rows}
    return [(ino, key) for key in old if key not in kept]
