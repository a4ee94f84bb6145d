"""Turns a merge into a change set on top of its target: files of other indexes get numbers of the
target.

    inode numbers   a changed file keeps its number in the target; a new one gets the next number.
    Names of one file in
                    the branch are names of one file here
    pack numbers    those of the target's writer (`pack_numbers`); no chunk is read or moved
    link counts     follow from added and removed names

A file with several names is changed in place only if no name keeps the unchanged file; otherwise
the changed names get a new file, and the others keep theirs.
"""

from __future__ import annotations

import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cowfs.base.errors import CorruptError
from cowfs.base.ids import PackId
from cowfs.index import ChangeSet, ExtentRow, Index, InodeRow
from cowfs.native.chunks import FileRows
from cowfs.version.differences import RDEV, UID, find_inode
from cowfs.version.merge.merge_states import TARGET_SIDE, Earlier, Merged, Part, State, Tail, What
from cowfs.version.publish.contents import files_of
from cowfs.version.publish.publisher import Draft
from cowfs.version.publish.tree_changes import (
    CTIME,
    FLAGS,
    GID,
    HAS_XATTRS,
    INO,
    MODE,
    NLINK,
    SIZE,
    TARGET,
    with_values,
)

ATIME: Final = 8


class _Key(NamedTuple):
    """Equal for names of one file."""

    body: tuple[int, int]
    attributes: tuple[int, int]
    tails: tuple[Tail, ...]


