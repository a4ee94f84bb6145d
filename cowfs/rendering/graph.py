"""A history as a tree beside its lines.

    *      a merge of three
    ├─*    the second parent
    │ *    the version that it was made from             from 3f2a…
    ├─*    the third parent                              from 3f2a…
    *      the first parent of the merge: it has the changes of this line before the merge
    *      3f2a…

The first parents of a version are one line, straight down. Each further parent of a merge begins a
line to the right, which ends before the version that another line has; `from` then names that
version. So a line never crosses another one, however many are merged. Versions that were given and
lead nowhere else begin lines of their own.

A version follows every version that was made from it, unless clocks disagree: the order within a
line is that of parents, not of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Drawn(NamedTuple):
    """lanes: what stands beside the version. others: its parents that the drawing does not show."""

    version: str
    lanes: str
    others: tuple[str, ...]


def draw(history: Mapping[str, Sequence[str]]) -> list[Drawn]:
    """history: the parents of each version, newest first."""
    lines = _Lines(history)
    return [drawn for root in lines.roots for drawn in lines.draw(root)]


class _Lines:
    """lines: the versions of each line, by the version that begins it. owners: the merge below
    which a line is drawn. roots: lines that no merge leads to."""

    def __init__(self, history: Mapping[str, Sequence[str]]) -> None:
        self._history = history
        self._lines: dict[str, list[str]] = {}
        self._owners: dict[str, str] = {}
        self._taken: set[str] = set()
        self.roots: list[str] = []
        for version in history:
            if version not in self._taken:
                self.roots.append(version)
                self._collect(version)

    def _collect(self, root: str) -> None:
        """Assigns the versions to lines. What two merges of a line have merged belongs to the older
        one, and so stands below both."""
        waiting = [("", root)]
        while waiting:
            owner, version = waiting.pop()
            if version in self._taken or version not in self._history:
                continue
            self._owners[version] = owner
            line = self._lines[version] = []
            while version in self._history and version not in self._taken:
                self._taken.add(version)
                line.append(version)
                version = next(iter(self._history[version]), "")
            waiting += [(each, parent) for each in line for parent in reversed(self._history[each][1:])]

    def draw(self, root: str) -> Iterator[Drawn]:
        waiting = [self._parts(root, "", "")]
        while waiting:
            part = next(waiting[-1], None)
            if part is None:
                waiting.pop()
            elif isinstance(part, Drawn):
                yield part
            else:
                waiting.append(self._parts(*part))

    def _parts(self, start: str, first: str, rest: str) -> Iterator[tuple[str, str, str] | Drawn]:
        """The versions of a line, each before the lines that begin at it. first, rest: what stands
        to the left of its first version, and of the others."""
        line = self._lines[start]
        for version, below in zip(line, [*line[1:], None], strict=True):
            parents = list(dict.fromkeys(self._history[version]))
            own = [parent for parent in parents[1:] if self._owners.get(parent) == version]
            yield Drawn(version, f"{first if version == start else rest}*", self._others(parents, below, own))
            for parent in own:
                is_corner = below is None and parent == own[-1]
                yield parent, rest + ("└─" if is_corner else "├─"), rest + ("  " if is_corner else "│ ")

    def _others(self, parents: Sequence[str], below: str | None, own: Sequence[str]) -> tuple[str, ...]:
        """The parents that the drawing does not show. A line whose first parent was not given ends
        there, as the log does."""
        first = parents[:1] if below is None and parents and parents[0] in self._history else []
        return (*first, *(parent for parent in parents[1:] if parent not in own))
