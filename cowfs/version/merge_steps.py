"""Several branches on top of a target, one after the other: each is merged into what the target and
the branches before it come to, as if that had been published. So merging them at once comes to what
merging them one by one does.

    target ─▶ Merger(first) ─▶ an index that is published nowhere ─▶ Merger(second) ─▶ … ─▶ one change set on top of the target

Cost: an index in memory, which is changed once for each branch but the last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from cowfs import clock
from cowfs.index import Index, Stream
from cowfs.version.conflicts import Resolve
from cowfs.version.contents import files_of
from cowfs.version.merge_changes import MergeChanges, becomes
from cowfs.version.merge_states import Branch, ChangedBy, Earlier, Merged, Part
from cowfs.version.merging import Merger


def merge_all(
    name: str,
    target: Index,
    branches: Sequence[Branch],
    resolve: Resolve,
    begins_with: Callable[[list[Index], Part, Part], bool],
    stack: ExitStack,
) -> Merged:
    """name: of the target, for conflicts. begins_with: as of `Merger`. stack: closes what the
    result reads."""
    changed_by = ChangedBy(name)
    kept_free = [branch.index for branch in branches]
    merged = Merged([target])
    for branch in branches:
        index = _applied(merged, stack) if merged.paths else merged.sides[0]
        step = Merger(index, branch, changed_by, kept_free, resolve, begins_with).run()
        merged = replace(step, conflicts=[*merged.conflicts, *step.conflicts], earlier=merged.earlier)
    merged.conflicts.sort(key=lambda each: (os.fsencode(each.path), each.theirs))
    return merged


def _applied(merged: Merged, stack: ExitStack) -> Index:
    """The index that a merge comes to, with the merge among what is `earlier`."""
    index = merged.sides[0]
    earlier = merged.earlier or Earlier(index)
    earlier.told = dict(becomes(merged))
    draft = MergeChanges(replace(merged, earlier=None), earlier.number, clock.now_ns()).draft()
    earlier.drafts.append(draft)
    rows = Stream(lambda: ((ino, rows) for ino, _, rows in files_of(draft.contents)))
    delta = stack.enter_context(index.apply(replace(draft.changes, contents=rows, packs=earlier.new_packs)))
    merged.earlier = earlier
    return stack.enter_context(delta.unpublished())
