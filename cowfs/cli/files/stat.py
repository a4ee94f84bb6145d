"""cowfs stat: shows the entry at SOURCE:PATH, without a mount."""

from __future__ import annotations

import stat

import click

from cowfs.cli import completing, output
from cowfs.rendering import format_time


@click.command("stat")
@click.argument("place", metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@output.common_options
def command(place: str, store: str | None, as_json: bool) -> None:
    """Show type, size, mode and time of PATH in SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR).
    A link is followed."""
    from cowfs.blocking import Store

    found = Store(store).stat(place)
    entry = found.entry
    rows = [
        ("path", output.name(entry.path)),
        ("type", entry.type),
        ("size", f"{entry.size} bytes"),
        ("mode", f"{stat.filemode(entry.mode)} ({stat.S_IMODE(entry.mode):04o})"),
        ("changed", format_time(entry.mtime_ns)),
        ("version", found.locator),
    ]
    record = {"locator": found.locator, **output.fields_of(entry)}
    output.emit(as_json, record, "\n".join(f"{name:<9}{text}" for name, text in rows))
