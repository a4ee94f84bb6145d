"""Restores a path from another version into a target: the changes that make the target's path equal
to the source's. Indexes in, decisions out (`merging.Merged`, which `merge_changes` turns into
rows); writes nothing, and reads only differences.

    source:path ──compare──▶ target:to      entries only in the source are added, entries only in the target removed, differing
                                            ones take the source's content, attributes, times

A file keeps its inode number in the target. When whole trees are compared, a file that was moved or
lost a name since, and is otherwise the same, is moved or named again and stays one file; otherwise
it becomes a new one. Entries outside of the path stay unchanged, but missing directories above it
are made like the source's.
"""

from __future__ import annotations

import os
import stat

from cowfs.base.errors import ConflictError, InvalidInputError, NotFoundError
from cowfs.base.hints import Command
from cowfs.index import Index, InodeRow, content_with_links
from cowfs.version.differences import compare, find_inode
from cowfs.version.merge.merge_states import TARGET_SIDE, Merged, Part, State
from cowfs.version.publish.tree_changes import CTIME, INO, MODE, MTIME, NLINK, with_values

SOURCE_SIDE = 1
_ATIME = 8


def plan_restore(target: Index, source: Index, *, shared: int, path: bytes, to: bytes, now_ns: int) -> Merged:
    """shared: inode numbers below it mean the same file in both. now_ns: the time of the change.

    NotFoundError: the source does not have `path`, or the target has no directory for `to`.
    ConflictError: another entry is in the place of a directory.
    """
    found = find_inode(source, path)
    if found is None:
        raise NotFoundError(
            f"the version has no {_display(path)}",
            hint=f"{Command('ls', 'NAME@VERSION')}, or files.ls(), lists its files.",
        )
    if not to and not stat.S_ISDIR(found[MODE]):
        raise InvalidInputError(
            f"{_display(path)} is not a directory, and cannot be the root", hint="Give a path to put it at."
        )
    merged = Merged([target, source])
    _lead_to(merged, path, to)
    is_whole = not path and not to
    differing = compare(target, source, shared=shared, path=to, new_path=path, times=True, renames=False, files=True)
    for each in differing:
        if each.new is None:
            merged.paths[each.path] = None
    for each in differing:
        if each.new is not None:
            part = _find_kept(target, source, each.new, shared) if is_whole else Part(SOURCE_SIDE, each.new)
            below = each.path[len(path) :].strip(b"/")
            merged.paths[b"/".join(filter(None, (to, below)))] = State(part, part)
    if to and to in merged.paths:
        _touch(merged, to.rpartition(b"/")[0], now_ns)
    return merged


def _find_kept(target: Index, source: Index, row: InodeRow, shared: int) -> Part:
    """The target's own file, if it is the same file."""
    own = target.inode(row[INO]) if row[INO] < shared and not stat.S_ISDIR(row[MODE]) else None
    if (
        own is None
        or _comparable(own) != _comparable(row)
        or content_with_links(target, row[INO]) != content_with_links(source, row[INO])
    ):
        return Part(SOURCE_SIDE, row)
    return Part(TARGET_SIDE, own)


def _comparable(row: InodeRow) -> InodeRow:
    return with_values(row, {NLINK: 0, CTIME: 0, _ATIME: 0})


def _lead_to(merged: Merged, path: bytes, to: bytes) -> None:
    """Makes missing directories above `to` like those of the source above `path`, which is then the
    same path."""
    target, source = merged.sides
    above = to
    while above:
        above = above.rpartition(b"/")[0]
        there = find_inode(target, above)
        if there is not None and stat.S_ISDIR(there[MODE]):
            return
        if there is not None:
            raise ConflictError(
                f"{_display(above)} is not a directory", hint="Move it away first, or give another path to put it at."
            )
        row = find_inode(source, above) if path == to else None
        if row is None:
            raise NotFoundError(
                f"there is no directory {_display(above)}", hint="Make it first, or give another path to put it at."
            )
        merged.paths[above] = State(Part(SOURCE_SIDE, row), Part(SOURCE_SIDE, row))


def _touch(merged: Merged, directory: bytes, now_ns: int) -> None:
    """Updates the times of a directory whose entries change."""
    row = find_inode(merged.sides[TARGET_SIDE], directory)
    if row is not None and directory not in merged.paths:
        part = Part(TARGET_SIDE, with_values(row, {MTIME: now_ns}))
        merged.paths[directory] = State(part, part)


def _display(path: bytes) -> str:
    return "/" + os.fsdecode(path)
