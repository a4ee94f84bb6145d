"""cowfs index export SOURCE FILE: writes the index of a version to a file."""

from __future__ import annotations

import click

from cowfs.cli import completing, output
from cowfs.errors import NotFoundError
from cowfs.rendering import format_size


@click.command("index")
@click.argument("action", type=click.Choice(["export"]))
@click.argument("source", shell_complete=completing.volumes)
@click.argument("file", type=click.Path(dir_okay=False))
@output.common_options
def command(action: str, source: str, file: str, store: str | None, as_json: bool) -> None:
    """Write the index of SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR) to FILE.
    `cowfs explore --from-file FILE` shows its tree without the store.

    FILE has all names, sizes, times and attributes in plain text, also those of an encrypted store,
    and no contents of files."""
    import os

    from cowfs.blocking import Store

    if not os.path.isdir(directory := os.path.dirname(file) or "."):
        raise NotFoundError(f"the directory {directory} does not exist", hint="Make it first, or give another FILE.")
    version = Store(store).version(source)
    version.export_index(file)
    size = os.stat(file).st_size
    record = {"locator": version.locator, "file": file, "bytes": size}
    output.emit(as_json, record, f"Wrote the index of {version.name}@{version.id[:12]} to {file}: {format_size(size)}")