class MergeChanges:
    """number: of a pack, in the target's index or of the next version. now_ns: the time of the
    change."""

    def __init__(self, merged: Merged, number: Callable[[PackId], int], now_ns: int) -> None:
        self._merged = merged
        self._target = merged.sides[TARGET_SIDE]
        self._number = number if merged.earlier is None else merged.earlier.number
        self._final_number = number
        self._now_ns = now_ns
        self._next_ino = self._target.next_ino
        self._rows: dict[int, InodeRow] = {}
        self._links: Counter[int] = Counter()
        self._removed: set[int] = set()
        self._entries: dict[tuple[int, bytes], int] = {}
        self._contents: dict[int, list[ExtentRow]] = {}
        self._xattrs: dict[int, list[tuple[bytes, bytes]]] = {}
        self._directories: dict[bytes, int] = {}  # path → number, of new directories
        self._made: dict[_Key, int] = {}
        self._packs: dict[tuple[int, int], int] = {}

    def draft(self) -> Draft:
        there = {path: find_inode(self._target, path) for path in self._merged.paths}
        in_place = self._find_in_place(there)
        for path in sorted(self._merged.paths):
            self._settle(path, self._merged.paths[path], there[path], in_place)
        self._count_links()
        contents = FileRows()
        for ino in sorted(self._contents.keys() - self._removed):
            contents.put(ino, 0, self._contents[ino])
        draft = Draft(
            ChangeSet(
                next_ino=self._next_ino,
                inodes=[self._rows[ino] for ino in sorted(self._rows)],
                removed=sorted(self._removed),
                entries=[(*place, ino) for place, ino in sorted(self._entries.items())],
                xattrs=[(ino, rows) for ino, rows in sorted(self._xattrs.items()) if ino not in self._removed],
            ),
            contents,
        )
        return draft if self._merged.earlier is None else _together(self._merged.earlier, draft, self._final_number)

    def _find_in_place(self, there: dict[bytes, InodeRow | None]) -> set[int]:
        """Files of the target that keep their number: no name keeps the unchanged file, and the
        changed file is at one of the names or elsewhere; or all names lead to another file of the
        same type."""
        comes_to: dict[int, list[_Key]] = defaultdict(list)
        names: Counter[int] = Counter()
        for path, row in there.items():
            state = self._merged.paths[path]
            if row is None or stat.S_ISDIR(row[MODE]):
                continue
            names[row[INO]] += 1
            if state is None or self._is_known_apart(state, row):
                continue
            if stat.S_IFMT(state.body.row[MODE]) == stat.S_IFMT(row[MODE]):
                comes_to[row[INO]].append(_key(state))
        became: dict[int, set[_Key]] = defaultdict(set)
        for state in self._merged.paths.values():
            number = self._merged.number(state)
            if state is not None and number is not None:
                became[number].add(_key(state))
            if state is not None and _is_of_target(state):  # at its own path or another one
                names.pop(state.body.row[INO], None)
        links = {row[INO]: row[NLINK] for row in there.values() if row is not None}
        for ino in sorted(names):
            if names[ino] == links[ino] and len(became[ino]) == 1:
                self._made[became[ino].pop()] = ino
        for ino, keys in sorted(comes_to.items()):
            is_one = names[ino] == links[ino] == len(keys) and len(set(keys)) == 1
            if is_one and ino not in self._made.values() and keys[0] not in self._made:
                self._made[keys[0]] = ino
        return set(self._made.values())

    def _is_known_apart(self, state: State, row: InodeRow) -> bool:
        """Whether a file of the target was replaced: names that other branches give it lead to the
        old file."""
        body = state.body
        return row[INO] < self._merged.shared.get(body.side, 0) and row[INO] != body.row[INO]

    # -- one path

    def _settle(self, path: bytes, state: State | None, now: InodeRow | None, in_place: set[int]) -> None:
        above, _, name = path.rpartition(b"/")
        if state is None:
            if now is not None:
                self._remove(above, name, now)
            return
        if _is_kept(state, now):
            return
        if state.is_directory:
            self._settle_directory(path, above, name, state, now)
            return
        ino = self._file(state, in_place)
        if now is not None and now[INO] == ino:
            return
        if now is not None:
            self._remove(above, name, now)
        self._links[ino] += 1
        self._entries[self._directory(above), name] = ino

    def _settle_directory(self, path: bytes, above: bytes, name: bytes, state: State, now: InodeRow | None) -> None:
        if now is not None and stat.S_ISDIR(now[MODE]):
            self._directories[path] = now[INO]
            self._rows[now[INO]] = self._row(now[INO], state, now[NLINK], (0, 0))
            self._put_xattrs(now[INO], state)
            return
        if now is not None:
            self._remove(above, name, now)
        ino = self._new()
        self._directories[path] = ino
        self._rows[ino] = self._row(ino, state, 2, (0, 0))
        self._put_xattrs(ino, state)
        parent = self._directory(above)
        self._links[parent] += 1
        self._entries[parent, name] = ino

    def _remove(self, above: bytes, name: bytes, row: InodeRow) -> None:
        parent = find_inode(self._target, above)
        assert parent is not None, "an entry lies in a directory"
        self._entries[parent[INO], name] = 0
        if stat.S_ISDIR(row[MODE]):
            self._removed.add(row[INO])
            self._links[parent[INO]] -= 1
        else:
            self._links[row[INO]] -= 1

    def _directory(self, path: bytes) -> int:
        ino = self._directories.get(path)
        if ino is None:
            row = find_inode(self._target, path)
            assert row is not None, "directories come before their entries"
            ino = self._directories[path] = row[INO]
        return ino

    # -- files

    def _file(self, state: State, in_place: set[int]) -> int:
        """The number of the file at this path; makes the file the first time."""
        key = _key(state)
        if _is_of_target(state):
            return state.body.row[INO]  # at another path
        ino = self._made.get(key)
        if ino is not None and ino in self._rows:
            return ino
        is_there = ino is not None and ino in in_place
        if ino is None:
            ino = self._made[key] = self._own_number(state) or self._new()
        old = self._target.inode(ino) if is_there else None
        rows = self._content(state)
        size = (_size(state), sum(row[1] for row in rows))
        self._rows[ino] = self._row(ino, state, old[NLINK] if old is not None else 0, size)
        is_own = state.body.side == TARGET_SIDE and state.body.row[INO] == ino
        is_kept = is_there and is_own and not state.tails
        if stat.S_ISREG(state.body.row[MODE]) and not is_kept:
            self._contents[ino] = rows
        self._put_xattrs(ino, state)
        return ino

    def _own_number(self, state: State) -> int | None:
        """The number of a file that the target has removed and a branch has given a name, unless it
        was split in two."""
        number = self._merged.number(state)
        is_free = number is not None and number not in self._rows and self._target.inode(number) is None
        return number if is_free else None

    def _content(self, state: State) -> list[ExtentRow]:
        if not stat.S_ISREG(state.body.row[MODE]):
            return []
        found = self._extents(state.body)
        end = state.body.row[SIZE]
        for tail in state.tails:
            for row in self._extents(tail.part):
                cut = max(0, tail.start - row[0])
                if cut < row[1]:
                    offset = row[0] + cut - tail.start + end
                    found.append((offset, row[1] - cut, *row[2:7], row[7] + cut, row[8]))
            end += tail.part.row[SIZE] - tail.start
        return found

    def _extents(self, part: Part) -> list[ExtentRow]:
        index = self._merged.sides[part.side]
        rows = index.content(part.row[INO])[0]
        if part.side == TARGET_SIDE:
            return rows
        return [(*row[:3], self._pack(part.side, index, row[3]), *row[4:]) for row in rows]

    def _pack(self, side: int, index: Index, number: int) -> int:
        known = self._packs.get((side, number))
        if known is None:
            pack = index.pack_id(number)
            if pack is None:
                raise CorruptError(
                    f"the index names pack number {number} but has no pack of that number",
                    hint="The version is damaged; merge another version of the volume.",
                )
            known = self._packs[side, number] = self._number(pack)
        return known

    def _row(self, ino: int, state: State, links: int, size: tuple[int, int]) -> InodeRow:
        body, attributes = state.body.row, state.attributes.row
        is_file = stat.S_ISREG(body[MODE])
        return (
            ino,
            stat.S_IFMT(body[MODE]) | stat.S_IMODE(attributes[MODE]),
            links,
            attributes[UID],
            attributes[GID],
            body[RDEV],
            size[0] if is_file else body[SIZE],
            size[1] if is_file else 0,
            body[ATIME],
            state.mtime_ns,
            self._now_ns,
            attributes[FLAGS],
            body[TARGET],
        )

    def _put_xattrs(self, ino: int, state: State) -> None:
        part = state.attributes
        if part.side == TARGET_SIDE and part.row[INO] == ino:
            return
        found = _xattrs(self._merged, part)
        if found or ino < self._target.next_ino:
            self._xattrs[ino] = found

    def _new(self) -> int:
        ino, self._next_ino = self._next_ino, self._next_ino + 1
        return ino

    # -- links

    def _count_links(self) -> None:
        for ino, more in self._links.items():
            if ino in self._removed:
                continue
            row = self._rows.get(ino) or self._target.inode(ino)
            assert row is not None, "names lead to inodes"
            links = row[NLINK] + more
            if links <= 0 and not stat.S_ISDIR(row[MODE]):
                self._removed.add(ino)
            elif more:
                self._rows[ino] = with_values(row, {NLINK: links, CTIME: self._now_ns})
        for ino in self._removed:
            self._rows.pop(ino, None)


