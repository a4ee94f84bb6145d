-- What an index of format 2 has besides the tables of schema.sql: files that are objects of somebody else.
-- Stored as it stands here, as schema.sql says of itself. A version without links has neither table, and format 1.
--
-- Keys of meta besides: links (rows that are current), linked_bytes (sum of their sizes), links_left (rows that are not).

-- Where linked objects lie.
--   number   1, 2, …
--   url      canonical, without credentials (docs/format/locator.md: store URL)
CREATE TABLE origins (
    number INTEGER PRIMARY KEY,
    url TEXT NOT NULL
) STRICT;

-- One row for each linked file. It has no extents; its bytes are the object's, in the state that the row names.
--   ino          the file: a regular one of `size` bytes, mapped_bytes the same
--   origin       where the object lies (table origins)
--   key          of the object, relative to the origin's URL; empty: the object that the URL itself names
--   size         bytes of the object, at least 1
--   mtime_ns     its time of modification as the origin had it, 0: not known
--   tag          what the origin calls this state of it, an ETag for example; empty: nothing
--   is_current   0: the file has bytes of its own by now, or is gone. The row stays as long as a running mount's journal may
--                refer to it: extents of uncommitted work name linked bytes by the number of this row
CREATE TABLE links (
    ino INTEGER PRIMARY KEY,
    origin INTEGER NOT NULL,
    key BLOB NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    tag BLOB NOT NULL,
    is_current INTEGER NOT NULL
) STRICT;
