"""Compares the trees of two versions, starting from the rows in which their indexes differ.

    index.differing ─▶ entries and inodes ─▶ their paths (`find_places`, up to the root) ─▶ a walk through both trees along
    these paths ─▶ names that are gone, names that are new ─▶ renames ─▶ Differences

`shared`: inode numbers below it mean the same file in both (`ancestry.find_shared_numbering`), so
that renames are found. Larger numbers may mean two different files. Entries at one path are
compared in any case, since equal rows are equal trees, whichever files the numbers mean.

    directory         is the same one after a move; entries below it move along and are not listed
    a path in both    is compared there, even if the file came from elsewhere or was replaced
    a path in one     is a rename if the file, else if its content, is at a new path of the other; each at most once
    directory, file   at one path are two differences: one is removed and one added
    names             hard links are compared, too: at as few paths as turn one tree into the other (`_settle_names`)

Linked files are compared by the state of their object (`index.links`). A link and a copy of the
same bytes differ, since their bytes were not compared.

To turn a into b: take away removed and renamed entries, deepest old path first; put renamed and
added ones, shortest new path first; then change the changed ones, at their new paths.

Reads the differing blocks, and a few more to find paths. Memory: the differing rows, and some 500
bytes for each difference. One thread.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from typing import Final, Literal, NamedTuple, TypeAlias

from cowfs.base.errors import NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.index import ExtentRow, Index, InodeRow, content_with_links, differing, find_places
from cowfs.index.cells import Entry
from cowfs.native.constants import ROOT_INO
from cowfs.version.publish.tree_changes import FLAGS, GID, HAS_XATTRS, INO, MODE, MTIME, NLINK, SIZE, TARGET

Kind: TypeAlias = Literal["added", "removed", "changed", "renamed"]
Aspect: TypeAlias = Literal["type", "content", "target", "device", "mode", "owner", "xattrs", "mtime", "names"]
UID: Final = 3
RDEV: Final = 5
ONLY_TIMES = frozenset[Aspect](["mtime"])
OF_NAMES = frozenset[Aspect](["names"])


@dataclass(frozen=True, slots=True)
class Difference:
    """path: in b; for a removed entry in a. old_path: in a; None: it is added. old, new: the rows,
    one of which may be missing. added_bytes, removed_bytes: of chunks that only one side's file
    has."""

    kind: Kind
    path: bytes
    old_path: bytes | None
    old: InodeRow | None
    new: InodeRow | None
    what: frozenset[Aspect] = frozenset()
    added_bytes: int = 0
    removed_bytes: int = 0


@dataclass(slots=True)
class _Pair:
    """A directory to walk through, on the sides that have it."""

    old: int | None
    new: int | None
    old_path: bytes
    new_path: bytes


class _Met(NamedTuple):
    """A name in both, of a file that has further names in one of them, or of two files."""

    path: bytes
    old_path: bytes
    old: InodeRow
    new: InodeRow

    @property
    def numbers(self) -> tuple[int, int]:
        return self.old[INO], self.new[INO]


@dataclass(slots=True)
class _Loose:
    """Names that only one side has, until those of the other are known."""

    files: list[tuple[bytes, InodeRow]] = field(default_factory=list)
    directories: dict[int, tuple[bytes, InodeRow]] = field(default_factory=dict)


def compare(
    a: Index,
    b: Index,
    *,
    shared: int,
    path: bytes = b"",
    new_path: bytes | None = None,
    times: bool = False,
    renames: bool = True,
    files: bool = False,
) -> list[Difference]:
    """The differences, by path. new_path: the path in b that corresponds to `path` in a; None: the
    same.

    times: include entries that differ only in their time of modification. renames: False: a moved
    entry is removed and added, with all entries below it. files: for callers that turn a into b and
    match files by their numbers: include names that lead to another number, where the old or the
    new file has other names. NotFoundError: neither has `path`.
    """
    with a.blocks.expect_scattered_reads(), b.blocks.expect_scattered_reads():
        comparison = _Comparison(a, b, shared, times=times, renames=renames, files=files)
        return comparison.run(path, path if new_path is None else new_path)


def neither_has(path: bytes) -> NotFoundError:
    return NotFoundError(f"neither version has /{os.fsdecode(path)}", hint="Give a path that one of them has.")


class _Comparison:
    def __init__(self, a: Index, b: Index, shared: int, *, times: bool, renames: bool, files: bool) -> None:
        self._a = a
        self._b = b
        self._shared = min(shared, a.next_ino, b.next_ino)
        self._times = times
        self._renames = renames
        self._rows = differing(a, b)
        self._lost: dict[int, set[Entry]] = defaultdict(set)  # inode → names that only a has
        self._gained: dict[int, set[Entry]] = defaultdict(set)
        self._names: dict[int, set[bytes]] = defaultdict(set)  # directory → names to compare
        self._inodes: tuple[dict[Entry, int | None], dict[Entry, int | None]] = {}, {}
        self._waiting: list[_Pair] = []
        self._seen: tuple[set[int], set[int]] = set(), set()
        self._gone, self._new = _Loose(), _Loose()
        self._files = files
        self._met: list[_Met] = []
        self._found: list[Difference] = []

    def run(self, path: bytes, new_path: bytes) -> list[Difference]:
        old, new = find_inode(self._a, path), find_inode(self._b, new_path)
        if old is None and new is None:
            raise neither_has(path)
        self._learn_entries()
        self._learn_ways()
        if old is not None and new is not None and stat.S_ISDIR(old[MODE]) and stat.S_ISDIR(new[MODE]):
            self._record_change(path, new_path, old, new)
            self._waiting.append(_Pair(old[INO], new[INO], path, new_path))
        else:
            self._meet(path, new_path, old, new)
        self._walk()
        self._settle_files()
        self._settle_names()
        return sorted(self._found, key=lambda each: (each.path, each.kind != "removed"))

    # -- where to compare

    def _learn_entries(self) -> None:
        for entry in self._rows.entries:
            old, new = self._a.entry(*entry), self._b.entry(*entry)
            self._inodes[0][entry], self._inodes[1][entry] = old, new
            if old == new:
                continue
            self._names[entry.parent].add(entry.name)
            if old is not None:
                self._lost[old].add(entry)
            if new is not None:
                self._gained[new].add(entry)

    def _learn_ways(self) -> None:
        """The paths from the root to every directory and file that differs, in both."""
        wanted: dict[int, int] = {}
        for ino in sorted(self._rows.inodes):
            if count := self._names_that_matter(ino):
                wanted[ino] = count
        for ino in sorted(self._lost.keys() | self._gained.keys()):
            if count := self._names_of_another(ino):
                wanted[ino] = count
        known: set[int] = {ROOT_INO}
        parents = {parent for parent in self._names if self._is_in_both(parent)} - known
        while wanted or parents:
            wanted |= {parent: 1 for parent in parents if parent not in wanted}
            known |= wanted.keys()
            places = find_places(self._b, wanted, self._gained)
            parents = set()
            for entries in places.values():
                for entry in entries:
                    if self._inodes[0].get(entry) == self._inodes[1].get(entry):  # in both
                        self._names[entry.parent].add(entry.name)
                    parents.add(entry.parent)
            parents = {parent for parent in parents - known if self._is_in_both(parent)}
            wanted = {}

    def _is_in_both(self, ino: int) -> bool:
        return self._a.inode(ino) is not None and self._b.inode(ino) is not None

    def _names_that_matter(self, ino: int) -> int:
        """How many names b has for an inode of both that differs in more than its links and
        times."""
        old, new = self._a.inode(ino), self._b.inode(ino)
        if old is None or new is None:
            return 0
        what = self._aspects(old, new)[0]
        if not what or (what == ONLY_TIMES and not self._times):
            return 0
        return 1 if stat.S_ISDIR(new[MODE]) else new[NLINK]

    def _names_of_another(self, ino: int) -> int:
        """How many names b has for a number that need not mean a's file, and one of whose names was
        added or removed. Whether the other names are of the same file shows at their paths."""
        if ino < self._shared:
            return 0
        old, new = self._a.inode(ino), self._b.inode(ino)
        if old is None or new is None or stat.S_ISDIR(old[MODE]) or stat.S_ISDIR(new[MODE]):
            return 0
        return new[NLINK] if max(old[NLINK], new[NLINK]) > 1 else 0

    # -- the walk

    def _walk(self) -> None:
        while True:
            while self._waiting:
                self._visit(self._waiting.pop())
            moved = self._gone.directories.keys() & self._new.directories.keys()
            for ino in sorted(moved):
                old_path, old = self._gone.directories.pop(ino)
                path, new = self._new.directories.pop(ino)
                self._record_rename(old_path, path, old, new)
                self._waiting.append(_Pair(ino, ino, old_path, path))
            if not moved and not self._part_with_one():
                return

    def _part_with_one(self) -> bool:
        """One end of a move lies outside of the compared paths: only the other end is reported."""
        if self._gone.directories:
            path, row = self._gone.directories.pop(min(self._gone.directories))
            self._record_removal(path, row)
            self._waiting.append(_Pair(row[INO], None, path, path))
            return True
        if self._new.directories:
            path, row = self._new.directories.pop(min(self._new.directories))
            self._record_addition(path, row)
            self._waiting.append(_Pair(None, row[INO], path, path))
            return True
        return False

    def _visit(self, pair: _Pair) -> None:
        for index, ino, seen in zip((self._a, self._b), (pair.old, pair.new), self._seen, strict=True):
            if ino is not None and ino in seen:
                raise index.damage_error(f"directory {ino} has two names")
            if ino is not None:
                seen.add(ino)
        if pair.old is not None and pair.old == pair.new:
            for name in sorted(self._names.get(pair.old, ())):
                entry = Entry(pair.old, name)
                old, new = self._row(0, self._a, entry), self._row(1, self._b, entry)
                self._meet(_join(pair.old_path, name), _join(pair.new_path, name), old, new)
            return
        listed_old = dict(_entries(self._a, pair.old))
        for name, new in _entries(self._b, pair.new):
            self._meet(_join(pair.old_path, name), _join(pair.new_path, name), listed_old.pop(name, None), new)
        for name, old in listed_old.items():
            self._meet(_join(pair.old_path, name), _join(pair.new_path, name), old, None)

    def _row(self, side: int, index: Index, entry: Entry) -> InodeRow | None:
        known = self._inodes[side]
        ino = known[entry] if entry in known else index.entry(*entry)
        if ino is None:
            return None
        row = index.inode(ino)
        if row is None:
            raise index.damage_error(f"the entry {entry.name!r} has no inode {ino}")
        return row

    def _meet(self, old_path: bytes, path: bytes, old: InodeRow | None, new: InodeRow | None) -> None:
        """Compares the entries of both at one name."""
        is_old_directory = old is not None and stat.S_ISDIR(old[MODE])
        is_new_directory = new is not None and stat.S_ISDIR(new[MODE])
        if old is not None and new is not None and is_old_directory == is_new_directory and self._is_here(old, new):
            self._record_change(old_path, path, old, new)
            if is_old_directory:
                self._waiting.append(_Pair(old[INO], new[INO], old_path, path))
            return
        if old is not None:
            self._lose(old_path, old, is_old_directory)
        if new is not None:
            self._gain(path, new, is_new_directory)

    def _lose(self, path: bytes, row: InodeRow, is_directory: bool) -> None:
        if not is_directory:
            self._gone.files.append((path, row))
        elif self._is_moved(row):
            self._gone.directories[row[INO]] = path, row
        else:
            self._record_removal(path, row)
            self._waiting.append(_Pair(row[INO], None, path, path))

    def _gain(self, path: bytes, row: InodeRow, is_directory: bool) -> None:
        if not is_directory:
            self._new.files.append((path, row))
        elif self._is_moved(row):
            self._new.directories[row[INO]] = path, row
        else:
            self._record_addition(path, row)
            self._waiting.append(_Pair(None, row[INO], path, path))

    def _is_here(self, old: InodeRow, new: InodeRow) -> bool:
        """Whether two entries at one path are compared there, although one may be at another path,
        too."""
        if not stat.S_ISDIR(old[MODE]) or old[INO] == new[INO]:
            return True
        return not self._is_moved(old) and not self._is_moved(new)

    def _is_moved(self, directory: InodeRow) -> bool:
        ino = directory[INO]
        return self._renames and ino < self._shared and ino in self._lost and ino in self._gained

    # -- files at one path only

    def _settle_files(self) -> None:
        gone, new = sorted(self._gone.files), sorted(self._new.files)
        if self._renames:
            gone, new = self._match(gone, new, lambda index, row: row[INO] if row[INO] < self._shared else None)
            gone, new = self._match(gone, new, _content_key)
        for path, row in gone:
            self._record_removal(path, row)
        for path, row in new:
            self._record_addition(path, row)

    def _match(
        self, gone: list[tuple[bytes, InodeRow]], new: list[tuple[bytes, InodeRow]], key: _Key
    ) -> tuple[list[tuple[bytes, InodeRow]], list[tuple[bytes, InodeRow]]]:
        """The entries left of both after matching: equal keys are one renamed file."""
        if not gone or not new:
            return gone, new
        by_key: dict[object, list[tuple[bytes, InodeRow]]] = defaultdict(list)
        left_gone = []
        for path, row in reversed(gone):
            if (of_row := key(self._a, row)) is not None:
                by_key[of_row].append((path, row))
            else:
                left_gone.append((path, row))
        left_new = []
        for path, row in new:
            of_row = key(self._b, row)
            if of_row is not None and by_key.get(of_row):
                old_path, old = by_key[of_row].pop()
                self._record_rename(old_path, path, old, row)
            else:
                left_new.append((path, row))
        left_gone += [each for several in by_key.values() for each in several]
        return sorted(left_gone), left_new

    # -- results

    def _record_removal(self, path: bytes, row: InodeRow) -> None:
        self._found.append(Difference("removed", path, path, row, None, removed_bytes=file_bytes(row)))

    def _record_addition(self, path: bytes, row: InodeRow) -> None:
        self._found.append(Difference("added", path, None, None, row, added_bytes=file_bytes(row)))

    def _record_rename(self, old_path: bytes, path: bytes, old: InodeRow, new: InodeRow) -> None:
        self._note(path, old_path, old, new)
        what, added, removed = self._aspects(old, new)
        self._found.append(Difference("renamed", path, old_path, old, new, what, added, removed))

    def _record_change(self, old_path: bytes, path: bytes, old: InodeRow, new: InodeRow) -> None:
        self._note(path, old_path, old, new)
        if old[INO] == new[INO] and old[INO] not in self._rows.inodes:
            return
        what, added, removed = self._aspects(old, new)
        if what and (what != ONLY_TIMES or self._times):
            self._found.append(Difference("changed", path, old_path, old, new, what, added, removed))

    # -- which names are one file

    def _note(self, path: bytes, old_path: bytes, old: InodeRow, new: InodeRow) -> None:
        has_names = max(old[NLINK], new[NLINK]) > 1 or (self._files and old[INO] != new[INO])
        if has_names and not stat.S_ISDIR(new[MODE]):
            self._met.append(_Met(path, old_path, old, new))

    def _settle_names(self) -> None:
        """Finds differing names: no difference where each file of a is one file of b at all common
        names. Otherwise names differ that lead to another number, or to one that need not mean the
        same file."""
        partners: dict[tuple[int, int], set[int]] = defaultdict(set)  # (side, number) → of the other side
        counts: Counter[tuple[int, int]] = Counter()
        for each in self._met:
            old, new = each.numbers
            counts[old, new] += 1
            partners[0, old].add(new)
            partners[1, new].add(old)
            for row, names in ((each.old, self._lost), (each.new, self._gained)):
                # They have a common name. All names of other numbers have been met.
                if row[INO] < self._shared and row[NLINK] > len(names.get(row[INO], ())):
                    partners[0, row[INO]].add(row[INO])
                    partners[1, row[INO]].add(row[INO])
        others: dict[bytes, tuple[_Met, frozenset[Aspect]]] = {}
        for each in self._met:
            old, new = each.numbers
            if old == new < self._shared:
                continue
            if max(len(partners[0, old]), len(partners[1, new])) > 1:
                others[each.path] = each, OF_NAMES
            elif self._files and (counts[old, new] < each.new[NLINK] or self._is_elsewhere(old, new)):
                others[each.path] = each, frozenset()
        for at, found in enumerate(self._found):
            if found.new is not None and found.old is not None and found.path in others:
                self._found[at] = replace(found, what=found.what | others.pop(found.path)[1])
        for each, aspects in others.values():
            what, added, removed = self._aspects(each.old, each.new)
            self._found.append(
                Difference("changed", each.path, each.old_path, each.old, each.new, what | aspects, added, removed)
            )

    def _is_elsewhere(self, old: int, new: int) -> bool:
        """Whether b has a's file, but not at this path."""
        return old != new and old < self._shared and self._b.inode(old) is not None

    def _aspects(self, old: InodeRow, new: InodeRow) -> tuple[frozenset[Aspect], int, int]:
        what: set[Aspect] = set()
        if stat.S_IFMT(old[MODE]) != stat.S_IFMT(new[MODE]):
            what.add("type")
        elif old[TARGET] != new[TARGET]:
            what.add("target")
        elif old[RDEV] != new[RDEV]:
            what.add("device")
        if stat.S_IMODE(old[MODE]) != stat.S_IMODE(new[MODE]):
            what.add("mode")
        if (old[UID], old[GID]) != (new[UID], new[GID]):
            what.add("owner")
        if old[MTIME] != new[MTIME]:
            what.add("mtime")
        added = removed = 0
        if old[INO] == new[INO] and old[INO] not in self._rows.inodes:
            return frozenset(what), 0, 0
        extents, xattrs = _content(self._a, old)
        new_extents, new_xattrs = _content(self._b, new)
        if xattrs != new_xattrs:
            what.add("xattrs")
        before, after = comparable_extents(extents), comparable_extents(new_extents)
        if "type" in what or before != after or old[SIZE] != new[SIZE]:
            if "type" not in what and stat.S_ISREG(new[MODE]):
                what.add("content")
            added, removed = _count_differing_bytes(before, after)
        return frozenset(what), added, removed


