"""Conflicts of a merge, and what can be done about them. Plain values: importing them brings no
index along, so that programs which only use volumes stay light (`merging` finds them)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

ConflictKind: TypeAlias = Literal[
    "both_changed",
    "both_added",
    "changed_and_removed",
    "attributes",
    "type_changed",
    "directory_and_file",
    "renamed_twice",
]
How: TypeAlias = Literal["ours", "theirs", "newest", "keep-both", "union", "fail"]
HOWS: tuple[How, ...] = ("ours", "theirs", "newest", "keep-both", "union", "fail")
SETTLED_BY: dict[ConflictKind, tuple[How, ...]] = {
    "both_changed": ("ours", "theirs", "newest", "keep-both", "union"),
    "both_added": ("ours", "theirs", "newest", "keep-both", "union"),
    "changed_and_removed": ("ours", "theirs", "newest", "keep-both"),
    "attributes": ("ours", "theirs", "newest"),
    "type_changed": ("ours", "theirs", "newest", "keep-both"),
    "directory_and_file": ("ours", "theirs", "keep-both"),
    "renamed_twice": ("ours", "theirs", "keep-both"),
}
"""What `merging` can do about each kind. union of two contents: where both have only appended."""


@dataclass(frozen=True)
class Conflict:
    """One path at which two sides have done what does not go together.

    kind     `both_changed`; `both_added`; `changed_and_removed`; `attributes` (permissions, owner, xattrs);
             `type_changed` (a file and a link, say); `directory_and_file`; `renamed_twice`: a file has two new paths
    path     from the root
    ours     the target, or the branch that had changed it before
    theirs   the branch
    how      what was done about it; `fail`: nothing, and so nothing is published
    """

    kind: ConflictKind
    path: str
    ours: str
    theirs: str
    how: How = "fail"


Resolve: TypeAlias = Callable[[Conflict], How]
