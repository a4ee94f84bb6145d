"""Conflicts of a merge, and the ways to resolve them. Plain values: importing them loads no index,
so programs that only use volumes stay light (`merging` finds conflicts)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cowfs.base.quantities import natural_key
from cowfs.base.short_repr import has_card

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


@has_card
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


def describe_by_path(conflicts: Iterable[Conflict]) -> dict[str, str]:
    """One text for each path in conflict, in natural order: what happened, on which sides, and how
    it is resolved. A path that several branches have changed has a conflict for each of them."""
    by_path: dict[str, list[Conflict]] = {}
    for each in conflicts:
        by_path.setdefault(each.path, []).append(each)
    return {path: _describe(by_path[path]) for path in sorted(by_path, key=natural_key)}


def _describe(conflicts: list[Conflict]) -> str:
    kinds = dict.fromkeys(each.kind.replace("_", " ") for each in conflicts)
    sides = sorted({side for each in conflicts for side in (each.ours, each.theirs)}, key=natural_key)
    hows = dict.fromkeys(each.how for each in conflicts)
    return f"{', '.join(kinds)}: {', '.join(sides)}; {', '.join(hows)}"