def _together(earlier: Earlier, last: Draft, number: Callable[[PackId], int]) -> Draft:
    """Joins drafts, each of which is on top of the one before; rows name packs by `number`."""
    inodes: dict[int, InodeRow] = {}
    removed: set[int] = set()
    entries: dict[tuple[int, bytes], int] = {}
    xattrs: dict[int, Sequence[tuple[bytes, bytes]]] = {}
    contents: dict[int, list[ExtentRow]] = {}
    for draft in (*earlier.drafts, last):
        inodes |= {row[INO]: row for row in draft.changes.inodes}
        removed = (removed - {row[INO] for row in draft.changes.inodes}) | set(draft.changes.removed)
        entries |= {(parent, name): ino for parent, name, ino in draft.changes.entries}
        xattrs |= dict(draft.changes.xattrs)
        contents |= {ino: rows for ino, _, rows in files_of(draft.contents)}
    numbers = {new: number(pack) for new, pack in earlier.new_packs.items()}
    rows = FileRows()
    for ino in sorted(contents.keys() - removed):
        rows.put(ino, 0, [(*row[:3], numbers.get(row[3], row[3]), *row[4:]) for row in contents[ino]])
    return Draft(
        ChangeSet(
            next_ino=last.changes.next_ino,
            inodes=[inodes[ino] for ino in sorted(inodes.keys() - removed)],
            removed=sorted(removed),
            entries=[(*place, ino) for place, ino in sorted(entries.items())],
            xattrs=[(ino, xattrs[ino]) for ino in sorted(xattrs.keys() - removed)],
        ),
        rows,
    )


def becomes(merged: Merged) -> list[tuple[bytes, What]]:
    """The effect of a merge on each path of its target, by path; changes of times only are left
    out. Works for a merge with conflicts, too."""
    found: dict[bytes, What] = dict(merged.earlier.told) if merged.earlier is not None else {}
    for path, state in merged.paths.items():
        now = find_inode(merged.sides[TARGET_SIDE], path)
        if state is None:
            if now is not None and found.pop(path, None) != "added":
                found[path] = "removed"
        elif now is None:
            found[path] = "changed" if found.get(path) == "removed" else "added"
        elif not _is_kept(state, now) and not (state.is_directory and _same_directory(merged, state, now)):
            found.setdefault(path, "changed")
    return sorted(found.items())


def _same_directory(merged: Merged, state: State, now: InodeRow) -> bool:
    new = state.attributes.row
    return (
        stat.S_ISDIR(now[MODE])
        and (new[MODE], new[UID], new[GID]) == (now[MODE], now[UID], now[GID])
        and _xattrs(merged, state.attributes) == _xattrs(merged, Part(TARGET_SIDE, now))
    )


def _is_of_target(state: State) -> bool:
    return state.body.side == TARGET_SIDE and state.body == state.attributes and not state.tails


def _is_kept(state: State, now: InodeRow | None) -> bool:
    return now is not None and state.body == Part(TARGET_SIDE, now) == state.attributes and not state.tails


def _xattrs(merged: Merged, part: Part) -> list[tuple[bytes, bytes]]:
    has_any = part.row[FLAGS] & HAS_XATTRS
    return merged.sides[part.side].content(part.row[INO])[1] if has_any else []


def _key(state: State) -> _Key:
    return _Key((state.body.side, state.body.row[INO]), (state.attributes.side, state.attributes.row[INO]), state.tails)


def _size(state: State) -> int:
    return state.body.row[SIZE] + sum(tail.part.row[SIZE] - tail.start for tail in state.tails)
