"""cowfs log SOURCE: a version and its ancestors, newest first. Pruned ones are shown by their names alone."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from cowfs.cli import output

if TYPE_CHECKING:
    from cowfs.api.readable import ReadableVersion


@click.command("log")
@click.argument("source")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Show at most this many.")
@output.common_options
def command(source: str, limit: int | None, store: str | None, as_json: bool) -> None:
    """Show the versions of SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR), newest first."""
    from cowfs.api import sources
    from cowfs.api.readable import ReadableVersion
    from cowfs.cli import versions

    found = sources.find(source, store)
    past = [] if found.version is None else list(islice(ReadableVersion(found.locator()).history(), limit))
    if not past:
        output.say(as_json, f"Volume {found.volume} has no version yet")
    header = ("VERSION", "COMMITTED", "FILES", "SIZE", "UPLOADED", "AUTHOR", "MESSAGE")
    rows = [_row(version) for version in past]
    record = {"volume": found.volume, "versions": [versions.record(version) for version in past]}
    output.emit(as_json, record, output.table(header, rows) if rows else "")


def _row(version: ReadableVersion) -> tuple[str, ...]:
    name = version.locator.version.hex()[:12]
    if version.is_pruned:
        return (name, "pruned", "", "", "", "", "")
    manifest = version.manifest
    return (
        name,
        output.time(manifest.created_ns),
        str(manifest.stats.files),
        output.size(manifest.stats.bytes),
        output.size(manifest.stats.stored_bytes_added),
        output.printable(manifest.author),
        output.printable(manifest.message),
    )
