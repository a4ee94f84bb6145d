"""cowfs tree: shows the tree below SOURCE[:PATH], without a mount."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.rendering import draw_tree


@click.command("tree")
@click.argument("place", metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@output.common_options
def command(place: str, store: str | None, as_json: bool) -> None:
    """Show everything below PATH in SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR) as a tree.
    Links are not followed."""
    from cowfs.blocking import Store

    found = Store(store).ls(place, recursive=True)
    text = "\n".join([output.name(place), *draw_tree(found.entries, output.name)])
    output.emit(as_json, found, text)
