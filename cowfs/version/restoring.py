"""What another version has at a path, put into a target: the changes that make the target's path
the same as the other's. Indexes in, decisions out (`merging.Merged`, which `merge_changes` turns
into rows); nothing is written, and only what differs is read.

    source:path ──compare──▶ target:to      what only the source has is added, what only the target has is removed,
                                            what differs is the source's: content, attributes, times

A file keeps the inode number that the target has it under. When whole trees are compared, a file
that was moved or lost a name since, and is otherwise the same, is moved or named again and stays
one file; elsewhere it is one of its own. What lies outside of the path stays as it is, but
directories that lead to it, and that the target has not got, come along.
"""

from __future__ import annotations

import os
import stat

from cowfs.errors import ConflictError, InvalidInputError, NotFoundError
from cowfs.index import Index, InodeRow, content_with_links
from cowfs.version.differences import at, compare
from cowfs.version.merge_states import TARGET_SIDE, Merged, Part, State
from cowfs.version.tree_changes import CTIME, INO, MODE, MTIME, NLINK, with_values

SOURCE_SIDE = 1
_ATIME = 8


def restored(target: Index, source: Index, *, shared: int, path: bytes, to: bytes, now_ns: int) -> Merged:
    """shared: inode numbers below it mean the same file in both. now_ns: when it happens.

    NotFoundError: the source has nothing at `path`, or the target no directory for `to`.
    ConflictError: something else than a directory is in the way.
    """
    found = at(source, path)
    if found is None:
        raise NotFoundError(f"the version has no {_shown(path)}", hint="`cowfs ls`, or files.ls(), shows what it has.")
    if not to and not stat.S_ISDIR(found[MODE]):
        raise InvalidInputError(
            f"{_shown(path)} is no directory, and cannot be the root", hint="Give a path to put it at."
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
            part = _kept(target, source, each.new, shared) if is_whole else Part(SOURCE_SIDE, each.new)
            below = each.path[len(path) :].strip(b"/")
            merged.paths[b"/".join(filter(None, (to, below)))] = State(part, part)
    if to and to in merged.paths:
        _touch(merged, to.rpartition(b"/")[0], now_ns)
    return merged


def _kept(target: Index, source: Index, row: InodeRow, shared: int) -> Part:
    """The target's own file, if it is the same one."""
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
    """Directories above `to` that the target has not got are as the source has them above `path`,
    which then is the same."""
    target, source = merged.sides
    above = to
    while above:
        above = above.rpartition(b"/")[0]
        there = at(target, above)
        if there is not None and stat.S_ISDIR(there[MODE]):
            return
        if there is not None:
            raise ConflictError(
                f"{_shown(above)} is no directory", hint="Move it away first, or give another path to put it at."
            )
        row = at(source, above) if path == to else None
        if row is None:
            raise NotFoundError(
                f"there is no directory {_shown(above)}", hint="Make it first, or give another path to put it at."
            )
        merged.paths[above] = State(Part(SOURCE_SIDE, row), Part(SOURCE_SIDE, row))


def _touch(merged: Merged, directory: bytes, now_ns: int) -> None:
    """A name in it is another one now."""
    row = at(merged.sides[TARGET_SIDE], directory)
    if row is not None and directory not in merged.paths:
        part = Part(TARGET_SIDE, with_values(row, {MTIME: now_ns}))
        merged.paths[directory] = State(part, part)


def _shown(path: bytes) -> str:
    return "/" + os.fsdecode(path)
