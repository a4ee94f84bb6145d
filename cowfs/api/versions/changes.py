"""The differences between two versions, as values: the results of `ROVolume.diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from cowfs.api.versions import cards
from cowfs.api.versions.version_list import MOST_SHOWN, frame
from cowfs.version.named_changes import Change

__all__ = ["Change", "Changes", "Located", "Source", "Sources"]


class Changes(list[Change]):
    """The paths that differ, in their order: a list of `Change`, whose repr counts them and shows
    the first ones."""

    def __repr__(self) -> str:
        counts = Counter(each.kind for each in self)
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        title = f"{len(self):,} change{'s' * (len(self) != 1)}{f': {kinds}' if kinds else ''}"
        return frame(title, [_describe(each) for each in self[:MOST_SHOWN]], len(self))

    def _repr_html_(self) -> str:
        return cards.show_changes(self)


def _describe(change: Change) -> str:
    path = repr(change.path)
    return f"{change.kind:<8} {path if change.old_path in (None, change.path) else f'{change.old_path!r} -> {path}'}"


class Located(Protocol):
    """A version, blocking or async."""

    @property
    def locator(self) -> str: ...


Source: TypeAlias = "Located | str"
"""A version, or a text that names one, as for `Volume.version`, in the same store."""
Sources: TypeAlias = "Iterable[Source] | Source"
