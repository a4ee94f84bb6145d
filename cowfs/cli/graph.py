r"""A history as lanes beside its lines, as `git log --graph` draws it.

    *      a version
    |\     a merge: its parents go on in lanes of their own
    * |    a version of the first line
    | *    a merged version
    |/     both came from one version
    *

Versions are given newest first. A parent that was shown before its child, since the clocks of two
machines disagreed, gets no lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Graph:
    """lanes: the versions that are expected next, from left to right."""

    def __init__(self) -> None:
        self._lanes: list[str] = []
        self._shown: set[str] = set()

    def lines(self, version: str, parents: Sequence[str]) -> list[str]:
        """The lanes beside the version, then those between it and the next one."""
        if version not in self._lanes:
            self._lanes.append(version)
        lanes, at = self._lanes, self._lanes.index(version)
        self._shown.add(version)
        mark = " ".join("*" if each == version else "|" for each in lanes)
        left = [parent for parent in dict.fromkeys(parents) if parent not in self._shown]
        added = [parent for parent in left if parent not in lanes]
        self._lanes = lanes[:at] + added + lanes[at + 1 :]
        edges = {(place, self._lanes.index(each)) for place, each in enumerate(lanes) if place != at}
        edges |= {(at, self._lanes.index(parent)) for parent in left}
        return [mark, *_connect(edges)]


def _connect(edges: set[tuple[int, int]]) -> Iterator[str]:
    """Each line moves every edge by one lane at most."""
    while any(start != end for start, end in edges):
        places: dict[int, str] = {}
        moved = set()
        for start, end in sorted(edges):
            step = (end > start) - (end < start)
            places[2 * start + step] = {0: "|", 1: "\\", -1: "/"}[step]
            moved.add((start + step, end))
        yield "".join(places.get(place, " ") for place in range(max(places) + 1))
        edges = moved
