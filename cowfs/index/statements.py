"""Every SQL statement that reads or writes rows of an index. The columns are those of schema.sql,
in the engine's order."""

from __future__ import annotations

READ_META = "SELECT key, value FROM meta"
READ_PACKS = "SELECT number, id FROM packs ORDER BY number"
READ_PACK = "SELECT id FROM packs WHERE number = ?"
READ_LAST_PACK = "SELECT max(number) FROM packs"
READ_INODE = (
    "SELECT ino, mode, nlink, uid, gid, rdev, size, mapped_bytes, atime_ns, mtime_ns, ctime_ns, flags, target "
    "FROM inodes WHERE ino = ?"
)
READ_INODES = (
    "SELECT ino, mode, nlink, uid, gid, rdev, size, mapped_bytes, atime_ns, mtime_ns, ctime_ns, flags, target "
    "FROM inodes WHERE ino IN (SELECT value FROM json_each(?))"
)
READ_SIZES = "SELECT ino, mode, size, mapped_bytes FROM inodes WHERE ino IN (SELECT value FROM json_each(?))"
READ_SIZES_BETWEEN = "SELECT ino, mode, size, mapped_bytes FROM inodes WHERE ino BETWEEN ? AND ?"
READ_ENTRY = "SELECT ino FROM dirents WHERE parent = ? AND name = ?"
READ_ENTRIES = "SELECT parent, name, ino FROM dirents WHERE (parent, name) > (?, ?) ORDER BY parent, name LIMIT ?"
READ_INODES_BEHIND = (
    "SELECT ino, mode, nlink, uid, gid, rdev, size, mapped_bytes, atime_ns, mtime_ns, ctime_ns, flags, target "
    "FROM inodes WHERE ino > ? ORDER BY ino LIMIT ?"
)
READ_DIRECTORY_PLACES = (
    "SELECT d.parent, d.name, d.ino, i.ino IS NULL FROM dirents AS d LEFT JOIN inodes AS i ON i.ino = d.ino "
    "WHERE i.ino IS NULL OR i.mode & 61440 = 16384 ORDER BY d.parent, d.name"
)
READ_PLACES = (
    "SELECT parent, name, ino FROM dirents WHERE ino IN (SELECT value FROM json_each(?)) ORDER BY parent, name"
)
READ_ENTRIES_ROOT = "SELECT rootpage FROM sqlite_schema WHERE name = 'dirents'"
READ_EXTENTS_ROOT = "SELECT rootpage FROM sqlite_schema WHERE name = 'extents'"
READ_LONG_XATTRS = "SELECT DISTINCT ino FROM xattrs WHERE length(value) > ?"
READ_PARENTS = "SELECT DISTINCT parent FROM dirents"
READ_ANY_ENTRY = "SELECT 1 FROM dirents WHERE parent = ? LIMIT 1"
_DIRECTORY = (
    "SELECT d.name, i.ino, mode, nlink, uid, gid, rdev, size, mapped_bytes, atime_ns, mtime_ns, ctime_ns, flags, target "
    "FROM dirents AS d LEFT JOIN inodes AS i ON i.ino = d.ino WHERE d.parent = ?{} ORDER BY d.name LIMIT ?"
)
READ_DIRECTORY_START = _DIRECTORY.format("")
READ_DIRECTORY_AFTER = _DIRECTORY.format(" AND d.name > ?")
READ_EXTENTS = (
    "SELECT offset, length, hash, pack, pack_offset, stored_length, raw_length, skip, codec "
    "FROM extents WHERE ino = ? ORDER BY offset"
)
READ_EXTENTS_BETWEEN = (
    "SELECT ino, offset, length, hash, pack, pack_offset, stored_length, raw_length, skip, codec "
    "FROM extents WHERE ino BETWEEN ? AND ? ORDER BY ino, offset LIMIT ?"
)
READ_EXTENTS_OF = (
    "SELECT offset, length, hash, pack, pack_offset, stored_length, raw_length, skip, codec FROM extents "
    "WHERE ino IN (SELECT value FROM json_each(?))"
)
READ_EXTENTS_OF_EACH = (
    "SELECT ino, offset, length, hash, pack, pack_offset, stored_length, raw_length, skip, codec FROM extents "
    "WHERE ino IN (SELECT value FROM json_each(?)) ORDER BY ino, offset"
)
READ_STORED_PLACES = "SELECT DISTINCT pack, pack_offset, stored_length FROM extents"
READ_EXTENTS_IN = (
    "SELECT ino, offset, length, hash, pack, pack_offset, stored_length, raw_length, skip, codec FROM extents "
    "WHERE pack IN (SELECT value FROM json_each(?)) ORDER BY ino, offset"
)
READ_LAST_EXTENTS = (
    "SELECT ino, offset, length, hash, pack, max(pack_offset), stored_length, raw_length, skip, codec FROM extents "
    "GROUP BY pack"
)
READ_INODES_WITHOUT_PACK = (
    "SELECT DISTINCT ino FROM extents WHERE pack NOT IN (SELECT number FROM packs) ORDER BY ino LIMIT ?"
)
READ_XATTRS = "SELECT name, value FROM xattrs WHERE ino = ? ORDER BY name"
READ_XATTRS_OF_EACH = (
    "SELECT ino, name, value FROM xattrs WHERE ino IN (SELECT value FROM json_each(?)) ORDER BY ino, name"
)
READ_XATTR_BYTES = "SELECT coalesce(sum(length(name) + length(value)), 0) FROM xattrs WHERE ino = ?"
READ_SHORT_XATTRS_BETWEEN = (
    "SELECT ino, name, CASE WHEN length(value) <= ? THEN value END "
    "FROM xattrs WHERE ino BETWEEN ? AND ? ORDER BY ino, name LIMIT ?"
)

INSERT_META = "INSERT INTO meta (key, value) VALUES (?, ?)"
UPDATE_META = "UPDATE meta SET value = ? WHERE key = ?"
DELETE_META = "DELETE FROM meta WHERE key = ?"
INSERT_PACK = "INSERT INTO packs (number, id) VALUES (?, ?)"
WRITE_INODE = (
    "REPLACE INTO inodes (ino, mode, nlink, uid, gid, rdev, size, mapped_bytes, atime_ns, mtime_ns, ctime_ns, flags, target) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
WRITE_ENTRY = "REPLACE INTO dirents (parent, name, ino) VALUES (?, ?, ?)"
WRITE_EXTENT = (
    "REPLACE INTO extents (ino, offset, length, hash, pack, pack_offset, stored_length, raw_length, skip, codec) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
WRITE_XATTR = "REPLACE INTO xattrs (ino, name, value) VALUES (?, ?, ?)"

DELETE_ENTRY = "DELETE FROM dirents WHERE parent = ? AND name = ?"
DELETE_EXTENT = "DELETE FROM extents WHERE ino = ? AND offset = ?"
DELETE_XATTR = "DELETE FROM xattrs WHERE ino = ? AND name = ?"
DELETE_OF_INODE = (
    "DELETE FROM inodes WHERE ino = ?",
    "DELETE FROM extents WHERE ino = ?",
    "DELETE FROM xattrs WHERE ino = ?",
)
