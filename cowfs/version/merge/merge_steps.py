"""Merges several branches into a target, one after the other: each is merged into the result of the
target and the branches before it, as if that had been published. So merging them at once gives the
same result as merging them one by one.

    target ─▶ Merger(first) ─▶ an unpublished index ─▶ Merger(second) ─▶ … ─▶ one change set on top
    of the target

Cost: an index in memory, which is changed once for each branch except the last. The differences of
each base to it are found once, and updated with each merge.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from cowfs.base import clock
from cowfs.index import Index, Stream
from cowfs.version.differences import find_inode
from cowfs.version.merge.conflicts import Resolve
from cowfs.version.merge.merge_changes import MergeChanges, becomes
from cowfs.version.merge.merge_comparing import Change, changes_by_path
from cowfs.version.merge.merge_states import TARGET_SIDE, Branch, ChangedBy, Earlier, Merged, Part
from cowfs.version.merge.merging import Merger
from cowfs.version.publish.contents import files_of
from cowfs.version.publish.tree_changes import INO


def merge_all(
    name: str,
    target: Index,
    branches: Sequence[Branch],
    resolve: Resolve,
    begins_with: Callable[[list[Index], Part, Part], bool],
    stack: ExitStack,
) -> Merged:
    """name: of the target, for conflicts. begins_with: as for `Merger`. stack: closes the indexes
    that the result reads."""
    changed_by = ChangedBy(name)
    kept_free = [branch.index for branch in branches]
    ours_of: dict[int, tuple[Index, dict[bytes, Change]]] = {}
    merged = Merged([target])
    opened = stack.enter_context(ExitStack())
    for branch in branches:
        if merged.paths:
            before, opened = opened, stack.enter_context(ExitStack())
            _apply(merged, ours_of.values(), opened)
            before.close()
        so_far = merged.sides[TARGET_SIDE]
        if id(branch.base) not in ours_of:
            ours_of[id(branch.base)] = branch.base, changes_by_path(branch.base, so_far, branch.shared_by_target)
        _, ours = ours_of[id(branch.base)]
        step = Merger(so_far, branch, ours, changed_by, kept_free, resolve, begins_with).run()
        merged = replace(step, conflicts=[*merged.conflicts, *step.conflicts], earlier=merged.earlier)
    merged.conflicts.sort(key=lambda each: (os.fsencode(each.path), each.theirs))
    return merged


def _apply(merged: Merged, ours_of: Iterable[tuple[Index, dict[bytes, Change]]], stack: ExitStack) -> None:
    """Adds the merge to `earlier`; its result becomes the target of the next one."""
    index = merged.sides[TARGET_SIDE]
    earlier = merged.earlier or Earlier(index)
    earlier.told = dict(becomes(merged))
    draft = MergeChanges(replace(merged, earlier=None), earlier.number, clock.now_ns()).draft()
    earlier.drafts.append(draft)
    rows = Stream(lambda: ((ino, rows) for ino, _, rows in files_of(draft.contents)))
    delta = stack.enter_context(index.apply(replace(draft.changes, contents=rows, packs=earlier.new_packs)))
    so_far = stack.enter_context(delta.open_unpublished())
    touched = {row[INO] for row in draft.changes.inodes}
    for base, ours in ours_of:
        _keep_up(ours, base, so_far, merged.paths, touched)
    merged.sides, merged.paths, merged.earlier = [so_far], {}, earlier


def _keep_up(
    ours: dict[bytes, Change], base: Index, so_far: Index, paths: Iterable[bytes], touched: Container[int]
) -> None:
    """Updates the differences of a base. paths: paths with a new entry. touched: files with changed
    rows, also by added or moved links."""
    linked = [path for path, (_, row) in ours.items() if row is not None and row[INO] in touched]
    for path in {*paths, *linked}:
        old, new = find_inode(base, path), find_inode(so_far, path)
        if old != new:
            ours[path] = old, new
        else:
            ours.pop(path, None)
