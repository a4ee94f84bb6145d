"""cowfs find: the paths of everything below SOURCE[:PATH], without a mount."""

from __future__ import annotations

import click

from cowfs.cli import completing, output

TYPES = {"f": "file", "d": "directory", "l": "symlink"}


@click.command("find")
@click.argument("place", metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@click.option("--name", metavar="PATTERN", help="Only names that match this pattern, as of `find -name`.")
@click.option("--type", "kind", type=click.Choice(list(TYPES)), help="Only files, directories, or links.")
@click.option("-0", "--null", is_flag=True, help="End each path with a NUL byte, for xargs -0.")
@output.common_options
def command(place: str, name: str | None, kind: str | None, null: bool, store: str | None, as_json: bool) -> None:
    """Print the paths of everything below PATH in SOURCE (NAME, NAME@TAG, NAME@VERSION or a
    LOCATOR). They begin at the volume's root. Links are not followed. PATH may be a pattern
    ('NAME:run-*/ckpt', in quotes): then also the paths that match it."""
    from cowfs.blocking import Store

    found = Store(store).ls(place, recursive=True, name=name, type=TYPES.get(kind or ""))
    if null and not as_json:
        with output.to_stdout():
            output.write("".join(output.name(each.path) + "\0" for each in found.entries))
        return
    text = "\n".join(output.name(each.path) for each in found.entries)
    output.emit(as_json, found, text)
