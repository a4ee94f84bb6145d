"""The index of a version: directory entries, inodes, extents, xattrs and packs in one lazily read
SQLite database.

    open_index    a published version, read block by block as queries need it
    empty_index   a volume that has no version yet
    Subtree       one directory of a version as if it were all of it
    Index.apply   a change set becomes an IndexDelta: changed pages, published nowhere
    ChunkUses     which chunks a version needs, page by page, for who goes through many versions
    differing     which rows two versions have not in common
    find_places   the names of inodes
    extents_in    what files name in some packs; last_extents: the last of each pack
    stored_places which chunks files name
    publish       the delta's blocks go to the store; returns the section a manifest names

apsw is imported only in this layer, and only apsw opens these databases. `schema.sql` is the
authority on what is in them, `docs/format/index.md` on how they lie in a store. Not here: what a
commit is, or where chunks go (`cowfs.version`).
"""

from __future__ import annotations

from cowfs.index.changes import ChangeSet, Content, Entry, ExtentRow, InodeRow, Stream, Totals, Xattrs
from cowfs.index.chunk_uses import ChunkUses
from cowfs.index.comparing import Differing, differing
from cowfs.index.index import Index, IndexDelta, empty_index, open_index
from cowfs.index.links import Link, content_with_links
from cowfs.index.places import find_places
from cowfs.index.publish import Published, publish
from cowfs.index.stored import extents_in, last_extents, stored_places
from cowfs.index.subtree import Subtree

__all__ = [
    "ChangeSet",
    "ChunkUses",
    "Content",
    "Differing",
    "Entry",
    "ExtentRow",
    "Index",
    "IndexDelta",
    "InodeRow",
    "Link",
    "Published",
    "Stream",
    "Subtree",
    "Totals",
    "Xattrs",
    "content_with_links",
    "differing",
    "empty_index",
    "extents_in",
    "find_places",
    "last_extents",
    "open_index",
    "publish",
    "stored_places",
]
