"""The changes of a commit to an index, as plain rows.

A change set is complete: it names every row that differs from the base, and for the files in
`contents` and the inodes in `xattrs` it has the complete new list (the writer determines which rows
differ). Applying a change set does not change it, so it can be applied again. Rows are the tuples
of the engine (`cowfs/_native.pyi`).

A change set may be larger than memory. So its rows are iterables in the order of their keys, which
the writer iterates several times, holding at most a window of rows; `Stream` makes an iterable of a
function that reads page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId
from cowfs.index.links import Link

# (ino, mode, nlink, uid, gid, rdev, size, mapped_bytes, atime_ns, mtime_ns, ctime_ns, flags,
# symlink target or b"")
InodeRow: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, bytes]

# (offset in file, length shown, chunk hash, pack number, offset in pack, stored length, raw length,
# skip, codec)
ExtentRow: TypeAlias = tuple[int, int, bytes, int, int, int, int, int, int]

# (parent, name, ino; 0: the name is gone)
Entry: TypeAlias = tuple[int, bytes, int]

# (ino, every row of the file)
Content: TypeAlias = tuple[int, Sequence[ExtentRow]]

# (ino, every name and value of the inode)
Xattrs: TypeAlias = tuple[int, Sequence[tuple[bytes, bytes]]]

# (ino, its extents, its extended attributes)
ContentRows: TypeAlias = tuple[int, Sequence[ExtentRow], Sequence[tuple[bytes, bytes]]]

T = TypeVar("T")


class Stream(Generic[T]):
    """Rows that are read again at each iteration."""

    def __init__(self, read: Callable[[], Iterator[T]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[T]:
        return self._read()


class Totals(NamedTuple):
    """files: inodes that are not directories. directories: without the root. bytes: sizes of
    regular files, each counted once and as 8 TiB at most (a sparse file may claim far more)."""

    files: int
    directories: int
    bytes: int


@dataclass(frozen=True)
class ChangeSet:
    """inodes: new or changed rows; each still has a name. removed: inodes without any name (unknown
    ones are allowed). packs: pack numbers that the base does not have. next_ino: smallest inode
    number never used, at least the base's.

    All but packs are in the order of their keys (ino; parent and name for entries), without
    duplicates, and the same at each iteration.

    links: files that become links, or links to other objects; they have no contents. forgets_links:
    no uncommitted work is based on the base, so that outdated links need not be kept (`links`)."""

    next_ino: int
    inodes: Iterable[InodeRow] = ()
    removed: Iterable[int] = ()
    entries: Iterable[Entry] = ()
    contents: Iterable[Content] = ()
    xattrs: Iterable[Xattrs] = ()
    packs: Mapping[int, PackId] = field(default_factory=dict)
    links: Iterable[tuple[int, Link]] = ()
    forgets_links: bool = False
