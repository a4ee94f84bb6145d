"""What a merge tells, and how conflicts are to be resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cowfs.errors import InvalidInputError
from cowfs.version.conflicts import HOWS, Conflict, How, Resolve

Strategy: TypeAlias = Mapping[str, str] | Callable[[Conflict], str] | str | None
"""How conflicts are resolved: one way for all, one for each pattern of paths (as in .gitignore; the
last that fits counts), or a function of the conflict. None: not at all."""


@dataclass(frozen=True)
class MergedPath:
    """What becomes of one path of the target."""

    path: str
    kind: Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class MergeReport:
    """locator: of the target's last version; is_new: whether this merge made it. merged: locators
    of the branches that it now has besides; those that it had before are not among them. paths: of
    the target that are added, removed or changed. conflicts: with what was done about each; of a
    dry run also those that would keep it from being published."""

    locator: str
    is_new: bool
    merged: list[str]
    paths: list[MergedPath]
    conflicts: list[Conflict]


def resolver(strategy: Strategy) -> Resolve:
    """InvalidInputError: there is no such way, or a pattern is none."""
    if callable(strategy):
        asked = strategy
        return lambda conflict: _checked(asked(conflict))
    if strategy is None or isinstance(strategy, str):
        how = _checked(strategy or "fail")
        return lambda conflict: how
    from pathspec import GitIgnoreSpec

    ways: list[tuple[GitIgnoreSpec, How]] = []
    for pattern, given in strategy.items():
        how = _checked(given)
        try:
            ways.append((GitIgnoreSpec.from_lines([pattern]), how))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{pattern!r} is no pattern: {error}", hint="Give patterns as in .gitignore."
            ) from error

    def resolve(conflict: Conflict) -> How:
        for pattern, how in reversed(ways):
            if pattern.match_file(conflict.path.lstrip("/")):
                return how
        return "fail"

    return resolve


def _checked(how: str) -> How:
    for known in HOWS:
        if how == known:
            return known
    raise InvalidInputError(
        f"{how!r} is no way to resolve a conflict",
        hint=f"Use one of {', '.join(HOWS)}.",
    )
