"""A three-way merge of a branch into a target, by path. Indexes in, decisions out; writes nothing,
and reads only differences. Several branches: `merge_steps`.

    branch's base ─▶ branch     their changes ┐  path by path
    branch's base ─▶ target     our changes   ┴▶ taken over · the same · both, in separate parts · a conflict

A file has two parts that are merged separately: its body (type, content, target of a link) and its
attributes (permissions, owner, extended attributes; an access list and the permissions count as
one). Times never conflict: they come with the body, and the newer of two wins.

- A file that one side moved and the other changed is changed at its new path. Files are matched by
  their numbers. An entry that is added to a directory which the other side has moved stays under
  the directory's old name.
- A name that one side has added to a file leads to the merged file, with all changes of the other
  side.
- A directory exists because of its entries: it is removed only if none are left.
- A conflict is resolved as `resolve` says, or is listed; then nothing can be published.

If a branch and the target have several merge bases, each has merged the other before. A path at
which the bases differ is compared with the result of their own merge. If the bases do not agree
there, it is compared with nothing, so that two sides that differ are a conflict: neither is known
to be older.

Memory: the differences. One thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from cowfs.base import interruptible as apart
from cowfs.base.fast_dataclass import dataclass
from cowfs.index import Index, InodeRow
from cowfs.version.differences import find_inode
from cowfs.version.merge.conflicts import SETTLED_BY, Conflict, ConflictKind, How, Resolve
from cowfs.version.merge.merge_comparing import (
    Change,
    States,
    Unknown,
    changes_by_path,
    find_disputed,
    find_moves,
    leave_out,
    state_of,
)
from cowfs.version.merge.merge_names import MergeNames
from cowfs.version.merge.merge_states import TARGET_SIDE, Branch, ChangedBy, Merged, Part, State, Tail
from cowfs.version.publish.tree_changes import INO, MODE, SIZE


class Merger:
    """ours: the differences of target and merge base (`changes_by_path`). changed_by: path → the
    branch with the change, for conflicts; updated with each merge. kept_free: indexes whose names
    are not used for entries that are put aside. begins_with: whether a file's content begins with
    all of another's; may read both."""

    def __init__(
        self,
        target: Index,
        branch: Branch,
        ours: dict[bytes, Change],
        changed_by: ChangedBy,
        kept_free: Sequence[Index],
        resolve: Resolve,
        begins_with: Callable[[list[Index], Part, Part], bool],
    ) -> None:
        self._target = target
        self._branch = branch
        self._ours = ours
        self._changed_by = changed_by
        self._kept_free = kept_free
        self._resolve = resolve
        self._begins_with = begins_with
        self._merged = Merged([target])
        self._clashes: dict[bytes, tuple[State, State]] = {}
        self._names = MergeNames(self._merged)
        self._states = States(self._merged)

    def run(self) -> Merged:
        self._merge()
        self._settle_directories()
        self._changed_by.update(dict.fromkeys(self._merged.paths, self._branch.name))
        return self._merged

    def _merge(self) -> None:
        side, base = len(self._merged.sides), len(self._merged.sides) + 1
        self._merged.sides += [self._branch.index, self._branch.base]
        self._merged.shared[side] = min(self._branch.shared, self._branch.shared_by_target)
        theirs = changes_by_path(self._branch.base, self._branch.index, self._branch.shared)
        work = _Work(side, base, self._ours, theirs, find_disputed(self._branch, self._merged, base))
        self._follow_renames(work)
        left = (theirs.keys() | work.disputed.keys()) - work.done
        named = {path for path in left & theirs.keys() if self._is_named_anew(path, work)}
        for path in sorted(left - named):
            apart.require_wanted()
            theirs_there = state_of(side, find_inode(self._branch.index, path))
            before = self._now_at(path)
            self._settle(path, theirs_there, work)
            self._note(self._merged.number(theirs_there), before, self._now_at(path), work)
        joined = {path: self._join_names(path, work) for path in sorted(named)}
        for path, state in joined.items():
            self._settle_name(path, state, work)
        self._follow_to_other_names(work)
        self._take_along(work)

    def _settle(self, path: bytes, theirs: State | None, work: _Work) -> None:
        if path in work.disputed:
            self._settle_disputed(path, work.disputed[path], theirs)
            return
        if self._is_changed(path, work.ours):
            now = self._now_changed(path, work.ours)
            theirs = self._three_way(path, state_of(work.base, work.theirs[path][0]), now, theirs)
        self._put(path, theirs)

    def _put(self, path: bytes, state: State | None) -> None:
        self._merged.paths[path] = state
        self._names.put(path, state)

    # -- names of one file

    def _is_named_anew(self, path: bytes, work: _Work) -> bool:
        """Whether the branch has given this name to a file of the base."""
        old, new = work.theirs[path]
        if path in work.apart or self._merged.number(state_of(work.side, new)) is None or new is None:
            return False
        return (old is None or old[INO] != new[INO]) and self._branch.base.inode(new[INO]) is not None

    def _join_names(self, path: bytes, work: _Work) -> State:
        """The merged state of the file that got new names; the same for all its names."""
        new = work.theirs[path][1]
        assert new is not None
        theirs = State(Part(work.side, new), Part(work.side, new))
        if new[INO] in work.came_to:
            return work.came_to[new[INO]][1]
        now, base = self._names.now(new[INO]), state_of(work.base, self._branch.base.inode(new[INO]))
        if now is None or base is None:
            return theirs
        if self._states.are_equal(base, theirs) and base.mtime_ns == theirs.mtime_ns:
            found: State | None = now
        elif self._states.are_equal(base, now) and base.mtime_ns == now.mtime_ns:
            found = theirs
        else:
            found = self._three_way(path, base, now, theirs)
        assert found is not None
        self._note(new[INO], now, found, work)
        return found

    def _settle_name(self, path: bytes, state: State, work: _Work) -> None:
        if path in work.disputed:
            theirs = state_of(work.side, work.theirs[path][1])
            self._settle(path, state if self._states.are_same(theirs, state) else theirs, work)
        elif self._merged.number(self._now_at(path)) == self._merged.number(state):
            self._put(path, state)
        else:
            self._settle(path, state, work)

    def _follow_to_other_names(self, work: _Work) -> None:
        """Handles files that the branch changed in place, and that have only other names now."""
        changed = {new[INO]: (old, new) for old, new in work.theirs.values() if old and new and old[INO] == new[INO]}
        for path, (_, row) in sorted(work.ours.items()):
            number = row[INO] if row is not None else None
            if number in work.came_to or not self._is_known(number) or number not in changed:
                continue
            now = self._now_at(path)
            if (
                now is not None
                and self._merged.number(now) == number
                and path not in work.theirs.keys() | work.disputed
            ):
                self._put_changed(path, now, *changed[number], work)

    def _is_known(self, number: int | None) -> bool:
        """Whether a number means the same file in target, branch and base."""
        return number is not None and number < min(self._branch.shared, self._branch.shared_by_target)

    def _note(self, number: int | None, before: State | None, after: State | None, work: _Work) -> None:
        """Records the merged state of a file that both have."""
        if number is None or before is None or after is None:
            return
        if self._merged.number(before) == number == self._merged.number(after):
            work.came_to.setdefault(number, (before, after))

    def _take_along(self, work: _Work) -> None:
        """Lets names that the branch does not have lead to the file that it changed."""
        changed = {number: states for number, states in work.came_to.items() if states[0] != states[1]}
        names = {(path, number) for number in changed for path in self._names.put_for(number)}
        if changed:
            names |= {(path, row[INO]) for path, (_, row) in work.ours.items() if row is not None}
        for path, number in sorted(names):
            if number in changed and path not in work.theirs and path not in work.disputed:
                before, after = changed[number]
                if self._now_at(path) == before:
                    self._put(path, after)

    # -- paths at which merge bases differ

    def _settle_disputed(self, path: bytes, base: State | Unknown | None, theirs: State | None) -> None:
        ours = self._now_at(path)
        if (ours is None and theirs is None) or self._states.are_same(base, theirs):
            return
        if self._states.are_same(base, ours):
            self._put(path, theirs)
        elif not isinstance(base, Unknown):
            self._put(path, self._three_way(path, base, ours, theirs))
        elif (left := ours or theirs) is not None and left.is_directory and None in (ours, theirs):
            self._put(path, None)  # depends on its entries
        else:
            self._put(path, self._three_way(path, None, ours, theirs))

    def _follow_renames(self, work: _Work) -> None:
        """Handles files that one side has moved and the other changed, moved or removed."""
        done = work.done
        ours, theirs = leave_out(work.disputed, work.ours), leave_out(work.disputed, work.theirs)
        their_moves = find_moves(theirs, self._branch.shared)
        our_moves = find_moves(ours, self._branch.shared_by_target)
        for old_path, to in sorted(their_moves.items()):
            if old_path in our_moves:
                if our_moves[old_path] != to:
                    self._resolve_double_rename(old_path, our_moves[old_path], to, work)
            elif self._is_changed(old_path, ours) and not self._is_changed(to, ours):
                now = self._now_changed(old_path, ours)
                if now is not None and not self._is_of_another(theirs[old_path][0], now):
                    self._put_changed(to, now, theirs[old_path][0], theirs[to][1], work)
                    self._put(old_path, None)
                    done |= {old_path, to}
                elif self._conflict("changed_and_removed", to) == "ours":
                    done.add(to)
        for old_path, to in sorted(our_moves.items()):
            old, new = theirs.get(old_path, (None, None))
            now = self._now_changed(to, ours)
            if old is None or now is None or to in theirs or old_path in their_moves:
                continue
            if new is not None and not self._is_of_another(old, State(Part(work.side, new), Part(work.side, new))):
                self._put_changed(to, now, old, new, work)
                done.add(old_path)
            elif self._conflict("changed_and_removed", to) == "theirs":
                self._put(to, None)

    def _is_of_another(self, old: InodeRow | None, state: State) -> bool:
        """Whether the entry with the file's name is not a change of the file: a directory, or
        another file of the base. Then the file was removed, and the entry stays there."""
        number = self._merged.number(state)
        return state.is_directory or (self._is_known(number) and old is not None and number != old[INO])

    def _put_changed(self, path: bytes, now: State, old: InodeRow | None, new: InodeRow | None, work: _Work) -> None:
        """Puts the file of the merge so far at a path, with the branch's changes made elsewhere."""
        theirs = state_of(work.side, new)
        self._put(path, self._three_way(path, state_of(work.base, old), now, theirs))
        self._note(self._merged.number(theirs), now, self._now_at(path), work)

    def _is_changed(self, path: bytes, ours: dict[bytes, Change]) -> bool:
        return path in self._merged.paths or path in ours

    def _now_changed(self, path: bytes, ours: dict[bytes, Change]) -> State | None:
        """The entry of the merge so far, if it differs from the base."""
        if path in self._merged.paths:
            return self._merged.paths[path]
        return state_of(TARGET_SIDE, ours[path][1]) if path in ours else None

    def _resolve_double_rename(self, old_path: bytes, ours: bytes, theirs: bytes, work: _Work) -> None:
        how = self._conflict("renamed_twice", old_path)
        if how == "ours":
            now = self._now_changed(ours, work.ours)
            if now is not None and ours not in work.theirs:
                self._put_changed(ours, now, work.theirs[old_path][0], work.theirs[theirs][1], work)
            work.done.add(theirs)
        elif how == "theirs":
            self._put(ours, None)
        else:
            work.apart.add(theirs)

    # -- one path

    def _three_way(self, path: bytes, base: State | None, ours: State | None, theirs: State | None) -> State | None:
        if ours is None or theirs is None:
            return self._with_one_gone(path, base, ours, theirs)
        if ours.is_directory != theirs.is_directory:
            if base is not None and self._states.are_equal(base, theirs):
                return ours
            if base is not None and self._states.are_equal(base, ours):
                return theirs
            self._clashes[path] = ours, theirs
            return ours
        body, attributes = (
            self._part(base, ours, theirs, self._states.have_same_body),
            self._part(base, ours, theirs, self._states.have_same_attributes),
        )
        if body is None:
            kind: ConflictKind = "both_changed" if base is not None else "both_added"
            if stat.S_IFMT(ours.body.row[MODE]) != stat.S_IFMT(theirs.body.row[MODE]):
                kind = "type_changed"
            is_kind = base is not None and stat.S_IFMT(base.body.row[MODE]) == stat.S_IFMT(ours.body.row[MODE])
            merged = attributes if kind == "both_changed" and is_kind else None
            return self._settle_conflict(kind, path, base, ours, theirs, merged)
        if attributes is None:
            if path == b"" and base is None:
                attributes = ours
            else:
                how = self._conflict("attributes", path)
                attributes = _choose(how, ours, theirs)
        if base is not None and self._are_two_files(body, attributes):
            return self._settle_conflict("both_changed", path, base, ours, theirs)
        return State(body.body, attributes.attributes, body.tails)

    def _are_two_files(self, one: State, other: State) -> bool:
        """Whether one side has given the name to another file of the base, and the other has
        changed the file that had it."""
        numbers = self._merged.number(one), self._merged.number(other)
        return all(map(self._is_known, numbers)) and numbers[0] != numbers[1]

    def _part(
        self, base: State | None, ours: State, theirs: State, is_same: Callable[[State, State], bool]
    ) -> State | None:
        """The side that a part comes from; None: both have changed it."""
        if is_same(ours, theirs):
            return theirs if theirs.mtime_ns > ours.mtime_ns else ours
        if base is not None and is_same(base, theirs):
            return ours
        if base is not None and is_same(base, ours):
            return theirs
        return None

    def _with_one_gone(self, path: bytes, base: State | None, ours: State | None, theirs: State | None) -> State | None:
        left = ours or theirs
        if left is not None and left.is_directory and (base is None or not base.is_directory):
            return left  # the other side has not removed it
        if left is None or left.is_directory or (base is not None and self._states.are_equal(base, left)):
            return None  # the entries of a directory decide
        how = self._conflict("changed_and_removed", path)
        if how in ("ours", "theirs"):
            return ours if how == "ours" else theirs
        return left

    def _settle_conflict(
        self,
        kind: ConflictKind,
        path: bytes,
        base: State | None,
        ours: State,
        theirs: State,
        attributes: State | None = None,
    ) -> State:
        """attributes: set if they do not depend on the chosen content, since only one side has
        changed them, or both alike."""
        is_appended = self._is_appended(base, ours) and self._is_appended(base, theirs)
        how = self._conflict(kind, path, may_join=is_appended and not ours.is_directory)
        if how == "union":
            start = base.body.row[SIZE] if base is not None else 0
            kept = self._with_attributes(ours, attributes)
            return State(kept.body, kept.attributes, (*kept.tails, Tail(theirs.body, start)))
        if how == "keep-both":
            self._put(self._aside(path), self._with_attributes(theirs, attributes))
        chosen = ours if how == "keep-both" else _choose(how, ours, theirs)
        return self._with_attributes(chosen, attributes)

    def _with_attributes(self, state: State, attributes: State | None) -> State:
        if attributes is None or self._are_two_files(state, attributes):
            return state
        return State(state.body, attributes.attributes, state.tails)

    def _is_appended(self, base: State | None, state: State) -> bool:
        """Whether a file was only appended to since the base."""
        part = state.body
        if not stat.S_ISREG(part.row[MODE]):
            return False
        if base is None or state.tails:
            return True
        if not stat.S_ISREG(base.body.row[MODE]) or part.row[SIZE] < base.body.row[SIZE]:
            return False
        return self._begins_with(self._merged.sides, part, base.body)

    def _aside(self, path: bytes) -> bytes:
        """A free name beside the path."""
        number = 0
        while True:
            tail = b"~" + os.fsencode(self._branch.name) + (b"~%d" % number if number else b"")
            directory, _, name = path.rpartition(b"/")
            found = (directory + b"/" if directory else b"") + name[: 255 - len(tail)] + tail
            is_taken = self._merged.paths.get(found) is not None or any(self._everywhere(found))
            if not is_taken and all(find_inode(index, found) is None for index in self._kept_free):
                return found
            number += 1

    def _conflict(self, kind: ConflictKind, path: bytes, *, may_join: bool = True) -> How:
        """The resolution of the conflict; records both."""
        text = "/" + os.fsdecode(path)
        found = Conflict(kind, text, self._changed_by[path], self._branch.name)
        how = self._resolve(found)
        if how not in SETTLED_BY[kind] or (how == "union" and not may_join):
            how = "fail"
        self._merged.conflicts.append(Conflict(kind, text, found.ours, self._branch.name, how))
        return how

    # -- directories

    def _settle_directories(self) -> None:
        settled: set[bytes] = set()
        while True:
            self._restore_emptied()
            self._make_parents()
            found = sorted(self._clashes.keys() - settled)
            if not found:
                return
            for path in found:
                settled.add(path)
                above = self._now_at(path.rpartition(b"/")[0])
                if above is not None and above.is_directory:  # otherwise it was removed with its parent
                    self._settle_clash(path, *self._clashes[path])

    def _restore_emptied(self) -> None:
        """Keeps directories of the target that were to be removed but still have entries."""
        for path in sorted(self._merged.paths, reverse=True):
            state = self._merged.paths[path]
            if state is not None and state.is_directory:
                continue
            row = find_inode(self._target, path)
            if row is None or not stat.S_ISDIR(row[MODE]) or not self._survivors(path, row):
                continue
            if state is None:
                del self._merged.paths[path]
            elif path not in self._clashes:
                part = Part(TARGET_SIDE, row)
                self._clashes[path] = State(part, part), state

    def _survivors(self, path: bytes, directory: InodeRow) -> list[bytes]:
        """The target's own entries in a directory that the merge keeps."""
        kept = []
        for name, _ in self._target.directory(directory[INO]):
            below = path + b"/" + name if path else name
            if below not in self._merged.paths or self._merged.paths[below] is not None:
                kept.append(below)
        return kept

    def _make_parents(self) -> None:
        """Adds the parents of added entries that the target does not have."""
        for path in sorted(path for path, state in self._merged.paths.items() if state is not None):
            state = self._merged.paths[path]
            assert state is not None
            parent = path
            while parent:
                parent = parent.rpartition(b"/")[0]
                there = self._now_at(parent)
                if there is not None and there.is_directory:
                    break
                row = find_inode(self._merged.sides[state.body.side], parent)
                if row is None or not stat.S_ISDIR(row[MODE]):
                    row = next(row for row in self._everywhere(parent) if stat.S_ISDIR(row[MODE]))
                side = next(side for side, index in enumerate(self._merged.sides) if find_inode(index, parent) == row)
                made = State(Part(side, row), Part(side, row))
                if there is None:
                    self._merged.paths[parent] = made
                elif parent not in self._clashes:
                    self._clashes[parent] = there, made

    def _everywhere(self, path: bytes) -> Iterable[InodeRow]:
        return (row for index in self._merged.sides if (row := find_inode(index, path)) is not None)

    def _now_at(self, path: bytes) -> State | None:
        if path in self._merged.paths:
            return self._merged.paths[path]
        return state_of(TARGET_SIDE, find_inode(self._target, path))

    def _settle_clash(self, path: bytes, ours: State, theirs: State) -> None:
        """Resolves a directory on one side and another entry on the other."""
        how = self._conflict("directory_and_file", path)
        directory, other = (ours, theirs) if ours.is_directory else (theirs, ours)
        if how == "keep-both":
            self._put(self._aside(path), other)
        chosen = directory if how == "keep-both" else theirs if how == "theirs" else ours
        self._merged.paths[path] = chosen
        if not chosen.is_directory:
            self._clear_below(path)

    def _clear_below(self, path: bytes) -> None:
        for below in [each for each in self._merged.paths if each.startswith(path + b"/")]:
            self._merged.paths[below] = None
        row = find_inode(self._target, path)
        waiting = [(path, row)] if row is not None and stat.S_ISDIR(row[MODE]) else []
        while waiting:
            directory, found = waiting.pop()
            for name, each in self._target.directory(found[INO]):
                self._merged.paths[directory + b"/" + name] = None
                if stat.S_ISDIR(each[MODE]):
                    waiting.append((directory + b"/" + name, each))


@dataclass
class _Work:
    """The state of merging one branch. done: settled paths. apart: names whose file is split in
    two. came_to: the earlier and the current state of each file of the target."""

    side: int
    base: int
    ours: dict[bytes, Change]
    theirs: dict[bytes, Change]
    disputed: dict[bytes, State | Unknown | None]
    done: set[bytes] = field(default_factory=set)
    apart: set[bytes] = field(default_factory=set)
    came_to: dict[int, tuple[State, State]] = field(default_factory=dict)


def _choose(how: How, ours: State, theirs: State) -> State:
    if how == "newest":
        return theirs if theirs.mtime_ns > ours.mtime_ns else ours
    return theirs if how == "theirs" else ours
