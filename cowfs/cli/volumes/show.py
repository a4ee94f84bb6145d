"""cowfs show SOURCE: the recorded details of one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.rendering import count, format_size, format_time, printable

if TYPE_CHECKING:
    from cowfs.blocking import ROVolume, VersionNames


@click.command("show")
@click.argument("source", shell_complete=completing.volumes)
@output.common_options
def command(source: str, store: str | None, as_json: bool) -> None:
    """Show the record of SOURCE (NAME: its last version, NAME@TAG, NAME@VERSION or a LOCATOR):
    message, author, parents, labels, origin, size and tags. `cowfs diff` shows its changes."""
    from cowfs.blocking import Volume
    from cowfs.cli import versions

    version = Volume.version(source, store=store)
    names = version.names()
    output.emit(as_json, versions.record_named(version, names), _text(version, names))


def _text(version: ROVolume, names: VersionNames) -> str:
    stats = version.stats
    linked = f", {format_size(stats.linked_bytes)} of them linked" if stats.linked_bytes else ""
    held = count(stats.files, "file"), count(stats.directories, "directory")
    rows = [
        ("version", version.id),
        ("locator", version.locator),
        ("volume", version.name),
        ("made in", version.made_in if version.made_in != version.name else ""),
        ("tags", ", ".join(names.tags)),
        ("pruned", "a collection may delete it" if names.is_collectable else ""),
        ("committed", format_time(version.created_ns)),
        ("author", version.author),
        ("message", version.message),
        *(("parent", parent) for parent in version.parents),
        *((f"label {key}", value) for key, value in sorted(version.labels.items())),
        *((key, value) for key, value in sorted(version.produced_by.items())),
        ("size", ", ".join((f"{format_size(stats.bytes)}{linked}", *held))),
        (
            "new",
            f"{format_size(stats.added_bytes)}, {format_size(stats.stored_bytes_added)} uploaded",
        ),
    ]
    return "\n".join(f"{key:<13} {printable(value)}" for key, value in rows if value)
