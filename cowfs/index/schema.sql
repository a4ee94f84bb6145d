-- The index of one version: a SQLite database, format 1. This file is the authority; docs/format/index.md explains.
--
-- The statements below are stored in the database exactly as they stand here, and an index whose
-- stored statements differ is refused. Change one byte of a statement and it is a new format with a new number.
--
-- Numbers are integers, names and values are BLOBs (bytes, compared as bytes). Times are nanoseconds since the epoch.
-- Rows sit in the order of their primary keys, so what is used together lies together and a small change touches few pages.
-- There is no second index, no trigger, no view, and no key that is random: chunk hashes appear only as values.
--
-- Fixed when a database is created: page_size 16384 (a page is a block of the store), auto_vacuum none, encoding UTF-8.
-- Set on each writing connection: secure_delete on, so that a freed or shrunk page carries no old bytes.

-- What there is to know about the index itself.
--   key      name of the fact
--   value    integer
-- Keys: format (1), next_ino (smallest inode number never used), files (inodes that are not directories),
-- directories (without the root), bytes (sum of the sizes of regular files, each inode once), and, if not 0,
-- attribute_bytes (link targets, names and values of extended attributes).
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- One row for each name. `.` and `..` are not stored; the root (ino 1) has no name.
--   parent   inode number of the directory that holds the name
--   name     1 to 255 bytes without `/` and NUL
--   ino      the inode it names; several names may share one (hard links, never of a directory)
CREATE TABLE dirents (
    parent INTEGER NOT NULL,
    name BLOB NOT NULL,
    ino INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID, STRICT;

-- One row for each inode with at least one name, and the root.
--   ino        never used for another inode in this volume's line of versions
--   mode       type and permission bits as in stat(2)
--   nlink      number of links as in stat(2), at least 1
--   uid, gid   owner
--   rdev       device number of a block or character device, else 0
--   size       bytes of a regular file, length of a symlink's target, else 0
--   mapped_bytes   bytes of a regular file that are in extents, else 0: what stat(2) counts as st_blocks, known before
--              a single extent is read
--   *_ns       access, modification and change time
--   flags      1: the inode has rows in xattrs
--   target     what a symlink points to, else empty
CREATE TABLE inodes (
    ino INTEGER PRIMARY KEY,
    mode INTEGER NOT NULL,
    nlink INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    rdev INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mapped_bytes INTEGER NOT NULL,
    atime_ns INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    target BLOB NOT NULL
) STRICT;

-- What a regular file's bytes are: one row for each run of bytes that lies in one chunk. Runs do not overlap;
-- bytes in no run are zero (a hole).
--   ino             the file
--   offset          first byte of the run in the file
--   length          bytes the run shows, at least 1
--   hash            32 bytes, the chunk's name: BLAKE3 of its raw bytes
--   pack            number of the pack that holds the chunk (table packs)
--   pack_offset     first byte of the stored chunk in the pack
--   stored_length   bytes it takes there
--   raw_length      bytes of the chunk once decoded
--   skip            bytes of the raw chunk before the run: skip + length <= raw_length
--   codec           0: stored as it is, 1: one zstd frame
CREATE TABLE extents (
    ino INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    hash BLOB NOT NULL,
    pack INTEGER NOT NULL,
    pack_offset INTEGER NOT NULL,
    stored_length INTEGER NOT NULL,
    raw_length INTEGER NOT NULL,
    skip INTEGER NOT NULL,
    codec INTEGER NOT NULL,
    PRIMARY KEY (ino, offset)
) WITHOUT ROWID, STRICT;

-- Extended attributes.
--   ino     the inode
--   name    1 to 255 bytes without NUL, namespace included (`user.…`)
--   value   up to 65536 bytes
CREATE TABLE xattrs (
    ino INTEGER NOT NULL,
    name BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (ino, name)
) WITHOUT ROWID, STRICT;

-- The packs that extents name by number.
--   number   1, 2, …; never used for another pack in this volume's line of versions; rows stay even when no extent needs
--            them any more, because a running mount may still read an unlinked open file through them
--   id       16 bytes, the pack's id in the store
CREATE TABLE packs (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL
) STRICT;
