"""What a commit changes in an index, as plain rows.

A change set is complete: it names every row that differs from the base, and for the files in `contents` and the inodes in
`xattrs` the complete new list (the writer finds out which rows differ). Applying one changes nothing in it, so it can be
applied again. Rows are the tuples of the engine (`cowfs/_native.pyi`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from cowfs.ids import PackId

# (ino, mode, nlink, uid, gid, rdev, size, mapped_bytes, atime_ns, mtime_ns, ctime_ns, flags, symlink target or b"")
InodeRow: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, bytes]

# (offset in file, length shown, chunk hash, pack number, offset in pack, stored length, raw length, skip, codec)
ExtentRow: TypeAlias = tuple[int, int, bytes, int, int, int, int, int, int]

# (parent, name, ino; 0: the name is gone)
Entry: TypeAlias = tuple[int, bytes, int]


class Totals(NamedTuple):
    """files: inodes that are not directories. directories: without the root. bytes: sizes of regular files, each once
    and as 8 TiB at most (a sparse file may claim far more)."""

    files: int
    directories: int
    bytes: int


@dataclass(frozen=True)
class ChangeSet:
    """inodes: new or changed rows, each still named. removed: inodes that no name leads to any more (unknown ones are fine).
    packs: pack numbers the base does not have. next_ino: smallest inode number never used, at least the base's."""

    next_ino: int
    inodes: Sequence[InodeRow] = ()
    removed: Sequence[int] = ()
    entries: Sequence[Entry] = ()
    contents: Mapping[int, Sequence[ExtentRow]] = field(default_factory=dict)
    xattrs: Mapping[int, Sequence[tuple[bytes, bytes]]] = field(default_factory=dict)
    packs: Mapping[int, PackId] = field(default_factory=dict)
