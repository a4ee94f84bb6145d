"""cowfs du: how much lies below each directory of SOURCE[:PATH], without a mount."""

from __future__ import annotations

import dataclasses

import click

from cowfs.cli import completing, output


@click.command("du")
@click.argument("place", metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@click.option("-s", "--summarize", is_flag=True, help="Only the sum.")
@output.common_options
def command(place: str, summarize: bool, store: str | None, as_json: bool) -> None:
    """Show size and number of the files below each directory of PATH in SOURCE (NAME, NAME@TAG,
    NAME@VERSION or a LOCATOR). Sizes are those that programs read; the store has less."""
    from cowfs import sizes
    from cowfs.api import looking

    found = looking.usage(place, store)
    shown = found.directories[-1:] if summarize else found.directories
    header = ("SIZE", "FILES", "PATH")
    rows = [(sizes.shown(each.bytes), str(each.files), output.printable(each.path)) for each in shown]
    record = {"locator": found.locator, "directories": [dataclasses.asdict(each) for each in shown]}
    output.emit(as_json, record, output.table(header, rows))
