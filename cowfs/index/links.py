"""Linked files in an index of format 2 (`links.sql`): reading their rows, and writing them within a
writer's transaction.

    no link        format 1; the tables are made with the first link
    link           a row that is current, and no extents
    contents       the file had a link, or was removed: its row is no longer current
    forgotten      rows that are not current are deleted once the writer says that no journal refers
                   to them; the tables are deleted with the last row, and the format is 1 again

For readers of files (engines, downloads, comparisons) a linked file has extents that are not in any
index (`content_with_links`):

    number of the pack    FIRST_NUMBER + inode number: never the number of a pack
    chunk                 PIECE_BYTES of the object, not compressed
    name of the chunk     BLAKE3 of origin, key, state and range, in its own context (`range_name`)

A mount names linked bytes in its journal by the inode of the row, so a row must outlast its file
while there may be uncommitted work based on the version (docs/decisions/0041-linked-imports.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from cowfs.base.errors import CorruptError
from cowfs.base.fast_dataclass import dataclass
from cowfs.format.canonical import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cowfs.index.changes import ExtentRow
    from cowfs.index.connection import Connection
    from cowfs.index.index import Index

SCHEMA = Path(__file__).with_name("links.sql").read_text(encoding="utf-8")
KEY_BYTES = 4096
TAG_BYTES = 1024
MAX_INO = (1 << 31) - 1
"""Uncommitted work names linked bytes by 32-bit numbers; the other half is for packs."""
FIRST_NUMBER = MAX_INO + 1
PIECE_BYTES = 1 << 20
_CONTEXT = "cowfs 2026-11-22 name of a range of a linked object"

_READ = (
    "SELECT o.url, l.key, l.size, l.mtime_ns, l.tag, l.is_current "
    "FROM links AS l LEFT JOIN origins AS o ON o.number = l.origin WHERE l.ino = ?"
)
_READ_AFTER = (
    "SELECT l.ino, o.url, l.key, l.size, l.mtime_ns, l.tag, l.is_current "
    "FROM links AS l LEFT JOIN origins AS o ON o.number = l.origin WHERE l.ino > ? ORDER BY l.ino LIMIT ?"
)
_READ_OF_EACH = (
    "SELECT l.ino, o.url, l.key, l.size, l.mtime_ns, l.tag, l.is_current "
    "FROM links AS l LEFT JOIN origins AS o ON o.number = l.origin "
    "WHERE l.ino IN (SELECT value FROM json_each(?))"
)
_READ_ORIGINS = "SELECT number, url FROM origins ORDER BY number"
_INSERT_ORIGIN = "INSERT INTO origins (number, url) VALUES (?, ?)"
_WRITE = "REPLACE INTO links (ino, origin, key, size, mtime_ns, tag, is_current) VALUES (?, ?, ?, ?, ?, ?, 1)"
_OUTDATE = "UPDATE links SET is_current = 0 WHERE ino = ?"
_FORGET = "DELETE FROM links WHERE is_current = 0"
_KEYS = ("links", "linked_bytes", "links_left")


@dataclass(frozen=True, slots=True)
class Link:
    """The state of the object that a file is linked to. url: of the origin. is_current: False for a
    row that only uncommitted work may refer to."""

    url: str
    key: bytes
    size: int
    mtime_ns: int
    tag: str
    is_current: bool = True


def link_problem(link: Any) -> str | None:
    """The fault of a link; None if it has none."""
    types = (str, bytes, int, int, str)
    if tuple(map(type, (link.url, link.key, link.size, link.mtime_ns, link.tag))) != types:
        return "a link has values of the wrong type"
    if not link.url or len(link.key) > KEY_BYTES or b"\0" in link.key or len(link.tag.encode()) > TAG_BYTES:
        return "a link has an impossible URL, key or tag"
    if link.size < 1 or not -(1 << 63) <= link.mtime_ns < 1 << 63:
        return "a link has an impossible size or time"
    return None


def read_link(connection: Connection, ino: int) -> Link | None:
    """The link in an index of format 2, current or not."""
    rows = connection.execute(_READ, (ino,))
    return _to_link(connection.title, rows[0]) if rows else None


def read_links(connection: Connection, after: int, limit: int) -> list[tuple[int, Link]]:
    """(ino, link) of the next rows, current or not, ascending."""
    return _to_links(connection, connection.execute(_READ_AFTER, (after, limit)))


def links_by_inode(index: Index, inodes: Iterable[int]) -> dict[int, Link]:
    """The current links of these files, in an index of any format."""
    if not index.may_have_links:
        return {}
    with index.connections.connection() as connection:
        rows = connection.execute(_READ_OF_EACH, (json.dumps(list(inodes)),))
        return {ino: link for ino, link in _to_links(connection, rows) if link.is_current}


def _to_links(connection: Connection, rows: list[Any]) -> list[tuple[int, Link]]:
    if any(type(row[0]) is not int for row in rows):
        raise CorruptError(f"{connection.title} is damaged: a link has no inode number")
    return [(row[0], _to_link(connection.title, row[1:])) for row in rows]


def _to_link(title: str, row: Any) -> Link:
    url, key, size, mtime_ns, tag, is_current = row
    try:
        link = Link(url, key, size, mtime_ns, tag.decode(), is_current == 1)
    except (AttributeError, UnicodeDecodeError):
        link = None
    problem = "a link has a tag that is not text" if link is None else link_problem(link)
    if link is None or problem is not None:
        raise CorruptError(f"{title} is damaged: {problem}", hint="Use another version.")
    return link


def content_with_links(index: Index, ino: int) -> tuple[list[ExtentRow], list[tuple[bytes, bytes]]]:
    """As `Index.content`, with extents for linked files."""
    extents, xattrs = index.read_stored_content(ino)
    if not extents and (link := index.link(ino)) is not None and link.is_current:
        extents = _extents(ino, link)
    return extents, xattrs


def _extents(ino: int, link: Link) -> list[ExtentRow]:
    rows: list[ExtentRow] = []
    for offset in range(0, link.size, PIECE_BYTES):
        length = min(PIECE_BYTES, link.size - offset)
        name = range_name(link, offset, length)
        rows.append((offset, length, name, FIRST_NUMBER + ino, offset, length, length, 0, 0))
    return rows


def range_name(link: Link, offset: int, length: int) -> bytes:
    """Replaces the hash of a range of a linked object. It identifies a state, and proves
    nothing."""
    said = {"url": link.url, "key": link.key.hex(), "size": link.size, "mtime_ns": link.mtime_ns, "tag": link.tag}
    return blake3(encode({**said, "offset": offset, "length": length}), derive_key_context=_CONTEXT).digest()


class LinkWriter:
    """Writes links within a transaction. meta: the facts of the base."""

    def __init__(self, connection: Connection, meta: dict[str, int]) -> None:
        self._connection = connection
        self._is_there = meta["format"] == 2
        self._count, self.linked_bytes, self._left = (meta.get(key, 0) for key in _KEYS)
        self._origins: dict[str, int] = {}
        if self._is_there:
            self._origins = {url: number for number, url in connection.execute(_READ_ORIGINS)}

    def outdate(self, inodes: Iterable[int]) -> None:
        """Marks the rows of files that were removed or have their own bytes now."""
        if not self._is_there:
            return
        for ino in inodes:
            link = read_link(self._connection, ino)
            if link is not None and link.is_current:
                self._connection.execute(_OUTDATE, (ino,))
                self._add(-1, -link.size)
                self._left += 1

    def write(self, rows: Iterator[tuple[int, Link]]) -> None:
        """Adds links of files that have none."""
        for ino, link in rows:
            if not self._is_there:
                self._connection.execute(SCHEMA)
                self._is_there = True
            number = self._origins.get(link.url)
            if number is None:
                number = self._origins[link.url] = max(self._origins.values(), default=0) + 1
                self._connection.execute(_INSERT_ORIGIN, (number, link.url))
            self._connection.execute(_WRITE, (ino, number, link.key, link.size, link.mtime_ns, link.tag.encode()))
            self._add(+1, link.size)

    def forget(self) -> None:
        """Deletes rows that are not current: no uncommitted work refers to them."""
        if self._left:
            self._connection.execute(_FORGET)
            self._left = 0

    def finish(self) -> dict[str, int]:
        """The facts of meta about links, including the format."""
        if self._is_there and not (self._count or self._left):
            for table in ("links", "origins"):
                self._connection.execute(f"DROP TABLE {table}")
            self._is_there = False
        if not self._is_there:
            return {"format": 1}
        if self._count < 0 or self.linked_bytes < 0:
            raise CorruptError(f"{self._connection.title} is damaged: it counts fewer links than it has")
        return {"format": 2, **dict(zip(_KEYS, (self._count, self.linked_bytes, self._left), strict=True))}

    def _add(self, count: int, size: int) -> None:
        self._count += count
        self.linked_bytes += size
