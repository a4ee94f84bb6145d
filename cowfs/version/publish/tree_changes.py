"""Builds a change set name by name on top of an index: numbers inodes and counts links where there
is no engine.

    new inode       the next number never used; its row is packed (44 bytes), since there may be millions
    new directory   has a number beside those of other directories (DIRECTORY_RUN), as in the engine
    base inode      kept unchanged, changed (`set_attributes`, `touch`), or loses and gains names
    no name left    its row is removed, with its extents and attributes

Callers visit each directory once, and pass its names that now lead elsewhere (`put_entries`).
Numbers of new files ascend in the order in which they are made, so that contents may be put in that
order as well. Link counts of files follow from `gain` and `lose`, those of directories from
`make_directory` and `remove_tree`.

Callers must have no uncommitted work on top of the base (`ChangeSet.forgets_links`).

New entries belong to `owner`; below a base directory with the set-group-id bit, to its group.
Access lists of directories are not inherited. Pure, except for reading the index; for one thread.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cowfs.index import ChangeSet, Entry, Index, InodeRow, Link, Stream
from cowfs.native.constants import DIRECTORY_RUN, ROOT_INO

_NEW = struct.Struct("<IIIIqqq")  # mode, nlink, uid, gid, size, mapped bytes, mtime
_NAMED = struct.Struct("<qB")  # inode, length of the name that follows
_NONE = bytes(_NEW.size)  # the row of an unused number
_I64 = (1 << 63) - 1

# Places in an InodeRow.
INO: Final = 0
MODE: Final = 1
NLINK: Final = 2
GID: Final = 4
SIZE: Final = 6
MTIME: Final = 9
CTIME: Final = 10
FLAGS: Final = 11
TARGET: Final = 12

HAS_XATTRS: Final = 1  # of FLAGS


class TreeChanges:
    """owner: user and group of new entries. now_ns: the time of all changes."""

    def __init__(self, index: Index, *, owner: tuple[int, int], now_ns: int) -> None:
        self._index = index
        self._owner = owner
        self._now_ns = now_ns
        self._first = index.next_ino
        self._new = bytearray()
        self._spare = range(0)  # numbers for directories
        self._run = 0  # how many were reserved last
        self._targets: dict[int, bytes] = {}
        self._changed: dict[int, InodeRow] = {}  # of the base
        self._removed: set[int] = set()
        self._entries: dict[int, bytes] = {}
        self._xattrs: dict[int, Sequence[tuple[bytes, bytes]]] = {}
        self._links: list[tuple[int, Link]] = []

    @property
    def is_empty(self) -> bool:
        return not (self._new or self._changed or self._removed or self._entries)

    @property
    def next_ino(self) -> int:
        return self._first + len(self._new) // _NEW.size

    def root(self) -> InodeRow:
        row = self._index.inode(ROOT_INO)
        assert row is not None, "an index has a root"
        return row

    # -- new entries

    def make_directory(self, parent: int, *, mode: int, mtime_ns: int) -> int:
        """Makes a directory that will be named in `parent`; returns its number."""
        self._change_links(parent, +1)
        if not self._spare:
            self._run = min(max(2 * self._run, DIRECTORY_RUN[0]), DIRECTORY_RUN[1])
            self._spare = range(self.next_ino, self.next_ino + self._run)
            self._new += _NONE * self._run
        ino, self._spare = self._spare[0], self._spare[1:]
        self._put(ino, parent, stat.S_IFDIR | mode, links=2, mtime_ns=mtime_ns)
        return ino

    def make_file(self, parent: int, *, mode: int, mtime_ns: int, size: int, mapped_bytes: int) -> int:
        """Makes a regular file without names so far (`gain`), to be named in `parent` first."""
        return self._make(parent, stat.S_IFREG | mode, mtime_ns=mtime_ns, size=size, mapped_bytes=mapped_bytes)

    def make_symlink(self, parent: int, target: bytes, *, mtime_ns: int) -> int:
        """Makes a symbolic link without names so far."""
        ino = self._make(parent, stat.S_IFLNK | 0o777, mtime_ns=mtime_ns, size=len(target))
        self._targets[ino] = target
        return ino

    def gain(self, ino: int, base: InodeRow | None = None) -> None:
        """Adds a name. base: the row in the base, for an inode that is not new."""
        if base is not None and ino in self._removed:  # it had lost its only name
            self._removed.remove(ino)
            self._changed[ino] = with_values(base, {NLINK: 0})
        elif base is not None:
            self._know(base)
        self._change_links(ino, +1)

    # -- entries of the base

    def lose(self, base: InodeRow) -> None:
        """Removes a name, of any inode but a directory."""
        if base[NLINK] <= 1 and base[INO] not in self._changed:
            self._removed.add(base[INO])
        else:
            self._know(base)
            self._change_links(base[INO], -1)

    def set_attributes(self, base: InodeRow, *, mode: int, mtime_ns: int) -> None:
        """mode: permissions. Does nothing if the attributes are the same."""
        row = self._changed.get(base[INO], base)
        wanted = stat.S_IFMT(row[MODE]) | mode
        if (row[MODE], row[MTIME]) != (wanted, mtime_ns):
            self._changed[base[INO]] = with_values(row, {MODE: wanted, MTIME: mtime_ns, CTIME: self._now_ns})

    def touch(self, base: InodeRow, *, mtime: bool = True) -> None:
        """Updates the times of a directory whose names change."""
        row = self._changed.get(base[INO], base)
        times = {CTIME: self._now_ns, **({MTIME: self._now_ns} if mtime else {})}
        self._changed[base[INO]] = with_values(row, times)

    def set_xattrs(self, inode: InodeRow | int, xattrs: Sequence[tuple[bytes, bytes]]) -> None:
        """All extended attributes, at least one, of an inode of the base or of a new one."""
        if isinstance(inode, int):
            self._xattrs[inode] = xattrs
            return
        row = self._changed.get(inode[INO], inode)
        self._changed[inode[INO]] = with_values(row, {FLAGS: row[FLAGS] | HAS_XATTRS, CTIME: self._now_ns})
        self._xattrs[inode[INO]] = xattrs

    def link(self, ino: int, link: Link) -> None:
        """Makes a new file a link to an object elsewhere, without contents."""
        self._links.append((ino, link))

    def remove_tree(self, parent: InodeRow | None, directory: InodeRow) -> int:
        """Removes a directory of the base and everything below it. parent: the directory that names
        it and stays; None: it is removed, too. Returns how many names were removed, without its
        own."""
        if parent is not None:
            self._know(parent)
            self._change_links(parent[INO], -1)
        count, waiting, seen = 0, [directory[INO]], set[int]()
        while waiting:
            ino = waiting.pop()
            if ino in seen:
                raise self._index.damage_error(f"directory {ino} has two names")
            seen.add(ino)
            self._removed.add(ino)
            gone: list[tuple[bytes, int]] = []
            for page in self._index.directory_pages(ino):
                for name, row in page:
                    gone.append((name, 0))
                    if stat.S_ISDIR(row[MODE]):
                        waiting.append(row[INO])
                    else:
                        self.lose(row)
            self.put_entries(ino, gone)
            count += len(gone)
        return count

    # -- names

    def put_entries(self, directory: int, entries: Iterable[tuple[bytes, int]]) -> None:
        """All names of the directory that lead elsewhere than in the base; call it once. Inode 0:
        the name is removed."""
        packed = b"".join(_NAMED.pack(ino, len(name)) + name for name, ino in sorted(entries))
        if packed:
            assert directory not in self._entries, "each directory is visited once"
            self._entries[directory] = packed

    # -- the change set

    def changes(self) -> ChangeSet:
        """The change set; no further changes may follow."""
        gone = sorted({*self._removed, *(ino for ino, row in self._changed.items() if row[NLINK] == 0)})
        for ino in gone:
            self._changed.pop(ino, None)
            self._xattrs.pop(ino, None)
        return ChangeSet(
            next_ino=self.next_ino,
            inodes=Stream(self._inodes),
            removed=gone,
            entries=Stream(self._all_entries),
            xattrs=sorted(self._xattrs.items()),
            links=sorted(self._links, key=lambda each: each[0]),
            forgets_links=True,
        )

    def _inodes(self) -> Iterator[InodeRow]:
        for ino in sorted(self._changed):
            yield self._changed[ino]
        for ino, (mode, links, uid, gid, size, mapped, mtime_ns) in enumerate(_NEW.iter_unpack(self._new), self._first):
            if mode == 0:
                continue
            target, flags = self._targets.get(ino, b""), HAS_XATTRS if ino in self._xattrs else 0
            yield (ino, mode, links, uid, gid, 0, size, mapped, mtime_ns, mtime_ns, self._now_ns, flags, target)

    def _all_entries(self) -> Iterator[Entry]:
        for directory in sorted(self._entries):
            packed, at = self._entries[directory], 0
            while at < len(packed):
                ino, length = _NAMED.unpack_from(packed, at)
                at += _NAMED.size + length
                yield directory, packed[at - length : at], ino

    # -- inside

    def _make(self, parent: int, mode: int, *, mtime_ns: int, size: int = 0, mapped_bytes: int = 0) -> int:
        ino = self.next_ino
        self._new += _NONE
        self._put(ino, parent, mode, links=0, mtime_ns=mtime_ns, size=size, mapped_bytes=mapped_bytes)
        return ino

    def _put(
        self, ino: int, parent: int, mode: int, *, mtime_ns: int, links: int, size: int = 0, mapped_bytes: int = 0
    ) -> None:
        values = (mode, links, self._owner[0], self._group(parent), size, mapped_bytes, max(-_I64, min(mtime_ns, _I64)))
        _NEW.pack_into(self._new, (ino - self._first) * _NEW.size, *values)

    def _group(self, parent: int) -> int:
        if parent >= self._first:
            group: int = _NEW.unpack_from(self._new, (parent - self._first) * _NEW.size)[3]
            return group
        row = self._changed.get(parent) or self._index.inode(parent)
        return row[GID] if row is not None and row[MODE] & stat.S_ISGID else self._owner[1]

    def _know(self, base: InodeRow) -> None:
        self._changed.setdefault(base[INO], base)

    def _change_links(self, ino: int, by: int) -> None:
        if ino >= self._first:
            place = (ino - self._first) * _NEW.size
            values = list(_NEW.unpack_from(self._new, place))
            values[1] += by
            _NEW.pack_into(self._new, place, *values)
            return
        row = self._changed.get(ino) or self._index.inode(ino)
        assert row is not None, "a parent is in the base, or is new"
        self._changed[ino] = with_values(row, {NLINK: row[NLINK] + by, CTIME: self._now_ns})


def with_values(row: InodeRow, values: dict[int, int]) -> InodeRow:
    changed = list(row)
    for place, value in values.items():
        changed[place] = value
    return tuple(changed)  # type: ignore[return-value] # the same places as before
