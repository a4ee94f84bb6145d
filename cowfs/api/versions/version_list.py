"""Versions, newest first, as `history` returns them: a list whose repr reads as a log.

<3 versions
  91f1ab05e2c4  2026-12-01 09:59:03+01:00  'epoch 3'  loss=0.25
  …>
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, TypeVar

from cowfs.api.versions import cards
from cowfs.base.quantities import format_time

if TYPE_CHECKING:
    from cowfs.api.ro_volume import ROVolume

T = TypeVar("T")

MOST_SHOWN = 10


class VersionList(list["ROVolume"]):
    def __repr__(self) -> str:
        return frame(count_versions(self), [describe(each) for each in self[:MOST_SHOWN]], len(self))

    def _repr_html_(self) -> str:
        return cards.show_versions(self, count_versions(self))


def count_versions(versions: Sized) -> str:
    return f"{len(versions):,} version{'s' * (len(versions) != 1)}"


def describe(version: ROVolume) -> str:
    """One line about a version. Makes no request, also for one that came out of a pickle."""
    if version.is_pruned:
        return f"{version.id[:12]}  not here"
    if not version.is_resolved:
        return repr(version)
    labels = "".join(f"  {key}={value!r}" for key, value in version.labels.items())
    return f"{version.id[:12]}  {format_time(version.created_ns, to_the_second=True)}  {version.message!r}{labels}"


def frame(title: str, lines: list[str], total: int) -> str:
    """lines: the first ones of `total`."""
    more = [f"… {total - len(lines):,} more"] if total > len(lines) else []
    return "\n  ".join([f"<{title}", *lines, *more]) + ">"
