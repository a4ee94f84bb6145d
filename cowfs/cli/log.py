"""cowfs log SOURCE: a version and its ancestors, newest first. Pruned ones are shown by their names
alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs import sizes
from cowfs.cli import completing, output

if TYPE_CHECKING:
    from cowfs.blocking import ROVolume


@click.command("log")
@click.argument("source", shell_complete=completing.volumes)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Show at most this many.")
@output.common_options
def command(source: str, limit: int | None, store: str | None, as_json: bool) -> None:
    """Show the versions of SOURCE (NAME, NAME@TAG, NAME@VERSION or a LOCATOR), newest first."""
    from cowfs.api import sources
    from cowfs.blocking import Volume
    from cowfs.cli import versions

    found = sources.find(source, store)
    past = [] if found.version is None else Volume.from_locator(found.locator()).history(limit)
    if not past:
        output.say(as_json, f"Volume {found.volume} has no version yet")
    has_links = any(not version.is_pruned and version.stats.linked_bytes for version in past)
    header = (
        "VERSION",
        "COMMITTED",
        "FILES",
        "SIZE",
        *(("LINKED",) if has_links else ()),
        "UPLOADED",
        "AUTHOR",
        "MESSAGE",
    )
    rows = [_row(version, has_links=has_links) for version in past]
    record = {"volume": found.volume, "versions": [versions.record(version) for version in past]}
    output.emit(as_json, record, output.table(header, rows) if rows else "")


def _row(version: ROVolume, *, has_links: bool) -> tuple[str, ...]:
    name = version.id[:12]
    if version.is_pruned:
        return (name, "pruned", *("",) * (6 if has_links else 5))
    return (
        name,
        output.time(version.created_ns),
        str(version.stats.files),
        sizes.shown(version.stats.bytes),
        *((sizes.shown(version.stats.linked_bytes),) if has_links else ()),
        sizes.shown(version.stats.stored_bytes_added),
        output.printable(version.author),
        output.printable(version.message),
    )
