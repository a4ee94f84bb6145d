"""A tree of entries as lines of text.

├── data/
│   ├── 0001.bin
│   └── …
└── latest -> data/0001.bin
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from cowfs.base.byte_sizes import format_size


class Drawn(Protocol):
    """As `cowfs.Entry`."""

    @property
    def path(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def target(self) -> str | None: ...


def draw_tree(
    entries: Sequence[Drawn],
    show: Callable[[str], str],
    *,
    top: str = "/",
    cut: Collection[str] = (),
    with_sizes: bool = False,
) -> Iterator[str]:
    """A line for each entry below `top`; each directory precedes its contents. show: makes a name
    printable. cut: paths of directories that have more entries than these; each gets a line "…"."""
    rows = list(_mark_cut(entries, top.rstrip("/"), cut))
    last = {path.rpartition("/")[0]: path for path, _ in rows}
    for path, entry in rows:
        above, indent = path.rpartition("/")[0], ""
        while above and (at := above.rpartition("/")[0]) in last:
            indent = ("    " if last[at] == above else "│   ") + indent
            above = at
        corner = "└── " if last[path.rpartition("/")[0]] == path else "├── "
        yield indent + corner + ("…" if entry is None else _describe(entry, show, with_sizes))


def _mark_cut(entries: Sequence[Drawn], top: str, cut: Collection[str]) -> Iterator[tuple[str, Drawn | None]]:
    """Path and entry; None: the directory has more entries. No name has a null byte."""
    around = [top]
    for each in (*entries, None):
        while around and (each is None or not each.path.startswith(f"{around[-1]}/")):
            left = around.pop()
            if (left or "/") in cut:
                yield f"{left}/\0", None
        if each is not None:
            yield each.path, each
            if each.type == "directory":
                around.append(each.path)


def _describe(entry: Drawn, show: Callable[[str], str], with_sizes: bool) -> str:
    mark = "/" if entry.type == "directory" else f" -> {entry.target}" if entry.target is not None else ""
    size = f"  {format_size(entry.size)}" if with_sizes and entry.type == "file" else ""
    return show(entry.name + mark) + size
