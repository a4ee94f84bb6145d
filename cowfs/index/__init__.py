"""The index of a version: directory entries, inodes, extents, xattrs and packs in one lazily read
SQLite database.

    open_index    a published version, read block by block as queries need it
    empty_index   a volume that has no version yet
    Subtree       one directory of a version as if it were all of it
    Index.apply   a change set becomes an IndexDelta: changed pages that are not published yet
    ChunkUses     the chunks that a version needs, page by page, for walks over many versions
    differing     the rows in which two versions differ
    find_places   the names of inodes
    extents_in    the extents of files in some packs; last_extents: the last one of each pack
    list_places   the chunks that files name
    tree_problems the places where the rows of a version are not a tree
    publish       uploads the delta's blocks; returns the section that a manifest names

apsw is imported only in this layer, and only apsw opens these databases. `schema.sql` defines their
tables, `docs/format/index.md` how they lie in a store. Not here: commits, and the places of chunks
(`cowfs.version`).
"""

from __future__ import annotations

from cowfs.index.changes import ChangeSet, Content, Entry, ExtentRow, InodeRow, Stream, Totals, Xattrs
from cowfs.index.chunk_uses import ChunkUses
from cowfs.index.comparing import Differing, differing
from cowfs.index.delta import Published, publish
from cowfs.index.index import Index, IndexDelta, empty_index, open_index
from cowfs.index.links import Link, content_with_links
from cowfs.index.paths import find_places
from cowfs.index.stored import extents_in, last_extents, list_places
from cowfs.index.subtree import Subtree
from cowfs.index.tree import tree_problems

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
    "list_places",
    "open_index",
    "publish",
    "tree_problems",
]
