"""The upper part of a version's tree, as a value: the result of `ROVolume.tree`.

    /
    ├── data/
    │   ├── 0001.bin  4.0 KiB
    │   └── …
    └── README.md  1.2 KiB

It is read from the version's index, level by level, and only as far as it is shown: a directory of
a million files costs one page of its entries. Directories of a level share what is left of the
limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from cowfs.api import arguments, sources
from cowfs.api.files import Entry
from cowfs.api.versions.index_files import IndexedFiles
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base import cards
from cowfs.base.errors import InvalidInputError
from cowfs.base.tree_drawing import draw_tree


@dataclass(frozen=True)
class VersionTree:
    """Entries below a path of a version, each directory before its contents. path: of the
    directory, or of the single entry of another kind. depth: the number of levels. cut: the paths
    of directories that have more entries than `entries` has."""

    locator: str
    path: str
    depth: int
    entries: list[Entry]
    cut: frozenset[str] = field(default_factory=frozenset)

    def __str__(self) -> str:
        lines = draw_tree(self.entries, cards.visible, top=self.path, cut=self.cut, with_sizes=True)
        return "\n".join([cards.visible(self.path), *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        by_level = sorted(self.entries, key=lambda each: each.path.count("/"))
        count = cards.MOST_ROWS
        while len(lines := self._draw_some({each.path for each in by_level[:count]})) > cards.MOST_ROWS:
            count -= 1
        return cards.render(cards.Card(self.path, text=lines, note=self.locator))

    def _draw_some(self, shown: set[str]) -> list[str]:
        """With "…" in place of the other entries."""
        entries = [each for each in self.entries if each.path in shown]
        hidden = {each.path.rpartition("/")[0] or "/" for each in self.entries if each.path not in shown}
        cut = {each for each in hidden | self.cut if each in shown or each == self.path}
        return list(draw_tree(entries, cards.visible, top=self.path, cut=cut, with_sizes=True))


def read_tree(version: LocatedVersion, path: str | os.PathLike[str], depth: int, limit: int) -> VersionTree:
    """`ROVolume.tree`."""
    from cowfs.api.versions.comparing import open_index_of

    version = version.resolve()
    with open_index_of(version) as index:
        return look_at(IndexedFiles(index, version.folder), version.locator, path, depth, limit)


def look_at(files: IndexedFiles, locator: str, path: str | os.PathLike[str], depth: int, limit: int) -> VersionTree:
    arguments.limit(limit)
    if depth < 1:
        raise InvalidInputError(f"a tree of depth {depth} shows nothing", hint="Give 1 or more.")
    top = os.fsdecode(b"/" + sources.place(f":{os.fspath(path)}").path)
    entry = files.stat(top)
    if entry.type != "directory":
        return VersionTree(locator, top, depth, [entry])
    below, cut = _descend(files, top, depth, limit)
    return VersionTree(locator, top, depth, list(_order(below, top)), frozenset(cut))


def _descend(files: IndexedFiles, top: str, depth: int, limit: int) -> tuple[dict[str, list[Entry]], set[str]]:
    """The entries of each directory, and the directories that have more."""
    below: dict[str, list[Entry]] = {}
    cut, level, left = set(), [top], limit
    for _ in range(depth):
        for number, directory in enumerate(level):
            share = max(left // (len(level) - number), min(left, 1))
            found = list(islice(files.ls(directory), share + 1)) if share else []
            if not share or len(found) > share:
                cut.add(directory)
            below[directory] = found[:share]
            left -= len(below[directory])
        level = [each.path for directory in level for each in below[directory] if each.type == "directory"]
    return below, cut


def _order(below: dict[str, list[Entry]], top: str) -> Iterator[Entry]:
    waiting = [iter(below[top])]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            continue
        yield entry
        waiting.append(iter(below.get(entry.path, ())))
