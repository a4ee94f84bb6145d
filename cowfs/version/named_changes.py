"""The differences between two trees as values for people and programs: the result of `diff`.

`differences` finds them in rows of indexes; this module turns them into words. Light to import: no
index, no engine.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from cowfs.base.short_repr import has_card

if TYPE_CHECKING:
    from cowfs.index import InodeRow
    from cowfs.version.differences import Difference

_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
_MODE: Final = 1
_SIZE: Final = 6


@has_card
@dataclass(frozen=True)
class Change:
    """One path at which two versions differ.

    kind      `added`, `removed`, `changed`, or `renamed`, which may have changed as well
    path      in the newer one; for a removed entry in the older one. From the root, or from the compared folder
    old_path  in the older one; differs from `path` also below a renamed directory. None: it is
    added type      `file`, `directory`, `symlink` or `special`; for a removed entry its old type. old_type: in the older one
    what      the aspects that differ: `type`, `content`, `target` (of a link), `device`, `mode`, `owner`, `xattrs`,
              `mtime`, and `names` (the names of one file, by hard links)
    size      in bytes; None: it is removed. old_size: None: it is added
    added_bytes, removed_bytes    of content that only the newer, only the older file has, in whole chunks
    """

    kind: Literal["added", "removed", "changed", "renamed"]
    path: str
    old_path: str | None
    type: str
    old_type: str | None
    what: tuple[str, ...]
    size: int | None
    old_size: int | None
    added_bytes: int
    removed_bytes: int


def describe(found: Difference, of_old: int, of_new: int) -> Change:
    """of_old, of_new: length of the path of the compared folder, on each side."""
    is_gone = found.new is None
    row = found.old if is_gone else found.new
    assert row is not None
    return Change(
        kind=found.kind,
        path=_path(found.path, of_old if is_gone else of_new),
        old_path=_path(found.old_path, of_old) if found.old_path is not None else None,
        type=_type(row),
        old_type=_type(found.old) if found.old is not None else None,
        what=tuple(sorted(found.what)),
        size=found.new[_SIZE] if found.new is not None else None,
        old_size=found.old[_SIZE] if found.old is not None else None,
        added_bytes=found.added_bytes,
        removed_bytes=found.removed_bytes,
    )


def join_path(folder: bytes, path: bytes) -> bytes:
    return b"/".join(filter(None, (folder, path)))


def _type(row: InodeRow) -> str:
    return _TYPES.get(stat.S_IFMT(row[_MODE]), "special")


def _path(path: bytes, folder: int) -> str:
    return "/" + os.fsdecode(path[folder:].lstrip(b"/"))
