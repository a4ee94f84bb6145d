"""cowfs tree: shows the tree below SOURCE[:PATH], without a mount."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output

if TYPE_CHECKING:
    from cowfs.blocking import Entry


@click.command("tree")
@click.argument("place", metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@output.common_options
def command(place: str, store: str | None, as_json: bool) -> None:
    """Show everything below PATH in SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR) as a tree.
    Links are not followed."""
    from cowfs.blocking import Store

    found = Store(store).ls(place, recursive=True)
    text = "\n".join([output.name(place), *_lines(found.entries)])
    output.emit(as_json, dataclasses.asdict(found), text)


def _lines(entries: list[Entry]) -> Iterator[str]:
    """Each directory precedes its contents."""
    last = {each.path.rpartition("/")[0]: each.path for each in entries}
    for each in entries:
        above, indent = each.path.rpartition("/")[0], ""
        while above and (at := above.rpartition("/")[0]) in last:
            indent = ("    " if last[at] == above else "│   ") + indent
            above = at
        mark = "/" if each.type == "directory" else f" -> {each.target}" if each.target is not None else ""
        corner = "└── " if last[each.path.rpartition("/")[0]] == each.path else "├── "
        yield indent + corner + output.name(each.name + mark)