def comparable_extents(rows: Iterable[ExtentRow]) -> list[tuple[int, int, bytes, int]]:
    """Offset, length, chunk and skip of each: the same content, in any pack."""
    return [(row[0], row[1], bytes(row[2]), row[7]) for row in rows]


def _count_differing_bytes(
    before: list[tuple[int, int, bytes, int]], after: list[tuple[int, int, bytes, int]]
) -> tuple[int, int]:
    """Bytes in chunks that only one of two contents has: added, removed."""
    old, new = (Counter(run[1:] for run in runs) for runs in (before, after))
    return sum(run[0] * count for run, count in (new - old).items()), sum(
        run[0] * count for run, count in (old - new).items()
    )


_Key: TypeAlias = Callable[[Index, InodeRow], object | None]


def _content_key(index: Index, row: InodeRow) -> object | None:
    if not stat.S_ISREG(row[MODE]) or not row[SIZE]:
        return None
    return row[SIZE], tuple(comparable_extents(content_with_links(index, row[INO])[0]))


def _content(index: Index, row: InodeRow) -> tuple[list[ExtentRow], list[tuple[bytes, bytes]]]:
    return content_with_links(index, row[INO]) if stat.S_ISREG(row[MODE]) or row[FLAGS] & HAS_XATTRS else ([], [])


def file_bytes(row: InodeRow) -> int:
    """The size of a file; 0 for anything else."""
    return row[SIZE] if stat.S_ISREG(row[MODE]) else 0


def find_inode(index: Index, path: bytes) -> InodeRow | None:
    """The inode at a path, without following links."""
    ino = index.find(path)
    return index.inode(ino) if ino is not None else None


def _entries(index: Index, directory: int | None) -> Iterator[tuple[bytes, InodeRow]]:
    if directory is not None:
        for page in index.directory_pages(directory):
            yield from page


def _join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
