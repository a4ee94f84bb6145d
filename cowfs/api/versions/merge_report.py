"""The report of a merge, and the strategies for conflicts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cowfs.api.transfers.ignore_patterns import excluding
from cowfs.base.errors import InvalidInputError
from cowfs.base.short_repr import has_card, short_repr
from cowfs.version.merge.conflicts import HOWS, Conflict, How, Resolve, describe_by_path

Strategy: TypeAlias = Mapping[str, str] | Callable[[Conflict], str] | str | None
"""How conflicts are resolved: one way for all, one for each pattern of paths (as in .gitignore; the
last match counts), or a function of the conflict. None: conflicts are not resolved."""


@has_card
@dataclass(frozen=True)
class MergedPath:
    """The change to one path of the target."""

    path: str
    kind: Literal["added", "removed", "changed"]


@short_repr
@dataclass(frozen=True)
class MergeReport:
    """locator: of the target's last version; is_new: whether this merge made it. merged_locators:
    locators of the branches that this merge added; branches merged before are not included.
    changes: paths of the target that are added, removed or changed. conflicts: each with its
    resolution; for a dry run also the conflicts that would prevent publishing."""

    locator: str
    is_new: bool
    merged_locators: list[str]
    changes: list[MergedPath]
    conflicts: list[Conflict]

    def describe_conflicts(self) -> dict[str, str]:
        """One text for each path in conflict, in natural order: what happened to it, in which
        branches, and how it is resolved."""
        return describe_by_path(self.conflicts)


def resolver(strategy: Strategy) -> Resolve:
    """InvalidInputError: there is no such strategy, or a pattern is invalid."""
    if callable(strategy):
        asked = strategy
        return lambda conflict: _check(asked(conflict))
    if strategy is None or isinstance(strategy, str):
        how = _check(strategy or "fail")
        return lambda conflict: how
    from cowfs.transfer.upload.upload_plan import is_left_out

    ways = [(excluding([pattern]), _check(given)) for pattern, given in strategy.items()]

    def resolve(conflict: Conflict) -> How:
        path = os.fsencode(conflict.path.lstrip("/"))
        for covers, how in reversed(ways):
            if is_left_out(covers, path):
                return how
        return "fail"

    return resolve


def _check(how: str) -> How:
    for known in HOWS:
        if how == known:
            return known
    raise InvalidInputError(
        f"{how!r} is no way to resolve a conflict",
        hint=f"Use one of {', '.join(HOWS)}.",
    )
