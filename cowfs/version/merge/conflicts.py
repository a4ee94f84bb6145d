"""Conflicts of a merge, and the ways to resolve them. Plain values: importing them loads no index,
so programs that only use volumes stay light (`merging` finds conflicts)."""

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
"""The resolutions that `merging` offers for each kind. union joins two contents that were only
appended to."""


@dataclass(frozen=True)
class Conflict:
    """One path at which two sides have made incompatible changes.

    kind     `both_changed`; `both_added`; `changed_and_removed`; `attributes` (permissions, owner, xattrs);
             `type_changed` (a file and a link, say); `directory_and_file`; `renamed_twice`: a file has two new paths
    path     from the root
    ours     the target, or the branch that changed the path before
    theirs   the branch
    how      the resolution; `fail`: unresolved, so nothing is published
    """

    kind: ConflictKind
    path: str
    ours: str
    theirs: str
    how: How = "fail"


Resolve: TypeAlias = Callable[[Conflict], How]
